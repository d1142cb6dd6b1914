"""Pictures of models and predictions. Each function draws into `ax`, or into a new figure, and returns the Axes.

More rows than a picture can show are binned or sampled, and a note above the axes says so.
"""

from gigagp.plotting.calibration import calibration_curve, pit_histogram
from gigagp.plotting.cells import partition_map
from gigagp.plotting.classes import class_calibration, class_confidence, class_map
from gigagp.plotting.evidence import evidence_trace
from gigagp.plotting.grids import grid_map
from gigagp.plotting.hierarchy import tree_of_workers
from gigagp.plotting.influence import influence, influences, levels
from gigagp.plotting.learning import LearningPoint, learning_curve, learning_points
from gigagp.plotting.noise import noise_along
from gigagp.plotting.predictive import band, predictive_band, predictive_map
from gigagp.plotting.prequential import prequential_curve
from gigagp.plotting.relevance import relevance
from gigagp.plotting.residuals import predicted_against_true, residual_map, residuals_along

__all__ = [
    "LearningPoint",
    "band",
    "calibration_curve",
    "class_calibration",
    "class_confidence",
    "class_map",
    "evidence_trace",
    "grid_map",
    "influence",
    "influences",
    "learning_curve",
    "learning_points",
    "levels",
    "noise_along",
    "partition_map",
    "pit_histogram",
    "predicted_against_true",
    "predictive_band",
    "predictive_map",
    "prequential_curve",
    "relevance",
    "residual_map",
    "residuals_along",
    "tree_of_workers",
]

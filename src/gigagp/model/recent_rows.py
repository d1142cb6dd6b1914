"""The last arriving rows that were predicted before they were learnt, and the calibration that follows from them.

The held-out rows of a fit are predicted from rows of the same time. Rows that arrive later may differ, so that their
errors are larger than those that the calibration was learnt from. They were predicted before they were learnt, so a
calibration can be learnt from these predictions, without any further ones.
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.model.calibration import LEAST_ROWS, Calibration
from gigagp.model.latent import LatentPrediction

# Columns of the array, in the model's units.
ARRIVAL = 0  # number of the row
TARGET = 1
MEAN = 2
VARIANCE = 3  # of f
MISFIT = 4
NOISE = 5  # of the row; negative where it is the model's own
COLUMNS = 6
KEPT = 4096  # rows


def scored(arrivals: Array, targets: Array, prediction: LatentPrediction) -> Array:
    """Predictions of rows and their targets as one array."""
    assert prediction.variance is not None
    assert prediction.misfit is not None
    noise = np.full(len(targets), -1.0) if prediction.noise is None else prediction.noise
    columns = (arrivals, targets, prediction.mean, prediction.variance, prediction.misfit, noise)
    return np.column_stack([np.asarray(column, float) for column in columns])[-KEPT:]


def appended(recent: Array | None, rows: Array) -> Array:
    """The rows with others that have arrived later; the oldest ones leave."""
    return rows if recent is None else np.concatenate([recent, rows])[-KEPT:]


def prediction_of(recent: Array) -> LatentPrediction:
    """The predictions that the array has."""
    noise = recent[:, NOISE]
    return LatentPrediction(
        recent[:, MEAN], recent[:, VARIANCE], recent[:, MISFIT], None if (noise < 0).any() else noise
    )


def recalibrated(present: Calibration, recent: Array | None, gaussian: bool) -> Calibration | None:
    """The calibration of the recent rows; None where it would not have predicted them better than the present one.

    A calibration that is learnt from the first half of the rows must predict the second half better.
    """
    if recent is None or present.setting is None or len(recent) < 4 * LEAST_ROWS:
        return None
    setting, half = present.setting, len(recent) // 2
    earlier, later = recent[:half], recent[half:]

    def learnt(rows: Array) -> Calibration:
        prediction, y = prediction_of(rows), rows[:, TARGET]
        return Calibration.learnt(prediction, y, setting, gaussian).refined(prediction, y)

    trial = learnt(earlier)
    if not trial.rows:
        return None
    losses = [each.losses(prediction_of(later), later[:, TARGET]).mean() for each in (trial, present)]
    if not losses[0] < losses[1]:
        return None
    return learnt(recent)

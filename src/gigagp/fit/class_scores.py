"""Scores of candidate models of classes on held-out rows: the log loss of calibrated probabilities."""

from __future__ import annotations

from dataclasses import dataclass

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.fit.held_out_scores import CALIBRATION_ROWS, HeldOutScore, expected_queries
from gigagp.likelihoods import Classes
from gigagp.model import laplace_neighbourhood
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.laplace_neighbourhood import LatentFunctions
from gigagp.model.neighbourhood import Neighbourhood

_DOUBLING_GAIN = 0.001  # relative gain of the log loss for which the number of neighbours is doubled
_PREDICTION_WORK = 2e11  # multiplications that the expected queries may take: some 15 seconds on two cores
# k parameters of the link that are learnt from n labels change probabilities by about sqrt(k p (1 - p) / n), which
# exceeds .01 with four parameters and 2,000 labels. Gains of more neighbours are hardly visible in so few, either.
_EFFORT = 4.0  # times as many held-out rows as for numbers calibrate the model and compare numbers of neighbours
_MORE_WORK = 4.0  # times as much work as for numbers: a label says little, so that scores need more rows


@dataclass(frozen=True, eq=False)
class ClassScoring:
    """Targets that are classes: the loss is minus the logarithm of the probability of a row's class."""

    classes: Classes
    doubling_gain: float = _DOUBLING_GAIN
    regular_gains: bool = True  # losses of single rows vary so much that gains are hardly visible on their own

    @property
    def effort(self) -> float:
        return _EFFORT

    @property
    def calibration_rows(self) -> int:
        return int(_EFFORT * CALIBRATION_ROWS)

    def work(self, model: Neighbourhood) -> float:
        return laplace_neighbourhood.work(model, self.classes) / _MORE_WORK

    def is_affordable(self, model: Neighbourhood) -> bool:
        queries = expected_queries(len(model.store.y))
        return queries * laplace_neighbourhood.work(model, self.classes) <= _PREDICTION_WORK

    def predict(self, model: Neighbourhood, X: Array, engine: Engine, rows: Array) -> LatentFunctions:
        return laplace_neighbourhood.predict(model, self.classes, X, engine, held_out=rows)

    def joined(self, first: LatentFunctions, second: LatentFunctions) -> LatentFunctions:
        return LatentFunctions.joined([first, second])

    def score(self, rows: Array, y: Array, prediction: LatentFunctions, model: Neighbourhood) -> HeldOutScore:
        prior = laplace_neighbourhood.prior_variance(model)
        weights = self.classes.weights_of(y, model.store.noise_of(rows))
        calibration = ClassCalibration.learnt(self.classes, prediction, y, prior, weights)
        losses = weights * calibration.losses(self.classes, prediction, y, prior)
        return HeldOutScore(rows, y, prediction, calibration, losses)

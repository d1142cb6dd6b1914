"""Scores of candidate models of targets with a likelihood of their own: the log loss of held-out rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.fit.held_out_scores import CALIBRATION_ROWS, HeldOutScore
from gigagp.model import laplace_neighbourhood
from gigagp.model.laplace_neighbourhood import LatentFunctions
from gigagp.model.likelihood_model import LikelihoodModel
from gigagp.model.neighbourhood import Neighbourhood

_DOUBLING_GAIN = 0.002  # nats per row for which the number of neighbours is doubled: one target says little
_MORE_WORK = 4.0  # times as much work as for Gaussian targets: Newton's method takes several factorisations


@dataclass(frozen=True, eq=False)
class LikelihoodScoring:
    """The loss of a row is minus the logarithm of the probability, or density, of its target."""

    model: LikelihoodModel
    doubling_gain: float = _DOUBLING_GAIN
    regular_gains: bool = False
    effort: float = 1.0

    @property
    def calibration_rows(self) -> int:
        return CALIBRATION_ROWS

    def work(self, model: Neighbourhood) -> float:
        return laplace_neighbourhood.work(model, self.model.latents) / _MORE_WORK

    def is_affordable(self, model: Neighbourhood) -> bool:
        return True

    def predict(self, model: Neighbourhood, X: Array, engine: Engine, rows: Array) -> LatentFunctions:
        return self.model.predict(model, X, engine, rows)

    def joined(self, first: LatentFunctions, second: LatentFunctions) -> LatentFunctions:
        return LatentFunctions.joined([first, second])

    def score(self, rows: Array, y: Array, prediction: LatentFunctions, model: Neighbourhood) -> HeldOutScore:
        weights = self.model.latents.weights_of(y, model.store.noise_of(rows))
        own = self.model.calibrated(prediction, y, weights, model)
        losses = -weights * own.distribution(prediction, model).log_pdf(y)
        return HeldOutScore(rows, y, prediction, own.calibration, np.asarray(losses), 1.0)

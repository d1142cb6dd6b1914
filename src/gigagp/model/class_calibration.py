"""From latent functions to probabilities of classes: the link, applied once, with a temperature from held-out rows.

For each latent function with mean mu and variance v at a query, prior mean m and prior variance k, and share s of its
class:

    score = ln s + slope * (mu / sqrt(1 + c v) - m / sqrt(1 + c k)) + offset * (1 - v / k)

Two classes have one score, with the logit of the share in place of ln s, and p = 1 / (1 + exp(-score)); more classes
have p = softmax(score). c = pi / 8 averages the logistic function over a Gaussian f (MacKay 1992). slope (one over the
temperature), c and, for two classes, offset maximise the likelihood of held-out rows. Far from all rows mu = m and
v = k, so that the probabilities are the shares of the classes, whatever the parameters are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from gigagp.arrays import Array
from gigagp.likelihoods import Classes
from gigagp.model.laplace_neighbourhood import LatentFunctions

_AVERAGING = np.pi / 8  # c of an uncalibrated model
_PRIOR_ROWS = 8.0  # rows that the prior of the parameters counts as: few held-out rows change them little
_LEAST_ROWS = 20  # held-out rows from which the parameters are learnt
_BOUNDS = ((-3.0, 3.0), (-4.0, 4.0), (-2.0, 2.0))  # of the logarithms of slope and of c / _AVERAGING, and of the offset


@dataclass(frozen=True)
class ClassCalibration:
    """The parameters of the link, how many held-out rows they were learnt from, and the log loss of these."""

    slope: float = 1.0
    averaging: float = _AVERAGING  # c
    offset: float = 0.0
    rows: int = 0
    score: float = np.nan

    def log_probabilities(self, classes: Classes, latents: LatentFunctions, prior: float) -> Array:
        """The logarithms of the probabilities, one row per query and one column per class.

        prior : variance of the latent functions before any row is known
        """
        shrunk = latents.mean / np.sqrt(1 + self.averaging * latents.variance)
        far = classes.means / np.sqrt(1 + self.averaging * prior)
        known = 1 - np.minimum(latents.variance / prior, 1.0)
        scores = self.slope * (shrunk - far) + self.offset * known
        if classes.latents == 1:
            score = scores[:, 0] + classes.means[0]
            return np.asarray(-np.logaddexp(0, np.stack([score, -score], axis=1)))
        return np.asarray(log_softmax(scores + np.log(classes.shares), axis=1))

    def losses(self, classes: Classes, latents: LatentFunctions, codes: Array, prior: float) -> Array:
        """Minus the log-probability of each row's class."""
        logs = self.log_probabilities(classes, latents, prior)
        return np.asarray(-logs[np.arange(len(codes)), codes.astype(int)])

    @classmethod
    def learnt(
        cls, classes: Classes, latents: LatentFunctions, codes: Array, prior: float, weights: Array
    ) -> ClassCalibration:
        """The calibration that maximises the likelihood of held-out rows, with a weak prior around no calibration."""
        if len(codes) < _LEAST_ROWS:
            return cls()

        def with_parameters(parameters: Array) -> ClassCalibration:
            slope, averaging, offset = parameters.tolist()
            return cls(
                float(np.exp(slope)), float(_AVERAGING * np.exp(averaging)), offset if classes.latents == 1 else 0.0
            )

        def loss(parameters: Array) -> float:
            losses = with_parameters(parameters).losses(classes, latents, codes, prior)
            return float((weights * losses).mean() + 0.5 * _PRIOR_ROWS / len(codes) * np.square(parameters).sum())

        best = with_parameters(np.asarray(minimize(loss, np.zeros(3), method="L-BFGS-B", bounds=_BOUNDS).x))
        score = float((weights * best.losses(classes, latents, codes, prior)).mean())
        return cls(best.slope, best.averaging, best.offset, len(codes), score)

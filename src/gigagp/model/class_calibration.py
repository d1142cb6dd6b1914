"""From latent functions to probabilities of classes: the link, applied once, with a temperature from held-out rows.

For each latent function with mean mu and variance v at a query, prior mean m and prior variance k, and share s of its
class:

    score = ln s + slope * (mu / sqrt(1 + c v) - m / sqrt(1 + c k)) + offset * (1 - v / k)

Two classes have one score, with the logit l of the share in place of ln s, and p = 1 / (1 + exp(-z)), where

    z = g(score) - g(l) + l,    g(z) = exp(skew) ln(1 + exp(z)) - exp(-skew) ln(1 + exp(-z)):

one class may be more certain where it is probable than the other (beta calibration, Kull et al. 2017, with one
parameter). Where held-out rows are many, z is corrected by (1 - v / k) d(z), where d is linear between a few knots and
constant beyond them: a link of few parameters leaves probabilities in the middle wrong by some hundredths. More classes
have p = softmax(score). c = pi / 8 averages the logistic function over a Gaussian f (MacKay 1992). slope (one over the
temperature), c and, for two classes, offset and skew maximise the likelihood of held-out rows. Far from all rows mu = m
and v = k, so that the probabilities are the shares of the classes, whatever the parameters are.

Held-out rows are weighted so that each class has its share in all rows, which is known better than from the sample.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from gigagp.arrays import Array
from gigagp.likelihoods import Classes
from gigagp.model.laplace_neighbourhood import LatentFunctions

_AVERAGING = np.pi / 8  # c of an uncalibrated model
_PRIOR_ROWS = 8.0  # rows that the prior of the parameters counts as: few held-out rows change them little
_LEAST_ROWS = 20  # held-out rows from which the parameters are learnt
_LEAST_CORRECTED_ROWS = 2048  # held-out rows from which z is corrected
_KNOTS = 10  # of the correction, at quantiles of z
_OUTERMOST = 0.02  # level of the first of these quantiles
_CORRECTION_STEP = 0.4  # standard deviation, a priori, of the difference between the corrections at two knots
_STEEPEST = 0.9  # decrease of the correction per unit of z, at most: probabilities stay increasing functions of z
# Of the logarithms of slope and of c / _AVERAGING, of the offset and of the skew.
_BOUNDS = ((-3.0, 3.0), (-4.0, 4.0), (-2.0, 2.0), (-2.0, 2.0))


@dataclass(frozen=True)
class ClassCalibration:
    """The parameters of the link, how many held-out rows they were learnt from, and the log loss of these."""

    slope: float = 1.0
    averaging: float = _AVERAGING  # c
    offset: float = 0.0
    rows: int = 0
    score: float = np.nan
    skew: float = 0.0
    knots: tuple[float, ...] = ()  # of the correction of z
    corrections: tuple[float, ...] = ()  # there

    def log_probabilities(self, classes: Classes, latents: LatentFunctions, prior: float) -> Array:
        """The logarithms of the probabilities, one row per query and one column per class.

        prior : variance of the latent functions before any row is known
        """
        shrunk = latents.mean / np.sqrt(1 + self.averaging * latents.variance)
        far = classes.means / np.sqrt(1 + self.averaging * prior)
        known = 1 - np.minimum(latents.variance / prior, 1.0)
        scores = self.slope * (shrunk - far) + self.offset * known
        if classes.latents == 1:
            share = classes.means[0]
            score = self._skewed(scores[:, 0] + share) - self._skewed(share) + share
            if self.knots:
                score = score + known[:, 0] * np.interp(score, self.knots, self.corrections)
            return np.asarray(-np.logaddexp(0, np.stack([score, -score], axis=1)))
        return np.asarray(log_softmax(scores + np.log(classes.shares), axis=1))

    def _skewed(self, z: Array) -> Array:
        """The function g."""
        return np.asarray(np.exp(self.skew) * np.logaddexp(0, z) - np.exp(-self.skew) * np.logaddexp(0, -z))

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
        weights = _stratified(classes, codes, weights)

        def with_parameters(parameters: Array) -> ClassCalibration:
            slope, averaging, offset, skew = parameters.tolist()
            if classes.latents > 1:
                offset = skew = 0.0
            return cls(float(np.exp(slope)), float(_AVERAGING * np.exp(averaging)), offset, skew=skew)

        def loss(parameters: Array) -> float:
            losses = with_parameters(parameters).losses(classes, latents, codes, prior)
            return float((weights * losses).mean() + 0.5 * _PRIOR_ROWS / len(codes) * np.square(parameters).sum())

        best = with_parameters(np.asarray(minimize(loss, np.zeros(len(_BOUNDS)), method="L-BFGS-B", bounds=_BOUNDS).x))
        if classes.latents == 1 and len(codes) >= _LEAST_CORRECTED_ROWS:
            best = best._corrected(classes, latents, codes, prior, weights)
        score = float((weights * best.losses(classes, latents, codes, prior)).mean())
        return replace(best, rows=len(codes), score=score)

    def _corrected(
        self, classes: Classes, latents: LatentFunctions, codes: Array, prior: float, weights: Array
    ) -> ClassCalibration:
        """With the correction of z that maximises the likelihood, where its steps between knots are Gaussian."""
        logs = self.log_probabilities(classes, latents, prior)
        z, known = logs[:, 1] - logs[:, 0], 1 - np.minimum(latents.variance[:, 0] / prior, 1.0)
        knots = np.unique(np.quantile(z, np.linspace(_OUTERMOST, 1 - _OUTERMOST, _KNOTS)))
        if len(knots) < 2:
            return self
        basis = np.stack([known * np.interp(z, knots, unit) for unit in np.eye(len(knots))], axis=1)

        def loss(corrections: Array) -> tuple[float, Array]:
            corrected, steps = z + basis @ corrections, np.diff(corrections) / _CORRECTION_STEP**2
            value = (weights * (np.logaddexp(0, corrected) - codes * corrected)).sum()
            slope = basis.T @ (weights * (expit(corrected) - codes))
            slope[1:] += steps
            slope[:-1] -= steps
            return float(value + 0.5 * np.diff(corrections) @ steps), slope

        best = np.asarray(minimize(loss, np.zeros(len(knots)), jac=True, method="L-BFGS-B").x)
        best = np.maximum.accumulate(best + _STEEPEST * knots) - _STEEPEST * knots
        return replace(self, knots=tuple(knots.tolist()), corrections=tuple(best.tolist()))


def _stratified(classes: Classes, codes: Array, weights: Array) -> Array:
    """Weights with which each class has its share in all rows, among the classes that occur."""
    codes = codes.astype(int)
    sums = np.bincount(codes, weights, minlength=classes.number)
    ratios = np.where(sums > 0, classes.shares / np.where(sums > 0, sums, 1.0), 0.0)
    return np.asarray(weights * ratios[codes] * sums.sum() / classes.shares[sums > 0].sum())

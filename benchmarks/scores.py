"""Scores of the accuracy comparison: losses per row, recalibrated distributions, and differences between methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from gigagp import metrics
from gigagp.arrays import Array
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.model.latent import LatentPrediction
from peers import Answer, Distribution, Prediction

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
COVERAGES = (0.5, 0.8, 0.95)  # central intervals whose ends are among LEVELS
SCORES = ("rmse", "nlpd", "crps")
_FINE = (np.arange(199) + 0.5) / 199  # levels over which the pinball loss is averaged
_SMALL_NOISE = 1e-3  # of the median variance: the noise of a method that does not separate it


class QuantileDistribution:
    """The distributions with given quantiles at LEVELS, one row per query, in ascending order.

    Between these levels, and beyond them, a quantile is linear in the normal quantile of its level: a Gaussian's
    quantiles give that Gaussian. Seven quantiles, learnt one by one, have no usable density (they may coincide), so the
    density is that of the Gaussian with the method's mean and deviation.
    """

    def __init__(self, answer: Answer, quantiles: Array) -> None:
        self._gaussian = PredictiveDistribution(answer.mean, answer.std, Shape.gaussian())
        self._quantiles, self._z = quantiles, ndtri(LEVELS)

    def log_pdf(self, y: Array) -> Array:
        """ln p(y) of the Gaussian, one value per query."""
        return self._gaussian.log_pdf(y)

    def crps(self, y: Array) -> Array:
        """The continuous ranked probability score: twice the pinball loss, averaged over all levels."""
        deviates = ndtri(_FINE)
        pieces = np.clip(np.searchsorted(self._z, deviates) - 1, 0, len(LEVELS) - 2)
        total = np.zeros(len(y))
        for level, z, piece in zip(_FINE, deviates, pieces, strict=True):
            share = (z - self._z[piece]) / (self._z[piece + 1] - self._z[piece])
            over = y - ((1 - share) * self._quantiles[:, piece] + share * self._quantiles[:, piece + 1])
            total += np.maximum(level * over, (level - 1) * over)
        return 2 * total / len(_FINE)

    def interval(self, level: float) -> tuple[Array, Array]:
        """The central interval that holds y with this probability, one of COVERAGES."""
        low, high = (int(np.argmin(np.abs(np.array(LEVELS) - end))) for end in (0.5 - level / 2, 0.5 + level / 2))
        return self._quantiles[:, low], self._quantiles[:, high]


def own_distribution(prediction: Prediction) -> Distribution:
    """The method's own distribution; the Gaussian with its mean and deviation where it gives no other."""
    if prediction.distribution is not None:
        return prediction.distribution
    return PredictiveDistribution(prediction.answer.mean, prediction.answer.std, Shape.gaussian())


def recalibrated(prediction: Prediction, truth: Array) -> PredictiveDistribution | None:
    """The distribution by our calibration, learnt from the method's held-out predictions and these rows' targets."""
    if prediction.held_out is None:
        return None
    noise = prediction.noise
    if noise is None:
        noise = _SMALL_NOISE * float(np.median(prediction.held_out.std**2))
    setting = Setting(noise, prediction.prior)
    held_out = _latent(prediction.held_out, noise)
    calibration = Calibration.learnt(held_out, truth, setting).refined(held_out, truth)
    if not calibration.rows:
        return PredictiveDistribution(prediction.answer.mean, prediction.answer.std, Shape.gaussian())
    std = np.sqrt(calibration.variance(_latent(prediction.answer, noise)))
    return PredictiveDistribution(prediction.answer.mean, std, calibration.shape)


def _latent(answer: Answer, noise: float) -> LatentPrediction:
    """Mean and variance of f; the misfit is one where the method does not have it."""
    misfit = np.ones(len(answer.mean)) if answer.misfit is None else answer.misfit
    return LatentPrediction(answer.mean, np.maximum(answer.std**2 - noise, 1e-12), misfit)


@dataclass(frozen=True)
class Losses:
    """The losses of each test row under one distribution, and the share of rows inside central intervals."""

    rmse: Array  # squared errors
    nlpd: Array
    crps: Array
    coverage: dict[str, float]

    @classmethod
    def of(cls, y: Array, mean: Array, distribution: Distribution) -> Losses:
        covered = {f"{level:g}": metrics.inside(y, *distribution.interval(level)) for level in COVERAGES}
        return cls((y - mean) ** 2, -distribution.log_pdf(y), distribution.crps(y), covered)

    @cached_property
    def scores(self) -> dict[str, float | dict[str, float]]:
        """RMSE, mean NLPD, mean CRPS and coverage."""
        return {
            "rmse": float(self.rmse.mean() ** 0.5), "nlpd": float(self.nlpd.mean()), "crps": float(self.crps.mean()),
            "coverage": self.coverage,
        }  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A mean difference, ours less theirs, with its 95% interval: negative is better."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "win"
        return "loss" if self.low > 0 else "tie"


def paired(ours: Sequence[Array], theirs: Sequence[Array]) -> Difference:
    """The mean difference over the rows that both predicted, one pair of arrays per split.

    Rows are in the same order; who ran out of time predicted the first of them. The standard error is that of the rows,
    or of the splits' means where that is larger.
    """
    apart = [a[: len(b)] - b[: len(a)] for a, b in zip(ours, theirs, strict=True)]
    means = np.array([rows.mean() for rows in apart])
    errors = np.array([rows.std(ddof=1) / len(rows) ** 0.5 for rows in apart])
    within = np.sqrt(np.sum(errors**2)) / len(means)
    between = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
    half = float(ndtri(0.975) * max(within, between))
    mean = float(means.mean())
    return Difference(mean, mean - half, mean + half)

"""Counts: y is Poisson with mean exp(f)."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincc, gammaln

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Derivatives, Likelihood

_MOST = 700.0  # largest exponent


def rate(f: Array) -> Array:
    """exp(f) without overflow."""
    return np.asarray(np.exp(np.minimum(f, _MOST)))


def are_counts(y: Array) -> Array:
    return np.asarray((y >= 0) & (y == np.floor(y)) & (y < np.inf))


class Poisson(Likelihood):
    """ln p(y | f) = y f - exp(f) - ln y!.

    The variance of a count is its mean. Where counts vary more than that around a smooth function, use
    "negative_binomial".
    """

    name = "Poisson"
    discrete = True
    lowest = 0.0
    requirement = "counts: whole numbers of at least 0"
    compiled = pointwise.POISSON

    def is_possible(self, y: Array) -> Array:
        return are_counts(y)

    def log_density(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(y * f - rate(f) - gammaln(y + 1))

    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        mu = rate(f)
        return Derivatives(y - mu, mu, -mu)

    def mean(self, f: Array) -> Array:
        return rate(f)

    def latent(self, mean: Array) -> Array:
        return np.log(mean)

    def variance(self, f: Array, d: float) -> Array:
        return rate(f)

    def cdf(self, y: Array, f: Array, d: float) -> Array:
        return np.where(y < 0, 0.0, gammaincc(np.maximum(y, 0.0) + 1, rate(f)))

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(rate(f) * self.cdf(y - 1, f, d))  # k p(k) = mu p(k - 1)

    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        return draw_counts(rate(f), rng)

    def newton_start(self, y: Array, mean: Array | float) -> Array:
        return np.log(y + 0.5)


def draw_counts(mean: Array, rng: np.random.Generator) -> Array:
    """Poisson counts as floats; NumPy cannot draw means near 2^63, whose relative deviation is negligible."""
    few = np.minimum(mean, 1e15)
    return np.asarray(np.where(mean > few, np.round(mean), rng.poisson(few)), float)

"""Positive numbers: y has a gamma distribution with mean exp(f) and variance d mean^2."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammainc, gammaln

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Derivatives, DispersionDerivatives, Likelihood
from gigagp.likelihoods.poisson import rate


class Gamma(Likelihood):
    """With shape k = 1 / d and mu = exp(f): ln p(y | f) = k ln k - ln Gamma(k) + (k - 1) ln y - k (f + y / mu).

    The standard deviation is in proportion to the mean: sqrt(d) is the coefficient of variation.
    """

    name = "gamma"
    lowest = 0.0
    has_dispersion = True
    requirement = "positive numbers"
    compiled = pointwise.GAMMA

    def is_possible(self, y: Array) -> Array:
        return np.asarray((y > 0) & (y < np.inf))

    def log_density(self, y: Array, f: Array, d: float) -> Array:
        k = 1 / d
        return np.asarray(k * np.log(k) - gammaln(k) + (k - 1) * np.log(y) - k * (f + y * rate(-f)))

    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        ratio = y * rate(-f)
        return Derivatives((ratio - 1) / d, ratio / d, ratio / d)

    def dispersion_derivatives(self, y: Array, f: Array, d: float) -> DispersionDerivatives:
        k, ratio, (slope, curvature, _) = 1 / d, y * rate(-f), self.derivatives(y, f, d)
        by_shape = k * (np.log(k) + 1 - digamma(k) + np.log(y) - f - ratio)
        return DispersionDerivatives(-by_shape, -slope, -curvature)

    def mean(self, f: Array) -> Array:
        return rate(f)

    def latent(self, mean: Array) -> Array:
        return np.log(mean)

    def variance(self, f: Array, d: float) -> Array:
        return np.asarray(d * rate(f) ** 2)

    def cdf(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(gammainc(1 / d, np.maximum(y, 0.0) * rate(-f) / d))

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(rate(f) * gammainc(1 / d + 1, np.maximum(y, 0.0) * rate(-f) / d))  # x p_k(x) = mu p_(k+1)(x)

    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        return np.asarray(rate(f) * rng.gamma(1 / d, d, np.shape(f)))

    def newton_start(self, y: Array, mean: Array | float) -> Array:
        return np.log(y)

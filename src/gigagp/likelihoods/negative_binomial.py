"""Counts that vary more than Poisson's: y is negative binomial with mean exp(f) and variance mean + d mean^2."""

from __future__ import annotations

import numpy as np
from scipy.special import betainc, digamma, gammaln

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Derivatives, DispersionDerivatives, Likelihood
from gigagp.likelihoods.poisson import are_counts, draw_counts, rate


class NegativeBinomial(Likelihood):
    """A Poisson count whose rate varies around exp(f) by a gamma variate of mean one and variance d.

    With r = 1 / d and mu = exp(f), ln p(y | f) is

        ln Gamma(y + r) - ln Gamma(r) - ln y! + y ln d + y f - (y + r) ln(1 + d mu)
    """

    name = "negative binomial"
    discrete = True
    lowest = 0.0
    has_dispersion = True
    requirement = "counts: whole numbers of at least 0"
    compiled = pointwise.NEGATIVE_BINOMIAL

    def is_possible(self, y: Array) -> Array:
        return are_counts(y)

    def log_density(self, y: Array, f: Array, d: float) -> Array:
        r = 1 / d
        constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1) + y * np.log(d)
        return np.asarray(constant + y * f - (y + r) * np.log1p(d * rate(f)))

    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        mu = rate(f)
        s = 1 + d * mu
        curvature = mu * (1 + d * y) / s**2
        return Derivatives((y - mu) / s, curvature, curvature * (d * mu - 1) / s)

    def dispersion_derivatives(self, y: Array, f: Array, d: float) -> DispersionDerivatives:
        r, mu, (slope, curvature, _) = 1 / d, rate(f), self.derivatives(y, f, d)
        s = 1 + d * mu
        part = d * mu / s
        value = y - r * (digamma(y + r) - digamma(r)) + r * np.log1p(d * mu) - (y + r) * part
        return DispersionDerivatives(value, -slope * part, d * y * mu / s**2 - 2 * curvature * part)

    def mean(self, f: Array) -> Array:
        return rate(f)

    def latent(self, mean: Array) -> Array:
        return np.log(mean)

    def variance(self, f: Array, d: float) -> Array:
        mu = rate(f)
        return np.asarray(mu + d * mu**2)

    def cdf(self, y: Array, f: Array, d: float) -> Array:
        return _cdf(y, 1 / d, 1 / (1 + d * rate(f)))

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(rate(f) * _cdf(y - 1, 1 / d + 1, 1 / (1 + d * rate(f))))  # k p_r(k) = mu p_(r+1)(k - 1)

    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        return draw_counts(rate(f) * rng.gamma(1 / d, d, np.shape(f)), rng)

    def newton_start(self, y: Array, mean: Array | float) -> Array:
        return np.log(y + 0.5)


def _cdf(y: Array, r: float, p: Array) -> Array:
    return np.where(y < 0, 0.0, betainc(r, np.maximum(y, 0.0) + 1, p))

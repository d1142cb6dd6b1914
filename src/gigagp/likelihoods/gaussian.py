"""Any number: y is Gaussian with mean f and variance d. Laplace's approximation is exact here."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Derivatives, DispersionDerivatives, Likelihood


class Gaussian(Likelihood):
    """ln p(y | f) = -(y - f)^2 / (2 d) - ln(2 pi d) / 2.

    `HGPRegressor(likelihood="gaussian")` does not use this class: the exact expressions of a Gaussian process are
    faster, and scale the target. It is here because every part of Laplace's approximation can be checked with it.
    """

    name = "Gaussian"
    has_dispersion = True
    compiled = pointwise.GAUSSIAN

    def is_possible(self, y: Array) -> Array:
        return np.isfinite(y)

    def log_density(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(-0.5 * (y - f) ** 2 / d - 0.5 * np.log(2 * np.pi * d))

    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        curvature = np.full(np.broadcast_shapes(np.shape(y), np.shape(f)), 1 / d)
        return Derivatives((y - f) / d, curvature, 0 * curvature)

    def dispersion_derivatives(self, y: Array, f: Array, d: float) -> DispersionDerivatives:
        slope, curvature, _ = self.derivatives(y, f, d)
        return DispersionDerivatives(0.5 * (y - f) ** 2 / d - 0.5, -slope, -curvature)

    def mean(self, f: Array) -> Array:
        return np.asarray(f, float)

    def latent(self, mean: Array) -> Array:
        return np.asarray(mean, float)

    def variance(self, f: Array, d: float) -> Array:
        return np.full(np.shape(f), d)

    def cdf(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(ndtr((y - f) / np.sqrt(d)))

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        z = (y - f) / np.sqrt(d)
        return np.asarray(f * ndtr(z) - np.sqrt(d / (2 * np.pi)) * np.exp(-0.5 * z**2))

    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        return np.asarray(f + np.sqrt(d) * rng.standard_normal(np.shape(f)))

"""What a likelihood is: the distribution of a target y given the latent function f at its row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise

_PARTIAL = np.polynomial.legendre.leggauss(64)  # nodes and weights
_FARTHEST = 12.0  # deviations below the mean from which `partial_mean` integrates


class Derivatives(NamedTuple):
    """Derivatives of ln p(y | f) by f: the first, minus the second, and the third."""

    slope: Array
    curvature: Array
    third: Array


class DispersionDerivatives(NamedTuple):
    """Derivatives by the logarithm of the dispersion: of ln p(y | f), of its slope, and of minus its curvature."""

    log_density: Array
    slope: Array
    curvature: Array


class Likelihood(ABC):
    """p(y | f) of a target y, given a latent function f that a Gaussian process models.

    ln p(y | f) must be a concave function of f, so that Newton's method finds its mode and Laplace's approximation is
    valid. A likelihood may have one positive parameter d, the dispersion, which is learnt with theta. All methods work
    element by element on arrays of one shape. Subclasses keep the arguments of their constructor as attributes, and do
    not change them, so that models with them can be saved. `gigagp.testing.check_likelihood` checks a subclass.
    """

    name = ""  # in reports
    discrete = False  # whether targets are whole numbers
    lowest = -np.inf  # the lowest possible target; quantiles are searched from there
    has_dispersion = False
    averages = False  # whether a target between whole numbers is the average of as many trials as its weight
    requirement = "numbers"  # what targets must be, for the message about one that is not
    compiled = pointwise.PYTHON  # the number of a built-in likelihood that is compiled

    @abstractmethod
    def is_possible(self, y: Array) -> Array:
        """Whether each number can be a target."""

    @abstractmethod
    def log_density(self, y: Array, f: Array, d: float) -> Array:
        """ln p(y | f)."""

    @abstractmethod
    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        """Derivatives of ln p(y | f) by f; the curvature is positive."""

    def dispersion_derivatives(self, y: Array, f: Array, d: float) -> DispersionDerivatives:
        """Derivatives by ln d; needed where `has_dispersion`."""
        raise NotImplementedError(f"{type(self).__name__} has a dispersion, but not the derivatives by it")

    @abstractmethod
    def mean(self, f: Array) -> Array:
        """E[y | f], an increasing function of f."""

    @abstractmethod
    def latent(self, mean: Array) -> Array:
        """The f at which E[y | f] is `mean`: the link function."""

    @abstractmethod
    def variance(self, f: Array, d: float) -> Array:
        """Var[y | f]."""

    @abstractmethod
    def cdf(self, y: Array, f: Array, d: float) -> Array:
        """P(a target of at most y | f). Discrete likelihoods are called with whole numbers."""

    @abstractmethod
    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        """One draw of y for each f."""

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        """E[y' ; y' <= y | f], which the CRPS needs. By default from `cdf`: y F(y) minus the integral of F up to y."""
        mean, deviation = self.mean(f), np.sqrt(self.variance(f, d))
        low = np.maximum(np.minimum(mean, y) - _FARTHEST * deviation, self.lowest)
        if self.discrete:
            low = np.maximum(np.floor(low), self.lowest)
            most = int(np.max(y - low, initial=0.0))
            area = np.zeros(np.broadcast_shapes(np.shape(y), np.shape(f)))
            for k in range(most):
                place = low + k
                area += np.where(place < y, self.cdf(np.minimum(place, y), f, d), 0.0)
            return np.asarray(y * self.cdf(y, f, d) - area)
        half = 0.5 * (y - low)
        parts = [w * self.cdf(low + half * (1 + t), f, d) for t, w in zip(*_PARTIAL, strict=True)]
        return np.asarray(y * self.cdf(y, f, d) - half * np.sum(parts, axis=0))

    def newton_start(self, y: Array, mean: Array | float) -> Array:
        """The f at which Newton's method is first linearised. Default the prior mean."""
        return np.broadcast_to(mean, np.shape(y)).astype(float)

    def information(self, f: Array, d: float) -> Array:
        """What one target says about f, by default as if its variance were that of its mean: (dE/df)^2 / Var."""
        step = 1e-4
        slope = (self.mean(f + step) - self.mean(f - step)) / (2 * step)
        return np.asarray(slope**2 / np.maximum(self.variance(f, d), 1e-300))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({values})"

"""The predictive distribution of y: one object from which mean, deviation, quantiles, density and samples all come.

Each query has a location and a scale; all share one shape, a mixture of Gaussians of different widths and centres.
Such mixtures include the Gaussian (one component), approximate every Student-t and skewed distributions as closely as
wanted, and always have a finite deviation. The shape has mean zero and variance one, so the location of a query is its
mean, and its scale is its standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
from scipy.special import ndtr, ndtri

from gigagp.arrays import Array

_LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)
_NEWTON_STEPS = 60  # at most; quantiles converge in a few
_BLOCK = 1 << 16  # numbers for which all components are evaluated together


@dataclass(frozen=True, eq=False)
class Shape:
    """A distribution of mean zero and variance one: the sum over j of weights[j] N(centres[j], widths[j]^2)."""

    weights: Array
    widths: Array
    centres: Array

    @classmethod
    def gaussian(cls) -> Shape:
        return cls(np.ones(1), np.ones(1), np.zeros(1))

    @classmethod
    def of(cls, weights: Array, widths: Array, centres: Array | None = None) -> Shape:
        """The mixture, moved to mean zero and scaled to variance one; without centres, these are zero."""
        centres = np.zeros(len(weights)) if centres is None else centres - np.sum(weights * centres)
        deviation = np.sqrt(np.sum(weights * (widths**2 + centres**2)))
        return cls(weights, widths / deviation, centres / deviation)

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        """The numbers that determine the shape."""
        return self.weights, self.widths, self.centres

    @property
    def mirrored(self) -> Shape:
        """The distribution of -Z."""
        return Shape(self.weights, self.widths, -self.centres)

    def size_quantile(self, levels: Array) -> Array:
        """Quantiles of |Z|: those of the mixture of Z and -Z, from its median upwards."""
        both = Shape(
            np.concatenate([self.weights, self.weights]) / 2,
            np.concatenate([self.widths, self.widths]),
            np.concatenate([self.centres, -self.centres]),
        )
        return both.quantile(0.5 + np.asarray(levels, float) / 2)

    @property
    def is_gaussian(self) -> bool:
        return len(self.weights) == 1

    def log_density(self, z: Array) -> Array:
        """ln p(z)."""
        logs = np.log(self.weights) - np.log(self.widths) - _LOG_ROOT_2PI

        def part(block: Array) -> Array:
            terms = logs - 0.5 * self._of_components(block) ** 2
            top = terms.max(axis=1)
            return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))

        return _in_blocks(part, z)

    def cdf(self, z: Array) -> Array:
        """The probability of a smaller value."""
        return _in_blocks(lambda block: np.asarray((ndtr(self._of_components(block)) * self.weights).sum(axis=1)), z)

    def quantile(self, levels: Array) -> Array:
        """The inverse of `cdf`: Newton's method, kept inside a shrinking bracket."""
        levels = np.asarray(levels, float)
        if self.is_gaussian:
            return np.asarray(ndtri(levels) * self.widths[0])
        flat = levels.ravel()
        edges = self.centres + np.outer(ndtri(flat), self.widths)  # the quantile lies between those of the components
        low, high = edges.min(axis=1), edges.max(axis=1)
        z = np.clip(ndtri(flat), low, high)  # as if it were Gaussian
        moving = np.ones(len(z), bool)
        for _ in range(_NEWTON_STEPS):
            error = self.cdf(z) - flat
            low, high = np.where(error < 0, z, low), np.where(error > 0, z, high)
            step = z - error / np.exp(self.log_density(z))
            following = np.where((step > low) & (step < high), step, 0.5 * (low + high))
            # A level that has converged stays, so that its quantile does not depend on the other levels.
            following = np.where(moving, following, z)
            moving &= np.abs(following - z) > 1e-13 * (1 + np.abs(z))
            z = following
            if not moving.any():
                break
        return np.asarray(z.reshape(levels.shape))

    def crps(self, z: Array) -> Array:
        """The continuous ranked probability score E|Z - z| - E|Z - Z'| / 2 (Gneiting & Raftery 2007, eq. 21)."""
        return self.distance(z) - self.half_spread

    def distance(self, z: Array) -> Array:
        """E|Z - z|."""

        def part(block: Array) -> Array:
            sizes = self.widths * _mean_size(self._of_components(block))
            return np.asarray((self.weights * sizes).sum(axis=1))

        return _in_blocks(part, z)

    @cached_property
    def half_spread(self) -> float:
        """E|Z - Z'| / 2 for independent Z and Z'."""
        widths = np.sqrt(self.widths[:, None] ** 2 + self.widths**2)
        sizes = widths * _mean_size((self.centres[:, None] - self.centres) / widths)
        return float(0.5 * (self.weights @ sizes @ self.weights))

    def _of_components(self, z: Array) -> Array:
        """Each number in the units of each component, (numbers, components)."""
        return np.asarray((z[:, None] - self.centres) / self.widths)

    def sample(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Independent draws."""
        components = rng.choice(len(self.weights), size=shape, p=self.weights / self.weights.sum())
        return np.asarray(self.centres[components] + rng.standard_normal(shape) * self.widths[components])


def _mean_size(t: Array) -> Array:
    """E|U + t| for a standard Gaussian U."""
    return np.asarray(2 * np.exp(-0.5 * t * t - _LOG_ROOT_2PI) + t * (2 * ndtr(t) - 1))


def _in_blocks(function: Any, z: Array) -> Array:
    z = np.asarray(z, float)
    flat, out = z.ravel(), np.empty(z.size)
    for start in range(0, z.size, _BLOCK):
        out[start : start + _BLOCK] = function(flat[start : start + _BLOCK])
    return out.reshape(z.shape)


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The distributions of y at some queries, in the user's units.

    Attributes
    ----------
    mean, std : array
        One number per query.
    shape : Shape
        The distribution of (y - mean) / std, the same for all queries.

    """

    mean: Array
    std: Array
    shape: Shape

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, which: Any) -> PredictiveDistribution:
        """The distributions at some of the queries."""
        return PredictiveDistribution(np.atleast_1d(self.mean[which]), np.atleast_1d(self.std[which]), self.shape)

    def __repr__(self) -> str:
        kind = "Gaussian" if self.shape.is_gaussian else f"mixture of {len(self.shape.weights)} Gaussians"
        return f"PredictiveDistribution({len(self)} queries, {kind})"

    @property
    def variance(self) -> Array:
        return self.std**2

    @overload
    def quantile(self, q: float) -> Array: ...
    @overload
    def quantile(self, q: Any) -> Array: ...
    def quantile(self, q: Any) -> Array:
        """Quantiles at level q: one per query or, for several levels, one row per query and one column per level."""
        levels = checked_levels(q)
        z = self.shape.quantile(levels)
        if levels.ndim == 0:
            return np.asarray(self.mean + self.std * float(z))
        return np.asarray(self.mean[:, None] + self.std[:, None] * z)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds y with probability `level`: lower and upper ends."""
        checked_level(level)
        return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)

    def log_pdf(self, y: Any) -> Array:
        """ln p(y), one value per query."""
        return np.asarray(self.shape.log_density(self._standardised(y)) - np.log(self.std))

    def pdf(self, y: Any) -> Array:
        """p(y), one value per query."""
        return np.asarray(np.exp(self.log_pdf(y)))

    def cdf(self, y: Any) -> Array:
        """The probability of a value of at most y, one per query."""
        return self.shape.cdf(self._standardised(y))

    def pit(self, y: Any) -> tuple[Array, Array]:
        """The probabilities of a value below y, and of one of at most y; these are equal: y is continuous."""
        probability = self.cdf(y)
        return probability, probability

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score of y, in its units; lower is better."""
        return np.asarray(self.std * self.shape.crps(self._standardised(y)))

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Independent draws, one row per query and n columns. Queries are drawn independently of each other."""
        rng = np.random.default_rng(random_state)
        return np.asarray(self.mean[:, None] + self.std[:, None] * self.shape.sample((len(self), n), rng))

    def _standardised(self, y: Any) -> Array:
        return np.asarray((np.asarray(y, float) - self.mean) / self.std)


def checked_levels(q: Any) -> Array:
    """Levels of quantiles; an error unless all lie between 0 and 1."""
    levels = np.asarray(q, float)
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantile levels must lie between 0 and 1, both excluded; got {q!r}")
    return levels


def checked_level(level: float) -> None:
    """An error unless the level of an interval lies between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, both excluded; got {level!r}")

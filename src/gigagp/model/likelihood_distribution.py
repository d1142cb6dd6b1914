"""The predictive distribution of a target with a likelihood of its own: f is Gaussian, and integrated out numerically.

Averages over f use equally spaced nodes, so close that the distribution given one f reaches the next: the sum is then
as smooth as the integral. How many nodes that takes depends on the query alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods.base import Likelihood
from gigagp.likelihoods.marginal import log_marginal
from gigagp.model.distribution import PredictiveDistribution, checked_level, checked_levels

_REACH = 8.0  # nodes lie within so many deviations of f
_SPACING = 0.75  # of nodes, in units of the deviation with which one target determines f
_FEWEST_NODES = 32
_MOST_NODES = 512  # beyond, the distribution function has steps of half a percent
_BLOCK = 1 << 20  # numbers that are evaluated together
_BISECTIONS = 60
_MOST_DOUBLINGS = 1000
_SUMMED = 32  # values of a discrete target over which the CRPS sums; it integrates over larger ones
_CRPS_RULE = np.polynomial.legendre.leggauss(64)  # nodes and weights
_CRPS_REACH = 9.0  # deviations
_TAIL = 1e-9  # probability that sums over discrete targets leave out, on each side


@dataclass(frozen=True, eq=False)
class LikelihoodDistribution:
    """The distributions of y at some queries, in the user's units.

    Attributes
    ----------
    likelihood : Likelihood
        The distribution of y given f.
    latent_mean, latent_std : array
        Mean and standard deviation of f, one number per query.
    dispersion : float
        The parameter of the likelihood; without effect where it has none.

    """

    likelihood: Likelihood
    latent_mean: Array
    latent_std: Array
    dispersion: float

    def __len__(self) -> int:
        return len(self.latent_mean)

    def __getitem__(self, which: Any) -> LikelihoodDistribution:
        """The distributions at some of the queries."""
        mean, std = np.atleast_1d(self.latent_mean[which]), np.atleast_1d(self.latent_std[which])
        return LikelihoodDistribution(self.likelihood, mean, std, self.dispersion)

    def __repr__(self) -> str:
        return f"LikelihoodDistribution({len(self)} queries, {self.likelihood.name})"

    @cached_property
    def mean(self) -> Array:
        """E[y], one number per query."""
        return self._averaged(self.likelihood.mean)

    @cached_property
    def variance(self) -> Array:
        """Var[y]: the mean of Var[y | f] and the variance of E[y | f]."""
        within = self._averaged(lambda f: self.likelihood.variance(f, self.dispersion))
        return np.asarray(within + self.mean_std**2)

    @property
    def std(self) -> Array:
        """The standard deviation of y, one number per query."""
        return np.sqrt(self.variance)

    @cached_property
    def mean_std(self) -> Array:
        """The standard deviation of E[y | f]: how uncertain the mean is, without the variation of y around it."""
        return np.sqrt(self._averaged(lambda f, centre: (self.likelihood.mean(f) - centre) ** 2, self.mean))

    def mean_quantile(self, z: float) -> Array:
        """E[y | f] at the f that lies z deviations above its mean: a quantile of E[y | f]."""
        return self.likelihood.mean(self.latent_mean + z * self.latent_std)

    def quantile(self, q: Any) -> Array:
        """Quantiles at level q: one per query or, for several levels, one row per query and one column per level.

        Where y is a whole number, the smallest value whose cumulative probability is at least q.
        """
        levels = checked_levels(q)
        find = self._discrete_quantile if self.likelihood.discrete else self._continuous_quantile
        if levels.ndim == 0:
            return find(float(levels))
        return np.stack([find(level) for level in levels.ravel().tolist()], axis=1).reshape(len(self), *levels.shape)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds y with probability `level`, or more where y is discrete."""
        checked_level(level)
        return self.quantile(0.5 - level / 2), self.quantile(0.5 + level / 2)

    def log_pdf(self, y: Any) -> Array:
        """ln p(y), one value per query; of discrete targets the logarithm of their probability.

        Minus infinity for a y that cannot be.
        """
        y = np.broadcast_to(np.asarray(y, float), (len(self),))
        out = np.full(len(self), -np.inf)
        fine = self.likelihood.is_possible(y)
        if fine.any():
            here = self[fine]
            out[fine] = log_marginal(
                self.likelihood, self.dispersion, y[fine], here.latent_mean, here.latent_std**2
            )  # fmt: skip
        return out

    def pdf(self, y: Any) -> Array:
        """p(y), one value per query."""
        return np.exp(self.log_pdf(y))

    def pmf(self, y: Any) -> Array:
        """The probability of y, one value per query, where y is discrete."""
        return self.pdf(y)

    def log_pmf(self, y: Any) -> Array:
        """The logarithm of the probability of y, one value per query, where y is discrete."""
        return self.log_pdf(y)

    def cdf(self, y: Any) -> Array:
        """The probability of a value of at most y, one per query."""
        y = np.broadcast_to(np.asarray(y, float), (len(self),))
        y = np.floor(y) if self.likelihood.discrete else y
        return np.clip(self._averaged(lambda f, y: self.likelihood.cdf(y, f, self.dispersion), y), 0.0, 1.0)

    def pit(self, y: Any) -> tuple[Array, Array]:
        """The probabilities of a value below y, and of one of at most y; these are equal where y is continuous."""
        y, upper = np.asarray(y, float), self.cdf(y)
        return (self.cdf(np.ceil(y) - 1), upper) if self.likelihood.discrete else (upper, upper)

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score E|Y - y| - E|Y - Y'| / 2 of y, in its units; lower is better."""
        y, d = np.broadcast_to(np.asarray(y, float), (len(self),)), self.dispersion
        below = np.floor(y) if self.likelihood.discrete else y
        partial = self._averaged(lambda f, y: self.likelihood.partial_mean(y, f, d), below)
        return np.asarray(2 * (y * self.cdf(y) - partial) + self.mean - y - self._half_spread)

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Independent draws, one row per query and n columns. Queries are drawn independently of each other."""
        rng = np.random.default_rng(random_state)
        f = self.latent_mean[:, None] + self.latent_std[:, None] * rng.standard_normal((len(self), n))
        return self.likelihood.sample(f, self.dispersion, rng)

    @cached_property
    def _target_std(self) -> Array:
        """The deviation with which one target would determine f: nodes must lie closer."""
        information = self.likelihood.information(self.latent_mean + 2 * self.latent_std, self.dispersion)
        return 1 / np.sqrt(np.maximum(information, 1e-300))

    @cached_property
    def _node_counts(self) -> Array:
        """A power of two for each query."""
        with np.errstate(divide="ignore"):
            needed = np.log2(2 * _REACH * self.latent_std / (_SPACING * self._target_std))
        powers = np.ceil(np.clip(needed, np.log2(_FEWEST_NODES), np.log2(_MOST_NODES)))
        return np.asarray(2.0**powers).astype(int)

    def _averaged(self, function: Callable[..., Array], *arrays: Array) -> Array:
        """The mean over f of function(f, *arrays), one value per query."""
        out = np.empty(len(self))
        for count in np.unique(self._node_counts).tolist():
            z = np.linspace(-_REACH, _REACH, count)
            weights = np.exp(-0.5 * z**2)
            weights /= weights.sum()
            rows = np.flatnonzero(self._node_counts == count)
            for start in range(0, len(rows), _BLOCK // count):
                here = rows[start : start + _BLOCK // count]
                f = self.latent_mean[here, None] + self.latent_std[here, None] * z
                values = function(f, *(a[here, None] for a in arrays))
                out[here] = (np.broadcast_to(values, f.shape) * weights).sum(axis=1)
        return out

    def _discrete_quantile(self, level: float) -> Array:
        low = np.full(len(self), self.likelihood.lowest - 1)  # its cumulative probability is zero
        high = np.ceil(np.maximum(self.mean + 4 * self.std, self.likelihood.lowest + 1))
        self._raise(high, low, level)
        while (high - low > 1).any():
            middle = np.floor(0.5 * (low + high))
            above = self.cdf(middle) >= level
            low, high = np.where(above, low, middle), np.where(above, middle, high)
            low = np.where(high - low <= 1, high - 1, low)
        return np.asarray(high)

    def _raise(self, high: Array, low: Array, level: float) -> None:
        """Double upper ends until their cumulative probability reaches the level."""
        for _ in range(_MOST_DOUBLINGS):
            short = np.flatnonzero(self.cdf(high) < level)
            if len(short) == 0:
                return
            low[short] = high[short]
            high[short] = 2 * high[short] + 1

    def _continuous_quantile(self, level: float) -> Array:
        """By bisection in f, whose mean increases with it."""
        width = np.sqrt(self.latent_std**2 + self._target_std**2)
        low, high = self.latent_mean - 4 * width, self.latent_mean + 4 * width
        for end, step, short in ((low, -4 * width, np.greater), (high, 4 * width, np.less)):
            for _ in range(_MOST_DOUBLINGS):
                far = short(self.cdf(self.likelihood.mean(end)), level)
                if not far.any():
                    break
                end[far] += step[far]
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            above = self.cdf(self.likelihood.mean(middle)) >= level
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return self.likelihood.mean(0.5 * (low + high))

    @cached_property
    def _half_spread(self) -> Array:
        """E|Y - Y'| / 2: the integral of F (1 - F) or, for discrete targets, the sum.

        The sum is exact for the first values that have a probability; the rest is an integral (Euler-Maclaurin).
        """
        width = np.sqrt(self.latent_std**2 + self._target_std**2)
        if not self.likelihood.discrete:
            return self._spread_from(self.latent_mean - _CRPS_REACH * width)
        first, last = self._discrete_quantile(_TAIL), self._discrete_quantile(1 - _TAIL)
        total, part = np.zeros(len(self)), np.zeros(len(self))
        for step in range(min(int((last - first).max(initial=0)) + 1, _SUMMED)):
            F = self.cdf(first + step)
            part = np.where(step <= last - first, F * (1 - F), 0.0)
            total += part
        more = last - first >= _SUMMED
        if more.any():
            rest = self[more]._spread_from(self.likelihood.latent(first[more] + _SUMMED - 1))
            total[more] += rest - 0.5 * part[more]
        return total

    def _spread_from(self, low: Array) -> Array:
        """The integral of F (1 - F) from the target whose link is `low`, in f, where the integrand is smooth."""
        width = np.sqrt(self.latent_std**2 + self._target_std**2)
        high = self.latent_mean + _CRPS_REACH * width + width**2  # exp(f) moves the bulk of the integrand upwards
        half = 0.5 * np.maximum(high - low, 0.0)
        total, step = np.zeros(len(self)), 1e-5
        for node, weight in zip(*_CRPS_RULE, strict=True):
            g = low + half * (1 + node)
            x = self.likelihood.mean(g)
            slope = (self.likelihood.mean(g + step) - self.likelihood.mean(g - step)) / (2 * step)
            F = self._averaged(lambda f, x: self.likelihood.cdf(x, f, self.dispersion), x)
            total += weight * half * slope * F * (1 - F)
        return total


Distribution = PredictiveDistribution | LikelihoodDistribution


def joined(parts: list[Distribution]) -> Distribution:
    """The distributions of several sets of queries as one."""
    first = parts[0]
    if isinstance(first, LikelihoodDistribution):
        mean, std = (np.concatenate([getattr(part, name) for part in parts]) for name in ("latent_mean", "latent_std"))
        return LikelihoodDistribution(first.likelihood, mean, std, first.dispersion)
    mean, std = (np.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "std"))
    return PredictiveDistribution(mean, std, first.shape)

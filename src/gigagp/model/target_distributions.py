"""The predictive distributions of several targets: arrays have one row per query and one column per target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.model.distribution import PredictiveDistribution
from gigagp.model.likelihood_distribution import Distribution, LikelihoodDistribution, joined


@dataclass(frozen=True, eq=False)
class TargetDistributions:
    """The distributions of several targets at some queries, in the user's units.

    Given the inputs, targets are predicted independently of each other.

    Attributes
    ----------
    names : tuple
        The names of the targets.
    parts : tuple
        The distributions of each target.

    """

    names: tuple[str, ...]
    parts: tuple[Distribution, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, which: Any) -> TargetDistributions:
        """The distributions at some of the queries."""
        return TargetDistributions(self.names, tuple(part[which] for part in self.parts))

    def __repr__(self) -> str:
        return f"TargetDistributions({len(self)} queries, targets {', '.join(self.names)})"

    def target(self, name: str | int) -> Distribution:
        """The distributions of one target, by its name or its place."""
        if isinstance(name, str) and name not in self.names:
            raise InvalidParameter(f"the targets are {', '.join(map(repr, self.names))}; got {name!r}")
        return self.parts[self.names.index(name) if isinstance(name, str) else name]

    @property
    def mean(self) -> Array:
        """E[y]."""
        return np.stack([part.mean for part in self.parts], axis=1)

    @property
    def std(self) -> Array:
        """The standard deviation of y."""
        return np.stack([part.std for part in self.parts], axis=1)

    @property
    def variance(self) -> Array:
        return np.stack([part.variance for part in self.parts], axis=1)

    def quantile(self, q: Any) -> Array:
        """Quantiles at level q: one per query and target or, for several levels, with a last axis for the levels."""
        return np.stack([part.quantile(q) for part in self.parts], axis=1)

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds y with probability `level`: lower and upper ends."""
        lows, highs = zip(*(part.interval(level) for part in self.parts), strict=True)
        return np.stack(lows, axis=1), np.stack(highs, axis=1)

    def log_pdf(self, y: Any) -> Array:
        """ln p(y), one value per query and target."""
        return self._of_targets(y, lambda part, values: part.log_pdf(values))

    def pdf(self, y: Any) -> Array:
        """p(y), one value per query and target."""
        return self._of_targets(y, lambda part, values: part.pdf(values))

    def cdf(self, y: Any) -> Array:
        """The probability of a value of at most y, one per query and target."""
        return self._of_targets(y, lambda part, values: part.cdf(values))

    def crps(self, y: Any) -> Array:
        """The continuous ranked probability score of y, in the units of each target; lower is better."""
        return self._of_targets(y, lambda part, values: part.crps(values))

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Independent draws: one row per query, one column per target, and a last axis of n draws."""
        rng = np.random.default_rng(random_state)
        return np.stack([part.sample(n, rng) for part in self.parts], axis=1)

    def _of_targets(self, y: Any, value: Callable[[Distribution, Array], Array]) -> Array:
        values = np.broadcast_to(np.asarray(y, float), (len(self), len(self.parts)))
        return np.stack([value(part, values[:, j]) for j, part in enumerate(self.parts)], axis=1)


AnyDistribution = Distribution | TargetDistributions


def joined_targets(parts: list[AnyDistribution]) -> AnyDistribution:
    """The distributions of several sets of queries as one; of one target or of several."""
    several = [part for part in parts if isinstance(part, TargetDistributions)]
    if not several:
        return joined([part for part in parts if not isinstance(part, TargetDistributions)])
    names = several[0].names
    return TargetDistributions(names, tuple(joined([each.parts[j] for each in several]) for j in range(len(names))))


def with_gaps(X: Array, distribution_at: Callable[[Array], AnyDistribution]) -> AnyDistribution:
    """The distributions at queries of which some have missing values (NaN); their mean and deviation are NaN."""
    complete = np.asarray(~np.isnan(X).any(axis=1))
    if complete.all():
        return distribution_at(X)
    some = X[complete] if complete.any() else np.zeros((1, X.shape[1]), X.dtype)
    answers = distribution_at(np.ascontiguousarray(some))
    if isinstance(answers, TargetDistributions):
        return TargetDistributions(answers.names, tuple(_spread(part, complete) for part in answers.parts))
    return _spread(answers, complete)


def _spread(part: Distribution, complete: Array) -> Distribution:
    """The distributions of the complete queries among those of all queries."""
    if isinstance(part, LikelihoodDistribution):
        raise InvalidParameter(
            "a likelihood that is not Gaussian has no distributions of queries with missing values; use predict, or "
            'predict_quantiles, with missing="drop"'
        )
    mean, std = np.full((2, len(complete)), np.nan)
    mean[complete], std[complete] = part.mean[: complete.sum()], part.std[: complete.sum()]
    return PredictiveDistribution(mean, std, part.shape)

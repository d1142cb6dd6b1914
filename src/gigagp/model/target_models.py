"""A model of several targets: one fitted model per target, of the same inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.encoding import Encoding
from gigagp.data.sources.share import Share
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.model.likelihood_distribution import Distribution
from gigagp.model.model import Model
from gigagp.model.predictor import LatentDistribution, Predictor
from gigagp.model.query_buckets import QueryBuckets
from gigagp.model.target_distributions import TargetDistributions
from gigagp.model.target_neighbourhood import TargetNeighbourhoods


@dataclass(frozen=True, eq=False)
class TargetModels:
    """Fitted models of several targets."""

    models: tuple[Model, ...]  # one per target
    names: tuple[str, ...]
    named: bool  # False where the targets were columns of an array, whose names are y0, y1, ...
    shared: TargetNeighbourhoods | None = None  # what predicts targets that share a theta; None where each has its own

    @property
    def encoding(self) -> Encoding | None:
        return self.models[0].encoding

    @property
    def reading(self) -> Encoding:
        """How columns of queries are matched: the same for all targets."""
        return self.models[0].reading

    @property
    def columns(self) -> int:
        return self.models[0].columns

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self.models[0].feature_names

    @property
    def share(self) -> Share | None:
        return self.models[0].share

    def place(self, target: str | int) -> int:
        """The place of a target, which is given by its name or its place."""
        if isinstance(target, str) and target in self.names:
            return self.names.index(target)
        if isinstance(target, int | np.integer) and -len(self.names) <= target < len(self.names):
            return int(target) % len(self.names)
        raise InvalidParameter(f"the model has the targets {', '.join(map(repr, self.names))}; got {target!r}")


@dataclass(frozen=True, eq=False)
class TargetsPredictor:
    """The predictors of several targets as one: arrays have one column per target."""

    names: tuple[str, ...]
    parts: tuple[Predictor, ...]
    shared: TargetNeighbourhoods | None = None

    def engine(self) -> AbstractContextManager[Engine]:
        """The engine, ready to work for the models."""
        return self.parts[0].engine()

    def engine_for(self, queries: int) -> AbstractContextManager[Engine]:
        """The engine, however many queries there are."""
        return self.engine()

    def predict(
        self, X: Array, engine: Engine, with_variance: bool = True, latent: bool = False
    ) -> tuple[Array, Array | None]:
        """Mean and standard deviation at checked queries, as `Predictor.predict`."""
        parts = self.predictions(X, engine, with_variance, latent)
        deviations = [deviation for _, deviation in parts if deviation is not None]
        return np.stack([mean for mean, _ in parts], axis=1), np.stack(deviations, axis=1) if deviations else None

    def predictions(
        self, X: Array, engine: Engine, with_variance: bool = True, latent: bool = False
    ) -> list[tuple[Array, Array | None]]:
        """Mean and standard deviation of each target."""
        if self.shared is None or any(part.neighbourhood is None for part in self.parts):
            return [part.predict(X, engine, with_variance, latent) for part in self.parts]
        together = self.shared.predict(self.parts[0].scaled(X), engine, with_variance)
        factors = self.parts[0].gap_factors(X)
        parts = [part.in_units(prediction, latent) for part, prediction in zip(self.parts, together, strict=True)]
        return [(mean, None if deviation is None else deviation * factors) for mean, deviation in parts]

    def distribution_at(self, X: Array, engine: Engine) -> TargetDistributions:
        """The distributions of the targets at checked queries in the user's units."""
        return TargetDistributions(self.names, tuple(self.distributions_at(X, engine)))

    def distributions_at(self, X: Array, engine: Engine) -> list[Distribution]:
        """The distributions of each target."""
        if self.shared is None:
            return [part.distribution_at(X, engine) for part in self.parts]
        pairs = zip(self.parts, self.predictions(X, engine), strict=True)
        return [part.distribution(mean, std) for part, (mean, std) in pairs if std is not None]

    def latent_distributions_at(self, X: Array, engine: Engine) -> list[LatentDistribution]:
        """The distributions of the functions without noise, one per target."""
        if self.shared is None:
            return [part.latent_distribution_at(X, engine) for part in self.parts]
        return [LatentDistribution.gaussian(m, s) for m, s in self.predictions(X, engine, latent=True) if s is not None]

    @property
    def on_worker(self) -> TargetsPredictor:
        """As `Predictor.on_worker`."""
        return replace(self, parts=tuple(part.on_worker for part in self.parts))

    @property
    def independent(self) -> bool:
        """As `Predictor.independent`."""
        return all(part.independent for part in self.parts)

    @property
    def mapped_files(self) -> dict[str, int]:
        """As `Predictor.mapped_files`, of all targets."""
        return {path: size for part in self.parts for path, size in part.mapped_files.items()}

    def buckets(self, count: int) -> QueryBuckets | None:
        """As `Predictor.buckets`, of the first target: what is near in its rows is near in those of the others."""
        return self.parts[0].buckets(count)

    def queries_at_once(self, budget: int, carried: int = 0) -> int:
        """As `Predictor.queries_at_once`."""
        return min(part.queries_at_once(budget, carried) for part in self.parts)

    def state(self) -> Iterator[Array | str]:
        """Everything that determines predictions."""
        return chain(self.names, *(part.state() for part in self.parts))

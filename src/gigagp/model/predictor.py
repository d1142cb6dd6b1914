"""From queries to predictions in the user's units, by whichever method the model and its settings name."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from gigagp.arrays import Array
from gigagp.combine import CombinationRule
from gigagp.data.mirrors import Mirror
from gigagp.data.warping import stacked
from gigagp.engines import Engine, Place, SerialEngine, one_blas_thread, open_engine
from gigagp.errors import InvalidParameter
from gigagp.linalg.row_noise import variances
from gigagp.model import committee_prediction, mixture, neighbourhood
from gigagp.model.calibration import Calibration
from gigagp.model.distribution import PredictiveDistribution
from gigagp.model.fingerprint import described
from gigagp.model.latent import LatentPrediction
from gigagp.model.likelihood_distribution import Distribution, LikelihoodDistribution
from gigagp.model.likelihood_format import describe_likelihood
from gigagp.model.mixture import Mixture
from gigagp.model.model import Model
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.query_buckets import QueryBuckets
from gigagp.model.trend import Trend

_COPIES = 4  # numbers in memory per number of a query
_PER_EXPERT = 12  # numbers in memory per query and expert that answers it
_EXPERTS_IN_MEMORY = 4  # whose messages are in memory at a time where all experts answer
_FEWEST_QUERIES = 1024  # in memory at once


@dataclass(frozen=True, eq=False)
class LatentDistribution:
    """Mean and standard deviation of the function without noise, and its quantile at z standard deviations."""

    mean: Array
    std: Array
    at_deviations: Callable[[float], Array]

    @classmethod
    def gaussian(cls, mean: Array, deviation: Array) -> LatentDistribution:
        return cls(mean, deviation, lambda z: mean + deviation * z)

    def quantile(self, level: float) -> Array:
        return self.at_deviations(float(ndtri(level)))


@dataclass(frozen=True, eq=False)
class Predictor:
    """A model together with the way it answers queries: settings of prediction may change after a fit.

    neighbourhood, mixture : what answers; where both are None, the committee does
    """

    model: Model
    neighbourhood: Neighbourhood | None
    mixture: Mixture | None
    rule: CombinationRule
    experts_per_query: int | None  # None: all of them
    calibration: Calibration
    place: Place = "threads"  # where queries are answered
    n_jobs: int | None = None

    @classmethod
    def of(
        cls, model: Model, *, by_committee: bool, rule: CombinationRule, experts_per_query: int | None, calibrate: bool,
        place: Place = "threads", n_jobs: int | None = None,
    ) -> Predictor:  # fmt: skip
        """The predictor under these settings.

        by_committee : whether the committee answers even if the fit has chosen another method
        calibrate : whether the distribution of errors that the fit has learnt is applied; it belongs to the method
            that the fit has chosen, so another method is never calibrated
        """
        near = None if by_committee else model.neighbourhood
        exact = None if by_committee else model.mixture
        changed = (model.neighbourhood or model.mixture) is not None and (near or exact) is None
        calibration = model.report.calibration if calibrate and not changed else Calibration.none()
        return cls(model, near, exact, rule, experts_per_query, calibration, place, n_jobs)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine, ready to work for the model."""
        with one_blas_thread(), open_engine(self.place, self.n_jobs) as engine:
            if engine.reads_files:
                engine.use_folder(self._place())
            yield engine

    def _place(self) -> Path | Mirror:
        """Where workers read the model and what is passed to them."""
        files, keeper = self.model.store.files, self.model.store.keeper
        if isinstance(keeper, Mirror):
            return keeper
        beside = Path(files[0].path).parent.parent if files else None
        return beside if beside is not None and os.access(beside, os.W_OK) else Path(tempfile.gettempdir())

    def engine_for(self, queries: int) -> AbstractContextManager[Engine]:
        """The engine for this number of queries; none is opened if they are so few that the calling thread suffices."""
        near, local = self.neighbourhood, self.place in ("threads", "serial")
        if near is not None and self.model.likelihood is None and local and neighbourhood.is_little(near, queries):
            return nullcontext(SerialEngine())
        return self.engine()

    def predict(
        self, X: Array, engine: Engine, with_variance: bool = True, latent: bool = False,
        row_noise: Array | None = None,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Mean and standard deviation of y, or with `latent` of f, at checked queries in the user's units.

        row_noise : of the targets (`linalg.row_noise`), in the user's units; None for rows of weight one
        """
        if self.model.likelihood is not None:
            law = self.distribution_at(X, engine)
            assert isinstance(law, LikelihoodDistribution)
            return law.mean, (law.mean_std if latent else law.std) if with_variance else None
        Z = self.scaled(X)
        return self.from_latent(X, Z, self.latent_with_noise(Z, engine, with_variance, row_noise), latent)

    def latent_with_noise(
        self, Z: Array, engine: Engine, with_variance: bool = True, row_noise: Array | None = None
    ) -> LatentPrediction:
        """Mean and variance of f at scaled queries; row_noise as in `predict`."""
        prediction = self.latent_prediction(Z, engine, with_variance)
        if row_noise is None:
            return prediction
        scale = float(self.model.target.scale[0])
        return replace(prediction, noise=variances(self.noise * scale**2, row_noise) / scale**2)

    def from_latent(
        self, X: Array, Z: Array, prediction: LatentPrediction, latent: bool = False
    ) -> tuple[Array, Array | None]:
        """Mean and standard deviation of y, or with `latent` of f, from a prediction at X, which is Z when scaled."""
        mean, deviation = self.in_units(prediction, latent)
        deviation = None if deviation is None else deviation * self.gap_factors(X)
        if self.model.trend is None:
            return mean, deviation
        return self._with_trend(self.model.trend, X, Z, prediction.variance, mean, deviation)

    def gap_factors(self, X: Array) -> Array | float:
        """Factors of the deviations at queries in the user's units, where some may have missing values."""
        scales = self.model.gap_scales
        return 1.0 if scales is None or not self.calibration.rows else scales.at(X)

    def _with_trend(
        self, trend: Trend, X: Array, Z: Array, variance: Array | None, mean: Array, deviation: Array | None
    ) -> tuple[Array, Array | None]:
        """Mean and standard deviation of y with the model's mean function.

        Its coefficients are uncertain; near observations these determine the mean themselves. The variance of the mean
        function therefore counts by the square of the share of the prior variance that the observations have left.
        """
        mean = mean + trend.values(X)
        if deviation is None or variance is None:
            return mean, deviation
        prior = np.asarray(self.model.kernel.diagonal(self.model.theta[:-1], Z), float)
        left = np.clip(variance / np.maximum(prior, np.finfo(float).tiny), 0.0, 1.0)
        return mean, np.sqrt(deviation**2 + left**2 * trend.variances(X))

    def distribution_at(self, X: Array, engine: Engine, row_noise: Array | None = None) -> Distribution:
        """The distribution of y at checked queries in the user's units; row_noise as in `predict`."""
        own, near = self.model.likelihood, self.neighbourhood
        if own is not None:
            assert near is not None
            return own.distribution(own.predict(near, self.scaled(X), engine), near)
        mean, deviation = self.predict(X, engine, row_noise=row_noise)
        assert deviation is not None
        return self.distribution(mean, deviation)

    def distribution(self, mean: Array, deviation: Array) -> PredictiveDistribution:
        """The distribution of y that belongs to a mean and a standard deviation of `predict`, of Gaussian targets."""
        return PredictiveDistribution(mean, deviation, self.calibration.shape)

    def latent_distribution_at(self, X: Array, engine: Engine) -> LatentDistribution:
        """The distribution of the function without noise: of f, or of E[y | f] where y has a likelihood of its own."""
        if self.model.likelihood is not None:
            law = self.distribution_at(X, engine)
            assert isinstance(law, LikelihoodDistribution)
            return LatentDistribution(law.mean, law.mean_std, law.mean_quantile)
        mean, deviation = self.predict(X, engine, latent=True)
        assert deviation is not None
        return LatentDistribution.gaussian(mean, deviation)

    def scaled(self, X: Array) -> Array:
        """Queries in the model's units."""
        return self.model.inputs.apply(X, self.model.store.X.dtype)

    def latent_prediction(self, Z: Array, engine: Engine, with_variance: bool = True) -> LatentPrediction:
        """Mean and variance of f at scaled queries, in the model's units."""
        if self.model.likelihood is not None:
            assert self.neighbourhood is not None
            latents = self.model.likelihood.predict(self.neighbourhood, Z, engine)
            return LatentPrediction(latents.mean[:, 0], latents.variance[:, 0], None)
        if self.neighbourhood is not None:
            prediction = neighbourhood.predict(self.neighbourhood, Z, engine, with_variance)
            return self.with_noise(prediction, Z) if with_variance else prediction
        if self.mixture is not None:
            prediction = mixture.predict(self.mixture, Z, engine, with_variance)
            return self.with_noise(prediction, Z) if with_variance else prediction
        experts = self.model.committee
        self.check_communication()
        combined = committee_prediction.predict(experts, Z, self.rule, self.experts_per_query, engine, with_variance)
        if combined.variance is None:
            return LatentPrediction(combined.mean, None, None)
        variance = combined.variance.astype(float)
        if self.rule.target == "y":  # negative where a product over y falls below the noise
            variance = variance - experts.noise
        misfit = np.ones(len(Z)) if combined.scale is None else np.sqrt(combined.scale)
        return self.with_noise(LatentPrediction(combined.mean, variance, misfit), Z)

    def check_communication(self) -> None:
        """Raise InvalidParameter if the rule needs a communication expert and the model has none."""
        if self.rule.needs_communication and self.model.committee.communication is None:
            raise InvalidParameter(f"{self.rule!r} needs a communication expert; set combine before fit, and fit again")

    def with_noise(self, prediction: LatentPrediction, Z: Array) -> LatentPrediction:
        """The prediction with the noise at its queries, where that depends on the inputs.

        Far from all rows nothing is known about it: there it is the mean of all rows.
        """
        input_noise, setting = self.model.input_noise, self.calibration.setting
        if input_noise is None:
            return prediction
        noise = self.noise * input_noise.factors(Z)
        if setting is not None and prediction.variance is not None:
            _, rho = setting.remoteness(prediction.variance)
            noise += rho**2 * (setting.average - noise)
        return replace(prediction, noise=noise)

    @property
    def noise(self) -> float:
        """The noise variance of a row of weight one, in the model's units."""
        return (self.mixture or self.neighbourhood or self.model.committee).noise

    def in_units(self, prediction: LatentPrediction, latent: bool = False) -> tuple[Array, Array | None]:
        """Mean and standard deviation of y, or with `latent` of f, in the user's units.

        This is the one place where noise, scale and calibration are applied.
        """
        target = self.model.target
        mean = target.restore(prediction.mean.astype(float)[:, None])[:, 0]
        if prediction.variance is None or prediction.misfit is None:
            return mean, None
        return mean, np.sqrt(self.variance(prediction, latent)) * float(target.scale[0])

    def variance(self, prediction: LatentPrediction, latent: bool = False) -> Array:
        """The variance of y, or with `latent` of f, in the model's units."""
        assert prediction.variance is not None
        assert prediction.misfit is not None
        if self.calibration.rows:
            return self.calibration.variance(prediction, latent)
        noise = self.noise if prediction.noise is None else prediction.noise
        variance: Array = np.maximum(prediction.variance, 0.0) if latent else prediction.variance + noise
        if self.neighbourhood is None and self.mixture is None:
            variance = variance * prediction.misfit**2
        return variance

    @property
    def on_worker(self) -> Predictor:
        """The same predictor without its engine, which may be a connection: one that can be sent to workers."""
        return replace(self, place="serial", n_jobs=None)

    @property
    def independent(self) -> bool:
        """Whether queries are answered one by one: those of a committee, or of a mixture, share factors."""
        return self.neighbourhood is not None

    @property
    def mapped_files(self) -> dict[str, int]:
        """The files with the rows that queries are answered from, and their bytes; none where rows are in memory."""
        store = self.model.store if self.neighbourhood is None else self.neighbourhood.store
        return {file.path: file.bytes for file in store.files}

    def buckets(self, count: int) -> QueryBuckets | None:
        """Buckets by which queries can be sorted; None for 0 of them."""
        if count == 0 or self.neighbourhood is None:
            return None
        return QueryBuckets(self.neighbourhood, self.on_worker.scaled, count)

    def queries_at_once(self, budget: int, carried: int = 0) -> int:
        """As many queries as share factors well, within a quarter of the budget.

        budget : bytes
        carried : further bytes per query
        """
        experts = len(self.model.committee.experts)
        k = min(self.experts_per_query or _EXPERTS_IN_MEMORY, experts)
        each = 8 * (_COPIES * self.model.columns + _PER_EXPERT * (k + 1)) + carried
        most = min(committee_prediction.QUERIES_AT_ONCE, budget // (4 * each))
        return max(_FEWEST_QUERIES, 1 << max(0, most.bit_length() - 1))

    def _circles_and_gaps(self) -> Iterator[str]:
        """What `state` has of columns that are wound onto circles, and of rows with missing values."""
        circles, scales = self.model.inputs.circles, self.model.gap_scales
        if circles or scales is not None:
            yield described((circles, None if scales is None else scales.factors.tolist()))

    def state(self) -> Iterator[Array | str]:
        """Everything that determines predictions; cell centres stand in for the inputs."""
        c, near, calibration = self.model.committee, self.neighbourhood, self.calibration
        method = (
            (self.rule, self.experts_per_query, c.student)
            if near is None
            else (near.neighbours, near.inner, near.exact)
        )
        yield described((method, c.kernel, c.store.X.shape, calibration.floor, calibration.setting))
        yield from (calibration.coefficients, *calibration.shape.arrays)
        yield described(type(c.experts).__name__)
        yield from (c.theta, c.router.metric, c.experts.sizes, self.model.cells.sizes, c.store.y)
        yield from (place for _, place in c.router.places())
        for scaling in (self.model.inputs.scaling, self.model.target):
            yield from (scaling.centre, scaling.scale)
        if self.model.inputs.warps:
            yield stacked(self.model.inputs.warps)
        if self.model.inputs.directions is not None:
            yield self.model.inputs.directions.matrix
        if self.model.inputs.sphere is not None:
            yield described((self.model.inputs.sphere.longitude, self.model.inputs.sphere.latitude))
            yield self.model.inputs.sphere.axes
        yield from self._circles_and_gaps()
        if c.communication is not None:
            yield c.communication
        updated = near is not None and near.store is not c.store
        yield from (near.store.y, near.tree.starts) if updated and near is not None else ()
        for other in () if near is None else near.others:
            yield described((other.kernel, other.neighbours, other.inner, other.exact))
            yield other.theta
        for member in () if self.mixture is None else self.mixture.members:
            yield described((member.kernel, member.weight))
            yield from (member.theta, member.errors)
        if c.store.row_noise is not None:
            yield c.store.row_noise
        if self.model.likelihood is not None:
            yield json.dumps(describe_likelihood(self.model.likelihood))
        if self.model.input_noise is not None:
            noise = self.model.input_noise
            yield described((noise.kernel, noise.rho))
            yield from (noise.theta, noise.points, noise.weights, noise.target.centre, noise.target.scale)
        if self.model.trend is not None:
            yield described(self.model.trend.description)
            yield self.model.trend.values(self.model.inputs.restore(np.asarray(c.store.X[:64], float)))
        c.store.release()

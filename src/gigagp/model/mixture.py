"""Prediction by a mixture of exact GPs on all rows, each with its own kernel and theta.

With weights w_m, means mu_m and variances v_m of f and noises s_m^2, the law of total variance gives

    mean = sum_m w_m mu_m
    variance of f = sum_m w_m (v_m + mu_m^2) - mean^2,    noise = sum_m w_m s_m^2.

The misfit of a query is how large the held-out errors of the rows near it are, in predicted deviations: for each
member (a + sum_i c_i^8 e_i) / (a + sum_i c_i^8), where c_i is the correlation of f at the query and at row i, and e_i
the absolute held-out error of row i as a multiple of a Gaussian's. Squares of the members' misfits are averaged. A row
must be close to count: noise usually varies over shorter distances than f.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.expert import QUERY_BLOCK, Factor
from gigagp.kernels.base import Kernel
from gigagp.linalg.row_noise import variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model.factor_cache import FactorCache
from gigagp.model.latent import LatentPrediction
from gigagp.model.leave_one_out import MOST_INVERTED, PRIOR_ERRORS, HeldOut, LeaveOneOut, closeness

_QUERIES_AT_ONCE = 1 << 14  # queries whose results are in memory together


@dataclass(frozen=True, eq=False)
class Member:
    """One exact GP: its kernel, theta and weight, and the absolute held-out errors of all rows."""

    kernel: Kernel
    theta: Array
    weight: float
    errors: Array

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[-1]))

    def prior(self, X: Array) -> float:
        """The variance of f far from all data; members are stationary."""
        return float(self.kernel.diagonal(self.theta[:-1], X[:1])[0])


@dataclass(frozen=True, eq=False)
class Mixture:
    """All members, and the rows that each of them is conditioned on."""

    members: tuple[Member, ...]
    store: ExpertStore
    cache: FactorCache = field(default_factory=FactorCache)

    @property
    def noise(self) -> float:
        return float(sum(member.weight * member.noise for member in self.members))

    @property
    def prior(self) -> float:
        X = self.store.X[:1].astype(float)
        return float(sum(member.weight * member.prior(X) for member in self.members))

    def rows(self) -> tuple[Array, Array]:
        """Inputs and targets in double precision, whatever they are stored in: matrices of smooth kernels need it."""
        return np.ascontiguousarray(self.store.X, float), np.ascontiguousarray(self.store.y, float)

    @property
    def row_noise(self) -> Array | None:
        """Factor of the noise and added variance of each row, where rows differ in noise."""
        return None if self.store.row_noise is None else np.ascontiguousarray(self.store.row_noise, float)


def predict(model: Mixture, Z: Array, engine: Engine, with_variance: bool = True) -> LatentPrediction:
    """Mean and variance of f and misfit at scaled queries Z; each depends on its own query alone."""
    Z, factors = Z.astype(float), factors_of(model, engine)
    parts = [
        _latent_prediction(model, factors, Z[start : start + _QUERIES_AT_ONCE], engine, with_variance)
        for start in range(0, max(1, len(Z)), _QUERIES_AT_ONCE)
    ]
    return LatentPrediction.joined(parts)


def factors_of(model: Mixture, engine: Engine) -> list[Factor]:
    """The factor of each member; all of them are kept if memory allows."""
    X, y = model.rows()
    model.cache.begin()
    indices = range(len(model.members))
    return list(engine.local.map(lambda i, work: _factor(model, i, X, y, work), indices))


def _factor(model: Mixture, index: int, X: Array, y: Array, work: Workspace) -> Factor:
    factor = model.cache.get(index)
    if factor is None:
        member = model.members[index]
        factor = expert.factor(member.kernel, member.theta, X, y, work, None, True, model.row_noise)
        model.cache.put(index, factor)
    return factor


def _latent_prediction(
    model: Mixture, factors: list[Factor], Z: Array, engine: Engine, with_variance: bool
) -> LatentPrediction:
    """Predictions of all members at some queries, averaged in the members' order."""
    blocks = [Z[start : start + QUERY_BLOCK] for start in range(0, len(Z), QUERY_BLOCK)]
    tasks = ((member, factor, block) for member, factor in zip(model.members, factors, strict=True) for block in blocks)

    def predict_block(task: tuple[Member, Factor, Array], work: Workspace) -> tuple[Array, Array, Array]:
        member, factor, block = task
        if with_variance:
            return _predict_by_member(member, factor, block, work)
        mean = expert.posterior_mean(member.kernel, member.theta, factor, block, work)
        return mean, mean, mean

    results = engine.local.map(predict_block, tasks)
    mean, square, variance, misfit = (np.zeros(len(Z)) for _ in range(4))
    for member in model.members:
        mu, v, h = _joined(results, len(blocks))
        mean += member.weight * mu
        square += member.weight * mu * mu
        variance += member.weight * v
        misfit += member.weight * h * h
    if not with_variance:
        return LatentPrediction(mean, None, None)
    return LatentPrediction(mean, variance + np.maximum(square - mean * mean, 0.0), np.sqrt(misfit))


def _joined(results: Iterator[tuple[Array, Array, Array]], count: int) -> list[Array]:
    parts = [next(results) for _ in range(count)]
    return [np.concatenate([part[i] for part in parts]) if parts else np.empty(0) for i in range(3)]


@tiny_is_zero
def _predict_by_member(member: Member, factor: Factor, Z: Array, work: Workspace) -> tuple[Array, Array, Array]:
    """Mean and variance of f and the misfit, by one member."""
    kernel, theta, p, q = member.kernel, member.theta, len(factor.X), len(Z)
    mean, variance = expert.posterior(kernel, theta, factor, Z, work)
    close = closeness(kernel.cross(theta[:-1], factor.X, Z)[:p, :q], member.prior(factor.X))
    near, total = np.empty(q), np.empty(q)
    expert.weighted_sum(member.errors, close, p, q, near)
    expert.weighted_sum(np.ones(p), close, p, q, total)
    return mean, variance, (PRIOR_ERRORS + near) / (PRIOR_ERRORS + total)


def mixed(parts: list[HeldOut], weights: Array, noise: float, row_noise: Array | None = None) -> LatentPrediction:
    """Held-out predictions of a mixture, by the law of total variance; the noise is subtracted from the variance of y.

    noise : of a row of weight one
    """
    means, totals, misfits = (
        np.array([getattr(part, name) for part in parts]) for name in ("mean", "variance", "misfit")
    )
    mean = weights @ means
    of_rows = None if row_noise is None else variances(noise, row_noise)
    variance = weights @ (totals + (means - mean) ** 2) - (noise if of_rows is None else of_rows)
    return LatentPrediction(mean, np.maximum(variance, 0.0), np.sqrt(weights @ misfits**2), of_rows)


def leave_one_out(model: Mixture, engine: Engine) -> list[LeaveOneOut]:
    """Every row predicted by all others, by each member; theta stays as it is."""
    X, y = model.rows()
    if len(y) <= MOST_INVERTED:
        row_noise = model.row_noise
        return list(
            engine.local.map(lambda each, _: LeaveOneOut.of(each.kernel, each.theta, X, y, row_noise), model.members)
        )
    factors = zip(model.members, factors_of(model, engine), strict=True)
    return [LeaveOneOut.from_factor(each.kernel, each.theta, y, factor, engine) for each, factor in factors]


def predict_held_out(model: Mixture, rows: Array, engine: Engine) -> LatentPrediction:
    """Some rows, each predicted by all others, theta and weights staying as they are."""
    parts = [each.held_out(rows, engine) for each in leave_one_out(model, engine)]
    row_noise = None if model.row_noise is None else model.row_noise[rows]
    return mixed(parts, np.array([member.weight for member in model.members]), model.noise, row_noise)

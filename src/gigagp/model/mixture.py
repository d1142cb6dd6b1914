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
from scipy.linalg import lapack

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

PRIOR_ERRORS = 0.1  # errors of the expected size that every misfit counts besides those of rows: a in the formula
_LARGEST_ERROR = 30.0  # in predicted deviations: larger errors are limited to it
_GAUSSIAN_ERROR = (2 / np.pi) ** 0.5  # mean absolute value of a standard Gaussian
_QUERIES_AT_ONCE = 1 << 14  # queries whose results are in memory together
_ATTEMPTS = 8  # at inverting a matrix, with ten times the jitter each time
_FIRST_JITTER = 1e-12  # relative to the prior variance
_ROWS_AT_ONCE = 256  # held-out rows whose misfit is computed together


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


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of every row by all others: mean and variance of y, misfit, and absolute errors.

    Errors are in predicted deviations, divided by the mean absolute error of a Gaussian.
    """

    mean: Array
    variance: Array
    misfit: Array
    errors: Array

    def losses(self, y: Array) -> Array:
        """Negative log density of each target."""
        return log_losses(y, self.mean, self.variance)


def log_losses(y: Array, mean: Array, variance: Array) -> Array:
    """Negative log density of each target under a Gaussian."""
    return np.asarray(0.5 * (y - mean) ** 2 / variance + 0.5 * np.log(2 * np.pi * variance))


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


def closeness(K: Array, prior: float) -> Array:
    """The eighth power of correlations, by products alone: they round an element the same wherever it stands."""
    close = np.ascontiguousarray(K) / prior
    for _ in range(3):
        close *= close
    return close


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Leave-one-out predictions of all rows, in closed form (Rasmussen & Williams 2006, eq. 5.12).

    With C = (K + noise I)^-1 and alpha = C y, row i has the mean y_i - alpha_i / C_ii and the variance 1 / C_ii.
    """

    y: Array
    K: Array  # covariances of f
    C: Array
    alpha: Array
    prior: float  # variance of f far from all data

    @classmethod
    @tiny_is_zero
    def of(cls, kernel: Kernel, theta: Array, X: Array, y: Array, row_noise: Array | None = None) -> LeaveOneOut:
        n = len(y)
        K = np.tril(np.asarray(kernel.gram(theta[:-1], X))[:n, :n])
        K += np.tril(K, -1).T
        noise = float(np.exp(theta[-1]))
        C = _inverse(K, noise if row_noise is None else variances(noise, row_noise))
        return cls(y, K, C, C @ y, float(kernel.diagonal(theta[:-1], X[:1])[0]))

    @property
    def precision(self) -> Array:
        return np.diag(self.C)

    @property
    def mean(self) -> Array:
        return np.asarray(self.y - self.alpha / self.precision)

    @property
    def variance(self) -> Array:
        """Variances of y."""
        return np.asarray(1 / self.precision)

    @property
    def errors(self) -> Array:
        """Absolute errors in predicted deviations, divided by the mean absolute error of a Gaussian."""
        return _sizes(self.alpha, self.precision)

    @property
    def losses(self) -> Array:
        """Negative log density of each target."""
        return log_losses(self.y, self.mean, self.variance)

    def misfit(self, rows: Array) -> Array:
        """Misfits of some rows, from the errors of the rows near them.

        These are predicted without both themselves and row i, whose misfit it is: row j then has
        alpha_j - C_ij alpha_i / C_ii in place of alpha_j, and C_jj - C_ij^2 / C_ii in place of C_jj.
        """
        misfit = np.empty(len(rows))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            close = closeness(self.K[:, some], self.prior)
            close[some, np.arange(len(some))] = 0.0
            shares = self.C[:, some] / self.precision[some]
            alpha = self.alpha[:, None] - shares * self.alpha[some]
            least = 1e-9 * self.precision[:, None]
            precision = np.maximum(self.precision[:, None] - shares * self.C[:, some], least)
            near = np.sum(close * _sizes(alpha, precision), axis=0)
            misfit[start : start + len(some)] = (PRIOR_ERRORS + near) / (PRIOR_ERRORS + close.sum(axis=0))
        return misfit


@tiny_is_zero
def held_out(kernel: Kernel, theta: Array, X: Array, y: Array, row_noise: Array | None = None) -> HeldOut:
    """Every row predicted by all others."""
    each = LeaveOneOut.of(kernel, theta, X, y, row_noise)
    return HeldOut(each.mean, each.variance, each.misfit(np.arange(len(y))), each.errors)


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


def predict_held_out(model: Mixture, engine: Engine) -> LatentPrediction:
    """Every row predicted by all others, theta and weights staying as they are."""
    X, y = model.rows()
    row_noise = model.row_noise
    parts = engine.local.map(lambda each, work: held_out(each.kernel, each.theta, X, y, row_noise), model.members)
    return mixed(list(parts), np.array([member.weight for member in model.members]), model.noise, row_noise)


def _inverse(K: Array, noise: float | Array) -> Array:
    """(K + noise I)^-1, with as much jitter as the factorisation needs; `noise` is one number, or one per row."""
    n, jitter = len(K), 0.0
    for _ in range(_ATTEMPTS):
        A = K.copy()
        A[np.diag_indices(n)] += noise + jitter
        U, failed = lapack.dpotrf(A, overwrite_a=True)
        if not failed:
            C = np.triu(lapack.dpotri(U, overwrite_c=True)[0])
            C += np.triu(C, 1).T
            return np.ascontiguousarray(C)
        jitter = max(10 * jitter, _FIRST_JITTER * float(K[0, 0]))
    raise FloatingPointError(f"the covariance of {n} rows could not be inverted")


def _sizes(alpha: Array, precision: Array) -> Array:
    """Absolute held-out errors alpha / precision, in deviations precision^(-1/2) and as multiples of a Gaussian's."""
    return np.asarray(np.minimum(np.abs(alpha) / np.sqrt(precision), _LARGEST_ERROR) / _GAUSSIAN_ERROR)

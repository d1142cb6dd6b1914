"""Every row predicted by all others, by an exact GP and in closed form (Rasmussen & Williams 2006, eq. 5.12).

With C = (K + noise I)^-1 and alpha = C y, row i has the mean y_i - alpha_i / C_ii and the variance 1 / C_ii. Up to some
thousand rows C is formed as a whole. In larger tables only its diagonal is needed for all rows, and some of its columns
for the misfit of some rows; these come from the Cholesky factor, which is then the only large matrix that is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.expert import Factor
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky
from gigagp.linalg.row_noise import variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace

PRIOR_ERRORS = 0.1  # weight of the prior, in errors of the expected size: a in the formula of `mixture`
MOST_INVERTED = 4096  # rows up to which C is formed as a whole
_LARGEST_ERROR = 30.0  # in predicted deviations: larger errors are limited to it
_GAUSSIAN_ERROR = (2 / np.pi) ** 0.5  # mean absolute value of a standard Gaussian
_ATTEMPTS = 8  # at inverting a matrix, with ten times the jitter each time
_FIRST_JITTER = 1e-12  # relative to the prior variance
_ROWS_AT_ONCE = 256  # held-out rows whose misfit is computed together
_COLUMNS_AT_ONCE = 20 * cholesky.WIDTH  # of the inverse factor; solving begins at a border of its tiles


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of rows by all others: mean and variance of y, misfit; and the absolute errors of all rows.

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


def closeness(K: Array, prior: float) -> Array:
    """The eighth power of correlations, by products alone: they round an element the same wherever it stands."""
    close = np.ascontiguousarray(K) / prior
    for _ in range(3):
        close *= close
    return close


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Leave-one-out predictions of all rows.

    precision : the diagonal of C
    columns : some columns of K, the covariances of f, and of C
    """

    y: Array
    alpha: Array
    precision: Array
    prior: float  # variance of f far from all data
    columns: Callable[[Array], tuple[Array, Array]]

    @classmethod
    @tiny_is_zero
    def of(cls, kernel: Kernel, theta: Array, X: Array, y: Array, row_noise: Array | None = None) -> LeaveOneOut:
        """With C formed as a whole."""
        n = len(y)
        K = np.tril(np.asarray(kernel.gram(theta[:-1], X))[:n, :n])
        K += np.tril(K, -1).T
        noise = float(np.exp(theta[-1]))
        C = _inverse(K, noise if row_noise is None else variances(noise, row_noise))
        return cls(y, C @ y, np.diag(C), _prior(kernel, theta, X), lambda some: (K[:, some], C[:, some]))

    @classmethod
    def from_factor(cls, kernel: Kernel, theta: Array, y: Array, factor: Factor, engine: Engine) -> LeaveOneOut:
        """With the diagonal of C from the factor of all rows: C_ii is the squared norm of column i of L^-1."""
        n = len(y)

        @tiny_is_zero
        def diagonal(start: int, work: Workspace) -> Array:
            q = min(_COLUMNS_AT_ONCE, n - start)
            V = work.take("columns", n, cholesky.stride(_COLUMNS_AT_ONCE), factor.U.dtype)
            V[start:n] = 0
            V[start + np.arange(q), np.arange(q)] = 1
            cholesky.solve_lower(factor.U, factor.D, V, n, q, start)
            return np.asarray(np.einsum("pq,pq->q", V[start:n, :q], V[start:n, :q]))

        @tiny_is_zero
        def columns(some: Array) -> tuple[Array, Array]:
            K = np.asarray(kernel.cross(theta[:-1], factor.X, np.ascontiguousarray(factor.X[some])))[:n, : len(some)]
            V = np.zeros((n, cholesky.stride(len(some))))
            V[some, np.arange(len(some))] = 1
            cholesky.solve_lower(factor.U, factor.D, V, n, len(some))
            cholesky.solve_lower_transposed(factor.U, factor.D, V, n, len(some))
            return K, V[:, : len(some)]

        starts = range(0, n, _COLUMNS_AT_ONCE)
        precision = np.concatenate(list(engine.local.map(diagonal, starts)))
        return cls(y, factor.alpha, precision, _prior(kernel, theta, factor.X), columns)

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

    def misfit(self, rows: Array, engine: Engine | None = None) -> Array:
        """Misfits of some rows, from the errors of the rows near them."""
        parts = [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]
        each = map(self._misfit, parts) if engine is None else engine.local.map(self._misfit, parts)
        return np.concatenate([np.empty(0), *each])

    def _misfit(self, some: Array, work: Workspace | None = None) -> Array:
        """The misfits of a few rows.

        The rows near row i are predicted without both themselves and row i, whose misfit it is: row j then has
        alpha_j - C_ij alpha_i / C_ii in place of alpha_j, and C_jj - C_ij^2 / C_ii in place of C_jj.
        """
        K, C = self.columns(some)
        close = closeness(K, self.prior)
        close[some, np.arange(len(some))] = 0.0
        shares = C / self.precision[some]
        alpha = self.alpha[:, None] - shares * self.alpha[some]
        least = 1e-9 * self.precision[:, None]
        precision = np.maximum(self.precision[:, None] - shares * C, least)
        near = np.sum(close * _sizes(alpha, precision), axis=0)
        return np.asarray((PRIOR_ERRORS + near) / (PRIOR_ERRORS + close.sum(axis=0)))

    def held_out(self, rows: Array, engine: Engine | None = None) -> HeldOut:
        """Some rows, each predicted by all others."""
        return HeldOut(self.mean[rows], self.variance[rows], self.misfit(rows, engine), self.errors)


@tiny_is_zero
def held_out(kernel: Kernel, theta: Array, X: Array, y: Array, row_noise: Array | None = None) -> HeldOut:
    """Every row predicted by all others."""
    return LeaveOneOut.of(kernel, theta, X, y, row_noise).held_out(np.arange(len(y)))


def _prior(kernel: Kernel, theta: Array, X: Array) -> float:
    return float(kernel.diagonal(theta[:-1], X[:1])[0])


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

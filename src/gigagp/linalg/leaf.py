"""The whole evidence of many leaves in a single compiled call, for kernels of the scaled distance.

The same passes as the general path takes one by one; here no Python runs between them, nor between leaves, so that
small leaves cost no more than their arithmetic and workers do not queue for the interpreter. Leaves so large that idle
workers can help are computed in steps.
"""

from math import lgamma
from typing import Any, NamedTuple

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import cholesky, schedule, stationary
from gigagp.linalg.cholesky import follow, log_determinant
from gigagp.linalg.compiled import compiled, compiled_sums_in_place, read_only
from gigagp.linalg.jitter import transpose_and_add
from gigagp.linalg.row_noise import add_row_noise, for_compiled, weighted_trace
from gigagp.linalg.vectors import whole_registers
from gigagp.linalg.workspace import Workspace

_LARGE = 768  # points from which a leaf is computed in steps, with or without helpers: bits must not depend on them


class Profile(NamedTuple):
    """A stationary kernel at one theta, in the form that compiled functions use."""

    kind: int
    variance: float
    scales: Array  # 1 / length-scale, one per column
    shape: float
    limits: Array  # of the squared scaled difference in each column, infinite where there is none; empty: no limits
    owners: Array  # for each column the number of its length-scale: one may serve several columns
    shaped: bool  # whether `shape` is a parameter

    @property
    def lengthscales(self) -> int:
        """The number of length-scales that are parameters."""
        return int(self.owners.max()) + 1


class Buffers(NamedTuple):
    """Matrices of one leaf size: covariance; factor (above the diagonal) and inverse (below); scratch; tiles."""

    K: Array
    A: Array
    T: Array
    D: Array


def buffers(p: int, dtype: np.dtype[Any], work: Workspace) -> Buffers:
    """The worker's buffers for leaves of p points."""
    if work.in_use is None or work.in_use[0] != (p, dtype):
        stride, width = cholesky.stride(p), cholesky.WIDTH
        K, A, T = (work.take(name, p, stride, dtype) for name in "KAT")
        work.in_use = (p, dtype), Buffers(K, A, T, work.take("D", p, width, dtype))
    in_use: Buffers = work.in_use[1]
    return in_use


@compiled
def weights(alpha: Array, A: Array, p: int) -> float:
    """Lower triangle of A := (alpha alpha^T - A) / 2, from A = (K + noise I)^-1. Returns the trace."""
    whole_registers()
    half = A.dtype.type(0.5)
    trace = 0.0
    for i in range(p):
        a = alpha[i]
        for j in range(i + 1):
            A[i, j] = half * (a * alpha[j] - A[i, j])
        trace += A[i, i]
    return trace


@compiled_sums_in_place
def square_and_solve(T: Array, y: Array, alpha: Array, p: int) -> float:
    """alpha += T^T T y and returns |T y|^2, T = L^-1: one pass over T, four rows at a time."""
    whole_registers()
    zero = y.dtype.type(0)
    total = 0.0
    for i in range(0, p - 3, 4):
        a, b, c, d = T[i], T[i + 1], T[i + 2], T[i + 3]
        r, s, t, u = zero, zero, zero, zero
        for k in range(i):
            r += a[k] * y[k]
            s += b[k] * y[k]
            t += c[k] * y[k]
            u += d[k] * y[k]
        for k in range(i, i + 4):  # on the diagonal: what lies above it is zero
            r += a[k] * y[k]
            s += b[k] * y[k]
            t += c[k] * y[k]
            u += d[k] * y[k]
        for k in range(i):
            alpha[k] += (r * a[k] + s * b[k]) + (t * c[k] + u * d[k])
        for k in range(i, i + 4):
            alpha[k] += (r * a[k] + s * b[k]) + (t * c[k] + u * d[k])
        total += np.float64(r) * r + np.float64(s) * s + np.float64(t) * t + np.float64(u) * u
    for i in range(p // 4 * 4, p):
        z = zero
        for k in range(i + 1):
            z += T[i, k] * y[k]
        for k in range(i + 1):
            alpha[k] += z * T[i, k]
        total += np.float64(z) * z
    return total


@compiled
def log_likelihood(y: Array, alpha: Array, A: Array, p: int) -> float:
    """-y^T alpha / 2 - ln |A| / 2 - (p / 2) ln 2 pi, summed in double precision."""
    fit = 0.0
    for i in range(p):
        fit += np.float64(y[i]) * np.float64(alpha[i])
    value: float = -0.5 * (fit + log_determinant(A, p) + p * np.log(2 * np.pi))
    return value


@compiled
def student(gaussian: float, misfit: float, p: int, dof: float) -> tuple[float, float]:
    """The evidence of a leaf with its own scale, and the factor of its misfit in the gradient.

    The scale of K + noise I has an inverse gamma prior of mean one with `dof` degrees of freedom and is integrated out:
    y is then multivariate t (Shah, Wilson & Ghahramani 2014, eq. 4). misfit = y^T (K + noise I)^-1 y. dof = inf is the
    Gaussian.
    """
    if dof == np.inf:
        return gaussian, 1.0
    spread = 1 + misfit / (dof - 2)
    constant = lgamma(0.5 * (dof + p)) - lgamma(0.5 * dof) - 0.5 * p * np.log(0.5 * dof - 1)
    value = gaussian + 0.5 * misfit + constant - 0.5 * (dof + p) * np.log(spread)
    return value, (dof + p) / (dof - 2 + misfit)


@compiled_sums_in_place
def _pull_weights(
    kind: int, x: Array, variance: float, shape: float, limits: Array, alpha: Array, A: Array, K: Array,
    w: Array, row: Array, gradient: Array,
) -> float:  # fmt: skip
    """`weights` and `stationary.pullback` in one pass over A, which is not changed. `w` and `row` are scratch."""
    whole_registers()
    p = len(alpha)
    half = A.dtype.type(0.5)
    for d in range(len(gradient)):
        gradient[d] = 0
    trace = 0.0
    for i in range(p):
        a, line = alpha[i], A[i]
        for j in range(i + 1):
            w[j] = half * (a * alpha[j] - line[j])
        trace += w[i]
        stationary.pull_row(kind, x, i, variance, shape, limits, w, K[i], row, gradient)
    return trace


@compiled
def _begin(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, noise: float, X: Array, row_noise: Array,
    K: Array, A: Array,
) -> Array:  # fmt: skip
    """K and, above A's diagonal, K with the noise on the diagonal. Returns the scaled points."""
    x = stationary.scaled_transposed(X, scales)
    stationary.gram(kind, x, variance, shape, limits, K)
    if len(row_noise) > 0:
        transpose_and_add(K, A, len(X), 0.0)
        add_row_noise(A, noise, row_noise, len(X))
    else:
        transpose_and_add(K, A, len(X), noise)
    return x


@compiled
def _end(
    kind: int, variance: float, shape: float, limits: Array, owners: Array, shaped: bool, noise: float, dof: float,
    half_log_determinant: float, x: Array, y: Array, row_noise: Array, K: Array, A: Array, T: Array,
    gradient: Array,
) -> float:  # fmt: skip
    """Value and `gradient`, from K, its inverse in A, and T = L^-1."""
    columns, p = x.shape
    alpha = np.zeros(p, x.dtype)
    misfit = square_and_solve(T, y, alpha, p)
    gaussian = -0.5 * misfit - half_log_determinant - 0.5 * p * np.log(2 * np.pi)
    value, weight = student(gaussian, misfit, p, dof)
    if weight != 1.0:
        for i in range(p):
            alpha[i] *= x.dtype.type(np.sqrt(weight))
    every = np.empty(columns + 2)
    w, row = np.empty(p, x.dtype), np.empty(p, x.dtype)
    trace = _pull_weights(kind, x, variance, shape, limits, alpha, A, K, w, row, every)
    if len(row_noise) > 0:
        trace = weighted_trace(alpha, A, row_noise, p)
    gradient[0] = every[0]
    for d in range(1, len(gradient)):  # loops, because assigning to slices takes seconds to compile
        gradient[d] = 0
    for d in range(columns):
        gradient[1 + owners[d]] += every[1 + d]
    if shaped:
        gradient[-2] = every[columns + 1]
    gradient[-1] = noise * trace
    return value  # type: ignore[no-any-return]


@compiled
def _evidences(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, owners: Array, shaped: bool,
    noise: float, dof: float, X: Array, y: Array, row_noise: Array, starts: Array, p: int, factoring: Array,
    inverting: Array, K: Array, A: Array, T: Array, D: Array, results: Array,
) -> None:  # fmt: skip
    """Leaves of p points each: row i of `results` := value and gradient of the leaf that begins at starts[i].

    The value is NaN where the matrix is not positive definite.
    """
    for i in range(len(starts)):
        first, result = starts[i], results[i]
        own_noise = row_noise[first : first + p]  # without rows where all noise is equal
        x = _begin(kind, variance, scales, shape, limits, noise, X[first : first + p], own_noise, K, A)
        if follow(factoring, (A, T, D, A), p) != 0:
            result[0] = np.nan
            continue
        half_log_determinant = 0.5 * log_determinant(A, p)
        follow(inverting, (A, T, D, A), p)
        result[0] = _end(
            kind, variance, shape, limits, owners, shaped, noise, dof, half_log_determinant, x, y[first : first + p],
            own_noise, K, A, T, result[1:],
        )  # fmt: skip


def _in_steps(
    profile: Profile, noise: float, dof: float, X: Array, y: Array, row_noise: Array, work: Workspace, result: Array
) -> None:
    """`_evidences` for one large leaf, in whose products idle workers may take part."""
    p, (K, A, T, D) = len(y), buffers(len(y), X.dtype, work)
    kind, variance, _, shape, limits, owners, shaped = profile
    x = _begin(*profile[:5], noise, X, row_noise, K, A)
    if cholesky.factor(A, D, p, work.team) != 0:
        result[0] = np.nan
        return
    half_log_determinant = 0.5 * log_determinant(A, p)
    cholesky.inverse(A, D, T, p, work.team)
    result[0] = _end(
        kind, variance, shape, limits, owners, shaped, noise, dof, half_log_determinant, x, y, row_noise, K, A, T,
        result[1:],
    )  # fmt: skip


def evidences(
    profile: Profile, noise: float, X: Array, y: Array, starts: Array, ends: Array, work: Workspace,
    dof: float = np.inf, row_noise: Array | None = None,
) -> Array:  # fmt: skip
    """Value and gradient of each leaf's evidence, one row per leaf; leaf i is the rows starts[i] .. ends[i] of X and y.

    row_noise : noise of the rows of X (`linalg.row_noise`); None where all rows have the same

    The value is NaN where jitter would be needed. A single leaf is computed by the same code, so that its bits do not
    depend on other leaves.
    """
    X, y, of_rows = read_only(X), read_only(y), for_compiled(row_noise, X.dtype)
    sizes, width = ends - starts, cholesky.WIDTH
    results = np.empty((len(sizes), 3 + profile.lengthscales + profile.shaped))
    for p in set(sizes.tolist()):
        same = np.flatnonzero(sizes == p)
        if p < _LARGE:
            part = np.empty((len(same), results.shape[1]))
            operations = schedule.factoring(p, width).operations, schedule.inverting(p, width).operations
            _evidences(
                *profile, noise, dof, X, y, of_rows, starts[same], p, *operations, *buffers(p, X.dtype, work), part
            )  # fmt: skip
            results[same] = part
        else:
            for i in same.tolist():
                rows = slice(int(starts[i]), int(ends[i]))
                _in_steps(profile, noise, dof, X[rows], y[rows], of_rows[rows], work, results[i])
    return results

"""One expert: an exact GP on the points of one leaf. theta = (log kernel parameters, log noise variance)."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import NotFinite, NotPositiveDefinite
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky, leaf
from gigagp.linalg.compiled import compiled_brief, compiled_strict
from gigagp.linalg.jitter import factor_noisy, largest_jitter
from gigagp.linalg.row_noise import FACTOR, variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.vectors import multiply_add, whole_registers
from gigagp.linalg.workspace import Workspace

QUERY_BLOCK = 512  # queries predicted together: enough work for the processor, little memory
_ROW = cholesky.stride(QUERY_BLOCK)  # length of a row of covariances with queries
STUDENT_DOF = 1024.0  # degrees of freedom in training: the prior of a leaf's scale counts as this many points
_OWN_DOF = 4.0  # degrees of freedom in prediction, where a leaf's scale is learnt mainly from its points
SMALLEST_VARIANCE = 1e-12  # as a share of the prior's: rounding may leave less at a noise-free point


@compiled_brief
def _packed(results: Array, sizes: Array) -> Array:
    """Rows of `Evidence.sums` without jitter, from rows of value and gradient; NaN where the gradient is not finite."""
    count, n = results.shape[0], results.shape[1] - 1
    sums = np.empty((count, 4 + n + n * n))
    for expert in range(count):
        row, gradient = sums[expert], results[expert, 1:]
        row[0], row[1], row[2], row[3] = results[expert, 0], sizes[expert], 1.0, 0.0
        for i in range(n):
            if not np.isfinite(gradient[i]):
                row[0] = np.nan
            row[4 + i] = gradient[i]
            for j in range(n):
                row[4 + n + i * n + j] = gradient[i] * gradient[j]
    return sums


class Evidence:
    """The evidence of one expert, or its sum over experts, with the gradient; nodes of the tree add them.

    value: log marginal likelihood (eq. 6, with its constant); gradient: d value / d theta; scatter: sum of the
    experts' gradient outer products, from which training estimates the error of a batch of experts.
    """

    __slots__ = ("jitter", "sums")

    def __init__(self, sums: Array, jitter: float = 0.0) -> None:
        self.sums, self.jitter = sums, jitter

    @classmethod
    def of(cls, value: float, gradient: Array, points: int, jitter: float) -> Evidence:
        sums = _packed(np.append(value, gradient)[None], np.array([points]))[0]
        sums[3] = jitter > 0
        return cls(sums, jitter)

    def plus(self, value: float, gradient: Array) -> Evidence:
        """With another term of the objective, such as a prior of theta, and its gradient."""
        sums = self.sums.copy()
        sums[0] += value
        sums[4 : 4 + self._size] += gradient
        return Evidence(sums, self.jitter)

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(self.sums + other.sums, max(self.jitter, other.jitter))

    @property
    def value(self) -> float:
        return float(self.sums[0])

    @property
    def points(self) -> int:
        return int(self.sums[1])

    @property
    def experts(self) -> int:
        return int(self.sums[2])

    @property
    def jittered(self) -> int:
        """How many experts needed jitter; `jitter` is the largest one."""
        return int(self.sums[3])

    @property
    def _size(self) -> int:
        return int((np.sqrt(4 * len(self.sums) - 15) - 1) / 2 + 0.5)  # n + n^2 = len - 4

    @property
    def gradient(self) -> Array:
        return self.sums[4 : 4 + self._size]

    @property
    def scatter(self) -> Array:
        n = self._size
        return self.sums[4 + n :].reshape(n, n)


class Triangle(NamedTuple):
    """A Cholesky factor U = L^T, and the inverses D of its diagonal tiles."""

    U: Array
    D: Array


@dataclass(frozen=True)
class Factor:
    """Cholesky factor of a leaf: U^T U = K + noise I, D the inverses of its diagonal tiles, alpha = (K + noise I)^-1 y.

    misfit = y^T alpha, whose expectation under the model is the number of points. Of a sparse expert X are the inducing
    inputs, and `returned` is the factor L_B of the variance that they do not remove (`sparse`).
    """

    X: Array
    U: Array
    D: Array
    alpha: Array
    jitter: float
    misfit: float
    points: int
    returned: Triangle | None = None

    @property
    def scale(self) -> float:
        """Factor by which the leaf's own variances exceed those of the common theta."""
        return float(own_scale(self.misfit, self.points))

    @property
    def nbytes(self) -> int:
        arrays = (self.X, self.U, self.D, self.alpha, *(self.returned or ()))
        return int(sum(array.nbytes for array in arrays))


def own_scale(misfit: Any, points: int) -> Any:
    """The scale of a leaf: its misfit per point, shrunk towards one by a prior that counts as a few points."""
    return (_OWN_DOF + np.maximum(misfit, 0.0)) / (_OWN_DOF + points)


@compiled_strict
def weighted_sum(alpha: Array, K: Array, p: int, q: int, mean: Array) -> None:
    """mean[:q] := alpha^T K, four rows at a time.

    A library's product may round a column by its position. Here the mean of a query does not depend on the others.
    """
    whole_registers()
    whole = p // 4 * 4
    mean[:q] = 0
    for i in range(0, whole, 4):
        r, s, t, u = alpha[i], alpha[i + 1], alpha[i + 2], alpha[i + 3]
        first, second, third, last = K[i], K[i + 1], K[i + 2], K[i + 3]
        for j in range(q):
            mean[j] += multiply_add(first[j], r, second[j] * s) + multiply_add(third[j], t, last[j] * u)
    for i in range(whole, p):
        r, first = alpha[i], K[i]
        for j in range(q):
            mean[j] = multiply_add(first[j], r, mean[j])


@compiled_strict
def column_dots(A: Array, B: Array, p: int, q: int, dots: Array) -> None:
    """dots[:q] := column sums of A * B, rows in order."""
    whole_registers()
    dots[:q] = 0
    for i in range(p):
        a, b = A[i], B[i]
        for j in range(q):
            dots[j] = multiply_add(a[j], b[j], dots[j])


@tiny_is_zero
def evidence(
    kernel: Kernel, theta: Array, X: Array, y: Array, work: Workspace, expert: int | None = None, dof: float = np.inf,
    row_noise: Array | None = None,
) -> Evidence:  # fmt: skip
    """Log marginal likelihood of one leaf and its gradient for all of theta. Eq. 6.

    ln p(y) = -y^T alpha / 2 - ln |K + noise I| / 2 - (p / 2) ln 2 pi,  alpha = (K + noise I)^-1 y;
    d ln p / d theta_i = sum(W * dK / d theta_i),  W = (alpha alpha^T - (K + noise I)^-1) / 2.

    dof : where finite, the leaf has its own scale with a prior of this many degrees of freedom (see `leaf.student`)
    row_noise : where rows differ in noise, as `linalg.row_noise` describes: diag(noise a + b) in place of noise I
    """
    p, noise = len(y), float(np.exp(theta[-1]))
    quick = evidences(kernel, theta, X, y, np.array([0]), np.array([p]), work, dof, row_noise)[0]
    if quick is not None:
        return quick
    in_use, jitter = _factor(kernel, theta, X, work, expert, row_noise)
    K, A, T, D = in_use
    alpha = y.copy()
    cholesky.solve_vector(A, alpha, p)
    misfit = _misfit(y, alpha)
    value, weight = leaf.student(leaf.log_likelihood(y, alpha, A, p), misfit, p, dof)
    alpha *= alpha.dtype.type(np.sqrt(weight))
    cholesky.inverse(A, D, T, p, work.team)
    trace = leaf.weights(alpha, A, p)
    if row_noise is not None:
        trace = float(np.dot(row_noise[:, FACTOR].astype(float), np.diagonal(A)[:p].astype(float)))
    gradient = np.append(kernel.pullback(theta[:-1], X, A, K), noise * trace)
    return checked(Evidence.of(value, gradient, p, jitter), expert)


@tiny_is_zero
def evidences(
    kernel: Kernel, theta: Array, X: Array, y: Array, starts: Array, ends: Array, work: Workspace,
    dof: float = np.inf, row_noise: Array | None = None,
) -> list[Evidence | None]:  # fmt: skip
    """`evidence` of several leaves in one compiled call; leaf i is the rows starts[i] .. ends[i] of X and y.

    None for a leaf that `evidence` must compute step by step, because it needs jitter or its evidence is not finite,
    and for all leaves of a kernel that is not compiled.
    """
    profile = kernel.profile(theta[:-1], X.shape[1])
    if profile is None:
        return [None] * len(starts)
    results = leaf.evidences(profile, float(np.exp(theta[-1])), X, y, starts, ends, work, dof, row_noise)
    sums = _packed(results, ends - starts)
    return [Evidence(row) if isfinite(row[0]) else None for row in sums]


def checked(evidence: Evidence, expert: int | None) -> Evidence:
    """Raise NotFinite for a value that is not finite, before it contaminates the sum over all experts."""
    if not isfinite(evidence.sums[0]):
        who = "the expert" if expert is None else f"expert {expert}"
        raise NotFinite(
            f"the evidence of {who} or its gradient is not a number; "
            "check the kernel with gigagp.testing.check_kernel, and its bounds"
        )
    return evidence


@tiny_is_zero
def factor(
    kernel: Kernel, theta: Array, X: Array, y: Array, work: Workspace, expert: int | None = None, keep: bool = False,
    row_noise: Array | None = None,
) -> Factor:  # fmt: skip
    """The Cholesky factor and alpha of one leaf. Unless `keep`, U lives in `work` until the next leaf."""
    (_, U, _, D), jitter = _factor(kernel, theta, X, work, expert, row_noise)
    alpha = y.copy()
    cholesky.solve_vector(U, alpha, len(y))
    if keep:
        U, D = U.copy(), D.copy()
    return Factor(X, U, D, alpha, jitter, _misfit(y, alpha), len(y))


@tiny_is_zero
def posterior_mean(kernel: Kernel, theta: Array, factor: Factor, Z: Array, work: Workspace) -> Array:
    """E[f(z)] = k_*^T alpha for each row of Z. Eq. 3. No variance work is done."""
    return weighted_mean(kernel, theta, factor.X, factor.alpha, Z, work)


@tiny_is_zero
def weighted_mean(kernel: Kernel, theta: Array, X: Array, weights: Array, Z: Array, work: Workspace) -> Array:
    """k(X, z)^T weights for each row of Z."""
    mean = np.empty(len(Z), Z.dtype)
    for start in range(0, len(Z), QUERY_BLOCK):
        block = Z[start : start + QUERY_BLOCK]
        k = kernel.cross(theta[:-1], X, block, _cross_buffer(X, block, work))
        weighted_sum(weights, k, len(X), len(block), mean[start:])
    return mean


@tiny_is_zero
def posterior(kernel: Kernel, theta: Array, factor: Factor, Z: Array, work: Workspace) -> tuple[Array, Array]:
    """Mean (eq. 3) and variance (eq. 4) of the latent f at each row of Z; the variance is always positive.

    var[f(z)] = k_** - |L^-1 k_*|^2.
    """
    p, q = len(factor.X), len(Z)
    mean, variance = np.empty(q, Z.dtype), np.empty(q, Z.dtype)
    for start in range(0, q, QUERY_BLOCK):
        block = Z[start : start + QUERY_BLOCK]
        n = len(block)
        k = kernel.cross(theta[:-1], factor.X, block, _cross_buffer(factor.X, block, work))
        weighted_sum(factor.alpha, k, p, n, mean[start:])
        cholesky.solve_lower(factor.U, factor.D, k, p, n)
        prior = kernel.diagonal(theta[:-1], block)
        explained = np.empty(n, Z.dtype)
        column_dots(k, k, p, n, explained)
        if factor.returned is not None:
            explained -= _returned(factor.returned, k, p, n)
        floor = max(SMALLEST_VARIANCE, float(np.finfo(Z.dtype).eps)) * prior + np.finfo(Z.dtype).tiny
        variance[start : start + n] = np.maximum(prior - explained, floor)
    return mean, variance


def _returned(L: Triangle, k: Array, p: int, n: int) -> Array:
    """|L^-1 k|^2 for each column of k, which is overwritten."""
    cholesky.solve_lower(L.U, L.D, k, p, n)
    squares = np.empty(n, k.dtype)
    column_dots(k, k, p, n, squares)
    return squares


def _misfit(y: Array, alpha: Array) -> float:
    return float(np.dot(y.astype(float), alpha.astype(float)))


@tiny_is_zero
def held_out(
    kernel: Kernel, theta: Array, X: Array, y: Array, Z: Array, own: Array, work: Workspace, expert: int | None = None,
    row_noise: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Mean and variance of f at queries Z, and the scale; a query that is a row of the leaf is predicted without it.

    own : for each query the position of its row in X, or -1. For such a row i, with C = (K + noise I)^-1, the mean is
    y_i - alpha_i / C_ii, the variance of y 1 / C_ii (Rasmussen & Williams 2006, eq. 5.12), and the misfit of the
    others y^T C y - alpha_i^2 / C_ii.
    """
    p, noise, outside = len(y), float(np.exp(theta[-1])), own < 0
    own_factor = factor(kernel, theta, X, y, work, expert, row_noise=row_noise)
    mean, variance = np.empty(len(Z), Z.dtype), np.empty(len(Z), Z.dtype)
    scale = np.full(len(Z), own_factor.scale)
    if outside.any():
        mean[outside], variance[outside] = posterior(kernel, theta, own_factor, np.ascontiguousarray(Z[outside]), work)
    rows = own[~outside]
    if len(rows):
        precision = np.empty(len(rows))
        for start in range(0, len(rows), QUERY_BLOCK):
            block = rows[start : start + QUERY_BLOCK]
            V, n = _cross_buffer(X, X, work), len(block)
            V[:p, :] = 0
            V[block, np.arange(n)] = 1
            cholesky.solve_lower(own_factor.U, own_factor.D, V, p, n)
            precision[start : start + n] = np.einsum("pq,pq->q", V[:p, :n], V[:p, :n], dtype=float)
        alpha = own_factor.alpha[rows].astype(float)
        mean[~outside] = y[rows] - alpha / precision
        smallest = max(SMALLEST_VARIANCE, float(np.finfo(Z.dtype).eps)) * kernel.diagonal(theta[:-1], Z[~outside])
        own_noise = noise if row_noise is None else variances(noise, row_noise[rows])
        variance[~outside] = np.maximum(1 / precision - own_noise, smallest)
        scale[~outside] = own_scale(own_factor.misfit - alpha**2 / precision, p - 1)
    return mean, variance, scale


def _factor(
    kernel: Kernel, theta: Array, X: Array, work: Workspace, expert: int | None, row_noise: Array | None
) -> tuple[leaf.Buffers, float]:
    """The worker's buffers, filled with K, U and D, and the jitter that the factorisation needed."""
    p = len(X)
    in_use = leaf.buffers(p, X.dtype, work)
    K = kernel.gram(theta[:-1], X, in_use.K)
    if K is not in_use.K:  # a kernel may return a matrix of its own
        in_use.K[:p, :p] = K[:p, :p]
    jitter = factor_noisy(in_use.K, float(np.exp(theta[-1])), in_use.A, in_use.D, p, work.team, row_noise)
    if not np.isfinite(jitter):
        names = (*kernel.names, "noise_variance")
        values = dict(zip(names, (float(v) for v in np.exp(theta)), strict=True))
        raise NotPositiveDefinite(expert, values, largest_jitter(X.dtype.name), X.dtype.name)
    return in_use, jitter


def _cross_buffer(X: Array, block: Array, work: Workspace) -> Array:
    return work.take("cross", len(X), _ROW, block.dtype)

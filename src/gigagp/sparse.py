"""A sparse expert: m inducing points stand in for the p points of a leaf, by the variational bound of Titsias (2009).

With u the inducing inputs, N the diagonal matrix of the noise variances and Q = K_fu K_uu^-1 K_uf,

    bound = ln N(y | 0, Q + N) - sum_i (k_ii - q_ii) / (2 N_ii)  <=  ln N(y | 0, K + N),

with equality where the inducing inputs are all points. The bound of a leaf takes O(p m^2) operations instead of
O(p^3), and bounds of leaves add up the tree like any evidence. In the notation of the code, K_uu = L L^T,

    A = L^-1 K_uf N^-1/2,   B = I + A A^T = L_B L_B^T,   c = L_B^-1 A N^-1/2 y,   beta = L^-T L_B^-T c,
    bound = -(p ln 2 pi + ln |N| + ln |B| + y^T N^-1 y - c^T c + sum_i k_ii / N_ii - tr A A^T) / 2.

Its cotangents, with alpha = (Q + N)^-1 y, go through the pullback of any kernel:

    of K_uf:  beta alpha^T + L^-T (I - B^-1) A N^-1/2,
    of K_uu:  -(beta beta^T + L^-T (B - 2 I + B^-1) L^-1) / 2,
    of k_ii:  -1 / (2 N_ii),
    of N_ii:  (alpha_i^2 - [(Q + N)^-1]_ii + (k_ii - q_ii) / N_ii^2) / 2.

Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.errors import NotPositiveDefinite
from gigagp.expert import Evidence, Factor, Triangle
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky
from gigagp.linalg.gemm import FULL, multiply
from gigagp.linalg.jitter import factor_noisy, largest_jitter
from gigagp.linalg.row_noise import FACTOR, variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace

# Always added to K_uu, relative to the mean of its diagonal: inducing points that are close to each other make it
# singular. It is the noise of the inducing variables, so that the bound remains a bound.
_JITTER = {"float64": 1e-8, "float32": 1e-6}
_LEAST_SHARE = 1e-9  # of a row's precision that the others leave, when it is predicted without itself


def inducing_rows(p: int, inducing: int) -> Array:
    """Positions of the inducing points among the rows of a leaf, in a fixed order.

    Positions are visited in bit-reversed order, so that any number of them is spread evenly over the leaf (rows of a
    cell are stored in the order of a KD-tree) and more inducing points contain fewer: the bound then grows with them.
    """
    bits = max(1, (p - 1).bit_length())
    numbers = np.arange(1 << bits)
    reverse = np.zeros_like(numbers)
    for _ in range(bits):
        reverse = (reverse << 1) | (numbers & 1)
        numbers = numbers >> 1
    return reverse[reverse < p][:inducing]


@dataclass(frozen=True, eq=False)
class _Projection:
    """A leaf at one theta, in terms of its inducing points; letters as above."""

    u: Array  # inducing inputs
    L: Triangle
    L_B: Triangle
    A: Array
    E: Array  # L_B^-1 A
    B: Array
    c: Array
    noise: Array  # diagonal of N
    jitter: float  # added to K_uu, relative to the mean of its diagonal

    @property
    def beta(self) -> Array:
        """The weights of the inducing points in the mean."""
        return _solve_transposed(self.L, _solve_transposed(self.L_B, self.c[:, None]))[:, 0]

    def alpha(self, y: Array) -> Array:
        """(Q + N)^-1 y."""
        root = np.sqrt(self.noise)
        weights = _solve_transposed(self.L_B, self.c[:, None])
        return np.asarray((y / root - _product(self.A.T, weights)[:, 0]) / root)

    @property
    def precision(self) -> Array:
        """The diagonal of (Q + N)^-1."""
        share = 1 - np.einsum("ij,ij->j", self.E, self.E)
        return np.asarray(np.maximum(share, _LEAST_SHARE) / self.noise)

    @property
    def explained(self) -> Array:
        """The diagonal of Q."""
        return np.asarray(self.noise * np.einsum("ij,ij->j", self.A, self.A))

    def misfit(self, y: Array) -> float:
        """y^T (Q + N)^-1 y."""
        return float(np.sum(y**2 / self.noise) - np.sum(self.c**2))


def _product(A: Array, B: Array) -> Array:
    """A B, by our own product: its bits do not depend on a library."""
    A, B = np.ascontiguousarray(A), np.ascontiguousarray(B)
    C = np.empty((len(A), B.shape[1]))
    multiply(1.0, A, 0, 0, False, B, 0, 0, 0.0, C, 0, 0, len(A), B.shape[1], len(B), FULL)
    return C


def _solve(L: Triangle, B: Array) -> Array:
    """L^-1 B."""
    result = np.array(B, order="C")
    cholesky.solve_lower(L.U, L.D, result, len(B), B.shape[1])
    return result


def _solve_transposed(L: Triangle, B: Array) -> Array:
    """L^-T B."""
    result = np.array(B, order="C")
    cholesky.solve_lower_transposed(L.U, L.D, result, len(B), B.shape[1])
    return result


def _factored(K: Array, added: float, work: Workspace) -> tuple[Triangle, float]:
    """The Cholesky factor of K + added I, and the jitter that it needed beyond that; infinite where none sufficed."""
    m, stride = len(K), cholesky.stride(len(K))
    padded = np.zeros((m, stride))
    padded[:, :m] = K
    U, D = np.zeros((m, stride)), np.zeros((m, cholesky.WIDTH))
    jitter = factor_noisy(padded, added, U, D, m, work.team)
    return Triangle(U, D), jitter


def _project(
    kernel: Kernel, theta: Array, X: Array, y: Array, inducing: int, work: Workspace, leaf: int | None,
    row_noise: Array | None,
) -> _Projection:  # fmt: skip
    """X and y in float64."""
    common = float(np.exp(theta[-1]))
    noise = np.full(len(y), common) if row_noise is None else variances(common, row_noise)
    u = np.ascontiguousarray(X[inducing_rows(len(X), inducing)])
    m = len(u)
    K_uu = np.asarray(kernel.gram(theta[:-1], u))[:m, :m]
    level = float(np.mean(np.diagonal(K_uu)))
    least = _JITTER["float64"]
    L, more = _factored(K_uu, least * level, work)
    A = np.asarray(kernel.cross(theta[:-1], u, X))[:m, : len(X)]
    A = _solve(L, A) / np.sqrt(noise) if np.isfinite(more) else A
    B = np.eye(m) + _product(A, A.T)
    L_B, failure = _factored(B, 0.0, work)
    if not (np.isfinite(more) and np.isfinite(failure)):
        names = (*kernel.names, "noise_variance")
        values = dict(zip(names, (float(v) for v in np.exp(theta)), strict=True))
        raise NotPositiveDefinite(leaf, values, largest_jitter("float64"), "float64")
    E = _solve(L_B, A)
    c = _product(E, (y / np.sqrt(noise))[:, None])[:, 0]
    return _Projection(u, L, L_B, A, E, B, c, noise, least + more / level)


@tiny_is_zero
def evidence(
    kernel: Kernel, theta: Array, X: Array, y: Array, inducing: int, work: Workspace, leaf: int | None = None,
    row_noise: Array | None = None,
) -> Evidence:  # fmt: skip
    """The bound of one leaf and its gradient for all of theta, in float64."""
    X, y = X.astype(float), y.astype(float)
    p, diagonal = len(y), np.asarray(kernel.diagonal(theta[:-1], X), float)
    f = _project(kernel, theta, X, y, inducing, work, leaf, row_noise)
    residual = diagonal - f.explained
    log_determinant = float(np.sum(np.log(f.noise))) + cholesky.log_determinant(f.L_B.U, len(f.u))
    value = -0.5 * (p * np.log(2 * np.pi) + log_determinant + f.misfit(y) + float(np.sum(residual / f.noise)))
    alpha = f.alpha(y)
    by_noise = 0.5 * (alpha**2 - f.precision + residual / f.noise**2)
    by_kernel = _pulled(kernel, theta[:-1], X, f, alpha)
    if row_noise is not None:
        by_noise = by_noise * row_noise[:, FACTOR]
    gradient = np.append(by_kernel, float(np.exp(theta[-1])) * float(np.sum(by_noise)))
    jittered = f.jitter if f.jitter > 2 * _JITTER["float64"] else 0.0
    return expert.checked(Evidence.of(value, gradient, p, jittered), leaf)


def _pulled(kernel: Kernel, theta: Array, X: Array, f: _Projection, alpha: Array) -> Array:
    """The gradient of the bound with respect to the kernel's parameters.

    The pullback takes symmetric cotangents. It is therefore applied to the inducing points together with m points of
    the leaf at a time, which are twice as many pairs as K_uf has entries.
    """
    m, beta = len(f.u), f.beta
    by_cross = np.outer(beta, alpha)
    by_cross += _solve_transposed(f.L, f.A - _solve_transposed(f.L_B, f.E)) / np.sqrt(f.noise)
    inverse_B = _solve_transposed(f.L_B, _solve(f.L_B, np.eye(m)))
    half = _solve_transposed(f.L, f.B - 2 * np.eye(m) + inverse_B)
    by_inducing = -0.5 * (np.outer(beta, beta) + _solve_transposed(f.L, half.T))
    # The jitter is a share of the mean of the diagonal.
    by_inducing[np.diag_indices(m)] += f.jitter * np.trace(by_inducing) / m
    total = np.zeros(len(theta))
    for start in range(0, len(X), m):
        rows = slice(start, start + m)
        points = np.concatenate([f.u, X[rows]])
        W = np.zeros((len(points), len(points)))
        if start == 0:
            W[:m, :m] = by_inducing
        W[m:, :m] = 0.5 * by_cross[:, rows].T
        np.fill_diagonal(W[m:, m:], -0.5 / f.noise[rows])
        total += kernel.pullback(theta, points, W, kernel.gram(theta, points))
    return total


@tiny_is_zero
def factor(
    kernel: Kernel, theta: Array, X: Array, y: Array, inducing: int, work: Workspace, leaf: int | None = None,
    row_noise: Array | None = None,
) -> Factor:  # fmt: skip
    """What a sparse expert predicts with.

    Its mean is k_u^T beta, its variance k_** - |L^-1 k_u|^2 + |L_B^-1 L^-1 k_u|^2.
    """
    targets = y.astype(float)
    f = _project(kernel, theta, X.astype(float), targets, inducing, work, leaf, row_noise)
    u, beta = f.u.astype(X.dtype), f.beta.astype(X.dtype)
    L, L_B = (Triangle(t.U.astype(X.dtype), t.D.astype(X.dtype)) for t in (f.L, f.L_B))
    return Factor(u, L.U, L.D, beta, 0.0, f.misfit(targets), len(y), L_B)


@tiny_is_zero
def held_out(
    kernel: Kernel, theta: Array, X: Array, y: Array, Z: Array, own: Array, inducing: int, work: Workspace,
    leaf: int | None = None, row_noise: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """As `expert.held_out`: a query that is a row of the leaf is predicted without its target.

    The inducing inputs stay what they are. With C = (Q + N)^-1 the mean of row i is y_i - alpha_i / C_ii, and the
    variance of f is 1 / C_ii - N_ii + k_ii - q_ii.
    """
    own_factor = factor(kernel, theta, X, y, inducing, work, leaf, row_noise)
    mean, variance = np.empty(len(Z), Z.dtype), np.empty(len(Z), Z.dtype)
    outside, scale = own < 0, np.full(len(Z), own_factor.scale)
    if outside.any():
        queries = np.ascontiguousarray(Z[outside])
        mean[outside], variance[outside] = expert.posterior(kernel, theta, own_factor, queries, work)
    rows = own[~outside]
    if len(rows):
        inputs, targets = X.astype(float), y.astype(float)
        f = _project(kernel, theta, inputs, targets, inducing, work, leaf, row_noise)
        alpha, precision = f.alpha(targets)[rows], f.precision[rows]
        diagonal = np.asarray(kernel.diagonal(theta[:-1], inputs[rows]), float)
        mean[~outside] = targets[rows] - alpha / precision
        unexplained = np.maximum(diagonal - f.explained[rows], 0.0)
        smallest = expert.SMALLEST_VARIANCE * diagonal
        variance[~outside] = np.maximum(1 / precision - f.noise[rows] + unexplained, smallest)
        scale[~outside] = expert.own_scale(own_factor.misfit - alpha**2 / precision, len(y) - 1)
    return mean, variance, scale

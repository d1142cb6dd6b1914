"""The approximate evidence of the rows of one leaf whose targets are not Gaussian, with its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.expert import Evidence, checked
from gigagp.kernels.base import Kernel
from gigagp.likelihoods import laplace, pointwise
from gigagp.likelihoods.base import Likelihood
from gigagp.likelihoods.latents import Latents
from gigagp.linalg import cholesky, leaf, schedule
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace

_VECTORS = 8  # of one number per row that the evidence needs


@dataclass(frozen=True, eq=False)
class LaplaceEvidence:
    """The summed evidence of the latent functions of one leaf at theta, as a function of its rows.

    The last entry of theta is the logarithm of the dispersion; it has no effect on likelihoods without one.
    """

    kernel: Kernel
    theta: Array
    latents: Latents

    name = "evidence"

    @tiny_is_zero
    def __call__(self, expert: int, X: Array, y: Array, work: Workspace, row_noise: Array | None = None) -> Evidence:
        p, X = len(y), np.ascontiguousarray(X, dtype=float)
        buffers = leaf.buffers(p, X.dtype, work)
        K = buffers.K
        gram = self.kernel.gram(self.theta[:-1], X, K)
        if gram is not K:  # a kernel may return a matrix of its own
            K[:p, :p] = gram[:p, :p]
        W = work.take("cotangent", p, K.shape[1], X.dtype)
        W[:p] = 0.0
        weights = self.latents.weights_of(y, row_noise)
        value, by_dispersion = 0.0, 0.0
        problem = _Problem(self.latents.likelihood, float(np.exp(self.theta[-1])), weights)
        for latent, times in self.latents.distinct(y):
            labels, mean = self.latents.labels(y, latent), float(self.latents.means[latent])
            own, slope = _log_evidence(problem, buffers, labels, mean, times, W, work)
            value, by_dispersion = value + times * own, by_dispersion + times * slope
        gradient = np.append(self.kernel.pullback(self.theta[:-1], X, W, K), by_dispersion)
        points = max(1, round(float(weights.sum())))  # a row of weight two counts as two
        return checked(Evidence.of(value, gradient, points, 0.0), expert)


@dataclass(frozen=True, eq=False)
class _Problem:
    """A likelihood with its dispersion, and how much each row counts: what the compiled code needs, or Python calls."""

    likelihood: Likelihood
    d: float
    weights: Array

    @property
    def kind(self) -> int:
        return self.likelihood.compiled

    def mode(self, K: Array, y: Array, mean: float, *buffers: Array) -> bool:
        factoring = schedule.factoring(len(y), cholesky.WIDTH).operations
        arguments: tuple[Any, ...] = (self.d, K, y, self.weights, mean, laplace.EXACT, factoring, *buffers)
        if self.kind == pointwise.PYTHON:
            return laplace.python_mode(self.likelihood, *arguments)
        return bool(laplace.mode(self.kind, *arguments))

    def at_mode(self, y: Array, f: Array, roots: Array, ratios: Array) -> None:
        """roots := W^1/2, and ratios := the third derivatives of ln p over minus the second."""
        if self.kind == pointwise.PYTHON:
            _, curvature, third = self.likelihood.derivatives(y, f, self.d)
            roots[:], ratios[:] = np.sqrt(self.weights * curvature), third / curvature
        else:
            laplace.curvatures(self.kind, self.d, y, self.weights, f, 0.0, len(y), roots, ratios)
            laplace.third_derivative_ratios(self.kind, self.d, y, f, ratios)

    def log_density(self, y: Array, f: Array) -> float:
        """The weighted sum of ln p(y | f)."""
        if self.kind == pointwise.PYTHON:
            return float(self.weights @ self.likelihood.log_density(y, f, self.d))
        return float(laplace.weighted_log_density(self.kind, self.d, y, self.weights, f))

    def dispersion_terms(self, y: Array, f: Array) -> Array:
        terms = np.empty((3, len(y)))
        if self.kind == pointwise.PYTHON:
            terms[:] = self.likelihood.dispersion_derivatives(y, f, self.d)
            terms[2] /= self.likelihood.derivatives(y, f, self.d).curvature
        else:
            laplace.dispersion_terms(self.kind, self.d, y, f, terms)
        return terms


def _log_evidence(
    problem: _Problem, buffers: leaf.Buffers, y: Array, mean: float, times: int, W: Array, work: Workspace
) -> tuple[float, float]:  # fmt: skip
    """The approximate log evidence of one latent function and its slope by ln d; W += `times` its derivative by K.

    ln q(y) = ln p(y | f) - (f - m)^T K^-1 (f - m) / 2 - ln |B| / 2 at the mode (Rasmussen & Williams 2006, eq. 3.32).
    NaN if the mode is not found, because a covariance is not finite.
    """
    p, (K, A, T, D) = len(y), buffers
    f, a, roots, v, b, s, u, ratios = np.empty((_VECTORS, p))
    if not problem.mode(K, y, mean, A, T, D, f, a, roots, v, b):
        return np.nan, np.nan
    problem.at_mode(y, f, roots, ratios)
    laplace.form_b(K, roots, p, A)
    if cholesky.factor(A, D, p, work.team) != 0:
        return np.nan, np.nan
    value = problem.log_density(y, f) - 0.5 * float(((f - mean) * a).sum()) - 0.5 * cholesky.log_determinant(A, p)
    cholesky.inverse(A, D, T, p, work.team)
    laplace.add_cotangent(K, A, ratios, a, roots, v, s, u, float(times), W)
    if not problem.likelihood.has_dispersion:
        return value, 0.0
    return value, laplace.dispersion_slope(K, A, problem.weights, problem.dispersion_terms(y, f), u, v)

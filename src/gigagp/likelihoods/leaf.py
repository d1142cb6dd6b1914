"""The approximate evidence of the rows of one leaf whose targets are classes, with its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.expert import Evidence, checked
from gigagp.kernels.base import Kernel
from gigagp.likelihoods import laplace
from gigagp.likelihoods.classes import Classes
from gigagp.linalg import cholesky, leaf, schedule
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace

_VECTORS = 7  # of one number per row that the evidence needs


@dataclass(frozen=True, eq=False)
class LaplaceEvidence:
    """The summed evidence of the latent functions of one leaf at theta, as a function of its rows.

    The last entry of theta, the noise, has no effect: the noise of classes is that of their likelihood.
    """

    kernel: Kernel
    theta: Array
    classes: Classes

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
        weights = self.classes.weights_of(y, row_noise)
        value = 0.0
        for latent, times in self.classes.distinct(y):
            labels, mean = self.classes.labels(y, latent), float(self.classes.means[latent])
            value += times * _log_evidence(buffers, labels, weights, mean, times, W, work)
        gradient = np.append(self.kernel.pullback(self.theta[:-1], X, W, K), 0.0)
        points = max(1, round(float(weights.sum())))  # a row of weight two counts as two
        return checked(Evidence.of(value, gradient, points, 0.0), expert)


def _log_evidence(
    buffers: leaf.Buffers, labels: Array, weights: Array, mean: float, times: int, W: Array, work: Workspace
) -> float:  # fmt: skip
    """The approximate log evidence of one latent function; W += `times` its derivative by K (lower triangle).

    ln q(t) = ln p(t | f) - (f - m)^T K^-1 (f - m) / 2 - ln |B| / 2 at the mode (Rasmussen & Williams 2006, eq. 3.32).
    NaN if the mode is not found, because a covariance is not finite.
    """
    p, (K, A, T, S, D) = len(labels), buffers
    f, a, roots, v, b, s, u = np.empty((_VECTORS, p))
    factoring = schedule.factoring(p, cholesky.WIDTH).operations
    if not laplace.mode(K, labels, weights, mean, laplace.EXACT, factoring, A, T, S, D, f, a, roots, v, b):
        return np.nan
    laplace.curvatures(labels, weights, f, mean, p, roots, b)
    laplace.form_b(K, roots, p, A)
    if cholesky.factor(A, D, p, work.team) != 0:
        return np.nan
    value = laplace.objective(labels, weights, f, a, mean, p) - 0.5 * cholesky.log_determinant(A, p)
    cholesky.inverse(A, D, T, S, p, work.team)
    laplace.add_cotangent(K, A, labels, f, a, roots, v, s, u, float(times), W)
    return value

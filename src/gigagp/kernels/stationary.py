"""What the kernels of a scaled distance share; each of them only names its profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, parameter
from gigagp.linalg import stationary as passes


class Stationary(Kernel):
    """k(x, z) = variance * f(r^2), r^2 = sum_d (x_d - z_d)^2 / lengthscale_d^2."""

    kind: int

    def __init__(
        self,
        variance: float = 1.0,
        lengthscale: float | Sequence[float] = 1.0,
        *,
        ard: bool = True,
        variance_bounds: tuple[float, float] = (1e-4, 1e4),
        lengthscale_bounds: tuple[float, float] = (1e-3, 1e3),
    ) -> None:
        self.parameters = (
            parameter("variance", variance, variance_bounds),
            parameter("lengthscale", lengthscale, lengthscale_bounds, per_feature=ard),
        )

    def _split(self, theta: Array, n_features: int) -> tuple[float, Array, float]:
        """variance, one inverse length-scale a column, shape."""
        count = len(self.parameters[1].values)
        scales = np.broadcast_to(np.exp(-np.asarray(theta[1 : 1 + count], dtype=float)), (n_features,))
        shape = float(np.exp(theta[1 + count])) if len(theta) > 1 + count else 1.0
        return float(np.exp(theta[0])), np.ascontiguousarray(scales), shape

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        variance, scales, shape = self._split(theta, X.shape[1])
        K = np.zeros((len(X), len(X)), X.dtype) if out is None else out
        passes.gram(self.kind, passes.scaled_transposed(X, scales), variance, shape, K)
        return K

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        variance, scales, shape = self._split(theta, X.shape[1])
        K = np.empty((len(X), len(Z)), X.dtype) if out is None else out
        x, z = passes.scaled_transposed(X, scales), passes.scaled_transposed(Z, scales)
        passes.cross(self.kind, x, z, variance, shape, K)
        return K

    def diagonal(self, theta: Array, X: Array) -> Array:
        return np.full(len(X), np.exp(theta[0]), X.dtype)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        variance, scales, shape = self._split(theta, X.shape[1])
        gradient = np.empty(X.shape[1] + 2)
        passes.pullback(self.kind, passes.scaled_transposed(X, scales), variance, shape, W, K, gradient)
        lengthscales = gradient[1:-1] if len(self.parameters[1].values) > 1 else gradient[1:-1].sum(keepdims=True)
        if X.shape[1] == 1:
            lengthscales = gradient[1:2]
        return np.concatenate([gradient[:1], lengthscales, gradient[-1:]])[: len(theta)]

    def metric(self, theta: Array) -> Array | None:
        count = len(self.parameters[1].values)
        return np.asarray(np.exp(-np.asarray(theta[1 : 1 + count], dtype=float)))

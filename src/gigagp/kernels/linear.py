"""The linear kernel."""

from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, parameter, place


class Linear(Kernel):
    """k = sum_d variance_d x_d z_d: straight lines through the origin (the mean, when inputs are standardised)."""

    def __init__(
        self,
        variance: float | Sequence[float] = 1.0,
        *,
        ard: bool = True,
        variance_bounds: tuple[float, float] = (1e-6, 1e4),
    ) -> None:
        self.parameters = (parameter("variance", variance, variance_bounds, per_feature=ard),)

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        return self.cross(theta, X, X, out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        return place((X * np.exp(theta).astype(X.dtype)) @ Z.T, out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        return np.asarray((X * X * np.exp(theta).astype(X.dtype)).sum(axis=1), X.dtype)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        below = np.tril(W[: len(X), : len(X)], -1)
        by_column = 2 * ((below @ X) * X).sum(axis=0, dtype=float) + np.diagonal(W)[: len(X)] @ (X * X)
        pulled = np.exp(theta) * by_column
        return np.asarray(pulled) if len(theta) == X.shape[1] else np.asarray(pulled.sum(keepdims=True))

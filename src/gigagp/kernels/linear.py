"""The linear kernel."""

from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, place
from gigagp.kernels.inputs import Column
from gigagp.kernels.parameters import SLOPE, Bounds, parameter
from gigagp.linalg.gemm import FULL, multiply


class Linear(Kernel):
    """k = sum_d variance_d x_d z_d: straight lines through the origin (the mean, when inputs are standardised)."""

    def __init__(
        self,
        variance: float | Sequence[float] | None = None,
        *,
        ard: bool = True,
        variance_bounds: Bounds | None = None,
        columns: Column | Sequence[Column] | None = None,
        units: str | None = None,
    ) -> None:
        own = self._select(columns, units)
        self.parameters = (
            parameter(
                "variance", variance, variance_bounds, per_feature=ard, quantity=SLOPE, default_bounds=(1e-6, 1e4),
                data_units=own,
            ),
        )  # fmt: skip

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        return self.cross(theta, X, X, out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        # Not a library's product, which rounds an element by where it stands: a query's row must not.
        scaled, columns = np.ascontiguousarray(X * np.exp(theta).astype(X.dtype)), np.array(Z.T, order="C")
        K = np.empty((len(X), len(Z)), X.dtype)
        multiply(1.0, scaled, 0, 0, False, columns, 0, 0, 0.0, K, 0, 0, len(X), len(Z), X.shape[1], FULL)
        return place(K, out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        variances = np.broadcast_to(np.exp(theta), X.shape[1]).astype(X.dtype)
        total = np.zeros(len(X), X.dtype)
        for column, variance in zip(X.T, variances, strict=True):  # one by one: NumPy's sums regroup
            total += column * column * variance
        return total

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        return np.asarray((np.asarray(G, float).T @ np.asarray(X, float)) * np.exp(theta))

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        return np.asarray(2 * np.exp(theta) * np.asarray(Z, float))

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        below = np.tril(W[: len(X), : len(X)], -1)
        by_column = 2 * ((below @ X) * X).sum(axis=0, dtype=float) + np.diagonal(W)[: len(X)] @ (X * X)
        pulled = np.exp(theta) * by_column
        return np.asarray(pulled) if len(theta) == X.shape[1] else np.asarray(pulled.sum(keepdims=True))

"""The constant kernel."""

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel, place
from gigagp.kernels.parameters import VARIANCE, Bounds, parameter


class Constant(Kernel):
    """k = value: an unknown offset when added, an amplitude when multiplied."""

    takes_categories = True

    def __init__(self, value: float | None = None, *, bounds: Bounds | None = None, units: str | None = None) -> None:
        own = self._select(None, units)
        self.parameters = (parameter("value", value, bounds, quantity=VARIANCE, data_units=own),)

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        return self.cross(theta, X, X, out)

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        return place(np.full((len(X), len(Z)), np.exp(theta[0]), X.dtype), out)

    def diagonal(self, theta: Array, X: Array) -> Array:
        return np.full(len(X), np.exp(theta[0]), X.dtype)

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        return np.zeros(Z.shape)

    def metric(self, theta: Array) -> Array | None:
        """Zero: it does not depend on distances; the kernel with which it is composed determines the metric."""
        return np.zeros(1)

    def sees(self, n_features: int) -> Array:
        return np.full(n_features, False)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        p = len(X)
        both = 2 * np.tril(W[:p, :p], -1).sum(dtype=float) + np.diagonal(W)[:p].sum(dtype=float)
        return np.array([np.exp(theta[0]) * both])

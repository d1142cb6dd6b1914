"""Kernels that depend on a scaled distance; each of them only names its profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel
from gigagp.kernels.inputs import Column
from gigagp.kernels.parameters import LENGTH, VARIANCE, Bounds, parameter
from gigagp.linalg import stationary as passes
from gigagp.linalg.categories import limits_of
from gigagp.linalg.leaf import Profile


class Stationary(Kernel):
    """k(x, z) = variance * f(r^2), r^2 = sum_d (x_d - z_d)^2 / lengthscale_d^2, d over `columns`.

    The default of variance and length-scales is 1, with bounds (1e-4, 1e4) and (1e-3, 1e3), in standardised units.
    In a column that is a category, any two different levels have the same distance (`gigagp.linalg.categories`).
    """

    kind: int

    @property
    def takes_categories(self) -> bool:  # type: ignore[override]
        """Not a subclass with passes of its own, which may not know of them."""
        return type(self).gram is Stationary.gram

    def __init__(
        self,
        variance: float | None = None,
        lengthscale: float | Sequence[float] | None = None,
        *,
        ard: bool = True,
        variance_bounds: Bounds | None = None,
        lengthscale_bounds: Bounds | None = None,
        columns: Column | Sequence[Column] | None = None,
        units: str | None = None,
    ) -> None:
        own = self._select(columns, units)
        self.parameters = (
            parameter(
                "variance", variance, variance_bounds, quantity=VARIANCE, default_bounds=(1e-4, 1e4), data_units=own
            ),
            parameter(
                "lengthscale", lengthscale, lengthscale_bounds, per_feature=ard, quantity=LENGTH,
                default_bounds=(1e-3, 1e3), data_units=own,
            ),
        )  # fmt: skip

    def profile(self, theta: Array, n_features: int) -> Profile | None:
        """The compiled leaf works from the profile alone, so a subclass with passes of its own must not have one."""
        own = type(self)
        if own.gram is not Stationary.gram or own.pullback is not Stationary.pullback:
            return None
        return self._profile(theta, n_features)

    def _profile(self, theta: Array, n_features: int) -> Profile:
        count, owners = len(self.parameters[1].values), self._owners(n_features)
        scales = np.exp(-np.asarray(theta[1 : 1 + count], dtype=float))[owners]
        shaped = len(theta) > 1 + count
        shape = float(np.exp(theta[1 + count])) if shaped else 1.0
        limits = limits_of(scales, self.categories)
        return Profile(self.kind, float(np.exp(theta[0])), scales, shape, limits, owners, shaped)

    def _owners(self, n_features: int) -> Array:
        """The number of each column's length-scale."""
        lengthscale = self.parameters[1]
        return lengthscale.owners if lengthscale.per_feature else np.zeros(n_features, np.int64)

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        f = self._profile(theta, X.shape[1])
        K = np.zeros((len(X), len(X)), X.dtype) if out is None else out
        passes.gram(f.kind, passes.scaled_transposed(X, f.scales), f.variance, f.shape, f.limits, K)
        return K

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        f = self._profile(theta, X.shape[1])
        K = np.empty((len(X), len(Z)), X.dtype) if out is None else out
        x, z = passes.scaled_transposed(X, f.scales), passes.scaled_transposed(Z, f.scales)
        passes.cross(f.kind, x, z, f.variance, f.shape, f.limits, K)
        return K

    def diagonal(self, theta: Array, X: Array) -> Array:
        return np.full(len(X), np.exp(theta[0]), X.dtype)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        f = self._profile(theta, X.shape[1])
        every = np.empty(X.shape[1] + 2)
        passes.pullback(f.kind, passes.scaled_transposed(X, f.scales), f.variance, f.shape, f.limits, W, K, every)
        lengthscales = every[1:-1]
        if f.lengthscales < X.shape[1]:
            lengthscales = np.bincount(f.owners, lengthscales, f.lengthscales)
        return np.concatenate([every[:1], lengthscales, every[-1:]])[: len(theta)]

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        if type(self).cross is not Stationary.cross or type(self).gram is not Stationary.gram:
            return super().query_gradient(theta, X, Z, G)  # the kernel has passes of its own
        f = self._profile(theta, X.shape[1])
        x, z = (passes.scaled_transposed(np.asarray(points, float), f.scales) for points in (X, Z))
        out = np.empty(Z.shape)
        passes.query_gradient(f.kind, x, z, f.variance, f.shape, f.limits, np.asarray(G, float), out)
        return np.asarray(out * f.scales)

    def metric(self, theta: Array) -> Array | None:
        lengthscale = self.parameters[1]
        weights = np.exp(-np.asarray(theta[1 : 1 + len(lengthscale.values)], dtype=float))
        return np.asarray(weights[lengthscale.owners] if lengthscale.groups else weights)

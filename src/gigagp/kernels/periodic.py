"""The periodic kernel (MacKay 1998), with one period and one length-scale per column."""

from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels.base import Kernel
from gigagp.kernels.inputs import Column, InputColumns
from gigagp.kernels.on_columns import OnColumns
from gigagp.kernels.parameters import NUMBER, PERIOD, VARIANCE, Bounds, parameter
from gigagp.linalg import stationary as passes
from gigagp.linalg.categories import NO_LIMITS
from gigagp.linalg.compiled import compiled


@compiled
def _pull_periods(u: Array, x: Array, W: Array, K: Array, total: Array) -> None:
    """total[d] := sum_ij W_ij K_ij (phi_id - phi_jd) sin(phi_id - phi_jd); u holds cos and sin of the phases x."""
    D, p = x.shape
    total[:] = 0
    for i in range(p):
        for d in range(D):
            c, s, a = u[2 * d, i], u[2 * d + 1, i], x[d, i]
            part = 0.0
            for j in range(i):
                part += W[i, j] * K[i, j] * (a - x[d, j]) * (s * u[2 * d, j] - c * u[2 * d + 1, j])
            total[d] += 2 * part


def periodic_columns(kernel: Kernel) -> list[tuple[int, float]]:
    """The columns of a bound periodic kernel, and the period of each, in the units of the model."""
    inner = kernel.kernel if isinstance(kernel, OnColumns) else kernel
    assert isinstance(inner, Periodic)
    period = inner.parameters[2]
    values = [period.values[owner] for owner in period.owners]
    return list(zip(kernel.places if isinstance(kernel, OnColumns) else range(len(values)), values, strict=True))


class Periodic(Kernel):
    """k = variance * exp(-2 sum_d sin^2(pi (x_d - z_d) / period_d) / lengthscale_d^2).

    A column is wound onto a circle, (cos phi, sin phi) with phi = 2 pi x / period; there the kernel is a
    squared exponential, and its passes serve. The length-scale is a pure number; the period is in the units of the
    column.
    """

    def __init__(
        self,
        variance: float | None = None,
        lengthscale: float | Sequence[float] | None = None,
        period: float | Sequence[float] | None = None,
        *,
        variance_bounds: Bounds | None = None,
        lengthscale_bounds: Bounds | None = None,
        period_bounds: Bounds | None = None,
        columns: Column | Sequence[Column] | None = None,
        units: str | None = None,
    ) -> None:
        own = self._select(columns, units)
        self.parameters = (
            parameter(
                "variance", variance, variance_bounds, quantity=VARIANCE, default_bounds=(1e-4, 1e4), data_units=own
            ),
            parameter(
                "lengthscale", lengthscale, lengthscale_bounds, per_feature=True, quantity=NUMBER,
                default_bounds=(1e-2, 1e2),
            ),
            parameter(
                "period", period, period_bounds, per_feature=True, quantity=PERIOD, default_bounds=(1e-2, 1e2),
                data_units=own,
            ),
        )  # fmt: skip

    def bound(self, inputs: InputColumns, is_factor: bool = False) -> Kernel:
        """As for other kernels; where the inputs have circles of its columns, with its metric on them."""
        bound = super().bound(inputs, is_factor)
        if not isinstance(bound, OnColumns):
            return bound
        pairs = [inputs.circle_of(*each) for each in periodic_columns(bound)]
        places = [place for pair in pairs if pair is not None for place in pair]
        if not places or None in pairs:
            return bound
        return OnColumns(bound.kernel, bound.places, bound.n_features, bound.scales, places)

    def _wound(self, theta: Array, X: Array) -> tuple[Array, Array, Array]:
        """Points on their circles scaled by 1 / lengthscale (2D, p), unscaled, and the phases (D, p)."""
        D = X.shape[1]
        phases = np.ascontiguousarray((X * (2 * np.pi * np.exp(-theta[1 + D : 1 + 2 * D]))).T, dtype=X.dtype)
        circles = np.empty((2 * D, len(X)), X.dtype)
        circles[0::2], circles[1::2] = np.cos(phases), np.sin(phases)
        scaled = circles * np.repeat(np.exp(-theta[1 : 1 + D]), 2).astype(X.dtype)[:, None]
        return scaled, circles, phases

    def gram(self, theta: Array, X: Array, out: Array | None = None) -> Array:
        K = np.zeros((len(X), len(X)), X.dtype) if out is None else out
        scaled, _, _ = self._wound(theta, X)
        passes.gram(passes.SQUARED_EXPONENTIAL, scaled, float(np.exp(theta[0])), 1.0, NO_LIMITS, K)
        return K

    def cross(self, theta: Array, X: Array, Z: Array, out: Array | None = None) -> Array:
        K = np.empty((len(X), len(Z)), X.dtype) if out is None else out
        x, z = self._wound(theta, X)[0], self._wound(theta, Z)[0]
        passes.cross(passes.SQUARED_EXPONENTIAL, x, z, float(np.exp(theta[0])), 1.0, NO_LIMITS, K)
        return K

    def diagonal(self, theta: Array, X: Array) -> Array:
        return np.full(len(X), np.exp(theta[0]), X.dtype)

    def query_gradient(self, theta: Array, X: Array, Z: Array, G: Array) -> Array:
        """By the chain rule, from the gradient by the places on the circles."""
        D = X.shape[1]
        X, Z = np.asarray(X, float), np.asarray(Z, float)
        (x, _, _), (z, _, _) = self._wound(theta, X), self._wound(theta, Z)
        out = np.empty((len(Z), 2 * D))
        variance = float(np.exp(theta[0]))
        passes.query_gradient(
            passes.SQUARED_EXPONENTIAL, x, z, variance, 1.0, NO_LIMITS, np.asarray(G, float), out
        )  # fmt: skip
        # d cos(phi) / d phi = -sin(phi) and d sin(phi) / d phi = cos(phi); z has both, scaled
        by_phase = out[:, 1::2] * z[0::2].T - out[:, 0::2] * z[1::2].T
        return np.asarray(by_phase * (2 * np.pi * np.exp(-theta[1 + D : 1 + 2 * D])))

    def diagonal_gradient(self, theta: Array, Z: Array) -> Array:
        return np.zeros(Z.shape)

    def pullback(self, theta: Array, X: Array, W: Array, K: Array) -> Array:
        D = X.shape[1]
        scaled, circles, phases = self._wound(theta, X)
        gradient = np.empty(2 * D + 2)
        passes.pullback(passes.SQUARED_EXPONENTIAL, scaled, float(np.exp(theta[0])), 1.0, NO_LIMITS, W, K, gradient)
        periods = np.empty(D)
        _pull_periods(circles, phases, W, K, periods)
        lengthscales = gradient[1:-1].reshape(D, 2).sum(axis=1)
        # d(-2 sin^2(dphi / 2) / l^2) / d ln period = dphi sin(dphi) / l^2
        return np.concatenate([gradient[:1], lengthscales, periods * np.exp(-2 * theta[1 : 1 + D])])

"""Noise that depends on the inputs: the noise variance of y at a query is the model's own times a factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.scaling import Scaling
from gigagp.engines import own_workspace
from gigagp.kernels.base import Kernel

_LEAST_SHARE = 0.1  # of the squared errors near a query that is noise, at least


def scaled_columns(Z: Array, directions: Directions | None) -> Array:
    """The scaled columns of rows of a model: noise follows columns, whatever directions its mean has.

    Directions follow the slopes of the mean. Where the mean is flat, they are arbitrary, although the noise may vary.
    """
    columns = Z if directions is None else directions.restore(Z).astype(Z.dtype)
    return np.ascontiguousarray(columns)


@dataclass(frozen=True, eq=False)
class InputNoise:
    """The factor, from a sparse GP of h(x) = ln E[r^2 / (v + noise)], r a held-out error and v the variance of f there.

    With rho the typical ratio v / noise, the factor is exp(h) (1 + rho) - rho, and at least a tenth of exp(h).
    """

    kernel: Kernel  # of h
    theta: Array
    points: Array  # inducing inputs: scaled columns, also where the model has directions in their places
    weights: Array  # of their covariances with a query, in the mean of h
    target: Scaling  # of h
    rho: float
    directions: Directions | None = None  # those of the model

    def factors(self, Z: Array) -> Array:
        """The factor at scaled queries."""
        return self._factors(scaled_columns(Z, self.directions))

    def _factors(self, Z: Array) -> Array:
        h = expert.weighted_mean(self.kernel, self.theta, self.points, self.weights, Z, own_workspace())
        ratio = np.exp(self.target.restore(h.astype(float)[:, None])[:, 0])
        return np.asarray(np.maximum(ratio * (1 + self.rho) - self.rho, _LEAST_SHARE * ratio))

    def with_gradient(self, Z: Array) -> tuple[Array, Array]:
        """The factor at scaled queries, and its derivatives by them."""
        Z = scaled_columns(Z, self.directions)
        weights = np.broadcast_to(self.weights[:, None], (len(self.weights), len(Z)))
        slope = self.kernel.query_gradient(self.theta[:-1], self.points, Z, weights) * self.target.scale[0]
        h = expert.weighted_mean(self.kernel, self.theta, self.points, self.weights, Z, own_workspace())
        ratio = np.exp(self.target.restore(h.astype(float)[:, None]))
        above = ratio * (1 + self.rho) - self.rho >= _LEAST_SHARE * ratio
        slope = np.where(above, 1 + self.rho, _LEAST_SHARE) * ratio * slope
        # The columns are the coordinates times the inverse.
        return self._factors(Z), np.asarray(slope if self.directions is None else slope @ self.directions.inverse.T)

    @property
    def metric(self) -> Array:
        """One over the length-scale of each column: what the noise depends on."""
        metric = self.kernel.metric(self.theta[:-1])
        assert metric is not None, "the kernel of the noise is stationary"
        return metric

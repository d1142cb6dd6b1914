"""Noise that depends on the inputs: the noise variance of y at a query is the model's own times a factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.scaling import Scaling
from gigagp.engines import own_workspace
from gigagp.kernels.base import Kernel

_LEAST_SHARE = 0.1  # of the squared errors near a query that is noise, at least


@dataclass(frozen=True, eq=False)
class InputNoise:
    """The factor, from a sparse GP of h(x) = ln E[r^2 / (v + noise)], r a held-out error and v the variance of f there.

    With rho the typical ratio v / noise, the factor is exp(h) (1 + rho) - rho, and at least a tenth of exp(h).
    """

    kernel: Kernel  # of h
    theta: Array
    points: Array  # inducing inputs, scaled like those of the model
    weights: Array  # of their covariances with a query, in the mean of h
    target: Scaling  # of h
    rho: float

    def factors(self, Z: Array) -> Array:
        """The factor at scaled queries."""
        Z = np.ascontiguousarray(Z)
        h = expert.weighted_mean(self.kernel, self.theta, self.points, self.weights, Z, own_workspace())
        ratio = np.exp(self.target.restore(h.astype(float)[:, None])[:, 0])
        return np.asarray(np.maximum(ratio * (1 + self.rho) - self.rho, _LEAST_SHARE * ratio))

    def with_gradient(self, Z: Array) -> tuple[Array, Array]:
        """The factor at scaled queries, and its derivatives by them."""
        Z = np.ascontiguousarray(Z)
        weights = np.broadcast_to(self.weights[:, None], (len(self.weights), len(Z)))
        slope = self.kernel.query_gradient(self.theta[:-1], self.points, Z, weights) * self.target.scale[0]
        h = expert.weighted_mean(self.kernel, self.theta, self.points, self.weights, Z, own_workspace())
        ratio = np.exp(self.target.restore(h.astype(float)[:, None]))
        above = ratio * (1 + self.rho) - self.rho >= _LEAST_SHARE * ratio
        return self.factors(Z), np.asarray(np.where(above, 1 + self.rho, _LEAST_SHARE) * ratio * slope)

    @property
    def metric(self) -> Array:
        """One over the length-scale of each column: what the noise depends on."""
        metric = self.kernel.metric(self.theta[:-1])
        assert metric is not None, "the kernel of the noise is stationary"
        return metric

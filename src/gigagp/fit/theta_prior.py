"""A weak log-normal prior of theta, which matters where rows are few.

Each log-parameter is Gaussian around a plausible value: length-scales that grow with the square root of the number of
columns, since distances do (Hvarfner et al. 2024, "Vanilla Bayesian optimization performs great in high dimensions"),
a kernel variance near the target's, and a noise of a few hundredths of it. The evidence grows with the rows and the
prior does not, so that its influence on theta vanishes as one over their number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array

# Standard deviations of log-parameters.
_VARIANCE_SPREAD = 1.5
_LENGTHSCALE_SPREAD = 1.7
_SHAPE_SPREAD = 1.5
_NOISE_SPREAD = 2.5
_LENGTHSCALE_SHIFT = 1.0  # of the mean, in log-units: columns that hardly matter have long length-scales
_NOISE_SHARE = 0.03  # of the target's variance, where the prior of the noise is centred


@dataclass(frozen=True, eq=False)
class ThetaPrior:
    """Independent Gaussians of the log-parameters: ln p(theta) = -sum(((theta - mean) / spread)^2) / 2 + constant."""

    mean: Array
    spread: Array

    @classmethod
    def around(cls, names: tuple[str, ...], start: Array, target_variance: float) -> ThetaPrior:
        """For parameters of these names, whose start values tell the scales of columns and target."""
        mean, spread = start.astype(float), np.full(len(start), _SHAPE_SPREAD)
        for i, name in enumerate(names):
            if "lengthscale" in name:
                mean[i] += _LENGTHSCALE_SHIFT
                spread[i] = _LENGTHSCALE_SPREAD
            elif name == "variance":
                mean[i], spread[i] = np.log(target_variance), _VARIANCE_SPREAD
            elif name == "noise_variance":
                mean[i], spread[i] = np.log(_NOISE_SHARE * target_variance), _NOISE_SPREAD
        return cls(mean, spread)

    def log_density(self, theta: Array) -> float:
        """ln p(theta), up to a constant."""
        return float(-0.5 * np.sum(((theta - self.mean) / self.spread) ** 2))

    def gradient(self, theta: Array) -> Array:
        """d ln p(theta) / d theta."""
        return np.asarray((self.mean - theta) / self.spread**2)

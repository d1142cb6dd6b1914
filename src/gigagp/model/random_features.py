"""Random Fourier features: functions drawn from the prior of a stationary kernel, as sums of cosines.

A stationary kernel is the expectation of 2 variance cos(w x + b) cos(w z + b) over frequencies w from its spectral
density and uniform phases b (Rahimi & Recht 2008). The density of the squared exponential is Gaussian, those of the
Matérn family are Student-t with 2 nu degrees of freedom, and that of the rational quadratic is a mixture of Gaussians.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.kernels.base import Kernel
from gigagp.linalg.categories import LEVELS_APART
from gigagp.linalg.stationary import MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC

COUNT = 2048  # features of one function
_DOF = {MATERN12: 1.0, MATERN32: 3.0, MATERN52: 5.0}  # twice the smoothness nu


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Features of one kernel, whose inner products are its covariances in expectation."""

    frequencies: Array  # (columns, features), of scaled inputs
    phases: Array
    amplitude: float
    levels: dict[int, Array]  # by column that is a category: the phase that each level adds, (levels, features)

    @classmethod
    def of(cls, kernel: Kernel, theta: Array, X: Array, rng: np.random.Generator) -> RandomFeatures:
        """Draw the features; X are rows of the model, whose largest levels bound the categories."""
        profile = kernel.profile(theta, X.shape[1])
        if profile is None:
            raise InvalidParameter(
                f"sample_path needs a kernel of the scaled distance, such as Matern52; got {kernel!r}. sample_y draws "
                "from any kernel"
            )
        spread = np.ones(COUNT)
        if profile.kind in _DOF:
            spread = np.sqrt(_DOF[profile.kind] / rng.chisquare(_DOF[profile.kind], COUNT))
        elif profile.kind == RATIONAL_QUADRATIC:
            spread = np.sqrt(rng.gamma(profile.shape, 1 / profile.shape, COUNT))
        frequencies = rng.standard_normal((X.shape[1], COUNT)) * spread * profile.scales[:, None]
        levels = {}
        for column in np.flatnonzero(profile.limits < np.inf) if len(profile.limits) else ():
            frequencies[column] = 0.0
            count = int(np.rint(np.nanmax(X[:, column]) / LEVELS_APART)) + 3  # one more below and above
            table = rng.standard_normal((max(count, 3), COUNT)) * spread
            levels[int(column)] = table * np.sqrt(0.5 * profile.limits[column])
        phases = rng.uniform(0, 2 * np.pi, COUNT)
        return cls(frequencies, phases, float(np.sqrt(2 * profile.variance / COUNT)), levels)

    def values(self, X: Array) -> Array:
        """The features of each row, (rows, features)."""
        turns = X @ self.frequencies + self.phases
        for column, table in self.levels.items():
            place = np.clip(np.rint(X[:, column] / LEVELS_APART).astype(int) + 1, 0, len(table) - 1)
            turns += table[place]
        return np.asarray(self.amplitude * np.cos(turns))

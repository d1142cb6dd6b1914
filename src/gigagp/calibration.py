"""Calibration: how far errors really lie, in the deviations that the model foretold.

The distribution of z = error / deviation at rows left out says by what to scale the deviations, and where the
quantiles lie: tails are often heavier than Gaussian, and the middle narrower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from gigagp.arrays import Array

# Levels whose quantiles are kept: even steps of the Gaussian's own quantiles, as far as some thousand rows can tell.
GRID_SIZE = 41
_GRID = np.linspace(-2.5, 2.5, GRID_SIZE)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The factor of all standard deviations, and the quantiles of z in the scaled deviations at ndtr(-2.5 .. 2.5)."""

    deviation: float = 1.0
    quantiles: Array | None = None  # None: the Gaussian's
    rows: int = 0  # left out to learn it

    @classmethod
    def of(cls, z: Array) -> Calibration:
        """From the z of rows left out."""
        deviation = float(np.sqrt(np.mean(z * z)))
        if not (np.isfinite(deviation) and deviation > 0):
            return cls()
        return cls(deviation, np.quantile(z / deviation, ndtr(_GRID)), len(z))

    def quantile(self, levels: Array) -> Array:
        """How many scaled deviations from the mean the quantiles lie; beyond the grid they go on as a Gaussian's would.

        That is the one as wide as the grid's quantiles.
        """
        x = ndtri(np.asarray(levels, dtype=float))
        if self.quantiles is None:
            return np.asarray(x)
        width = (self.quantiles[-1] - self.quantiles[0]) / (_GRID[-1] - _GRID[0])
        beyond = x - np.clip(x, _GRID[0], _GRID[-1])
        return np.asarray(np.interp(x, _GRID, self.quantiles) + width * beyond)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Calibration):
            return NotImplemented
        same = (self.deviation, self.rows) == (other.deviation, other.rows)
        return same and np.array_equal(self.quantiles, other.quantiles)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash((self.deviation, self.rows))

    def __repr__(self) -> str:
        if not self.rows:
            return "none"
        inside = float(np.diff(self.quantile(np.array([0.025, 0.975])))[0]) / (2 * 1.96)
        return (
            f"deviations times {self.deviation:.3g}, from {self.rows:,} rows left out; "
            f"95% intervals {inside:.3g} times as wide as a Gaussian's"
        )


NONE = Calibration()

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
_FLOORS = (0.0, *10.0 ** np.arange(-6, 0.1, 0.5))
_CLEAR = 0.002  # nats (twice those of a row) that a floor must gain
GRID_SIZE = 41
_GRID = np.linspace(-2.5, 2.5, GRID_SIZE)


def best_floor(errors: Array, variances: Array) -> float:
    """What to add to the variances so that, scaled, they fit the errors best; nothing, unless that gains clearly."""

    def loss(floor: float) -> float:  # negative log density at its best factor, up to a constant
        v = variances + floor
        return float(np.log(v).mean() + np.log(np.mean(errors * errors / v)))

    floor = min(_FLOORS, key=loss)
    return floor if loss(0.0) - loss(floor) >= _CLEAR else 0.0


@dataclass(frozen=True, eq=False)
class Calibration:
    """The factor of all standard deviations, and the quantiles of z in the scaled deviations at ndtr(-2.5 .. 2.5).

    floor is a variance added before that, in standardised units. It matters where the noise was trained away though the
    same inputs come with other targets: a query that repeats an input would be held to be certain.
    """

    deviation: float = 1.0
    floor: float = 0.0
    quantiles: Array | None = None  # None: the Gaussian's
    rows: int = 0  # left out to learn it

    @classmethod
    def of(cls, errors: Array, variances: Array) -> Calibration:
        """From the errors at rows left out, and the variances that were foretold for them."""

        if not (np.isfinite(errors).all() and errors.any()):
            return cls()
        floor = best_floor(errors, variances)
        z = errors / np.sqrt(variances + floor)
        deviation = float(np.sqrt(np.mean(z * z)))
        return cls(deviation, floor, np.quantile(z / deviation, ndtr(_GRID)), len(z))

    def calibrated(self, variance: Array) -> Array:
        """The variance of y, in standardised units."""
        return (variance + self.floor) * self.deviation**2

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
        same = (self.deviation, self.floor, self.rows) == (other.deviation, other.floor, other.rows)
        return same and np.array_equal(self.quantiles, other.quantiles)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash((self.deviation, self.rows))

    def __repr__(self) -> str:
        if not self.rows:
            return "none"
        inside = float(np.diff(self.quantile(np.array([0.025, 0.975])))[0]) / (2 * 1.96)
        return (
            f"deviations times {self.deviation:.3g}{f', floor {self.floor:.3g}' if self.floor else ''}, "
            f"from {self.rows:,} rows left out; "
            f"95% intervals {inside:.3g} times as wide as a Gaussian's"
        )


NONE = Calibration()

"""Columns of numbers as normal scores: a monotone map that gives the values of a column a normal distribution.

In a column with a long tail, a few rows dominate the distances, and all other rows seem to be near each other. The
normal score of a value is the quantile of the standard normal distribution at its mean rank, z = Phi^-1((r - 1/2) / n),
so that it does not matter whether a column is given as it is or, say, as its logarithm. Columns whose values are
spread as evenly as those of a normal or a uniform distribution stay as they are, since normal scores would distort them
for no reason. (Trials, log loss of test rows, standardised and with normal scores: magic .286 and .280, adult .293 and
.286, digits .054 and .051, but the robot arm, whose columns are uniform, .348 and .355.)

The map is piecewise linear between at most KNOTS values of a sample, strictly increasing and hence invertible, and has
the slope of plain standardisation beyond the last ones: queries far outside the data stay far.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from gigagp.arrays import Array

KNOTS = 256  # values of a column, at most, between which its map is linear
_LARGEST_SCORE = (
    3.0  # of a knot, in standard deviations: scores of the outermost rows would depend on the sample's size
)
_LEVELS = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])  # of quantiles that show how evenly values are spread
_UNEVEN = 2.5  # `unevenness` from which a column is warped: more than uniform values have, also by chance
_LEAST_STEP = 1e-6  # between the scores of two knots


@dataclass(frozen=True, eq=False)
class Warp:
    """The map of one column: value -> warped value, both in the user's units.

    Warped values have mean and standard deviation of the column, so that lengths are in units of the data as before.
    """

    column: int
    values: Array  # of the knots, strictly increasing
    warped: Array  # values of the map there, strictly increasing

    @classmethod
    def learnt(cls, column: int, x: Array, centre: float, scale: float) -> Warp | None:
        """The map for a sample of values; None where these are spread evenly, or only two of them differ.

        centre, scale : of the standardisation, which makes warped values normal scores
        """
        values, counts = np.unique(np.asarray(x, float), return_counts=True)
        if len(values) < 3 or unevenness(x) <= _UNEVEN:
            return None
        ranks = (np.cumsum(counts) - 0.5 * counts) / len(x)
        if len(values) > KNOTS:
            places = np.searchsorted(ranks, ndtr(np.linspace(-_LARGEST_SCORE, _LARGEST_SCORE, KNOTS)))
            places = np.unique(np.clip(places, 0, len(values) - 1))
            values, ranks = values[places], ranks[places]
        scores = np.clip(ndtri(ranks), -_LARGEST_SCORE, _LARGEST_SCORE)
        kept = np.append(True, np.diff(np.maximum.accumulate(scores)) > _LEAST_STEP)
        warped = centre + scale * scores
        kept &= np.append(True, np.diff(warped) > 0)
        if kept.sum() < 2:
            return None
        return cls(column, values[kept], warped[kept])

    def apply(self, x: Array) -> Array:
        """Warped values."""
        return _mapped(x, self.values, self.warped)

    def restore(self, x: Array) -> Array:
        """The inverse of `apply`."""
        return _mapped(x, self.warped, self.values)

    @cached_property
    def _slopes(self) -> Array:
        """Slopes of the map below the first knot, between knots, and beyond the last."""
        return np.concatenate([[1.0], np.diff(self.warped) / np.diff(self.values), [1.0]])

    def slope(self, x: Array) -> Array:
        """The derivative of the map."""
        return np.asarray(self._slopes[np.searchsorted(self.values, x)])


def unevenness(x: Array) -> float:
    """The ratio of the widest to the narrowest gap between quantiles, each in units of the gap of normal values.

    Short tails are not counted as narrow. Normal values have 1, uniform ones 1.8, those of a Laplace distribution 2.3,
    exponential ones 10; it is infinite where many values are the same.
    """
    with np.errstate(over="ignore"):
        gaps = np.diff(np.quantile(np.asarray(x, float), _LEVELS)) / np.diff(ndtri(_LEVELS))
    narrowest = gaps[1:-1].min()
    return float(gaps.max() / narrowest) if narrowest > 0 else np.inf


def _mapped(x: Array, values: Array, images: Array) -> Array:
    x = np.asarray(x, float)
    with np.errstate(over="ignore"):
        beyond = np.minimum(x - values[0], 0.0) + np.maximum(x - values[-1], 0.0)
        return np.asarray(np.interp(x, values, images) + beyond)


def learnt_warps(sample: Array, centre: Array, scale: Array, columns: list[int]) -> tuple[Warp, ...]:
    """Maps of some columns, from a sample of the rows."""
    maps = (Warp.learnt(column, sample[:, column], float(centre[column]), float(scale[column])) for column in columns)
    return tuple(each for each in maps if each is not None)


def stacked(warps: tuple[Warp, ...]) -> Array:
    """All knots as one array (3, knots): column, value, warped value."""
    parts = [np.stack([np.full(len(each.values), float(each.column)), each.values, each.warped]) for each in warps]
    return np.concatenate(parts, axis=1) if parts else np.empty((3, 0))


def unstacked(knots: Array, columns: int) -> tuple[Warp, ...]:
    """The maps that `stacked` has put together; ValueError where they are not maps of `columns` columns."""
    warps = []
    if not np.isfinite(knots).all():
        raise ValueError("a knot is not finite")
    for column in np.unique(knots[0]):
        values, warped = knots[1:, knots[0] == column]
        increasing = len(values) > 1 and bool((np.diff(values) > 0).all() and (np.diff(warped) > 0).all())
        if not (increasing and column == int(column) and 0 <= column < columns):
            raise ValueError("the map of a column is not increasing, or its column does not exist")
        warps.append(Warp(int(column), np.ascontiguousarray(values), np.ascontiguousarray(warped)))
    return tuple(warps)

"""Standardisation: inputs and target to mean 0 and deviation 1, and predictions back to the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.categories import LEVELS_APART
from gigagp.linalg.compiled import compiled, compiled_strict, read_only

_ROUNDING = 8 * np.finfo(float).eps  # a column that varies by less, relative to its size, is constant
_ROUNDING_TWO = 1e-6  # relative, of the variance of a column with two values
BLOCK = 65_536  # rows looked at together; moments depend on it in their last digits, so it is the same everywhere


@compiled
def _range(block: Array) -> tuple[Array, Array]:
    """The smallest and the largest number in each column."""
    columns = block.shape[1]
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    for i in range(len(block)):
        for d in range(columns):
            low[d] = min(low[d], np.float64(block[i, d]))
            high[d] = max(high[d], np.float64(block[i, d]))
    return low, high


@compiled_strict
def _mean_and_square(block: Array, first: Array, unit: Array) -> tuple[Array, Array]:
    """Mean of (x - first) / (2 unit) in each column, and the sum of its squared deviations from the mean."""
    rows, columns = block.shape
    mean, square = np.zeros(columns), np.zeros(columns)
    for i in range(rows):
        for d in range(columns):
            mean[d] += (0.5 * block[i, d] - 0.5 * first[d]) / unit[d]
    mean /= rows
    for i in range(rows):
        for d in range(columns):
            deviation = (0.5 * block[i, d] - 0.5 * first[d]) / unit[d] - mean[d]
            square[d] += deviation * deviation
    return mean, square


@compiled_strict
def _scale(X: Array, centre: Array, scale: Array, limit: float, out: Array) -> None:
    """out := (X - centre) / scale, drawn in to +-limit."""
    for i in range(len(X)):
        for d in range(X.shape[1]):
            value = (X[i, d] - centre[d]) / scale[d]
            if value > limit:
                value = limit
            elif value < -limit:
                value = -limit
            out[i, d] = value


class Moments:
    """Range, mean and deviation of each column, from blocks of BLOCK rows (the last may be shorter).

    All is counted from the first row, halved, and in units of the largest step away from it: nothing overflows,
    vanishes or cancels.
    """

    def __init__(self, first: Array) -> None:
        self.count: float = 0  # of rows, or the sum of their weights
        self._first = first.astype(float)
        self.low, self.high = self._first.copy(), self._first.copy()
        self._step, self._mean, self._square = (np.zeros(len(first)) for _ in range(3))

    @classmethod
    def of(cls, X: Array) -> Moments:
        moments = cls(X[0])
        for start in range(0, len(X), BLOCK):
            moments.add(X[start : start + BLOCK])
        return moments

    def add(self, block: Array, weights: Array | None = None) -> None:
        """One more block of rows, which may have weights."""
        self.join(self.of_block(self._first, block, weights))

    @classmethod
    def of_block(cls, first: Array, block: Array, weights: Array | None = None) -> Moments:
        """Those of one block of rows, counted from the first row of all blocks."""
        part = cls(first)
        block = read_only(np.ascontiguousarray(block, block.dtype if block.dtype == np.float32 else float))
        part.low, part.high = _range(block)
        part._step = np.maximum(*(np.abs(0.5 * side - 0.5 * part._first) for side in (part.low, part.high)))
        unit = np.where(part._step > 0, part._step, 1.0)
        if weights is None:
            part.count = len(block)
            part._mean, part._square = _mean_and_square(block, part._first, unit)
        else:
            half = (0.5 * np.asarray(block, float) - 0.5 * part._first) / unit
            part.count = float(weights.sum())
            part._mean = (half * weights[:, None]).sum(axis=0) / part.count
            part._square = (weights[:, None] * np.square(half - part._mean)).sum(axis=0)
        return part

    def join(self, other: Moments) -> None:
        """Add those of further rows, counted from the same first row (Chan, Golub & LeVeque 1979)."""
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)
        step = np.maximum(self._step, other._step)
        unit = np.where(step > 0, step, 1.0)
        n, m = self.count, other.count
        shrink, shrink_other = self._step / unit, other._step / unit
        before, mean = self._mean * shrink, other._mean * shrink_other
        joint = (mean - before) ** 2 * (n * m / (n + m))
        self._square = self._square * shrink**2 + other._square * shrink_other**2 + joint
        self._mean = before + (mean - before) * (m / (n + m))
        self._step, self.count = step, n + m

    def state(self) -> Array:
        """All of it as one array, for a checkpoint."""
        count = np.full(len(self._first), float(self.count))
        return np.stack([count, self._first, self.low, self.high, self._step, self._mean, self._square])

    @classmethod
    def from_state(cls, state: Array) -> Moments:
        moments = cls(state[1])
        moments.count = float(state[0, 0])
        _, _, moments.low, moments.high, moments._step, moments._mean, moments._square = state
        return moments

    def at(self, places: Sequence[int]) -> Moments:
        """Those of some of the columns."""
        return Moments.from_state(self.state()[:, list(places)])

    def with_columns(self, places: Sequence[int], other: Moments) -> Moments:
        """With the columns of others at these places, of which the last may be a new one."""
        state, others = self.state(), other.state()
        others[-1] *= self.count / other.count  # sums of squares as of as many rows
        wide = np.concatenate([state, state[:, :1]], axis=1)[:, : max(state.shape[1], max(places) + 1)]
        wide[1:, list(places)] = others[1:]
        return Moments.from_state(wide)

    @property
    def constant(self) -> Array:
        """Which columns have the same value everywhere, but for rounding."""
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        return np.asarray(0.5 * self.high - 0.5 * self.low <= 0.5 * _ROUNDING * largest)

    @property
    def mean(self) -> Array:
        return 2 * (0.5 * self._first + self._mean * self._step)

    @property
    def deviation(self) -> Array:
        return 2 * (np.sqrt(self._square / self.count) * self._step)

    @property
    def two_valued(self) -> Array:
        """Which columns have two values: where the variance is (high - mean) (mean - low), its largest possible value.

        (Bhatia & Davis 2000.) The tolerance covers rounding.
        """
        width = np.where(self.constant, 1.0, 0.5 * self.high - 0.5 * self.low)
        above, below = (
            (0.5 * self.high - 0.5 * self.mean) / width,
            (0.5 * self.mean - 0.5 * self.low) / width,
        )
        return np.asarray(~self.constant & ((0.5 * self.deviation / width) ** 2 >= (1 - _ROUNDING_TWO) * above * below))

    def scaling(self, two_valued_by_range: bool = False) -> Scaling:
        """To mean 0 and deviation 1; a constant column is only centred.

        two_valued_by_range : whether a column with two values, such as an indicator of a category, is divided by half
            of their difference, as if both were equally frequent: otherwise a rare category is far from all others
        """
        constant = self.constant
        scale = np.where(constant, 1.0, self.deviation)
        if two_valued_by_range:
            scale = np.where(self.two_valued, 0.5 * self.high - 0.5 * self.low, scale)
        return Scaling(np.where(constant, self._first, self.mean), scale)


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> (x - centre) / scale, column by column."""

    centre: Array
    scale: Array

    @classmethod
    def identity(cls, n_columns: int) -> Scaling:
        return cls(np.zeros(n_columns), np.ones(n_columns))

    def with_levels(self, columns: tuple[int, ...]) -> Scaling:
        """The same, but these columns have numbers of levels, which are not standardised (`linalg.categories`)."""
        centre, scale, places = self.centre.copy(), self.scale.copy(), list(columns)
        centre[places], scale[places] = 0.0, 1 / LEVELS_APART
        return Scaling(centre, scale)

    def apply(self, X: Array, dtype: np.dtype[Any]) -> Array:
        """Scaled copy of X in the given precision, row-major.

        Values so far out that squared distances would overflow are drawn in; to any kernel they are equally far.
        """
        out = np.empty(X.shape, dtype)
        limit = float(np.sqrt(np.finfo(dtype).max / (4 * max(1, X.shape[1])))) * 1e-4
        given = X if X.dtype in (np.float32, np.float64) else X.astype(float)
        _scale(read_only(np.ascontiguousarray(given)), self.centre, self.scale, limit, out)
        return out

    def restore(self, X: Array) -> Array:
        """The inverse of `apply`: scaled values in the user's units."""
        return np.asarray(X * self.scale + self.centre, float)

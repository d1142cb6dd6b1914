"""The first pass over the data: how many rows, their moments, and a sample.

The sample consists of the rows with the smallest pseudo-random keys. It depends on the seed and the row numbers alone,
not on the source or on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.data.sources.rows import Block
from gigagp.data.store import Targets, join_targets

_SAMPLE_ROWS = 1 << 17  # rows of the largest sample
_SAMPLE_BYTES = 1 << 26  # bytes of the largest sample
_EXTREME_ROWS = 256  # rows with the smallest targets, and as many with the largest, that are kept
_SURPLUS = 10.0  # standard deviations by which more rows than a sample needs are kept
_LEAST_SAMPLE = 4096  # rows of the smallest sample, if the data have so many


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows with the smallest keys, smallest first."""

    keys: Array
    rows: Array
    X: Array
    y: Targets  # with the row noise beside the target where rows differ in noise

    def first(self, count: int) -> tuple[Array, Targets]:
        """Inputs and targets of the `count` smallest, in the order of the data."""
        order = np.argsort(self.rows[:count])
        return self.X[:count][order], self.y[:count][order]


@dataclass(frozen=True, eq=False)
class Extremes:
    """The rows with the smallest and the largest targets."""

    rows: Array
    source_rows: Array  # the same, as the user numbers them: with rows that were left out
    X: Array
    y: Array

    def joined(self, other: Extremes) -> Extremes:
        """The extremes of both."""
        rows, source_rows, X, y = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("rows", "source_rows", "X", "y")
        )
        kept = _extreme(y)
        return Extremes(rows[kept], source_rows[kept], X[kept], y[kept])

    @classmethod
    def of(cls, block: Block, known: Extremes | None = None) -> Extremes:
        """Those of a block; rows that cannot be among them, because others are known, may be missing."""
        assert block.y is not None
        if known is None or len(known.y) < 2 * _EXTREME_ROWS:
            kept = _extreme(block.y)
        else:
            ordered = np.sort(known.y)
            low, high = ordered[_EXTREME_ROWS - 1], ordered[-_EXTREME_ROWS]
            possible = np.flatnonzero((block.y <= low) | (block.y >= high))
            kept = possible[_extreme(block.y[possible])]
        rows = block.first_row + kept
        source_rows = rows if block.source_rows is None else block.source_rows[kept]
        return cls(rows, source_rows, block.X[kept], block.y[kept])


def _extreme(y: Array) -> Array:
    """Places of the smallest and largest numbers, in order.

    Of equal numbers the first are the smallest, so that it does not matter in which parts rows are joined.
    """
    if len(y) <= 2 * _EXTREME_ROWS:
        return np.arange(len(y))
    ordered = np.partition(y, [_EXTREME_ROWS - 1, len(y) - _EXTREME_ROWS])
    low, high = ordered[_EXTREME_ROWS - 1], ordered[len(y) - _EXTREME_ROWS]
    below, above = np.flatnonzero(y < low), np.flatnonzero(y > high)
    first, last = np.flatnonzero(y == low), np.flatnonzero(y == high)
    lows = [below, first[: _EXTREME_ROWS - len(below)]]
    highs = [above, last[len(last) - (_EXTREME_ROWS - len(above)) :]]
    return np.unique(np.concatenate([*lows, *highs]))


@dataclass(frozen=True, eq=False)
class Scan:
    """The result of the first pass over the data."""

    rows: int
    inputs: Moments
    target: Moments
    sample: Sample
    extremes: Extremes
    dropped: int = 0  # rows with missing values
    copies: int = 0  # rows that are not counted because they are exact copies of others


@dataclass(eq=False)
class PartialScan:
    """A scan of some consecutive rows. The scan of all rows does not depend on the parts in which they were read."""

    first: tuple[Array, Array]  # the first row of the data: inputs and target
    most: int  # rows of the sample
    limit: np.uint64  # rows with larger keys are not in the sample
    rows: int = 0
    moments: list[tuple[Moments, Moments]] = field(default_factory=list)  # inputs and target of each block
    extremes: Extremes | None = None
    candidates: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)
    pending: int = 0  # number of candidates

    @classmethod
    def starting(cls, block: Block, rows: int | None = None) -> PartialScan:
        """An empty one. `block` begins with the first row of the data; `rows` is their number, if it is known."""
        assert block.y is not None
        most = max(_LEAST_SAMPLE, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (8 * (block.X.shape[1] + 1))))
        limit = np.iinfo(np.uint64).max
        if rows is not None:  # keys are uniform: fewer than `most` are below the limit in one of 1e23 data sets
            likely = most + _SURPLUS * most**0.5
            limit = limit if likely >= rows else int(likely / rows * limit)
        return cls((block.X[0].copy(), block.y[:1].copy()), most, np.uint64(limit))

    def add(self, block: Block, seed: int) -> None:
        """Read one more block."""
        assert block.y is not None
        inputs = Moments.of_block(self.first[0], block.X, block.weights)
        self.moments.append((inputs, Moments.of_block(self.first[1], block.y[:, None], block.weights)))
        extremes = Extremes.of(block, self.extremes)
        self.extremes = extremes if self.extremes is None else self.extremes.joined(extremes)
        keys = row_keys(block.first_row, len(block.X), seed)
        small = np.flatnonzero(keys <= self.limit)
        targets = join_targets(block.y, block.row_noise)
        self._keep([(keys[small], block.first_row + small, block.X[small], targets[small])])
        self.rows += len(block.X)

    def _keep(self, candidates: list[tuple[Array, Array, Array, Array]]) -> None:
        self.candidates += candidates
        self.pending += sum(len(each[0]) for each in candidates)
        if self.pending > 2 * self.most:
            self.candidates = [_smallest(self.candidates, self.most)]
            self.pending, self.limit = self.most, self.candidates[0][0][-1]

    def join(self, other: PartialScan) -> None:
        """Add the scan of the rows that follow."""
        self.rows += other.rows
        self.moments += other.moments
        assert other.extremes is not None
        self.extremes = other.extremes if self.extremes is None else self.extremes.joined(other.extremes)
        self._keep(other.candidates)

    def finish(self) -> Scan:
        inputs, target = Moments(self.first[0]), Moments(self.first[1])
        for of_inputs, of_target in self.moments:  # block by block, so that sums are rounded alike
            inputs.join(of_inputs)
            target.join(of_target)
        assert self.extremes is not None, "a source has at least one row"
        return Scan(self.rows, inputs, target, Sample(*_smallest(self.candidates, self.most)), self.extremes)


def scan(blocks: Iterable[Block], seed: int, say: Callable[[int], None] = lambda rows: None) -> Scan:
    """Read all rows once. `blocks` have BLOCK rows; `say` is called with the number of rows read so far."""
    partial: PartialScan | None = None
    for block in blocks:
        if partial is None:
            partial = PartialScan.starting(block)
        partial.add(block, seed)
        say(partial.rows)
    assert partial is not None, "a source has at least one row"
    return partial.finish()


def _smallest(candidates: list[tuple[Array, Array, Array, Array]], count: int) -> tuple[Array, Array, Array, Array]:
    keys, rows, X, y = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
    best = np.lexsort((rows, keys))[:count]
    return keys[best], rows[best], X[best], y[best]

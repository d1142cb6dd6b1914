"""The first pass over the data: how many rows, their moments, and a sample.

The sample consists of the rows with the smallest pseudo-random keys. It depends on the seed and the row numbers alone,
not on the source or on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.data.sources.rows import Block
from gigagp.data.store import Targets, join_targets

_SAMPLE_ROWS = 1 << 17  # rows of the largest sample
_SAMPLE_BYTES = 1 << 26  # bytes of the largest sample
_EXTREME_ROWS = 256  # rows with the smallest targets, and as many with the largest, that are kept
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
    def of(cls, block: Block) -> Extremes:
        assert block.y is not None
        kept = _extreme(block.y)
        rows = block.first_row + kept
        source_rows = rows if block.source_rows is None else block.source_rows[kept]
        return cls(rows, source_rows, block.X[kept], block.y[kept])


def _extreme(y: Array) -> Array:
    """Places of the smallest and largest numbers, in order."""
    if len(y) <= 2 * _EXTREME_ROWS:
        return np.arange(len(y))
    order = np.argpartition(y, [_EXTREME_ROWS, len(y) - _EXTREME_ROWS])
    return np.sort(np.append(order[:_EXTREME_ROWS], order[len(y) - _EXTREME_ROWS :]))


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


def scan(blocks: Iterable[Block], seed: int, say: Callable[[int], None] = lambda rows: None) -> Scan:
    """Read all rows once. `blocks` have BLOCK rows; `say` is called with the number of rows read so far."""
    inputs: Moments | None = None
    target: Moments | None = None
    candidates: list[tuple[Array, Array, Array, Array]] = []
    extremes: Extremes | None = None
    most, rows, pending, limit = 0, 0, 0, np.uint64(np.iinfo(np.uint64).max)
    for block in blocks:
        assert block.y is not None
        if inputs is None or target is None:
            inputs, target = Moments(block.X[0]), Moments(block.y[:1])
            most = max(_LEAST_SAMPLE, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (8 * (block.X.shape[1] + 1))))
        inputs.add(block.X, block.weights)
        target.add(block.y[:, None], block.weights)
        extremes = Extremes.of(block) if extremes is None else extremes.joined(Extremes.of(block))
        keys = row_keys(block.first_row, len(block.X), seed)
        small = np.flatnonzero(keys <= limit)
        targets = join_targets(block.y, block.row_noise)
        candidates.append((keys[small], block.first_row + small, block.X[small], targets[small]))
        pending += len(small)
        rows += len(block.X)
        if pending > 2 * most:
            candidates = [_smallest(candidates, most)]
            pending, limit = most, candidates[0][0][-1]
        say(rows)
    assert inputs is not None, "a source has at least one row"
    assert target is not None
    assert extremes is not None
    return Scan(rows, inputs, target, Sample(*_smallest(candidates, most)), extremes)


def _smallest(candidates: list[tuple[Array, Array, Array, Array]], count: int) -> tuple[Array, Array, Array, Array]:
    keys, rows, X, y = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
    best = np.lexsort((rows, keys))[:count]
    return keys[best], rows[best], X[best], y[best]

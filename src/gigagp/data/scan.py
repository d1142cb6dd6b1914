"""The first pass over the data: how many rows, their moments, and a sample.

The sample is the rows with the smallest of pseudo-random keys, so that it depends on the seed and the rows' numbers
alone, not on where they come from or how many there will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.data.sources.rows import Block

_SAMPLE_ROWS, _SAMPLE_BYTES = 1 << 17, 1 << 26
_LEAST_SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows with the smallest keys, smallest first."""

    keys: Array
    rows: Array
    X: Array
    y: Array

    def first(self, count: int) -> tuple[Array, Array]:
        """Inputs and targets of the `count` smallest, in the order of the data."""
        order = np.argsort(self.rows[:count])
        return self.X[:count][order], self.y[:count][order]


@dataclass(frozen=True, eq=False)
class Scan:
    rows: int
    inputs: Moments
    target: Moments
    sample: Sample
    dropped: int = 0  # rows left out for missing values


def scan(blocks: Iterable[Block], seed: int, say: Callable[[int], None] = lambda rows: None) -> Scan:
    """Read everything once. `blocks` are of BLOCK rows; `say` hears how many rows have been read."""
    inputs: Moments | None = None
    target: Moments | None = None
    held: list[tuple[Array, Array, Array, Array]] = []
    most, rows, pending, limit = 0, 0, 0, np.uint64(np.iinfo(np.uint64).max)
    for block in blocks:
        assert block.y is not None
        if inputs is None or target is None:
            inputs, target = Moments(block.X[0]), Moments(block.y[:1])
            most = max(_LEAST_SAMPLE, min(_SAMPLE_ROWS, _SAMPLE_BYTES // (8 * (block.X.shape[1] + 1))))
        inputs.add(block.X)
        target.add(block.y[:, None])
        keys = row_keys(block.first_row, len(block.X), seed)
        small = np.flatnonzero(keys <= limit)
        held.append((keys[small], block.first_row + small, block.X[small], block.y[small]))
        pending += len(small)
        rows += len(block.X)
        if pending > 2 * most:
            held = [_smallest(held, most)]
            pending, limit = most, held[0][0][-1]
        say(rows)
    assert inputs is not None, "a source has at least one row"
    assert target is not None
    return Scan(rows, inputs, target, Sample(*_smallest(held, most)))


def _smallest(held: list[tuple[Array, Array, Array, Array]], count: int) -> tuple[Array, Array, Array, Array]:
    keys, rows, X, y = (np.concatenate(parts) for parts in zip(*held, strict=True))
    best = np.lexsort((rows, keys))[:count]
    return keys[best], rows[best], X[best], y[best]

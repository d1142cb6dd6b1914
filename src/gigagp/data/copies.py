"""Exact copies of rows in small tables: the same inputs and the same target, given more than once.

A copy carries no information of its own. Counted as an observation it says that the target has no noise, and with few
rows this ruins theta. But where rows with the same inputs have different targets, inputs are repeated on purpose, and
two equal outcomes may be two observations: there all rows count.

Rows of classes always count. There a row that is given twice is the same as a row of weight two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.row_noise import RowNoise
from gigagp.data.sources.rows import BLOCK, Block, Rows

_MOST_ROWS = 2048  # of a table in which copies are looked for
_MOST_WEIGHTED = 99  # rows of a table in which rows of classes are combined: more are also held out, one by one


class DistinctRows:
    """The rows of a small table without copies, in memory; used in place of the `Rows` that they come from.

    weights : how often each of them counts; None where all count once
    """

    def __init__(self, rows: Rows, block: Block, first: Array, weights: Array | None = None) -> None:
        assert block.y is not None
        self.source, self.n_features, self.n_dropped = rows.source, rows.n_features, rows.n_dropped
        self.noise = rows.noise if weights is None else RowNoise()
        self._weights = None if weights is None else np.column_stack([weights, np.zeros(len(weights))])
        self.n_rows: int | None = len(first)
        self._X, self._y = np.ascontiguousarray(block.X[first]), block.y[first]
        self._source_rows = first if block.source_rows is None else block.source_rows[first]

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        for start in range(0, len(self._y), size):
            here = slice(start, start + size)
            weights = None if self._weights is None else self._weights[here]
            yield Block(start, self._X[here], self._y[here], None, self._source_rows[here], weights)


def counted_once(rows: Rows) -> tuple[Rows | DistinctRows, int]:
    """The rows without copies, and the number of copies; all rows where they are many or have weights or known noise.

    At least two rows remain.
    """
    if rows.noise is not None or (rows.n_rows is not None and rows.n_rows > _MOST_ROWS):
        return rows, 0
    block = next(rows.blocks(_MOST_ROWS + 1))
    if len(block.X) > _MOST_ROWS:
        return rows, 0
    assert block.y is not None
    first = _first_of_each(np.column_stack([block.X, block.y]))
    copies = len(block.y) - len(first)
    on_purpose = len(_first_of_each(block.X)) < len(first)
    if not copies or on_purpose or len(first) < 2:
        return rows, 0
    return DistinctRows(rows, block, first), copies


def combined(rows: Rows) -> Rows | DistinctRows:
    """The rows of few rows of classes, in the order of their values; copies are one row with the sum of their weights.

    The model is then the same to the bit whether a row is given twice or with weight two, and in any order of rows.
    Unchanged where there are neither copies nor weights.
    """
    if rows.n_rows is not None and rows.n_rows > _MOST_WEIGHTED:
        return rows
    block = next(rows.blocks(_MOST_WEIGHTED + 1))
    assert block.y is not None
    values = np.column_stack([block.X, block.y])
    distinct, first, places = np.unique(values, axis=0, return_index=True, return_inverse=True)
    if len(block.y) > _MOST_WEIGHTED or len(distinct) < 2 or (rows.noise is None and len(distinct) == len(values)):
        return rows
    weights = np.bincount(places.ravel(), block.weights, minlength=len(distinct))
    return DistinctRows(rows, block, first, weights)


def _first_of_each(values: Array) -> Array:
    """The numbers of the rows that are not copies of earlier ones, in order."""
    return np.sort(np.unique(values, axis=0, return_index=True)[1])

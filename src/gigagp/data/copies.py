"""Exact copies of rows in tables that fit into one block: the same inputs and the same target, given more than once.

A copy carries no information of its own. Counted as an observation it says that the target has no noise, and this
ruins theta. But where rows with the same inputs have different targets, inputs are repeated on purpose, and
two equal outcomes may be two observations: there all rows count.

Rows of classes always count. There a row that is given twice is the same as a row of weight two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.row_noise import RowNoise
from gigagp.data.sources.rows import BLOCK, Block, Rows

_MOST_ROWS = 65_536  # of a table in which copies are looked for
_MOST_BYTES = 1 << 26  # of its inputs
_MOST_WEIGHTED = 99  # rows of a table in which rows of classes are combined: more are also held out, one by one


class DistinctRows:
    """The rows of a table without copies; used in place of the `Rows` that they come from.

    Nothing is read until blocks are needed, so that a fit whose rows are sorted already reads nothing.
    """

    def __init__(self, rows: Rows, n_rows: int) -> None:
        self._rows, self.n_rows = rows, n_rows
        self.source, self.noise, self.n_features = rows.source, rows.noise, rows.n_features

    @property
    def n_dropped(self) -> int | None:
        return self._rows.n_dropped

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        block = next(self._rows.blocks(_most_rows(self._rows) + 1))
        first = _first_of_each(block)
        X, y = np.ascontiguousarray(block.X[first]), _targets(block)[first]
        source_rows = first if block.source_rows is None else block.source_rows[first]
        for start in range(0, len(y), size):
            here = slice(start, start + size)
            yield Block(start, X[here], y[here], None, source_rows[here])


def count_copies(rows: Rows) -> int:
    """The number of rows that are copies of earlier ones and need not be counted.

    It is zero where rows are many or have weights or known noise, where inputs are repeated on purpose, and where fewer
    than two rows would remain.
    """
    most = _most_rows(rows)
    if rows.noise is not None or (rows.n_rows is not None and rows.n_rows > most):
        return 0
    block = next(rows.blocks(most + 1))
    if len(block.X) > most:
        return 0
    distinct = len(_first_of_each(block))
    on_purpose = len(np.unique(block.X, axis=0)) < distinct
    return 0 if on_purpose or distinct < 2 else len(block.X) - distinct


def _most_rows(rows: Rows) -> int:
    """The largest number of rows among which copies are looked for: these are in memory."""
    return min(_MOST_ROWS, _MOST_BYTES // (8 * max(1, rows.n_features)))


def _targets(block: Block) -> Array:
    assert block.y is not None
    return block.y


def _first_of_each(block: Block) -> Array:
    """The numbers of the rows that are not copies of earlier ones, in order."""
    values = np.column_stack([block.X, _targets(block)])
    return np.sort(np.unique(values, axis=0, return_index=True)[1])


class CombinedRows:
    """A few rows with weights, in memory; used in place of the `Rows` that they come from."""

    def __init__(self, rows: Rows, block: Block, chosen: Array, weights: Array) -> None:
        self.source, self.n_features, self.n_dropped = rows.source, rows.n_features, rows.n_dropped
        self.noise, self.n_rows = RowNoise(), len(chosen)
        source_rows = chosen if block.source_rows is None else block.source_rows[chosen]
        weights_and_noise = np.column_stack([weights, np.zeros(len(weights))])
        self._block = Block(
            0, np.ascontiguousarray(block.X[chosen]), _targets(block)[chosen], None, source_rows, weights_and_noise
        )

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        assert size >= self.n_rows
        yield self._block


CountedRows = Rows | DistinctRows | CombinedRows  # the rows of a source that a fit counts


def combined(rows: Rows) -> Rows | CombinedRows:
    """The rows of few rows of classes, in the order of their values; copies are one row with the sum of their weights.

    The model is then the same to the bit whether a row is given twice or with weight two, and in any order of rows.
    Unchanged where there are neither copies nor weights.
    """
    if rows.n_rows is not None and rows.n_rows > _MOST_WEIGHTED:
        return rows
    block = next(rows.blocks(_MOST_WEIGHTED + 1))
    values = np.column_stack([block.X, _targets(block)])
    distinct, first, places = np.unique(values, axis=0, return_index=True, return_inverse=True)
    if len(values) > _MOST_WEIGHTED or len(distinct) < 2 or (rows.noise is None and len(distinct) == len(values)):
        return rows
    weights = np.bincount(places.ravel(), block.weights, minlength=len(distinct))
    return CombinedRows(rows, block, first, weights)

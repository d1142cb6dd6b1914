"""Exact copies of rows in small tables: the same inputs and the same target, given more than once.

A copy carries no information of its own. Counted as an observation it says that the target has no noise, and with few
rows this ruins theta. But where rows with the same inputs have different targets, inputs are repeated on purpose, and
two equal outcomes may be two observations: there all rows count.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.rows import BLOCK, Block, Rows

_MOST_ROWS = 2048  # of a table in which copies are looked for


class DistinctRows:
    """The rows of a small table without copies; used in place of the `Rows` that they come from.

    Nothing is read until blocks are needed, so that a fit whose rows are sorted already reads nothing.
    """

    def __init__(self, rows: Rows, n_rows: int) -> None:
        self._rows, self.n_rows = rows, n_rows
        self.source, self.noise, self.n_features = rows.source, rows.noise, rows.n_features

    @property
    def n_dropped(self) -> int | None:
        return self._rows.n_dropped

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        block = next(self._rows.blocks(_MOST_ROWS + 1))
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
    if rows.noise is not None or (rows.n_rows is not None and rows.n_rows > _MOST_ROWS):
        return 0
    block = next(rows.blocks(_MOST_ROWS + 1))
    if len(block.X) > _MOST_ROWS:
        return 0
    distinct = len(_first_of_each(block))
    on_purpose = len(np.unique(block.X, axis=0)) < distinct
    return 0 if on_purpose or distinct < 2 else len(block.X) - distinct


def _targets(block: Block) -> Array:
    assert block.y is not None
    return block.y


def _first_of_each(block: Block) -> Array:
    """The numbers of the rows that are not copies of earlier ones, in order."""
    values = np.column_stack([block.X, _targets(block)])
    return np.sort(np.unique(values, axis=0, return_index=True)[1])

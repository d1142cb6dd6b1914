"""Sharing among local experts: an expert predicts from its cell and from the outside points nearest to its box.

The outside points are searched when an expert is needed, with the router's boxes. That costs a hundredth of the
expert's factorisation, and no memory for lists of row numbers.
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.linalg.compiled import compiled
from gigagp.model.boxes import BY_CENTRE, apart, off_centre
from gigagp.model.routing import Router

_NEAREST_CELLS = 24  # cells in which outside points are searched
_MORE_CELLS = 8  # further cells per cell size of outside points


@compiled
def _distances(
    X: Array, metric: Array, limits: Array, low: Array, high: Array, centre: Array, starts: Array, near: Array,
    rows: Array, squares: Array,
) -> None:  # fmt: skip
    """Row numbers of the cells `near` and their squared distances to a box."""
    at, point = 0, np.empty(X.shape[1])
    for c in near:
        for i in range(starts[c], starts[c + 1]):
            for d in range(X.shape[1]):
                point[d] = X[i, d] * metric[d]
            rows[at] = i
            squares[at] = apart(point, point, low, high, limits) + BY_CENTRE * off_centre(point, low, high, centre)
            at += 1


class Neighbourhoods(RowLists):
    """Each cell and the outside points nearest to its box: `outside[c]` of them, searched when needed."""

    def __init__(self, store: ExpertStore, cells: Runs, router: Router, outside: Array) -> None:
        self._store, self._cells, self._router, self.outside = store, cells, router, outside
        sizes = cells.sizes
        self._searched_cells = min(len(cells), _NEAREST_CELLS + int(_MORE_CELLS * outside.max() / sizes.min()))

    @property
    def sizes(self) -> Array:
        return self._cells.sizes + self.outside

    def __getitem__(self, cell: int) -> Array:
        boxes, centre = self._router.boxes, self._router.centres[cell]
        near = boxes.beside(cell, self._searched_cells)
        others, count = near[near != cell], int(self.outside[cell])
        starts = self._cells.starts
        rows = np.empty((starts[others + 1] - starts[others]).sum(), np.int64)
        squares = np.empty(len(rows))
        box = boxes.lows[cell], boxes.highs[cell], centre
        _distances(self._store.X, self._router.metric, self._router.limits, *box, starts, others, rows, squares)
        if count < len(rows):
            rows = rows[np.argpartition(squares, count)[:count]]
        return np.concatenate([self._cells[cell], np.sort(rows)])


def share_nearest(store: ExpertStore, cells: Runs, router: Router, sharing: float) -> RowLists:
    """Each cell and the (sharing - 1) times its size outside points nearest to its box, by index.

    The store has the rows in storage order, so that a cell is a run of it; the router has the boxes of the cells.
    """
    sizes = cells.sizes
    outside = np.minimum(np.round((sharing - 1) * sizes), sizes.sum() - sizes).astype(int)
    return cells if outside.max() == 0 else Neighbourhoods(store, cells, router, outside)

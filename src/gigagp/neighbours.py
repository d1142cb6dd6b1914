"""The training rows nearest to a query, in the kernel's metric.

The store holds the rows cell by cell, each cell has a bounding box, and boxes of cells form a tree (`boxes`). A
best-first search opens the cells in the order of their distance to the query. It ends when no unopened box is nearer
than the farthest neighbour, and then the result is exact, or when it has compared `limit` rows. Boxes hold in any
metric, so the metric of the search need not be the one in which cells were cut.
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.boxes import GROUP, apart
from gigagp.linalg.compiled import compiled, compiled_strict

NO_ROW = -1
UNLIMITED = int(np.iinfo(np.int64).max)


@compiled
def _row_distance(point: Array, row: Array, metric: Array) -> float:
    """Squared distance between a point, which is in the metric, and a row, which is not."""
    total = 0.0
    for d in range(len(point)):
        t = row[d] * metric[d] - point[d]
        total += t * t
    return total


@compiled_strict
def _comes_after(square: float, row: int, other_square: float, other_row: int) -> bool:
    """Order of neighbours: by distance, and by row number where distances are equal."""
    return square > other_square or (square == other_square and row > other_row)


@compiled_strict
def _sift_down(squares: Array, rows: Array, size: int, square: float, row: int) -> None:
    """Put an entry at the root of a heap whose root is the farthest row, and restore the heap."""
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _comes_after(squares[child + 1], rows[child + 1], squares[child], rows[child]):
            child += 1
        if not _comes_after(squares[child], rows[child], square, row):
            break
        squares[place], rows[place] = squares[child], rows[child]
        place = child
    squares[place], rows[place] = square, row


@compiled_strict
def _sift_up(squares: Array, rows: Array, place: int, square: float, row: int) -> None:
    """Add an entry at the end of a heap whose root is the farthest row."""
    while place > 0:
        parent = (place - 1) >> 1
        if not _comes_after(square, row, squares[parent], rows[parent]):
            break
        squares[place], rows[place] = squares[parent], rows[parent]
        place = parent
    squares[place], rows[place] = square, row


@compiled_strict
def _sort(squares: Array, rows: Array, size: int) -> None:
    """A heap as a list, the nearest row first."""
    for last in range(size - 1, 0, -1):
        square, row = squares[last], rows[last]
        squares[last], rows[last] = squares[0], rows[0]
        _sift_down(squares, rows, last, square, row)


@compiled_strict
def _push(bounds: Array, nodes: Array, size: int, bound: float, node: int) -> None:
    """Add a node to the queue, a heap whose root is the nearest box."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if bounds[parent] <= bound:
            break
        bounds[place], nodes[place] = bounds[parent], nodes[parent]
        place = parent
    bounds[place], nodes[place] = bound, node


@compiled_strict
def _pop(bounds: Array, nodes: Array, size: int) -> None:
    """Remove the root of a queue of `size` nodes."""
    last = size - 1
    bound, node = bounds[last], nodes[last]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and bounds[child + 1] < bounds[child]:
            child += 1
        if bounds[child] >= bound:
            break
        bounds[place], nodes[place] = bounds[child], nodes[child]
        place = child
    bounds[place], nodes[place] = bound, node


@compiled
def nearest(  # noqa: PLR0912 one loop over nodes, groups of cells and rows
    X: Array, starts: Array, lows: Array, highs: Array, node_lows: Array, node_highs: Array, metric: Array,
    point: Array, held_out: int, limit: int, bounds: Array, queue: Array, squares: Array, rows: Array,
) -> int:  # fmt: skip
    """Write the rows nearest to one query to `rows`, the nearest first; returns how many there are.

    X : rows in storage order; cell c has the rows starts[c] .. starts[c + 1]
    lows, highs : boxes of the cells; node_lows, node_highs : boxes of the nodes above them; all in the metric
    point : the query, in the metric
    held_out : a row to be ignored; NO_ROW for none
    limit : number of rows to compare after which the search ends even if nearer rows may exist
    bounds, queue : scratch with one place for each node and cell
    squares : squared distances of `rows`; both are as long as the number of rows wanted
    """
    wanted, nodes, lowest = len(rows), len(node_lows), len(node_lows) // 2
    size, compared = 0, 0
    bounds[0], queue[0], waiting = 0.0, 0, 1
    while waiting > 0:
        if size == wanted and (bounds[0] > squares[0] or compared >= limit):
            break
        node = queue[0]
        _pop(bounds, queue, waiting)
        waiting -= 1
        if node < lowest:
            for child in range(2 * node + 1, 2 * node + 3):
                bound = apart(point, point, node_lows[child], node_highs[child])
                if bound < np.inf and (size < wanted or bound <= squares[0]):
                    _push(bounds, queue, waiting, bound, child)
                    waiting += 1
        elif node < nodes:
            first = (node - lowest) * GROUP
            for cell in range(first, min(first + GROUP, len(lows))):
                bound = apart(point, point, lows[cell], highs[cell])
                if size < wanted or bound <= squares[0]:
                    _push(bounds, queue, waiting, bound, nodes + cell)
                    waiting += 1
        else:
            cell = node - nodes
            for row in range(starts[cell], starts[cell + 1]):
                square = _row_distance(point, X[row], metric)
                if size == wanted and not _comes_after(squares[0], rows[0], square, row):
                    continue
                if row == held_out:
                    continue
                if size < wanted:
                    _sift_up(squares, rows, size, square, row)
                    size += 1
                else:
                    _sift_down(squares, rows, size, square, row)
            compared += starts[cell + 1] - starts[cell]
    _sort(squares, rows, size)
    return size

"""Search for the cells nearest to a query: by the distance to the box around a cell's points, which is zero inside.

Distances to centres are not sufficient: where cells are long in the kernel's metric, a query may be nearer to the
centres of many other cells than to that of its own. Cells are in the order of the KD-tree that cut them, so neighbours
in that order are close; boxes around groups of boxes form a tree, of which a search visits few nodes.
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.categories import NO_LIMITS
from gigagp.linalg.compiled import compiled

GROUP = 8  # cells below each lowest node of the tree
# Weight of the squared distance to the centre, in widths of the box: it decides between boxes that contain a query.
BY_CENTRE = 1e-9


@compiled
def _extents(X: Array, starts: Array, lows: Array, highs: Array) -> None:
    for cell in range(len(starts) - 1):
        for i in range(starts[cell], starts[cell + 1]):
            for d in range(X.shape[1]):
                lows[cell, d] = min(lows[cell, d], X[i, d])
                highs[cell, d] = max(highs[cell, d], X[i, d])


def extents(X: Array, starts: Array) -> tuple[Array, Array]:
    """Minimum and maximum of each column in each run of rows, in the type of the rows."""
    shape = (len(starts) - 1, X.shape[1])
    lows, highs = np.full(shape, np.inf, X.dtype), np.full(shape, -np.inf, X.dtype)
    _extents(X, starts, lows, highs)
    return lows, highs


@compiled
def _grow(lows: Array, highs: Array, node_lows: Array, node_highs: Array) -> None:
    """Boxes of nodes from those of cells: the lowest nodes are the second half, node i has children 2i+1 and 2i+2."""
    lowest = len(node_lows) // 2
    columns = lows.shape[1]
    for cell in range(len(lows)):
        node = lowest + cell // GROUP
        for d in range(columns):
            node_lows[node, d] = min(node_lows[node, d], lows[cell, d])
            node_highs[node, d] = max(node_highs[node, d], highs[cell, d])
    for node in range(lowest - 1, -1, -1):
        for d in range(columns):
            node_lows[node, d] = min(node_lows[2 * node + 1, d], node_lows[2 * node + 2, d])
            node_highs[node, d] = max(node_highs[2 * node + 1, d], node_highs[2 * node + 2, d])


@compiled
def apart(a_low: Array, a_high: Array, low: Array, high: Array, limits: Array) -> float:
    """Squared distance between two boxes, of which one may be a point; to an empty one, infinite.

    limits : of the squared difference in each column; empty where there are none
    """
    total = 0.0
    for d in range(len(a_low)):
        t = max(0.0, low[d] - a_high[d], a_low[d] - high[d])
        square = t * t
        total += min(square, limits[d]) if len(limits) > 0 and t < np.inf else square
    return total


@compiled
def off_centre(point: Array, low: Array, high: Array, centre: Array) -> float:
    """Squared distance of a point to the centre of a box, in widths of the box, where it has any."""
    total = 0.0
    for d in range(len(point)):
        width = high[d] - low[d]
        if width > 0:
            t = (point[d] - centre[d]) / width
            total += t * t
    return total


@compiled
def _search(
    query_lows: Array, query_highs: Array, points: Array, lows: Array, highs: Array, centres: Array, node_lows: Array,
    node_highs: Array, limits: Array, cells: Array, squares: Array,
) -> None:  # fmt: skip
    """For each query box, with a point in it, the nearest cells, nearest first, and their squared distances."""
    count, lowest = cells.shape[1], len(node_lows) // 2
    nodes, bounds = np.empty(128, np.int64), np.empty(128)
    for q in range(len(points)):
        a_low, a_high, point = query_lows[q], query_highs[q], points[q]
        best, value = cells[q], squares[q]
        for j in range(count):
            best[j], value[j] = j, np.inf
        nodes[0], bounds[0], waiting = 0, apart(a_low, a_high, node_lows[0], node_highs[0], limits), 1
        while waiting > 0:
            waiting -= 1
            node = nodes[waiting]
            if bounds[waiting] >= value[count - 1]:
                continue
            if node < lowest:
                near, far = 2 * node + 1, 2 * node + 2
                a = apart(a_low, a_high, node_lows[near], node_highs[near], limits)
                b = apart(a_low, a_high, node_lows[far], node_highs[far], limits)
                if b < a:
                    near, far, a, b = far, near, b, a
                nodes[waiting], bounds[waiting] = far, b
                nodes[waiting + 1], bounds[waiting + 1] = near, a
                waiting += 2
                continue
            first = (node - lowest) * GROUP
            for cell in range(first, min(first + GROUP, len(lows))):
                square = apart(a_low, a_high, lows[cell], highs[cell], limits)
                if square >= value[count - 1]:
                    continue
                square += BY_CENTRE * off_centre(point, lows[cell], highs[cell], centres[cell])
                place = count - 1
                if square >= value[place]:
                    continue
                while place > 0 and value[place - 1] > square:
                    best[place], value[place] = best[place - 1], value[place - 1]
                    place -= 1
                best[place], value[place] = cell, square


class Boxes:
    """The boxes of all cells, in their order, and a tree of them."""

    def __init__(self, lows: Array, highs: Array, centres: Array, limits: Array = NO_LIMITS) -> None:
        self.lows, self.highs, self._centres, self._limits = lows, highs, centres, limits
        groups = -(-len(lows) // GROUP)
        lowest = 1 << (groups - 1).bit_length()
        shape = (2 * lowest - 1, lows.shape[1])
        self.node_lows, self.node_highs = np.full(shape, np.inf), np.full(shape, -np.inf)
        _grow(lows, highs, self.node_lows, self.node_highs)

    def nearest(self, points: Array, count: int) -> tuple[Array, Array]:
        """Distances to the nearest cells of each point, and which they are, the nearest first."""
        points = np.ascontiguousarray(points)
        return self._nearest(points, points, points, count)

    def beside(self, cell: int, count: int) -> Array:
        """The cells nearest to a cell, itself among them."""
        one = slice(cell, cell + 1)
        _, cells = self._nearest(self.lows[one], self.highs[one], self._centres[one], count)
        nearest: Array = cells[0]
        return nearest

    def _nearest(self, lows: Array, highs: Array, points: Array, count: int) -> tuple[Array, Array]:
        cells, squares = np.empty((len(points), count), np.int64), np.empty((len(points), count))
        tree = (self.lows, self.highs, self._centres, self.node_lows, self.node_highs, self._limits)
        _search(lows, highs, points, *tree, cells, squares)
        return np.sqrt(squares), cells

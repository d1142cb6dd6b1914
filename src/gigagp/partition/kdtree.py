"""A KD-tree as an order of the rows: cells are consecutive runs."""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled

BLOCK = 32  # rows of a cell that are searched together


def cell_starts(n: int, cells: int) -> Array:
    """Borders of `cells` runs of n rows, sizes within one of each other."""
    return np.arange(cells + 1) * n // cells


@compiled
def _select(keys: Array, order: Array, low: int, high: int, nth: int) -> None:
    """Reorder [low, high) so that keys before `nth` are <= those from it on (Hoare's quickselect)."""
    high -= 1
    while high > low:
        middle = (low + high) >> 1
        a, b, c = keys[low], keys[middle], keys[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while pivot < keys[j]:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if nth <= j:
            high = j
        elif nth >= i:
            low = i
        else:
            return


@compiled
def _widest(X: Array, order: Array, low: int, high: int) -> int:
    """The column in which the rows order[low:high] spread most: largest variance."""
    D = X.shape[1]
    mean, square = np.zeros(D), np.zeros(D)
    origin = X[order[low]]
    for i in range(low, high):
        row = X[order[i]]
        for d in range(D):
            v = np.float64(row[d] - origin[d])
            mean[d] += v
            square[d] += v * v
    best, widest = 0, -1.0
    for d in range(D):
        spread = square[d] - mean[d] * mean[d] / (high - low)
        if spread > widest:
            best, widest = d, spread
    return best


def block_starts(starts: Array) -> Array:
    """Borders of the blocks into which cells are divided, each within one row of the others of its cell."""
    sizes = np.diff(starts)
    blocks = np.maximum(1, np.round(sizes / BLOCK)).astype(np.int64)
    cells = np.repeat(np.arange(len(sizes)), blocks)
    number = np.arange(len(cells)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    return np.append(starts[cells] + number * sizes[cells] // blocks[cells], starts[-1])


@compiled
def _split(X: Array, order: Array, starts: Array, stack: list[tuple[int, int]]) -> None:
    """Divide the rows between the pairs of borders on the stack at the borders that lie between."""
    keys = np.empty(len(order), X.dtype)
    while len(stack) > 0:
        first, end = stack.pop()
        if end - first < 2:
            continue
        middle = (first + end) // 2
        low, high = starts[first], starts[end]
        d = _widest(X, order, low, high)
        for i in range(low, high):
            keys[i] = X[order[i], d]
        _select(keys, order, low, high, starts[middle])
        stack.append((middle, end))
        stack.append((first, middle))


@compiled
def _split_all(X: Array, order: Array, starts: Array) -> None:
    _split(X, order, starts, [(0, len(starts) - 1)])


@compiled
def _split_cells(X: Array, order: Array, starts: Array, cells: Array) -> None:
    """`cells` : which of the borders are those of cells, too"""
    _split(X, order, starts, [(cells[c], cells[c + 1]) for c in range(len(cells) - 1)])


def kd_order(X: Array, starts: Array) -> Array:
    """Rows of X ordered so that order[starts[c] : starts[c + 1]] is cell c of a KD-tree.

    A node is split across its widest column, where the rows before the middle border end.
    """
    order = np.arange(len(X))
    _split_all(np.ascontiguousarray(X), order, np.asarray(starts))
    return order


def kd_order_of_blocks(X: Array, starts: Array) -> Array:
    """`kd_order`, and the rows of each cell ordered in turn by the blocks of `block_starts`."""
    order, blocks = kd_order(X, starts), block_starts(starts)
    _split_cells(np.ascontiguousarray(X), order, blocks, np.searchsorted(blocks, starts))
    return order

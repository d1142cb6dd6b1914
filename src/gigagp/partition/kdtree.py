"""A KD-tree as an order of the rows: cells are consecutive runs."""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.categories import DIFFERENT, LEVELS_APART, NO_LIMITS
from gigagp.linalg.compiled import compiled

BLOCK = 32  # rows of a cell that are searched together


def cell_starts(n: int, cells: int) -> Array:
    """Borders of `cells` runs of n rows, sizes within one of each other."""
    return np.arange(cells + 1) * n // cells


@compiled
def _select(keys: Array, X: Array, order: Array, low: int, high: int, nth: int) -> None:
    """Reorder [low, high) so that keys before `nth` are <= those from it on (Hoare's quickselect).

    Rows and their numbers move with the keys: the rows of a node are then consecutive in memory.
    """
    columns = X.shape[1]
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
                for d in range(columns):
                    X[i, d], X[j, d] = X[j, d], X[i, d]
                i += 1
                j -= 1
        if nth <= j:
            high = j
        elif nth >= i:
            low = i
        else:
            return


@compiled
def _spread_of_levels(X: Array, low: int, high: int, column: int, limit: float, counts: Array) -> float:
    """The number of rows times half their mean squared difference in a column whose differences have a limit.

    counts : one zero per level
    """
    unit, squares = DIFFERENT**0.5 / (LEVELS_APART * np.sqrt(limit)), 0.0
    for i in range(low, high):
        level = int(np.float64(X[i, column]) * unit + 0.5)
        squares += 2 * counts[level] + 1
        counts[level] += 1
    for i in range(low, high):
        counts[int(np.float64(X[i, column]) * unit + 0.5)] = 0
    return 0.5 * limit * (high - low - squares / (high - low))  # type: ignore[no-any-return]


@compiled
def _widest(X: Array, low: int, high: int, limits: Array, counts: Array) -> int:
    """The column in which the rows low .. high spread most: largest variance."""
    D = X.shape[1]
    mean, square = np.zeros(D), np.zeros(D)
    origin = X[low]
    for i in range(low, high):
        row = X[i]
        for d in range(D):
            v = np.float64(row[d] - origin[d])
            mean[d] += v
            square[d] += v * v
    best, widest = 0, -1.0
    for d in range(D):
        spread = square[d] - mean[d] * mean[d] / (high - low)
        if len(limits) > 0 and limits[d] < np.inf:
            spread = _spread_of_levels(X, low, high, d, limits[d], counts) if limits[d] > 0 else 0.0
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
def _split(X: Array, order: Array, starts: Array, limits: Array, counts: Array, stack: list[tuple[int, int]]) -> None:
    """Divide the rows between the pairs of borders on the stack at the borders that lie between; X is reordered too."""
    keys = np.empty(len(order), X.dtype)
    while len(stack) > 0:
        first, end = stack.pop()
        if end - first < 2:
            continue
        middle = (first + end) // 2
        low, high = starts[first], starts[end]
        d = _widest(X, low, high, limits, counts)
        for i in range(low, high):
            keys[i] = X[i, d]
        _select(keys, X, order, low, high, starts[middle])
        stack.append((middle, end))
        stack.append((first, middle))


@compiled
def _split_all(X: Array, order: Array, starts: Array, limits: Array, counts: Array) -> None:
    _split(X, order, starts, limits, counts, [(0, len(starts) - 1)])


@compiled
def _split_cells(X: Array, order: Array, starts: Array, limits: Array, counts: Array, cells: Array) -> None:
    """`cells` : which of the borders are those of cells, too"""
    _split(X, order, starts, limits, counts, [(cells[c], cells[c + 1]) for c in range(len(cells) - 1)])


def _level_counts(X: Array, limits: Array) -> Array:
    """A zero for each level of the category with the most levels."""
    most = 0.0
    for column in np.flatnonzero((limits > 0) & (limits < np.inf)):
        unit = LEVELS_APART * np.sqrt(limits[column] / DIFFERENT)
        most = max(most, float(X[:, column].max()) / unit)
    return np.zeros(round(most) + 2, np.int64)


def kd_order(X: Array, starts: Array, limits: Array = NO_LIMITS) -> Array:
    """Rows of X ordered so that order[starts[c] : starts[c + 1]] is cell c of a KD-tree.

    A node is split across its widest column, where the rows before the middle border end.

    limits : of the squared difference in each column, where some are categories (`linalg.categories`)
    """
    return _sorted_copy(X, starts, limits)[1]


def kd_order_of_blocks(X: Array, starts: Array, limits: Array = NO_LIMITS) -> Array:
    """`kd_order`, and the rows of each cell ordered in turn by the blocks of `block_starts`."""
    (rows, order), blocks = _sorted_copy(X, starts, limits), block_starts(starts)
    cells = np.searchsorted(blocks, starts)
    _split_cells(rows, order, blocks, limits, _level_counts(X, limits), cells)
    return order


def _sorted_copy(X: Array, starts: Array, limits: Array) -> tuple[Array, Array]:
    """The rows of X in the order of `kd_order`, and that order."""
    rows, order = np.array(X, order="C"), np.arange(len(X))
    _split_all(rows, order, np.asarray(starts), limits, _level_counts(X, limits))
    return rows, order

"""A KD-tree as an order of the rows: cells are consecutive runs."""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled


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


@compiled
def _split(X: Array, order: Array, starts: Array) -> None:
    stack = [(0, len(starts) - 1)]
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


def kd_order(X: Array, starts: Array) -> Array:
    """Rows of X ordered so that order[starts[c] : starts[c + 1]] is cell c of a KD-tree.

    A node is split across its widest column, where the rows before the middle border end.
    """
    order = np.arange(len(X))
    _split(np.ascontiguousarray(X), order, np.asarray(starts))
    return order

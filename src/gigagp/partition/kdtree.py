"""A KD-tree as an order of the rows: cells are consecutive runs."""

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.categories import DIFFERENT, LEVELS_APART, NO_LIMITS
from gigagp.linalg.compiled import compiled, compiled_strict, read_only

BLOCK = 32  # rows of a cell that are searched together
_ROWS_OF_SPREAD = 256  # rows by which the column of a split is chosen: their variances are known to 9%
_TOGETHER = 32  # keys that are compared with a pivot before any of them is moved
_DEEPEST = 64  # levels of a tree
_SAMPLE = 64  # keys of a sample from which a pivot is taken, and a quarter of it for fewer keys
_LARGE_FROM = 2048  # keys from which on the whole sample is drawn
_SAMPLED_FROM = 256  # keys from which on any is drawn
_BEYOND = 6  # ranks in the sample by which the pivot is beyond the wanted place: 1.5 standard deviations


def cell_starts(n: int, cells: int) -> Array:
    """Borders of `cells` runs of n rows, sizes within one of each other."""
    return np.arange(cells + 1) * n // cells


@compiled
def _next_random(state: Any) -> Any:
    """The next state of a linear congruential generator (Knuth's MMIX), whose high bits are random enough."""
    return state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@compiled
def _pivot(keys: Array, low: int, high: int, nth: int, sample: Array) -> float:
    """A key that divides low .. high about where `nth` is, so that `nth` is with the fewer keys.

    Of few keys it is the median of three. Of many it is taken from a sorted sample, a little beyond the place of `nth`
    on the side where more keys are: then hardly any are compared again (Floyd & Rivest 1975).
    """
    size = high - low + 1
    if size < _SAMPLED_FROM:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high]
        return max(min(a, b), min(max(a, b), c))  # type: ignore[no-any-return]
    count, beyond, state = len(sample), _BEYOND, np.uint64(size)
    if size < _LARGE_FROM:
        count, beyond = count // 4, beyond // 2
    for i in range(count):
        state = _next_random(state)
        value, place = keys[low + np.int64((state >> np.uint64(33)) % np.uint64(size))], i
        while place > 0 and sample[place - 1] > value:
            sample[place] = sample[place - 1]
            place -= 1
        sample[place] = value
    rank = (nth - low) * count // size
    rank += beyond if 2 * rank < count else -beyond
    return sample[min(max(rank, 0), count - 1)]  # type: ignore[no-any-return]


@compiled
def _exchange(keys: Array, X: Array, order: Array, i: int, j: int) -> None:
    keys[i], keys[j] = keys[j], keys[i]
    order[i], order[j] = order[j], order[i]
    for d in range(X.shape[1]):
        X[i, d], X[j, d] = X[j, d], X[i, d]


@compiled
def _exchange_most(
    keys: Array, X: Array, order: Array, low: int, high: int, pivot: float, misplaced: Array
) -> tuple[int, int]:
    """Bring keys to their sides of the pivot, from both ends on; returns the first and the last that remain.

    The processor cannot predict which keys are on the wrong side, so that a loop with a branch on it waits at every
    other key. Here the misplaced keys of a stretch are listed first, without a branch (Edelkamp & Weiss 2016).

    misplaced : scratch for their places, `_TOGETHER` at each end
    """
    left = right = left_done = right_done = 0  # misplaced keys, and how many have been moved before
    while high - low >= 2 * _TOGETHER:
        if left == 0:
            left_done = 0
            for i in range(low, low + _TOGETHER):
                misplaced[0, left] = i
                left += int(keys[i] >= pivot)
        if right == 0:
            right_done = 0
            for i in range(high, high - _TOGETHER, -1):
                misplaced[1, right] = i
                right += int(keys[i] <= pivot)
        count = min(left, right)
        for i in range(count):
            _exchange(keys, X, order, misplaced[0, left_done + i], misplaced[1, right_done + i])
        left, right, left_done, right_done = left - count, right - count, left_done + count, right_done + count
        low += _TOGETHER if left == 0 else 0
        high -= _TOGETHER if right == 0 else 0
    return low, high


@compiled
def _select(
    keys: Array, X: Array, order: Array, low: int, high: int, nth: int, sample: Array, misplaced: Array
) -> None:
    """Reorder [low, high) so that keys before `nth` are <= those from it on (Hoare's quickselect).

    Rows and their numbers move with the keys: the rows of a node are then consecutive in memory.

    sample, misplaced : scratch, for some keys, and for `_exchange_most`
    """
    high -= 1
    while high > low:
        pivot = _pivot(keys, low, high, nth, sample)
        i, j = _exchange_most(keys, X, order, low, high, pivot, misplaced)
        while i <= j:
            while i <= j and keys[i] < pivot:
                i += 1
            while i <= j and pivot < keys[j]:
                j -= 1
            if i <= j:
                _exchange(keys, X, order, i, j)
                i += 1
                j -= 1
        if nth <= j:
            high = j
        elif nth >= i:
            low = i
        else:
            return


@compiled
def _some_rows(low: int, high: int, rows: Array) -> int:
    """rows := all rows low .. high or, where these are too many, random ones, one of each stretch; returns how many."""
    size, state = high - low, np.uint64(high)
    if size <= len(rows):
        for i in range(size):
            rows[i] = low + i
        return size
    for i in range(len(rows)):
        start, end = low + i * size // len(rows), low + (i + 1) * size // len(rows)
        state = _next_random(state)
        rows[i] = start + np.int64((state >> np.uint64(33)) % np.uint64(end - start))
    return len(rows)


@compiled
def _spread_of_levels(
    X: Array, rows: Array, count: int, column: int, factor: float, limit: float, counts: Array
) -> float:
    """The number of rows times half their mean squared difference in a column whose differences have a limit.

    rows, count : the rows are the first `count` of these
    factor : of the column, in the metric of the limit
    counts : one zero per level
    """
    unit, squares = factor * DIFFERENT**0.5 / (LEVELS_APART * np.sqrt(limit)), 0.0
    for i in range(count):
        level = int(np.float64(X[rows[i], column]) * unit + 0.5)
        squares += 2 * counts[level] + 1
        counts[level] += 1
    for i in range(count):
        counts[int(np.float64(X[rows[i], column]) * unit + 0.5)] = 0
    return 0.5 * limit * (count - squares / count)  # type: ignore[no-any-return]


@compiled
def _spreads(X: Array, rows: Array, count: int, origin: int, out: Array) -> None:
    """out := the number of rows times the variance of each column; `rows` and `count` as in `_spread_of_levels`.

    origin : a row from which differences are taken, so that large numbers do not cancel
    """
    columns, d = X.shape[1], 0
    while d + 4 <= columns:  # four sums at a time stay in registers
        a = b = c = e = aa = bb = cc = ee = 0.0
        for i in range(count):
            row = rows[i]
            u, v = np.float64(X[row, d] - X[origin, d]), np.float64(X[row, d + 1] - X[origin, d + 1])
            w, z = np.float64(X[row, d + 2] - X[origin, d + 2]), np.float64(X[row, d + 3] - X[origin, d + 3])
            a, b, c, e = a + u, b + v, c + w, e + z
            aa, bb, cc, ee = aa + u * u, bb + v * v, cc + w * w, ee + z * z
        out[d], out[d + 1] = aa - a * a / count, bb - b * b / count
        out[d + 2], out[d + 3] = cc - c * c / count, ee - e * e / count
        d += 4
    for column in range(d, columns):
        total = squares = 0.0
        for i in range(count):
            u = np.float64(X[rows[i], column] - X[origin, column])
            total += u
            squares += u * u
        out[column] = squares - total * total / count


@compiled
def _widest(
    X: Array, low: int, high: int, metric: Array, limits: Array, counts: Array, rows: Array, spreads: Array
) -> int:
    """The column in which the rows low .. high spread most: largest variance, of some of the rows where they are many.

    rows, spreads : scratch, for numbers of rows, and for one number per column
    """
    count = _some_rows(low, high, rows)
    _spreads(X, rows, count, low, spreads)
    best, widest = 0, -1.0
    for d in range(X.shape[1]):
        spread = spreads[d] * (metric[d] * metric[d])
        if len(limits) > 0 and limits[d] < np.inf:
            spread = _spread_of_levels(X, rows, count, d, metric[d], limits[d], counts) if limits[d] > 0 else 0.0
        if spread > widest:
            best, widest = d, spread
    return best


def blocks_of_cells(starts: Array) -> Array:
    """The number of blocks into which each cell is divided."""
    return np.maximum(1, np.round(np.diff(starts) / BLOCK)).astype(np.int64)


def block_starts(starts: Array) -> Array:
    """Borders of the blocks into which cells are divided, each within one row of the others of its cell."""
    blocks = blocks_of_cells(starts)
    borders = np.empty(int(blocks.sum()) + 1, np.int64)
    _divide_cells(read_only(np.asarray(starts, np.int64)), blocks, borders)
    return borders


@compiled_strict
def _divide_cells(starts: Array, blocks: Array, borders: Array) -> None:
    place = 0
    for cell in range(len(blocks)):
        size = starts[cell + 1] - starts[cell]
        for block in range(blocks[cell]):
            borders[place] = starts[cell] + block * size // blocks[cell]
            place += 1
    borders[place] = starts[-1]


@compiled
def _split(X: Array, order: Array, starts: Array, metric: Array, limits: Array, counts: Array, cells: Array) -> None:
    """Divide the rows of each cell at the borders that lie in it; X is reordered too.

    starts : the borders
    cells : which of the borders are those of cells
    """
    keys, sample = np.empty(len(order), X.dtype), np.empty(_SAMPLE, X.dtype)
    misplaced = np.empty((2, _TOGETHER + 1), np.int64)
    rows, spreads, stack = np.empty(_ROWS_OF_SPREAD, np.int64), np.empty(X.shape[1]), np.empty((_DEEPEST, 2), np.int64)
    for cell in range(len(cells) - 1):
        stack[0, 0], stack[0, 1], waiting = cells[cell], cells[cell + 1], 1
        while waiting > 0:
            waiting -= 1
            first, end = stack[waiting, 0], stack[waiting, 1]
            if end - first < 2:
                continue
            middle = (first + end) // 2
            low, high = starts[first], starts[end]
            d = _widest(X, low, high, metric, limits, counts, rows, spreads)
            for i in range(low, high):
                keys[i] = X[i, d]
            _select(keys, X, order, low, high, starts[middle], sample, misplaced)
            stack[waiting, 0], stack[waiting, 1] = middle, end
            stack[waiting + 1, 0], stack[waiting + 1, 1] = first, middle
            waiting += 2


def _level_counts(X: Array, metric: Array, limits: Array) -> Array:
    """A zero for each level of the category with the most levels."""
    most = 0.0
    for column in np.flatnonzero((limits > 0) & (limits < np.inf)):
        unit = LEVELS_APART * np.sqrt(limits[column] / DIFFERENT)
        most = max(most, float(X[:, column].max()) * float(metric[column]) / unit)
    return np.zeros(round(most) + 2, np.int64)


def _whole(starts: Array) -> Array:
    """All rows as one cell, as `_split` needs it."""
    return np.array([0, len(starts) - 1])


def kd_order(X: Array, starts: Array, limits: Array = NO_LIMITS) -> Array:
    """Rows of X ordered so that order[starts[c] : starts[c + 1]] is cell c of a KD-tree.

    A node is split across its widest column, where the rows before the middle border end.

    limits : of the squared difference in each column, where some are categories (`linalg.categories`)
    """
    rows, order, metric = np.array(X, order="C"), np.arange(len(X)), np.ones(X.shape[1])
    _split(rows, order, np.asarray(starts, np.int64), metric, limits, _level_counts(X, metric, limits), _whole(starts))
    return order


def kd_order_of_blocks(X: Array, starts: Array, limits: Array = NO_LIMITS) -> Array:
    """`kd_order`, and the rows of each cell ordered in turn by the blocks of `block_starts`."""
    return sort_into_blocks(np.array(X, order="C"), starts, np.ones(X.shape[1]), limits)


def sort_into_blocks(X: Array, starts: Array, metric: Array, limits: Array = NO_LIMITS) -> Array:
    """Put the rows X into the order of `kd_order_of_blocks`, in a metric, and return that order.

    metric : factors of the columns, in which variances are compared
    """
    metric, order, blocks = np.asarray(metric, float), np.arange(len(X)), block_starts(starts)
    counts = _level_counts(X, metric, limits)
    _split(X, order, np.asarray(starts, np.int64), metric, limits, counts, _whole(starts))
    _split(X, order, blocks, metric, limits, counts, np.searchsorted(blocks, starts))
    return order

"""The training rows nearest to a query, in the kernel's metric.

The store holds the rows cell by cell and, within a cell, block by block; each block of some tens of rows has a bounding
box, and boxes around boxes form a tree. A best-first search opens the blocks in the order of their distance to the
query. It ends when no unopened box is nearer than the farthest neighbour, and then the result is exact, or when it has
compared `limit` rows. Boxes hold in any metric, so the metric of the search need not be the one in which cells were
cut. Small blocks pay: at 1e6 rows in 8 columns boxes of 32 rows find more neighbours in 4,000 rows than boxes of 256 in
8,000.
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.categories import NO_LIMITS
from gigagp.linalg.compiled import compiled, compiled_in_place, read_only
from gigagp.linalg.row_codes import PREPARED, prepare_box, rows_possibly_within
from gigagp.linalg.searching import (
    FANOUT,
    STEPS,
    bits,
    box_distances,
    fetch,
    listed_within,
    pad,
    padded_length,
    rows_within,
    rows_within_limited,
)
from gigagp.model.block_tree import BlockTree

NO_ROW = -1  # number of a row that does not exist
UNLIMITED = int(np.iinfo(np.int64).max)  # rows that an exact search may compare
NOTHING = -1  # end of a list of boxes
_DEEPEST = 22  # levels of a tree: FANOUT to that power is more than there are numbers of rows
_BUCKETS = 384  # number of lists of boxes that wait to be opened, by their distance
_COARSE = 49  # number of low bits of a distance that do not affect its bucket
_PART = 64  # rows of a block that are compared before the farthest neighbour is updated


@compiled_in_place
def _comes_after(square: float, row: int, other_square: float, other_row: int) -> bool:
    """Order of neighbours: by distance, and by row number where distances are equal."""
    return square > other_square or (square == other_square and row > other_row)


@compiled_in_place
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


@compiled_in_place
def _sift_up(squares: Array, rows: Array, place: int, square: float, row: int) -> None:
    """Add an entry at the end of a heap whose root is the farthest row."""
    while place > 0:
        parent = (place - 1) >> 1
        if not _comes_after(square, row, squares[parent], rows[parent]):
            break
        squares[place], rows[place] = squares[parent], rows[parent]
        place = parent
    squares[place], rows[place] = square, row


@compiled_in_place
def _sort(squares: Array, rows: Array, size: int) -> None:
    """A heap as a list, the nearest row first."""
    for last in range(size - 1, 0, -1):
        square, row = squares[last], rows[last]
        squares[last], rows[last] = squares[0], rows[0]
        _sift_down(squares, rows, last, square, row)


@compiled_in_place
def _span(frames: Array, metric: Array, limits: Array) -> float:
    """Squared diagonal of the box around all rows."""
    root, total = len(frames) - 1, 0.0
    for d in range(frames.shape[2]):
        side = STEPS * np.float64(frames[root, 1, d]) * metric[0, d]
        total += min(side * side, limits[d]) if len(limits) > 0 else side * side
    return total


@compiled_in_place
def _least(apart: Array) -> float:
    """The smallest of the distances to the boxes of a node."""
    least = np.inf
    for child in range(FANOUT):
        least = min(least, apart[child])
    return least


@compiled_in_place
def _bucket(bound: float, nearest_box: float, last: int) -> int:
    """Where a box waits: eight buckets for each doubling of the squared distance, counted from the nearest box on."""
    above = _BUCKETS - 1 - last + (bits(bound - nearest_box) >> _COARSE)
    return int(min(max(above, 0), _BUCKETS - 1))


@compiled_in_place
def _keep(squares: Array, rows: Array, size: int, square: float, row: int) -> int:
    """Add a row to the nearest ones if it is one of them; returns how many there are."""
    if size < len(rows):
        _sift_up(squares, rows, size, square, row)
        return size + 1
    if _comes_after(squares[0], rows[0], square, row):
        _sift_down(squares, rows, size, square, row)
    return size


@compiled_in_place
def _keep_all(
    near: Array, near_rows: Array, count: int, held_out: int, squares: Array, rows: Array, size: int
) -> int:  # fmt: skip
    """Add the first `count` rows of a list to the nearest ones where they belong; returns how many there are."""
    for i in range(count):
        if near_rows[i] != held_out:
            size = _keep(squares, rows, size, near[i], near_rows[i])
    return size


@compiled_in_place
def _possible_rows(
    X: Array, tree: tuple[Array, ...], block: int, begin: int, end: int, metric: Array, point: Array, worst: float,
    box: Array, fetched: Array,
) -> int:  # fmt: skip
    """fetched := the rows of a block that may be nearer than `worst`, by their codes; asks for them to be cached."""
    _, frames, corners, _, codes = tree
    prepare_box(frames, corners, block // FANOUT, block % FANOUT, metric, point, box)
    count = rows_possibly_within(codes, begin, end, box, worst, fetched)
    columns = X.shape[1]
    for i in range(count):
        fetch(X, fetched[i] * columns, columns + 1)  # a row may begin in the middle of a line
    return int(count)


@compiled_in_place
def _copied(rows: Array, count: int, out: Array) -> int:
    """out[:count] := rows[:count]; returns the count."""
    for i in range(count):
        out[i] = rows[i]
    return count


@compiled_in_place
def _pad_all(metric: Array, limits: Array, point: Array, scales: Array, own: Array) -> None:
    """scales := the factors and limits of the columns, own := the point, as `pad` arranges them."""
    pad(metric[0], scales[0])
    if len(limits) > 0:
        pad(limits, scales[1])
    pad(point, own)


@compiled_in_place
def _compared(
    X: Array, start: int, stop: int, scales: Array, limited: bool, own: Array, worst: float, near: Array,
    near_rows: Array,
) -> int:  # fmt: skip
    """The number of rows of a block that are nearer than `worst`, with limits of the differences or without."""
    if limited:
        return rows_within_limited(X, start, stop, scales[0], own, worst, near, near_rows, scales[1])
    return rows_within(X, start, stop, scales[0], own, worst, near, near_rows)


@compiled_in_place
def _make_empty(heads: Array) -> None:
    for b in range(_BUCKETS):
        heads[b] = NOTHING


@compiled_in_place
def _fetch_next(X: Array, starts: Array, frames: Array, corners: Array, codes: Array, entry: int) -> None:
    """Bring into the cache what the entry at the head of the queue will be compared by."""
    columns = X.shape[1]
    if entry < 0:
        first = starts[~entry]
        if len(codes) > 0:
            fetch(codes, first * columns, (starts[~entry + 1] - first) * columns)
        else:
            fetch(X, first * columns, (starts[~entry + 1] - first) * columns)
    else:
        size = 2 * columns
        fetch(frames, entry * size, size + 1)  # a frame may begin in the middle of a line
        fetch(corners, entry * size * FANOUT, size * FANOUT)


@compiled
def search_scratch(columns: int, places: int) -> tuple[Array, ...]:
    """Arrays that `nearest` works in, for a tree of so many places."""
    padded = padded_length(columns)
    scales, own, apart = np.empty((2, padded)), np.empty(padded), np.empty(FANOUT)
    near, near_rows = np.empty(_PART + FANOUT), np.empty(_PART + FANOUT, np.int64)
    heads = np.empty(_BUCKETS, np.int32)
    bounds, queue, behind = np.empty(places), np.empty(places, np.int64), np.empty(places, np.int32)
    box = np.empty((PREPARED, columns), np.float32)
    return scales, own, apart, near, near_rows, heads, bounds, queue, behind, box, np.empty(_PART, np.int64)


@compiled_in_place
def nearest(  # noqa: PLR0912, PLR0915 one loop over nodes, blocks and rows
    X: Array, tree: tuple[Array, ...], metric: Array, point: Array, held_out: int, limit: int,
    scratch: tuple[Array, ...], squares: Array, rows: Array,
) -> int:  # fmt: skip
    """Write the rows nearest to one query to `rows`, the nearest first; returns how many there are.

    X, tree : rows in storage order, and the arrays of their BlockTree
    metric : factors of the columns and, where some columns have one, limits of the squared differences as a second row,
        of which codes do not know
    point : the query, in the metric
    held_out : a row to be ignored; NO_ROW for none
    limit : number of rows to compare after which the search ends even if nearer rows may exist
    scratch : from `search_scratch`
    squares : squared distances of `rows`; both are as long as the number of rows wanted
    """
    wanted, size, compared, waiting, possible = len(rows), 0, 0, 0, 0
    starts, frames, corners, first_below, codes = tree
    scales, own, apart, near, near_rows, heads, bounds, queue, behind, box, fetched = scratch
    limited, factors = metric.shape[0] > 1, scales[0]
    limits = metric[1 if limited else 0, : metric.shape[1] if limited else 0]
    _pad_all(metric, limits, point, scales, own)
    entered, bucket, root = 1, 0, len(frames) - 1
    box_distances(frames, corners, root, metric, point, limits, apart)
    nearest_box = _least(apart)
    last = bits(nearest_box + 2 * _span(frames, metric, limits)) >> _COARSE
    _make_empty(heads)
    queue[0], bounds[0], behind[0], heads[0] = root, nearest_box, NOTHING, 0
    while bucket < _BUCKETS:
        worst = squares[0] if size == wanted else np.inf
        if size == wanted and (compared >= limit or bucket > _bucket(worst, nearest_box, last)):
            break
        place = heads[bucket]
        heads[bucket] = behind[place]
        while bucket < _BUCKETS and heads[bucket] == NOTHING:
            bucket += 1
        if bucket < _BUCKETS:
            _fetch_next(X, starts, frames, corners, codes, queue[heads[bucket]])
        entry, bound = queue[place], bounds[place]
        begin, end = (0, 0) if entry >= 0 else (starts[~entry], starts[~entry + 1])
        coded = len(codes) > 0 and not limited and size == wanted and 0 < end - begin <= _PART
        if coded and bound <= worst:
            possible = _possible_rows(X, tree, ~entry, begin, end, metric, point, worst, box, fetched)
        if waiting > 0:  # the rows of the block before, which have reached the cache meanwhile
            count = listed_within(X, waiting, factors, own, worst, near, near_rows)
            size = _keep_all(near, near_rows, count, held_out, squares, rows, size)
            waiting, worst = 0, squares[0]
        if bound > worst:
            continue
        compared += end - begin
        if entry >= 0:
            box_distances(frames, corners, entry, metric, point, limits, apart)
            first = first_below[entry]
            for child in range(FANOUT):
                bound = apart[child]
                if bound < np.inf and bound <= worst:
                    b = _bucket(bound, nearest_box, last)
                    queue[entered], bounds[entered] = (first + child if first >= 0 else first - child), bound
                    behind[entered], heads[b] = heads[b], entered
                    bucket = min(bucket, b)
                    entered += 1
        elif coded:
            waiting = _copied(fetched, possible, near_rows)
        else:
            for start in range(begin, end, _PART):
                count = _compared(X, start, min(start + _PART, end), scales, limited, own, worst, near, near_rows)
                size = _keep_all(near, near_rows, count, held_out, squares, rows, size)
                worst = squares[0] if size == wanted else np.inf
    count = listed_within(X, waiting, factors, own, squares[0], near, near_rows) if waiting > 0 else 0
    size = _keep_all(near, near_rows, count, held_out, squares, rows, size)
    _sort(squares, rows, size)
    return size


@compiled_in_place
def _nearest_groups(
    frames: Array, corners: Array, first_below: Array, metric: Array, points: Array, limits: Array, apart: Array,
    bounds: Array, entries: Array, groups: Array,
) -> None:  # fmt: skip
    for q in range(len(points)):
        bounds[0], entries[0], waiting, best = 0.0, len(frames) - 1, 1, np.inf
        while waiting > 0:
            waiting -= 1
            entry = entries[waiting]
            if bounds[waiting] >= best:
                continue
            below = first_below[entry]
            if below < 0 or first_below[below] < 0:
                best, groups[q] = bounds[waiting], entry
                continue
            box_distances(frames, corners, entry, metric, points[q], limits, apart)
            bottom = waiting
            for child in range(FANOUT):
                if apart[child] < best:
                    bounds[waiting], entries[waiting] = apart[child], below + child
                    if waiting > bottom and bounds[waiting] > bounds[waiting - 1]:  # the nearest stays on top
                        bounds[waiting], bounds[waiting - 1] = bounds[waiting - 1], bounds[waiting]
                        entries[waiting], entries[waiting - 1] = entries[waiting - 1], entries[waiting]
                    waiting += 1


def nearest_group(tree: BlockTree, metric: Array, points: Array, limits: Array = NO_LIMITS) -> Array:
    """The node nearest to each point, which is in the metric, of those two levels above the blocks.

    One of them where several contain the point. To order queries, lower levels would cost too much: their boxes are
    not in the caches.
    """
    places = FANOUT * _DEEPEST
    groups = np.zeros(len(points), np.int64)
    _nearest_groups(  # type: ignore[call-arg]
        read_only(tree.frames), read_only(tree.corners), read_only(tree.first_below), np.atleast_2d(metric),
        np.ascontiguousarray(points), limits, np.empty(FANOUT), np.empty(places), np.empty(places, np.int64), groups,
    )  # fmt: skip
    return groups

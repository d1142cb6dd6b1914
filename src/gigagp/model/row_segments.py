"""Rows that arrive and leave: sorted segments in growing arrays, below one tree of boxes.

Arriving rows become a segment, sorted in the order of a KD-tree, with a box around each block of rows and a tree of
these boxes. A segment that is less than twice as large as all that follow it is merged with them, so that segments
become larger geometrically: there are at most log2(n) of them, and a row is sorted again at most log2(n) times. (This
is a log-structured merge tree; O'Neil et al. 1996.) The search for the nearest rows sees one tree, with a root above
the segments.

Nothing that was written once changes. New segments, also merged ones, are written behind all others, and a
`RowSegments` is a value that describes which of them count, so that a prediction in another thread reads a whole state.
When the arrays are full, the segments in use are copied to larger ones.

The search takes block b to be the box b % FANOUT of node b // FANOUT. So every node has the numbers of FANOUT blocks;
those of nodes without blocks are empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.linalg.categories import limits_of
from gigagp.linalg.row_codes import PADDING
from gigagp.linalg.row_noise import COLUMNS
from gigagp.linalg.searching import FANOUT
from gigagp.model.block_tree import BlockTree, count_nodes, encode_boxes, frame_sides
from gigagp.partition.kdtree import BLOCK, cell_starts, kd_order

_RATIO = 2  # sizes of consecutive segments
_GROWTH = 2.0  # capacity of new arrays, as a multiple of what is in use
_LEAST_NODES = 4096  # that new arrays have room for, beyond those in use
_THINNEST = 0.5  # share of its rows that a segment keeps without being sorted again


@dataclass(frozen=True)
class Segment:
    """Where a segment is: rows first .. end, and nodes of its tree, of which the last is its root."""

    rows: tuple[int, int]
    nodes: tuple[int, int]

    @property
    def size(self) -> int:
        return self.rows[1] - self.rows[0]

    @property
    def slice(self) -> slice:
        return slice(*self.rows)


@dataclass(frozen=True, eq=False)
class ArrivingRows:
    """Scaled rows on their way into segments: inputs, targets, row noise, and the numbers in order of arrival."""

    X: Array
    y: Array
    row_noise: Array | None
    arrivals: Array

    def __len__(self) -> int:
        return len(self.y)

    def at(self, rows: Any) -> ArrivingRows:
        noise = None if self.row_noise is None else self.row_noise[rows]
        return ArrivingRows(self.X[rows], self.y[rows], noise, self.arrivals[rows])

    @classmethod
    def joined(cls, parts: list[ArrivingRows]) -> ArrivingRows:
        noise = None
        if any(part.row_noise is not None for part in parts):
            noise = np.concatenate([part.noise_of_all for part in parts])
        X, y, arrivals = (np.concatenate([getattr(p, name) for p in parts]) for name in ("X", "y", "arrivals"))
        return cls(X, y, noise, arrivals)

    @property
    def noise_of_all(self) -> Array:
        """The row noise; that of rows of weight one where there is none."""
        if self.row_noise is not None:
            return self.row_noise
        return np.repeat(np.array([[1.0, 0.0]], self.X.dtype), len(self), axis=0)


class _Arrays:
    """The growing arrays. Only their parts beyond what the newest value uses are written."""

    def __init__(self, like: ArrivingRows, rows: int, nodes: int) -> None:
        columns, dtype = like.X.shape[1], like.X.dtype
        self.X, self.y, self.arrivals = (
            np.empty((rows, columns), dtype),
            np.empty(rows, dtype),
            np.empty(rows, np.int64),
        )
        self.row_noise = None if like.row_noise is None else np.empty((rows, COLUMNS), dtype)
        self.codes = np.empty(rows * columns + PADDING, np.uint8)
        self.starts = np.zeros(FANOUT * nodes + 1, np.int64)
        self.first_below = np.empty(nodes, np.int64)
        self.frames = np.empty((nodes, 2, columns), dtype)
        self.corners = np.empty((nodes, 2, columns, FANOUT), np.uint8)
        self.newest = 0  # serial number of the value that may append

    def has_room(self, rows: int, nodes: int) -> bool:
        return rows <= len(self.y) and nodes <= len(self.first_below)


@dataclass(frozen=True, eq=False)
class RowSegments:
    """The rows of a model that takes updates, and how they are searched.

    metrics : the metric of each of the models that are averaged, the first of which segments are sorted in
    """

    arrays: _Arrays
    segments: tuple[Segment, ...]
    metrics: tuple[Array, ...]
    categories: tuple[int, ...]
    rows: int  # in use of the arrays, with those that no longer count
    nodes: int
    serial: int = 0

    @classmethod
    def of(
        cls, store: ExpertStore, tree: BlockTree, metrics: list[Array], categories: tuple[int, ...], arrivals: Array
    ) -> RowSegments:
        """The rows of a fitted model as one segment, with the boxes that it has."""
        noise = None if store.row_noise is None else np.asarray(store.row_noise)
        rows = ArrivingRows(np.asarray(store.X), np.asarray(store.y), noise, arrivals)
        count, nodes = len(rows), len(tree.frames)
        arrays = _Arrays(rows, *_capacity(count, nodes))
        empty = cls(arrays, (), tuple(metrics), categories, 0, 0)
        _write_rows(arrays, rows, 0)
        _write_starts(arrays, tree.starts, 0, nodes)
        arrays.first_below[:nodes] = tree.first_below
        arrays.frames[:nodes], arrays.corners[:nodes] = tree.frames, tree.corners
        codes = tree.codes if len(tree.codes) else tree.with_codes(rows.X).codes
        arrays.codes[: len(codes)] = codes
        whole = Segment((0, count), (0, nodes))
        return replace(empty, segments=(whole,), rows=count, nodes=nodes)._with_root()

    @property
    def size(self) -> int:
        """The number of rows that count."""
        return sum(segment.size for segment in self.segments)

    @property
    def store(self) -> ExpertStore:
        """All rows of the arrays. Rows that no longer count are in it, and no search finds them."""
        a = self.arrays
        noise = None if a.row_noise is None else a.row_noise[: self.rows]
        return ExpertStore(a.X[: self.rows], a.y[: self.rows], noise)

    @property
    def tree(self) -> BlockTree:
        """The boxes of all segments."""
        a = self.arrays
        codes = a.codes[: self.rows * a.X.shape[1] + PADDING]
        starts = a.starts[: FANOUT * self.nodes + 1]
        frames, corners, below = (each[: self.nodes] for each in (a.frames, a.corners, a.first_below))
        return BlockTree(starts, frames, corners, below, codes)

    def content(self, segment: Segment) -> ArrivingRows:
        """The rows of a segment."""
        a, here = self.arrays, segment.slice
        return ArrivingRows(a.X[here], a.y[here], None if a.row_noise is None else a.row_noise[here], a.arrivals[here])

    def all_rows(self) -> ArrivingRows:
        """All rows that count, segment after segment."""
        return ArrivingRows.joined([self.content(segment) for segment in self.segments])

    def appended(self, rows: ArrivingRows) -> RowSegments:
        """With more rows, which are merged with the segments that are not much larger."""
        if not len(rows):
            return self
        kept, total = len(self.segments), len(rows)
        while kept and self.segments[kept - 1].size < _RATIO * total:
            kept -= 1
            total += self.segments[kept].size
        merged = [self.content(segment) for segment in self.segments[kept:]]
        return replace(self, segments=self.segments[:kept])._with_segment(ArrivingRows.joined([*merged, rows]))

    def without(self, arrivals: Array) -> RowSegments:
        """Without the rows of these arrival numbers, which are sorted; some rows must remain."""
        untouched, thinned = [], []
        for segment in self.segments:
            rows = self.content(segment)
            gone = is_among(rows.arrivals, arrivals)
            if not gone.any():
                untouched.append(segment)
            elif not gone.all():
                starts = self.starts_of(segment) - segment.rows[0]
                borders = None
                if gone.mean() <= 1 - _THINNEST:  # the order of the rows that stay is still that of a KD-tree
                    counts = np.concatenate([[0], np.cumsum(~gone)])[starts]
                    borders = counts[np.concatenate([[True], np.diff(counts) > 0])]
                thinned.append((rows.at(~gone), borders))
        result = replace(self, segments=tuple(untouched))
        for rows, borders in thinned:
            result = result._with_segment(rows, borders)
        by_size = sorted(result.segments, key=lambda segment: -segment.size)
        return replace(result, segments=tuple(by_size))._with_root()

    def starts_of(self, segment: Segment) -> Array:
        """Where the blocks of a segment begin, and where the last one ends."""
        return self.arrays.starts[FANOUT * segment.nodes[0] : FANOUT * segment.nodes[1] + 1]

    def _with_segment(self, rows: ArrivingRows, borders: Array | None = None) -> RowSegments:
        """With one more segment at the end; `borders` : of the blocks of rows that are sorted, or None to sort them."""
        order = None
        if borders is None:
            borders = cell_starts(len(rows), max(1, round(len(rows) / BLOCK)))
            metric = self.metrics[0]
            order = kd_order(rows.X * metric.astype(rows.X.dtype), borders, limits_of(metric, self.categories))
        nodes = count_nodes(len(borders) - 1)
        new = self._writable(rows, nodes)
        a, segment = new.arrays, _segment(new, len(rows), nodes)
        _write_rows(a, rows, new.rows, order)
        X = a.X[segment.slice]
        tree, columns = BlockTree.of_rows(X, borders), X.shape[1]
        a.codes[new.rows * columns : (new.rows + len(rows)) * columns] = tree.codes[: X.size]
        _write_starts(a, borders + new.rows, *segment.nodes)
        below = tree.first_below
        a.first_below[slice(*segment.nodes)] = np.where(below >= 0, below + new.nodes, below - FANOUT * new.nodes)
        a.frames[slice(*segment.nodes)], a.corners[slice(*segment.nodes)] = tree.frames, tree.corners
        new = replace(new, segments=(*new.segments, segment), rows=segment.rows[1], nodes=segment.nodes[1])
        return new._with_root()

    def _with_root(self) -> RowSegments:
        """With nodes above the segments, of which the last is the root of the whole."""
        count, added = len(self.segments), 0
        while True:
            added += count
            if count == 1:
                break
            count = -(-count // FANOUT)
        new, newest = self, self.arrays.newest == self.serial  # another value may have written beyond this one
        if not (newest and new.arrays.has_room(new.rows, new.nodes + added)):
            new = new._moved(0, added)
        a, at = new.arrays, new.nodes
        level = range(at, at + len(new.segments))
        for place, segment in zip(level, new.segments, strict=True):
            for each in (a.first_below, a.frames, a.corners):
                each[place] = each[segment.nodes[1] - 1]
        while len(level) > 1:
            above = range(level.stop, level.stop + -(-len(level) // FANOUT))
            a.first_below[above.start : above.stop] = level.start + np.arange(len(above)) * FANOUT
            boxes = frame_sides(a.frames[level.start : level.stop])
            encode_boxes(*boxes, a.frames[above.start : above.stop], a.corners[above.start : above.stop])
            level = above
        a.starts[FANOUT * at : FANOUT * level.stop + 1] = new.rows
        a.newest += 1
        return replace(new, nodes=level.stop, serial=a.newest)

    def _writable(self, rows: ArrivingRows, nodes: int) -> RowSegments:
        """The same rows in arrays that may be appended to and have room for so much more."""
        a, needed = self.arrays, nodes + FANOUT + len(self.segments)  # with those above the segments
        fits = a.row_noise is not None or rows.row_noise is None
        if a.newest == self.serial and fits and a.has_room(self.rows + len(rows), self.nodes + needed):
            return self
        return self._moved(len(rows), needed, rows.row_noise is not None)

    def _moved(self, rows: int, nodes: int, noisy: bool = False) -> RowSegments:
        """The segments in new arrays, with room for so much more and as much again."""
        a = self.arrays
        noisy = noisy or a.row_noise is not None
        like = ArrivingRows(a.X[:0], a.y[:0], np.empty((0, COLUMNS), a.X.dtype) if noisy else None, a.arrivals[:0])
        live = sum(segment.nodes[1] - segment.nodes[0] for segment in self.segments)
        capacity = _capacity(self.size + rows, live + nodes)
        new = RowSegments(_Arrays(like, *capacity), (), self.metrics, self.categories, 0, 0)
        for segment in self.segments:
            new = _copied(self, segment, new)
        return new


def is_among(numbers: Array, some: Array) -> Array:
    """Which numbers are among some that are sorted."""
    if not len(some):
        return np.zeros(len(numbers), bool)
    return np.asarray(some[np.minimum(np.searchsorted(some, numbers), len(some) - 1)] == numbers)


def _capacity(rows: int, nodes: int) -> tuple[int, int]:
    return int(_GROWTH * rows) + BLOCK, int(_GROWTH * nodes) + _LEAST_NODES


def _segment(at: RowSegments, rows: int, nodes: int) -> Segment:
    return Segment((at.rows, at.rows + rows), (at.nodes, at.nodes + nodes))


def _write_starts(arrays: _Arrays, starts: Array, first: int, end: int) -> None:
    """Where the blocks of the nodes first .. end begin; blocks beyond those of the list are empty."""
    here = arrays.starts[FANOUT * first : FANOUT * end + 1]
    here[: len(starts)] = starts
    here[len(starts) :] = starts[-1]


def _write_rows(arrays: _Arrays, rows: ArrivingRows, at: int, order: Array | None = None) -> None:
    """Write rows behind all others, in another order if one is given."""
    pairs = [(arrays.X, rows.X), (arrays.y, rows.y), (arrays.arrivals, rows.arrivals)]
    if arrays.row_noise is not None:
        pairs.append((arrays.row_noise, rows.noise_of_all))
    for out, values in pairs:
        here = out[at : at + len(rows)]
        if order is None:
            here[...] = values
        else:
            np.take(values, order, axis=0, out=here, mode="clip")  # other modes copy first


def _copied(source: RowSegments, segment: Segment, target: RowSegments) -> RowSegments:
    """The target with a segment of the source behind all others."""
    a, b, columns = source.arrays, target.arrays, source.arrays.X.shape[1]
    new = _segment(target, segment.size, segment.nodes[1] - segment.nodes[0])
    _write_rows(b, source.content(segment), target.rows)
    own, other = (slice(each.rows[0] * columns, each.rows[1] * columns) for each in (segment, new))
    b.codes[other] = a.codes[own]
    _write_starts(b, source.starts_of(segment) - segment.rows[0] + new.rows[0], *new.nodes)
    below, shift = a.first_below[slice(*segment.nodes)], new.nodes[0] - segment.nodes[0]
    b.first_below[slice(*new.nodes)] = np.where(below >= 0, below + shift, below - FANOUT * shift)
    for each, copies in ((a.frames, b.frames), (a.corners, b.corners)):
        copies[slice(*new.nodes)] = each[slice(*segment.nodes)]
    return replace(target, segments=(*target.segments, new), rows=new.rows[1], nodes=new.nodes[1])

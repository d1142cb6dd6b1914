"""Boxes around blocks of rows and around boxes, in few bytes: what a search for the nearest rows reads first.

Each node has a frame, which contains all boxes below it, and the corners of these boxes in 255ths of the frame's sides,
one byte each. A box is rounded outwards, so it contains its rows, and a distance to it is never larger than the
distance to one of them. Boxes are in the units of the columns and hold in every metric. One tree serves all kernels.

With boxes in double precision, multiplied by the metric, a node of 8 columns had 1,024 bytes; it has 192 where rows are
in single precision, and 256 where they are in double precision. A billion rows in 3 columns have a tree of 0.6 GB
instead of 2 GB per metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import row_codes
from gigagp.linalg.compiled import compiled_strict, read_only
from gigagp.linalg.searching import FANOUT, STEPS
from gigagp.model.boxes import extents

# Shares of the largest number of a column by which boxes are larger than their rows: more than the rounding of
# distances to boxes and rows, in double precision, and of a frame in the precision of the rows.
_ROUNDING = 2.0**-49
_ROUNDINGS_OF_FRAME = 4.0
_NODES = 1 << 14  # nodes that are computed at a time


@compiled_strict
def _encode(lows: Array, highs: Array, unit: float, frames: Array, corners: Array) -> None:
    """Frames and corners of nodes from the boxes below them, of which the last node may have fewer than FANOUT.

    unit : the spacing of numbers of the rows' type at 1
    """
    for node in range(len(frames)):
        first, end = node * FANOUT, min((node + 1) * FANOUT, len(lows))
        for d in range(lows.shape[1]):
            low, high = np.inf, -np.inf
            for box in range(first, end):
                low, high = min(low, np.float64(lows[box, d])), max(high, np.float64(highs[box, d]))
            largest = max(abs(low), abs(high))
            margin = (_ROUNDING + _ROUNDINGS_OF_FRAME * unit) * largest
            frames[node, 0, d] = low - margin
            base = np.float64(frames[node, 0, d])
            frames[node, 1, d] = (high + margin - base) / STEPS * (1 + _ROUNDINGS_OF_FRAME * unit)
            step = np.float64(frames[node, 1, d])
            for child in range(FANOUT):
                corners[node, 0, d, child], corners[node, 1, d, child] = STEPS, 0  # a box that does not exist
            for box in range(first, end):
                below, above = lows[box, d] - _ROUNDING * largest, highs[box, d] + _ROUNDING * largest
                a = int((below - base) / step) if step > 0 else 0
                b = int((above - base) / step) + 1 if step > 0 else 0
                a = a - 1 if base + a * step > below else a
                b = b - 1 if b > 0 and base + (b - 1) * step >= above else b
                corners[node, 0, d, box - first], corners[node, 1, d, box - first] = max(a, 0), min(b, STEPS)


def count_nodes(blocks: int) -> int:
    """The number of nodes of a tree of so many blocks."""
    return int(_levels(blocks)[-1].stop)


def encode_boxes(lows: Array, highs: Array, frames: Array, corners: Array) -> None:
    """frames, corners := those of the nodes above these boxes."""
    _encode(np.ascontiguousarray(lows), np.ascontiguousarray(highs), np.finfo(frames.dtype).eps, frames, corners)


def frame_sides(frames: Array) -> tuple[Array, Array]:
    """Lows and highs of frames."""
    base = frames[:, 0].astype(float)
    return base, base + STEPS * frames[:, 1].astype(float)


@dataclass(frozen=True, eq=False)
class BlockTree:
    """Boxes around blocks of rows, and around FANOUT boxes at a time, up to one root, which is the last node."""

    starts: Array  # block b has the rows starts[b] .. starts[b + 1]
    frames: Array  # (nodes, 2, columns): low and 255th of the side of the box around each node, in the rows' type
    corners: Array  # (nodes, 2, columns, FANOUT) bytes: lows and highs of the boxes below, in steps of the frame
    first_below: Array  # of each node, the first node below it, or ~block where blocks lie below it
    codes: Array  # of the rows (`linalg.row_codes`); empty where there are none

    @classmethod
    def of(cls, starts: Array, lows: Array, highs: Array, codes: Array | None = None) -> BlockTree:
        """The tree of blocks with these boxes, whose type is that of the rows."""
        builder = TreeBuilder(len(lows), lows.shape[1], lows.dtype)
        builder.add(lows, highs)
        return builder.finish(starts, codes)

    @classmethod
    def of_rows(cls, X: Array, starts: Array, coded: bool = True) -> BlockTree:
        """The tree of rows; `coded` : with their codes."""
        tree = cls.of(starts, *extents(X, starts))
        return tree.with_codes(X) if coded else tree

    def with_codes(self, X: Array) -> BlockTree:
        """The same tree with the codes of its rows."""
        codes = read_only(row_codes.encode(X, self.starts, self.frames, self.corners))
        return BlockTree(self.starts, self.frames, self.corners, self.first_below, codes)

    def boxes(self) -> tuple[Array, Array]:
        """Lows and highs of the blocks, one row per block."""
        count, columns = len(self.starts) - 1, self.frames.shape[2]
        lowest = -(-count // FANOUT)
        base, step = (self.frames[:lowest, i, :, None].astype(float) for i in range(2))
        lows, highs = (base + step * self.corners[:lowest, side] for side in range(2))
        return tuple(side.transpose(0, 2, 1).reshape(-1, columns)[:count] for side in (lows, highs))  # type: ignore[return-value]

    def first_rows(self, nodes: Array) -> Array:
        """The first row below each node."""
        below = self.first_below[nodes]
        while (below >= 0).any():
            below = np.where(below >= 0, self.first_below[np.maximum(below, 0)], below)
        return self.starts[~below]

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays as `neighbour_search.nearest` takes them; not kept, because a pickle would make them writable."""
        parts = (self.starts, self.frames, self.corners, self.first_below, self.codes)
        return tuple(read_only(part) for part in parts)

    @property
    def places(self) -> int:
        """The longest that the queue of a search can be."""
        return len(self.starts) + len(self.frames)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.arrays)


class TreeBuilder:
    """Takes the boxes of consecutive blocks, some at a time, so that those of all rows are never in memory together."""

    def __init__(self, blocks: int, columns: int, dtype: np.dtype[Any]) -> None:
        nodes = count_nodes(blocks)
        self._frames = np.empty((nodes, 2, columns), dtype)
        self._corners = np.empty((nodes, 2, columns, FANOUT), np.uint8)
        self._blocks, self._done = blocks, 0
        self._waiting: list[tuple[Array, Array]] = []

    def add(self, lows: Array, highs: Array) -> None:
        """The boxes of the blocks that follow."""
        lows, highs = (np.concatenate(parts) for parts in zip(*self._waiting, (lows, highs), strict=True))
        whole = len(lows) // FANOUT * FANOUT
        if self._done + len(lows) == self._blocks:
            whole = len(lows)
        if whole > 0:
            nodes = slice(self._done // FANOUT, -(-(self._done + whole) // FANOUT))
            encode_boxes(lows[:whole], highs[:whole], self._frames[nodes], self._corners[nodes])
        self._waiting, self._done = [(lows[whole:], highs[whole:])], self._done + whole

    def finish(self, starts: Array, codes: Array | None = None) -> BlockTree:
        """The tree, once all boxes have been added."""
        assert self._done == self._blocks, "a tree has a box for every block"
        codes = read_only(np.empty(0, np.uint8) if codes is None else codes)
        below = complete(self._frames, self._corners, self._blocks)
        return BlockTree(np.asarray(starts, np.int64), self._frames, self._corners, below, codes)


def complete(frames: Array, corners: Array, blocks: int) -> Array:
    """Write the nodes above the lowest ones, which are those of so many blocks; returns `first_below` of all nodes."""
    for nodes, own_frames, own_corners in upper_nodes(frames, blocks):
        frames[nodes], corners[nodes] = own_frames, own_corners
    return first_below(blocks)


def upper_nodes(frames: Array, blocks: int) -> Iterator[tuple[slice, Array, Array]]:
    """Frames and corners that the nodes above the lowest ones must have, some at a time, in order.

    Those of a node follow from the frames of the nodes below it, which are read when they are needed.
    """
    columns = frames.shape[2]
    for below, above in pairwise(_levels(blocks)):
        for start in range(above.start, above.stop, _NODES):
            nodes = slice(start, min(start + _NODES, above.stop))
            first = below.start + (start - above.start) * FANOUT
            own = np.empty((nodes.stop - start, 2, columns), frames.dtype)
            corners = np.empty((*own.shape, FANOUT), np.uint8)
            encode_boxes(*frame_sides(frames[first : min(first + len(own) * FANOUT, below.stop)]), own, corners)
            yield nodes, own, corners


def first_below(blocks: int) -> Array:
    """The first node below each node, or ~block where blocks lie below it, in a tree of so many blocks."""
    lowest, *others = _levels(blocks)
    parts = [~(np.arange(lowest.stop) * FANOUT)]
    for below, above in pairwise([lowest, *others]):
        parts.append(below.start + np.arange(above.stop - above.start) * FANOUT)
    return np.concatenate(parts)


def _levels(blocks: int) -> list[slice]:
    """The nodes of each level of a tree of so many blocks, from the lowest to the root."""
    levels = [slice(0, -(-blocks // FANOUT))]
    while (count := levels[-1].stop - levels[-1].start) > 1:
        levels.append(slice(levels[-1].stop, levels[-1].stop - (-count // FANOUT)))
    return levels

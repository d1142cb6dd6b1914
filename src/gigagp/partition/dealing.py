"""Partitions that deal the rows of a node to its children like cards: random and stratified."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import IndexLists, Runs
from gigagp.errors import InvalidParameter
from gigagp.partition.base import (
    DEFAULT_BRANCHING,
    Partition,
    Partitioner,
    RowSorter,
    Shape,
    StoredPartition,
    check_leaf,
    count_leaves,
    regular_tree,
)
from gigagp.partition.coarse import CoarseTree
from gigagp.partition.kdtree import cell_starts, kd_order
from gigagp.tree import Tree

DEFAULT_LEAF = 512  # rows per leaf
_INDEX_BYTES = 40  # bytes per row in memory while row numbers are dealt: order, groups, positions
# (rows of a node, number of children) -> the rows in the order in which they are dealt to the children, like cards
Shuffle = Callable[[Array, int], Array]


class Dealing(Partitioner):
    """A partition that deals rows like cards. It needs only row numbers, and at most a spatial order of them."""

    spatial = False  # whether rows are dealt in an order in which neighbours are close

    def check(self, n: int, shape: Shape) -> None:
        check_dealing(n, shape)

    @abstractmethod
    def deal(self, n: int, shape: Shape, rng: np.random.Generator, ordered: Array | None = None) -> Partition:
        """Divide n rows by their numbers alone; `ordered` has these in spatial order where `spatial` is true."""

    def split_large(self, sorter: RowSorter, shape: Shape, rng: np.random.Generator) -> StoredPartition:
        sorter.check_index(_INDEX_BYTES)
        ordered = spatial_order(sorter) if self.spatial else None
        partition = self.deal(sorter.rows, shape, rng, ordered)
        del ordered
        return sorter.write_in_order(partition)


def spatial_order(sorter: RowSorter) -> Array:
    """Row numbers in an order in which neighbours are close: buckets, and a KD-tree of pairs within each."""
    coarse = CoarseTree.for_buckets(sorter, sorter.sample.X, sorter.rows // 2)
    ids = np.empty(sorter.rows, np.int32)

    def assign(first: int, X: Array) -> Array:
        here = coarse.route(X, sorter.keys(first, len(X)))
        ids[first : first + len(X)] = here
        return here

    buckets = sorter.buckets(assign, len(coarse))

    def divide(bucket: int) -> Array:
        X, _ = buckets.take(bucket)
        return kd_order(X, cell_starts(len(X), max(1, len(X) // 2)))

    ordered = np.argsort(ids, kind="stable")
    start = 0
    for order in sorter.map(divide, range(len(coarse))):
        here = slice(start, start + len(order))
        ordered[here] = ordered[here][order]
        start += len(order)
    return ordered


def check_dealing(n: int, shape: Shape) -> None:
    """Raise InvalidParameter for fractional sharing, more shares than children, or leaves of fewer than two rows."""
    sharing = _sharing(shape)
    if shape.levels is None:
        return
    branching = shape.branching or DEFAULT_BRANCHING
    if sharing > branching:
        raise InvalidParameter(
            f"sharing must be at most branching (each row goes to `sharing` of the `branching` children); "
            f"got sharing={sharing}, branching={branching}"
        )
    points = n
    for _ in range(int(shape.levels)):
        points = points * sharing // branching
    check_leaf(points, shape, n)


def deal_tree(n: int, shape: Shape, shuffle: Shuffle) -> Partition:
    """Deal n rows down the tree: each row of a node goes to `sharing` of its `branching` children.

    Siblings' sizes are within one row of each other; all leaves' are where sharing divides branching. (Elsewhere no
    dealing can: nodes of 5 and 6 rows, each row to 3 of 4 children, must have children of 3 and of 5.)

    With leaf_size the tree is derived: one level of dealing into as many leaves as it takes, and a balanced tree
    above them.
    """
    sharing = _sharing(shape)
    if shape.levels is None:
        n_leaves = count_leaves(n, n * sharing, int(shape.leaf_size or DEFAULT_LEAF))
        if n_leaves <= sharing:  # every expert would have all rows: one expert suffices
            n_leaves, sharing = 1, 1
        leaves = _deal(shuffle(np.arange(n), n_leaves), n_leaves, sharing)
        return _store(leaves, n, Tree.balanced(n_leaves))
    check_dealing(n, shape)
    branching = int(shape.branching or DEFAULT_BRANCHING)
    leaves = [np.arange(n)]
    for _ in range(int(shape.levels)):
        leaves = [child for rows in leaves for child in _deal(shuffle(rows, branching), branching, sharing)]
    return _store(leaves, n, regular_tree(shape))


def _sharing(shape: Shape) -> int:
    sharing = 1 if shape.sharing is None else shape.sharing
    if int(sharing) != sharing:
        raise InvalidParameter(f"sharing must be a whole number for this partition; got {sharing!r}")
    return int(sharing)


def _deal(rows: Array, children: int, sharing: int) -> list[Array]:
    """Deal rows into as many groups as children; child c takes groups c, c + 1, .., c + sharing - 1, cyclically.

    The groups that get one row more are spread evenly round the circle, so that the children's sizes differ by one
    at most.
    """
    extra = np.diff(np.arange(children + 1) * (len(rows) % children) // children) == 1
    seats = np.concatenate([np.flatnonzero(extra), np.flatnonzero(~extra)])
    groups: list[Array] = [rows[:0]] * children
    for position, seat in enumerate(seats):
        groups[seat] = rows[position::children]
    if sharing == 1:
        return groups
    return [np.concatenate([groups[(c + i) % children] for i in range(sharing)]) for c in range(children)]


def _store(leaves: list[Array], n: int, tree: Tree) -> Partition:
    """Rows sorted by the first leaf that reads them."""
    groups = IndexLists.of(leaves)
    if len(groups.indices) == n:  # each row in one leaf
        cells = Runs(groups.starts)
        return Partition(groups.indices, cells, cells, tree)
    _, first = np.unique(groups.indices, return_index=True)
    order = groups.indices[np.sort(first)]
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    stored = IndexLists(groups.starts, position[groups.indices])
    for leaf in range(len(stored)):
        stored.indices[stored.starts[leaf] : stored.starts[leaf + 1]].sort()
    return Partition(order, stored, stored, tree)

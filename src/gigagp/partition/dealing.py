"""Dealing a node's rows to its children, as random and stratified partitions both do."""

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
    Shape,
    check_leaf,
    count_leaves,
    regular_tree,
)
from gigagp.tree import Tree

DEFAULT_LEAF = 512
# A node's rows, in the order in which they are to be dealt like cards.
Shuffle = Callable[[Array, int], Array]


class Dealing(Partitioner):
    """Partitions that deal rows like cards: the row numbers, and at most an order of them, are all they need."""

    spatial = False  # whether rows are dealt in an order in which neighbours follow each other

    def check(self, n: int, shape: Shape) -> None:
        check_dealing(n, shape)

    @abstractmethod
    def deal(self, n: int, shape: Shape, rng: np.random.Generator, ordered: Array | None = None) -> Partition:
        """Divide n rows, too many to look at whole; `ordered` are their numbers in spatial order, if that is wanted."""


def check_dealing(n: int, shape: Shape) -> None:
    """Refuse what cannot be dealt: fractions of rows, more shares than children, leaves of less than two rows."""
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
        if n_leaves <= sharing:  # every expert would hold all rows: one does
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

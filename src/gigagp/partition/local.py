"""Local experts: the cells of a KD-tree, in the metric of a first rough theta.

Evidence comes from the disjoint cells alone; for prediction an expert reads its whole cell and, with sharing, the
outside points nearest to its box (see `sharing`). (Evidence from overlapping cells counts points twice and was
measured to give a worse theta; see docs/architecture.md.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.partition.base import (
    DEFAULT_BRANCHING,
    Partition,
    Partitioner,
    Shape,
    check_leaf,
    count_leaves,
    regular_tree,
)
from gigagp.partition.kdtree import cell_starts, kd_order_of_blocks
from gigagp.tree import Tree

DEFAULT_LEAF = 256


class LocalPartition(Partitioner):
    """Each expert holds a neighbourhood. Cells here; `share_nearest` adds the outside points once theta is trained."""

    local = True

    def check(self, n: int, shape: Shape) -> None:
        if shape.levels is not None:
            check_leaf(n / (shape.branching or DEFAULT_BRANCHING) ** shape.levels, replace(shape, sharing=None), n)

    def hierarchy(self, n: int, shape: Shape) -> tuple[int, Tree | None]:
        """How many leaves n rows are to have, and the tree above them if the shape prescribes it."""
        if shape.levels is None:
            return count_leaves(n, n, int(shape.leaf_size or DEFAULT_LEAF)), None
        self.check(n, shape)
        tree = regular_tree(shape)
        return tree.n_leaves, tree

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        n_leaves, tree = self.hierarchy(len(X), shape)
        starts = cell_starts(len(X), n_leaves)
        cells = Runs(starts)
        return Partition(kd_order_of_blocks(X, starts), cells, cells, tree or Tree.balanced(n_leaves))

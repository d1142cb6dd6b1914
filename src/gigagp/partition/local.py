"""Local experts: the cells of a KD-tree, in the metric of a first rough theta.

The evidence is formed from the disjoint cells; for prediction an expert reads its cell and, with sharing, the outside
points nearest to its box (see `sharing`). Evidence from overlapping cells would count points twice, and gave a worse
theta when we measured it (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.errors import InvalidInput
from gigagp.linalg.categories import NO_LIMITS
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
from gigagp.partition.coarse import CoarseTree, Routing
from gigagp.partition.kdtree import cell_starts, kd_order_of_blocks, sort_into_blocks
from gigagp.tree import Tree

DEFAULT_LEAF = 256  # rows per leaf


@dataclass(frozen=True, eq=False)
class CellsOfBucket:
    """Divides the rows of a bucket into its cells: a value that can be sent to another process."""

    metric: Array
    limits: Array
    leaves: Array  # of each bucket

    def __call__(self, bucket: int, X: Array) -> Array:
        return sort_into_blocks(X, cell_starts(len(X), int(self.leaves[bucket])), self.metric, self.limits)


class LocalPartition(Partitioner):
    """Each expert has the rows of one cell. `share_nearest` adds outside points once theta is trained."""

    local = True

    def check(self, n: int, shape: Shape) -> None:
        if shape.levels is not None:
            check_leaf(n / (shape.branching or DEFAULT_BRANCHING) ** shape.levels, replace(shape, sharing=None), n)

    def hierarchy(self, n: int, shape: Shape) -> tuple[int, Tree | None]:
        """The number of leaves for n rows, and the tree above them if the shape prescribes it."""
        if shape.levels is None:
            return count_leaves(n, n, int(shape.leaf_size or DEFAULT_LEAF)), None
        self.check(n, shape)
        tree = regular_tree(shape)
        return tree.n_leaves, tree

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        return self.split_categories(X, shape, rng, NO_LIMITS)

    def split_categories(self, X: Array, shape: Shape, rng: np.random.Generator, limits: Array) -> Partition:
        n_leaves, tree = self.hierarchy(len(X), shape)
        starts = cell_starts(len(X), n_leaves)
        cells = Runs(starts)
        return Partition(kd_order_of_blocks(X, starts, limits), cells, cells, tree or Tree.balanced(n_leaves))

    def split_large(self, sorter: RowSorter, shape: Shape, rng: np.random.Generator) -> StoredPartition:
        """A coarse tree, built from the sample, sorts the rows into buckets, and a KD-tree divides each of them."""
        leaf_count, tree = self.hierarchy(sorter.rows, shape)
        coarse = CoarseTree.for_buckets(sorter, sorter.sample.X * sorter.metric, leaf_count)
        buckets = sorter.buckets(Routing(coarse, sorter.metric, sorter.keys), len(coarse))
        sizes, leaves = buckets.sizes, coarse.leaves
        if tree is None:  # the size of leaves is prescribed, not their number
            leaves = np.round(sizes * leaf_count / sorter.rows).astype(int)
            leaves = np.maximum(np.minimum(leaves, sizes // 2), sizes > 0)
            tree = Tree.balanced(int(leaves.sum()))
        elif (sizes < 2 * leaves).any():
            raise InvalidInput(
                f"{sorter.rows} rows cannot be divided into {leaf_count} cells of at least two rows; use fewer levels"
            )

        cells = _cells_of_buckets(sizes, leaves)
        return sorter.write(buckets, CellsOfBucket(sorter.metric, sorter.limits, leaves), cells, cells, tree)


def _cells_of_buckets(sizes: Array, leaves: Array) -> Runs:
    """The cells of all buckets, from the numbers of rows and of leaves of each bucket."""
    starts = [cell_starts(int(n), int(k)) for n, k in zip(sizes, leaves, strict=True) if k > 0]
    ends = np.cumsum([0, *(s[-1] for s in starts)])
    return Runs(np.concatenate([*(s[:-1] + end for s, end in zip(starts, ends, strict=False)), ends[-1:]]))

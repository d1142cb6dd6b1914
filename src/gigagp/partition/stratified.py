"""The paper's own assignment (section 3.1): a KD-tree into regions, each region dealt into groups.

"First, we use a KD-tree to recursively divide the input space into non-overlapping regions. Second, each region is
partitioned into disjoint groups. Third, each data set contains exactly one group from each region": every expert sees
the whole input space, evenly. With sharing, it takes `sharing` groups of each region.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.partition.base import Partition, Shape
from gigagp.partition.dealing import Dealing, deal_tree
from gigagp.partition.kdtree import cell_starts, kd_order


class StratifiedPartition(Dealing):
    """Regions of about `rows_per_group` rows for each child they are dealt to."""

    spatial = True

    def __init__(self, rows_per_group: int = 2) -> None:
        if rows_per_group < 1:
            raise InvalidParameter(f"rows_per_group must be at least 1; got {rows_per_group!r}")
        self.rows_per_group = rows_per_group

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        def shuffle(rows: Array, children: int) -> Array:
            """Rows region by region, in random order within each."""
            starts = self._regions(len(rows), children)
            return _shuffled(rows[kd_order(X[rows], starts)], starts, rng)

        return deal_tree(len(X), shape, shuffle)

    def deal(self, n: int, shape: Shape, rng: np.random.Generator, ordered: Array | None = None) -> Partition:
        """Regions are runs of the given spatial order, at every node: no KD-tree of its own for each."""
        assert ordered is not None
        parts = deal_tree(
            n, shape, lambda places, children: _shuffled(np.sort(places), self._regions(len(places), children), rng)
        )
        return Partition(ordered[parts.order], parts.cells, parts.experts, parts.tree)

    def _regions(self, rows: int, children: int) -> Array:
        return region_starts(rows, max(1, rows // (children * self.rows_per_group)), children)


def _shuffled(rows: Array, starts: Array, rng: np.random.Generator) -> Array:
    """Rows region by region, in random order within each: sorted by (region, random key)."""
    region = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return rows[np.lexsort((rng.random(len(rows)), region))]


def region_starts(n: int, regions: int, children: int) -> Array:
    """Borders of regions whose sizes are multiples of the number of children (but the last), so that dealing goes round
    whole: every child gets exactly one group of each region, and groups of a region are of equal size.
    """
    starts = cell_starts(n, regions)
    starts[1:-1] = starts[1:-1] // children * children
    return np.unique(starts)

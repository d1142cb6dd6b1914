"""The paper's own assignment (section 3.1): a KD-tree into regions, each region dealt into groups.

"First, we use a KD-tree to recursively divide the input space into non-overlapping regions. Second, each region is
partitioned into disjoint groups. Third, each data set contains exactly one group from each region": every expert sees
the whole input space, evenly. With sharing, it takes `sharing` groups of each region.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.partition.base import Partition, Partitioner, Shape
from gigagp.partition.dealing import check_dealing, deal_tree
from gigagp.partition.kdtree import cell_starts, kd_order


class StratifiedPartition(Partitioner):
    """Regions of about `rows_per_group` rows for each child they are dealt to."""

    def __init__(self, rows_per_group: int = 2) -> None:
        if rows_per_group < 1:
            raise InvalidParameter(f"rows_per_group must be at least 1; got {rows_per_group!r}")
        self.rows_per_group = rows_per_group

    def check(self, n: int, shape: Shape) -> None:
        check_dealing(n, shape)

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        def shuffle(rows: Array, children: int) -> Array:
            """Rows region by region, in random order within each."""
            regions = max(1, len(rows) // (children * self.rows_per_group))
            starts = region_starts(len(rows), regions, children)
            ordered = rows[kd_order(X[rows], starts)]
            # a random key within each region: sort by (region, key)
            region = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
            return ordered[np.lexsort((rng.random(len(rows)), region))]

        return deal_tree(len(X), shape, shuffle)


def region_starts(n: int, regions: int, children: int) -> Array:
    """Borders of regions whose sizes are multiples of the number of children (but the last), so that dealing goes round
    whole: every child gets exactly one group of each region, and groups of a region are of equal size.
    """
    starts = cell_starts(n, regions)
    starts[1:-1] = starts[1:-1] // children * children
    return np.unique(starts)

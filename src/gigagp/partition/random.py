"""Random assignment of rows to experts (section 3.1: "fast and can work quite well")."""

import numpy as np

from gigagp.arrays import Array
from gigagp.partition.base import Partition, Partitioner, Shape
from gigagp.partition.dealing import check_dealing, deal_tree


class RandomPartition(Partitioner):
    """Each expert sees a random sample of the whole input space."""

    def check(self, n: int, shape: Shape) -> None:
        check_dealing(n, shape)

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        return deal_tree(len(X), shape, lambda rows, children: rng.permutation(rows))

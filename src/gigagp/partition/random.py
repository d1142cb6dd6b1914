"""Random assignment of rows to experts (section 3.1: "fast and can work quite well")."""

import numpy as np

from gigagp.arrays import Array
from gigagp.partition.base import Partition, Shape
from gigagp.partition.dealing import Dealing, deal_tree


class RandomPartition(Dealing):
    """Each expert sees a random sample of the whole input space."""

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        return self.deal(len(X), shape, rng)

    def deal(self, n: int, shape: Shape, rng: np.random.Generator, ordered: Array | None = None) -> Partition:
        return deal_tree(n, shape, lambda rows, children: rng.permutation(rows))

"""The expert store: the rows, sorted by leaf, that every expert reads and none changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.partition.base import Groups


@dataclass(frozen=True, eq=False)
class ExpertStore:
    """Scaled inputs and targets in storage order, read-only. Experts share rows by index; rows are never copied."""

    X: Array
    y: Array

    @classmethod
    def in_memory(cls, X: Array, y: Array, order: Array) -> ExpertStore:
        stored = cls(np.ascontiguousarray(X[order]), np.ascontiguousarray(y[order]))
        for array in (stored.X, stored.y):
            array.flags.writeable = False
        return stored

    def read(self, groups: Groups, leaf: int) -> tuple[Array, Array]:
        """Inputs and targets of one leaf: views where its rows are consecutive, else gathered for the moment."""
        rows = groups.rows(leaf)
        return self.X[rows], self.y[rows]

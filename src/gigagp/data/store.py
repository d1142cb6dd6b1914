"""The expert store: the rows, sorted by leaf, that every expert reads and none changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.partition.base import Groups


@dataclass(frozen=True, eq=False)
class ExpertStore:
    """Scaled inputs and targets in storage order, read-only. Experts share rows by index; rows are never copied."""

    X: Array
    y: Array

    def __post_init__(self) -> None:
        frozen(self.X)
        frozen(self.y)

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpertStore, (self.X, self.y)  # read-only again after unpickling

    @classmethod
    def in_memory(cls, X: Array, y: Array, order: Array) -> ExpertStore:
        return cls(np.ascontiguousarray(X[order]), np.ascontiguousarray(y[order]))

    def read(self, groups: Groups, leaf: int) -> tuple[Array, Array]:
        """Inputs and targets of one leaf: views where its rows are consecutive, else gathered for the moment."""
        rows = groups.rows(leaf)
        return frozen(self.X[rows]), frozen(self.y[rows])


def frozen(array: Array) -> Array:
    """The array, made read-only. Experts see nothing else, so their code is compiled once."""
    array.flags.writeable = False
    return array

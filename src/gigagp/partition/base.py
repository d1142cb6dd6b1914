"""What a partition is: which rows each expert reads, and the tree above the experts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists
from gigagp.errors import InvalidParameter
from gigagp.linalg.compiled import compiled
from gigagp.tree import Tree

DEFAULT_BRANCHING = 4  # the paper's


@dataclass(frozen=True, eq=False)
class Partition:
    """Rows in storage order (`order`: storage position -> row of the data), sorted by the first leaf that reads them.

    cells: the rows each leaf's evidence is formed of; experts: the rows it predicts from; both are storage positions.
    """

    order: Array
    cells: RowLists
    experts: RowLists
    tree: Tree

    @property
    def n_leaves(self) -> int:
        return len(self.cells)


@dataclass(frozen=True)
class Shape:
    """The hierarchy a user asks for: levels and branching, or leaf_size; None is left to the partition."""

    levels: int | None = None
    branching: int | None = None
    leaf_size: int | None = None
    sharing: float | None = None

    @property
    def free(self) -> bool:
        """Whether the size of leaves is left open."""
        return self.levels is None and self.leaf_size is None

    def __post_init__(self) -> None:
        for name, least in (("levels", 1), ("branching", 2), ("leaf_size", 2)):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= least and value == np.floor(value)):
                raise InvalidParameter(f"{name} must be a whole number of at least {least}, or None; got {value!r}")
        if self.sharing is not None and not (_is_number(self.sharing) and self.sharing >= 1):
            raise InvalidParameter(
                f"sharing must be at least 1 (each row in one expert), or None; got {self.sharing!r}"
            )
        if self.levels is not None and self.leaf_size is not None:
            raise InvalidParameter(
                f"give levels and branching, or leaf_size, not both; "
                f"got levels={self.levels}, leaf_size={self.leaf_size}"
            )
        if self.branching is not None and self.levels is None:
            raise InvalidParameter(
                f"branching={self.branching} needs levels too; give levels, or leaf_size instead of both"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and bool(np.isfinite(float(value)))


class Partitioner(ABC):
    """A way to divide the rows among experts."""

    local = False  # whether an expert's rows are neighbours, so that a query is best asked of the nearest experts

    @abstractmethod
    def check(self, n: int, shape: Shape) -> None:
        """Refuse, before any work, a shape that n rows cannot have."""

    @abstractmethod
    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        """Divide the rows of X (scaled by the kernel's metric where the partition is local)."""

    def __repr__(self) -> str:
        own = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({own})"


def regular_tree(shape: Shape) -> Tree:
    """The tree that levels and branching prescribe."""
    assert shape.levels is not None
    return Tree.regular(int(shape.levels), int(shape.branching or DEFAULT_BRANCHING))


def count_leaves(n: int, reads: int, leaf_size: int) -> int:
    """How many leaves of about `leaf_size` hold `reads` row numbers of n rows, two at least in each."""
    return max(1, min(round(reads / min(leaf_size, n)), reads // 2))


def check_leaf(points: float, shape: Shape, rows: int) -> None:
    """Refuse a hierarchy that leaves less than two points in a leaf."""
    if points < 2:
        raise InvalidParameter(
            f"levels={shape.levels}, branching={shape.branching}, sharing={shape.sharing} leave {points:.3g} of "
            f"{rows} rows in a leaf; a leaf needs at least 2: use fewer levels or a smaller branching"
        )


@compiled
def run_means(X: Array, starts: Array) -> Array:
    """The mean of each run of rows."""
    cells, D = len(starts) - 1, X.shape[1]
    out = np.zeros((cells, D))
    for c in range(cells):
        for i in range(starts[c], starts[c + 1]):
            for d in range(D):
                out[c, d] += X[i, d]
        for d in range(D):
            out[c, d] /= starts[c + 1] - starts[c]
    return out

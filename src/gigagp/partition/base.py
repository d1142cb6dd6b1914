"""Interface of the partitions: which rows each expert reads, and the tree above the experts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import TypeVar

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import RowKeys
from gigagp.data.row_lists import RowLists
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore
from gigagp.errors import InvalidParameter
from gigagp.linalg.categories import NO_LIMITS
from gigagp.linalg.compiled import compiled
from gigagp.tree import Tree

DEFAULT_BRANCHING = 4  # children per node, as in the paper

R = TypeVar("R")
# (number of the first row, scaled inputs) -> the bucket of each row
Assign = Callable[[int, Array], Array]
# (bucket, its inputs) -> the order in which its rows are stored; the inputs are put into that order
Arrange = Callable[[int, Array], Array]


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


@dataclass(frozen=True, eq=False)
class StoredPartition:
    """A partition whose rows are in an expert store: which of them each leaf trains on (cells) and predicts from."""

    store: ExpertStore
    cells: RowLists
    experts: RowLists
    tree: Tree


@dataclass(frozen=True)
class Shape:
    """The hierarchy that the user requests: levels and branching, or leaf_size. None leaves it to the partition."""

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


class Buckets(ABC):
    """Rows sorted into buckets."""

    sizes: Array  # rows of each bucket

    @abstractmethod
    def take(self, bucket: int) -> tuple[Array, Array]:
        """Inputs and targets of one bucket, in the order of the data."""

    def remove(self, bucket: int) -> None:  # noqa: B027 those in memory are removed together
        """Free what one bucket uses: it is not taken again."""

    def end(self) -> None:  # noqa: B027
        """Free what is left."""


class RowSorter(ABC):
    """A data set with more rows than are divided at once, and the operations that store it with bounded memory."""

    rows: int
    columns: int
    bucket_rows: int  # about how many rows a bucket should have
    metric: Array  # factors of the columns, in which local partitions measure distances
    limits: Array = NO_LIMITS  # of the squared differences in the columns, in the metric, where some are categories
    sample: Sample  # random rows of the data set
    keys: RowKeys  # the pseudo-random numbers of the rows, of which those in `sample` are the smallest

    @abstractmethod
    def buckets(self, assign: Assign, count: int) -> Buckets:
        """Sort the rows into `count` buckets, in one pass over the data."""

    @abstractmethod
    def map(self, function: Callable[[int], R], buckets: Iterable[int]) -> Iterator[R]:
        """The function's value for each bucket, in order, computed in parallel."""

    @abstractmethod
    def check_index(self, bytes_per_row: int) -> None:
        """Raise InvalidParameter if so many bytes per row do not fit the memory budget."""

    @abstractmethod
    def write(
        self, buckets: Buckets, arrange: Arrange, cells: RowLists, experts: RowLists, tree: Tree
    ) -> StoredPartition:
        """Store the rows bucket by bucket, those of each bucket in the order that `arrange` gives."""

    @abstractmethod
    def write_in_order(self, partition: Partition) -> StoredPartition:
        """Store the rows in the partition's order."""

    @abstractmethod
    def divide_in_memory(self, partitioner: Partitioner, shape: Shape, rng: np.random.Generator) -> StoredPartition:
        """Load all rows, divide them with `split` and store them; InvalidParameter if they do not fit in memory."""


class Partitioner(ABC):
    """A way to divide the rows among experts. `gigagp.testing.check_partition` checks one."""

    local = False  # whether the rows of an expert are neighbours, so that the nearest experts predict a query best

    @abstractmethod
    def check(self, n: int, shape: Shape) -> None:
        """Raise InvalidParameter, before any work, for a shape that n rows cannot have."""

    @abstractmethod
    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        """Divide the rows of X, which are multiplied by the kernel's metric where the partition is local."""

    def split_categories(self, X: Array, shape: Shape, rng: np.random.Generator, limits: Array) -> Partition:
        """`split` where some columns are categories. By default the numbers of their levels count like other numbers.

        limits : of the squared difference in each column (`linalg.categories`); empty where there are no categories
        """
        return self.split(X, shape, rng)

    def split_large(self, sorter: RowSorter, shape: Shape, rng: np.random.Generator) -> StoredPartition:
        """Divide and store more rows than one bucket has. By default all rows are loaded and divided by `split`."""
        return sorter.divide_in_memory(self, shape, rng)

    def __repr__(self) -> str:
        own = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({own})"


def regular_tree(shape: Shape) -> Tree:
    """The tree that levels and branching prescribe."""
    assert shape.levels is not None
    return Tree.regular(int(shape.levels), int(shape.branching or DEFAULT_BRANCHING))


def count_leaves(n: int, reads: int, leaf_size: int) -> int:
    """How many leaves of about `leaf_size` rows `reads` row numbers of n rows fill, with at least two rows in each."""
    return max(1, min(round(reads / min(leaf_size, n)), reads // 2))


def check_leaf(points: float, shape: Shape, rows: int) -> None:
    """Raise InvalidParameter for a hierarchy with fewer than two points per leaf."""
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

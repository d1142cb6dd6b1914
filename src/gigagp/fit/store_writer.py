"""Writes the expert store: scaled rows, sorted as the partition says.

Up to `bucket_rows` rows are divided at once. More are first sorted into buckets of about that many, and each bucket is
divided separately. This bounds memory, and the model is the same whether buckets are in memory or in files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.mirrors import Mirror
from gigagp.data.row_keys import RowKeys
from gigagp.data.row_lists import RowLists
from gigagp.data.scaled import ArrayRows, ScaledRows
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore, MemoryWriter, PlacedWriter, open_store
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.fit.bucket_runs import FolderRuns
from gigagp.fit.bucket_sort import FileBuckets, MemoryBuckets
from gigagp.fit.store_objects import StoreObjects
from gigagp.linalg.categories import limits_of
from gigagp.linalg.workspace import Workspace
from gigagp.partition import Partitioner, Shape
from gigagp.partition.base import Arrange, Assign, Buckets, Partition, R, RowSorter, StoredPartition, regular_tree
from gigagp.partition.coarse import bucket_rows
from gigagp.progress import Counter, Listener, silent
from gigagp.tree import Tree

_BUNDLES = 16  # bundles of buckets per worker, at least
_MOST_TOGETHER = 8  # buckets that a worker gets at a time


class Storage(Protocol):
    """Where the buckets and the expert store are kept: in memory or on disk."""

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets: ...

    def write(
        self, data: ScaledRows, buckets: Buckets, arrange: Arrange, cells: RowLists, engine: Engine
    ) -> ExpertStore:
        """Write a store of the buckets' rows, those of each bucket in the order that `arrange` gives."""

    def existing(self) -> tuple[ExpertStore, RowLists] | None:
        """The store and its cells, if an earlier run completed them."""

    def check_index(self, size: int) -> None:
        """Raise InvalidParameter if an index of so many bytes does not fit the memory budget."""

    def second(self) -> Storage:
        """Storage for the same rows sorted once more, in another metric."""

    def discard(self) -> None:
        """Remove what is useless after an error."""


class MemoryStorage:
    """Buckets and store in memory. The data are ArrayRows."""

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets:
        assert isinstance(data, ArrayRows)
        return MemoryBuckets(data, assign, count, engine)

    def write(
        self, data: ScaledRows, buckets: Buckets, arrange: Arrange, cells: RowLists, engine: Engine
    ) -> ExpertStore:
        writer = MemoryWriter(data.rows, data.columns, data.dtype, data.noisy, data.others)
        task = StoreTask(buckets, arrange, _starts(buckets), writer.write)
        for _ in engine.map(task, np.flatnonzero(buckets.sizes).tolist()):
            pass
        return writer.finish()

    def existing(self) -> tuple[ExpertStore, RowLists] | None:
        return None

    def check_index(self, size: int) -> None:
        pass

    def second(self) -> Storage:
        return self

    def discard(self) -> None:
        pass


@dataclass(frozen=True, eq=False)
class StoreTask:
    """Puts the rows of one bucket in their order and writes them to the store, at the place that is theirs.

    It is a function of files alone: where it is repeated, it writes the same rows to the same place.
    """

    buckets: Buckets
    arrange: Arrange
    starts: Array  # place of each bucket's first row
    write: Callable[[int, Array, Array], Any]
    name = "store"

    def __call__(self, bucket: int, work: Workspace) -> Any:
        X, targets = self.buckets.take(bucket)
        order = self.arrange(bucket, X)
        return self.write(int(self.starts[bucket]), X, np.take(targets, order, axis=0))


def _starts(buckets: Buckets) -> Array:
    return np.cumsum(buckets.sizes) - buckets.sizes


class Keeper(Protocol):
    """Temporary folders that exist as long as this object."""

    def remove(self) -> Any: ...


class DiskStorage:
    """A folder on disk, with temporary buckets and the store `store`.

    keeper : of the folder, where it is temporary
    remote : the same store at an address, where workers on other machines write and read it
    """

    def __init__(
        self, store: Path, memory: int, source: str, keeper: Keeper | None = None, tell: Listener = silent,
        remote: StoreObjects | None = None,
    ) -> None:  # fmt: skip
        self._store, self._memory, self._source, self._keeper, self._tell = store, memory, source, keeper, tell
        self._buckets, self._remote = FolderRuns(str(store.with_name(".buckets"))), remote

    @property
    def place(self) -> Path | Mirror:
        """Where workers read: a folder that they have to see, or an address."""
        return self._store.parent if self._remote is None else self._remote.mirror

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets:
        folders.check_space(self._store.parent, self._bytes(data), "the expert store")
        runs = self._buckets if self._remote is None or engine.one_machine else self._remote.runs
        with folders.disk_errors("sorting the rows", self._store.parent):
            return FileBuckets(data, assign, count, runs, self._memory // 4, engine)

    def _bytes(self, data: ScaledRows) -> int:
        numbers = data.columns + (3 if data.noisy else 1) + data.others
        return int(1.05 * data.rows * numbers * data.dtype.itemsize)

    def write(
        self, data: ScaledRows, buckets: Buckets, arrange: Arrange, cells: RowLists, engine: Engine
    ) -> ExpertStore:
        filled = np.flatnonzero(buckets.sizes)
        starts, count = _starts(buckets), Counter("sort", data.rows, self._tell)
        together = max(1, min(_MOST_TOGETHER, len(filled) // (_BUNDLES * engine.workers)))
        with (
            folders.disk_errors("writing the expert store", self._store.parent),
            folders.writing(self._store) as folder,
        ):
            writer = PlacedWriter(folder, data.rows, data.columns, data.dtype, data.noisy, data.others)
            places = writer.places if self._remote is None else self._remote.places(writer.places, engine.one_machine)
            task = StoreTask(buckets, arrange, starts, places.write)
            written = engine.map(task, filled.tolist(), together)
            if self._remote is not None and not engine.one_machine:
                written = self._remote.copied(writer.places, starts[filled].tolist(), written, engine.local)
            checksums = []
            for bucket, checksum in zip(filled.tolist(), written, strict=True):
                checksums.append(checksum)
                buckets.remove(bucket)
                count.add(int(buckets.sizes[bucket]))
            ends = (starts + buckets.sizes)[filled].tolist()
            writer.finish(cells, self._source, ends, checksums)
        if self._remote is not None:
            self._remote.publish(self._store, writer.places, ends, checksums)
        buckets.end()
        return open_store(self._store, verify=False, keeper=self._keeper)[0]

    def existing(self) -> tuple[ExpertStore, RowLists] | None:
        if self._remote is not None and not self._store.exists():
            self._remote.download(self._store)
        return open_store(self._store, keeper=self._keeper) if self._store.exists() else None

    def check_index(self, size: int) -> None:
        if size > self._memory // 2:
            raise InvalidParameter(
                f"this partition keeps {size / 1e9:.2f} GB of row numbers in memory, more than "
                f'half of the budget; raise memory= to {2 * size / 1e9:.1f} GB, or use partition="local"'
            )

    def second(self) -> Storage:
        """Storage beside the first store, which a resumed fit starts from."""
        store = self._store.with_name(f"{self._store.name}-again")
        remote = None if self._remote is None else self._remote.named(store.name)
        return DiskStorage(store, self._memory, self._source, self._keeper, self._tell, remote)

    def discard(self) -> None:
        self._buckets.end()
        if self._keeper is not None:
            self._keeper.remove()


class DataSorter(RowSorter):
    """The rows of a data set, and the storage into which they are sorted."""

    def __init__(
        self, data: ScaledRows, metric: Array, sample: Sample, key_seed: int, storage: Storage, engine: Engine,
        categories: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.data, self.keys, self.storage, self.engine = data, RowKeys(key_seed), storage, engine
        self.rows, self.columns, self.bucket_rows = data.rows, data.columns, bucket_rows(data.columns)
        self.metric, self.sample = metric.astype(data.dtype), sample
        self.limits = limits_of(self.metric, categories)

    def buckets(self, assign: Assign, count: int) -> Buckets:
        return self.storage.buckets(self.data, assign, count, self.engine)

    def map(self, function: Callable[[int], R], buckets: Iterable[int]) -> Iterator[R]:
        return self.engine.map(lambda bucket, work: function(bucket), buckets)

    def check_index(self, bytes_per_row: int) -> None:
        self.storage.check_index(bytes_per_row * self.data.rows)

    def write(
        self, buckets: Buckets, arrange: Arrange, cells: RowLists, experts: RowLists, tree: Tree
    ) -> StoredPartition:
        store = self.storage.write(self.data, buckets, arrange, cells, self.engine)
        return StoredPartition(store, cells, experts, tree)

    def write_in_order(self, partition: Partition) -> StoredPartition:
        order, size = partition.order, self.bucket_rows
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        count = -(-self.data.rows // size)
        buckets = self.buckets(lambda first, X: position[first : first + len(X)] // size, count)

        def ranks(bucket: int, X: Array) -> Array:
            # Rows of a bucket are in the order of the data: their ranks in the partition's order sort them.
            result = np.argsort(np.argsort(order[bucket * size : (bucket + 1) * size]))
            X[:] = X[result]
            return result

        return self.write(buckets, ranks, partition.cells, partition.experts, partition.tree)

    def divide_in_memory(self, partitioner: Partitioner, shape: Shape, rng: np.random.Generator) -> StoredPartition:
        X, y = _in_memory(self.data)
        if partitioner.local:
            partition = partitioner.split_categories(X * self.metric, shape, rng, self.limits)
        else:
            partition = partitioner.split(X, shape, rng)
        store = ExpertStore.in_memory(X, y, partition.order, self.data.others)
        return StoredPartition(store, partition.cells, partition.experts, partition.tree)


def write_store(
    partitioner: Partitioner, data: ScaledRows, shape: Shape, metric: Array, sample: Sample, key_seed: int,
    rng: np.random.Generator, storage: Storage, engine: Engine, categories: tuple[int, ...] = (),
) -> StoredPartition:  # fmt: skip
    """Divide the rows among leaves and store them leaf by leaf. `metric` scales inputs where the partition is local.

    categories : numbers of the columns that are categories
    """
    existing = storage.existing()
    if existing is not None:
        store, cells = existing
        tree = Tree.balanced(len(cells)) if shape.levels is None else regular_tree(shape)
        return StoredPartition(store, cells, cells, tree)
    sorter = DataSorter(data, metric, sample, key_seed, storage, engine, categories)
    if data.rows <= sorter.bucket_rows:
        return sorter.divide_in_memory(partitioner, shape, rng)
    return partitioner.split_large(sorter, shape, rng)


def _in_memory(data: ScaledRows) -> tuple[Array, Array]:
    if isinstance(data, ArrayRows):
        return data.X, data.y
    if data.rows > bucket_rows(data.columns):
        raise InvalidParameter(
            "this partition divides all rows at once, and they do not fit the memory budget; raise memory=, "
            'or use partition="local"'
        )
    blocks = list(data.blocks())
    return np.concatenate([X for _, X, _ in blocks]), np.concatenate([y for _, _, y in blocks])

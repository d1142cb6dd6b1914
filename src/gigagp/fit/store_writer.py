"""From scaled rows to an expert store: the partition decides where each row goes, and the rows are put there.

Up to `bucket_rows` rows are divided whole. More are first dealt into buckets of about that many, by splits found from a
sample, and each bucket is divided on its own; so memory is bounded, and the model is the same whether buckets are in
memory or in files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.folders import TemporaryFolder
from gigagp.data.row_keys import row_keys
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.scaled import ArrayRows, ScaledRows
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore, FolderWriter, MemoryWriter, open_store
from gigagp.engines import Engine
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit.bucket_sort import Assign, Buckets, FileBuckets, MemoryBuckets
from gigagp.linalg.workspace import Workspace
from gigagp.partition import Partitioner, Shape
from gigagp.partition.base import Partition, regular_tree
from gigagp.partition.coarse import CoarseTree, bucket_rows
from gigagp.partition.dealing import Dealing
from gigagp.partition.kdtree import cell_starts, kd_order, kd_order_of_blocks
from gigagp.partition.local import LocalPartition
from gigagp.progress import Counter, Listener, silent
from gigagp.tree import Tree

_INDEX_BYTES = 40  # a row, while rows are dealt: order, groups, positions


# Hands inputs and targets, in storage order, to the function it is given.
Parts = Callable[[Callable[[Array, Array], None]], None]


@dataclass(frozen=True, eq=False)
class Placed:
    """The store, which of its rows each leaf's evidence is formed of and predicts from, and the tree above."""

    store: ExpertStore
    cells: RowLists
    experts: RowLists
    tree: Tree


class Room(Protocol):
    """Where buckets and store are kept."""

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets: ...

    def fill(self, data: ScaledRows, cells: RowLists, parts: Parts) -> ExpertStore:
        """A store of what `parts` hands, in storage order, to the function it is given."""

    def found(self) -> tuple[ExpertStore, RowLists] | None:
        """The store and its cells, if an earlier run has completed them."""

    def check_index(self, size: int) -> None:
        """Refuse an index of so many bytes if it does not fit the memory budget."""

    def again(self) -> Room:
        """Where the rows are kept when they are sorted once more, in another metric."""

    def discard(self) -> None:
        """Remove what is of no use to anyone after an error."""


class MemoryRoom:
    """All in memory. The data are ArrayRows."""

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets:
        assert isinstance(data, ArrayRows)
        return MemoryBuckets(data, assign, count)

    def fill(self, data: ScaledRows, cells: RowLists, parts: Parts) -> ExpertStore:
        writer = MemoryWriter(data.rows, data.columns, data.dtype)
        parts(writer.append)
        return writer.finish()

    def found(self) -> tuple[ExpertStore, RowLists] | None:
        return None

    def check_index(self, size: int) -> None:
        pass

    def again(self) -> Room:
        return self

    def discard(self) -> None:
        pass


class DiskRoom:
    """A folder on disk: buckets come and go in it, the store stays, under the name it is to have."""

    def __init__(
        self, store: Path, memory: int, source: str, keeper: TemporaryFolder | None = None, tell: Listener = silent
    ) -> None:
        self._store, self._memory, self._source, self._keeper, self._tell = store, memory, source, keeper, tell
        self._buckets = store.with_name(".buckets")

    @property
    def folder(self) -> Path:
        return self._store.parent

    def buckets(self, data: ScaledRows, assign: Assign, count: int, engine: Engine) -> Buckets:
        folders.check_space(self._store.parent, self._bytes(data), "the expert store")
        with folders.disk_errors("sorting the rows", self._store.parent):
            return FileBuckets(data, assign, count, self._buckets, self._memory // 4, engine)

    def _bytes(self, data: ScaledRows) -> int:
        return int(1.05 * data.rows * (data.columns + 1) * data.dtype.itemsize)

    def fill(self, data: ScaledRows, cells: RowLists, parts: Parts) -> ExpertStore:
        with (
            folders.disk_errors("writing the expert store", self._store.parent),
            folders.writing(self._store) as folder,
            FolderWriter(folder, data.rows, data.columns, data.dtype) as writer,
        ):
            count = Counter("sort", data.rows, self._tell)

            def append(X: Array, y: Array) -> None:
                writer.append(X, y)
                count.add(len(y))

            parts(append)
            writer.finish(cells, self._source)
        shutil.rmtree(self._buckets, ignore_errors=True)
        return open_store(self._store, verify=False, keeper=self._keeper)[0]

    def found(self) -> tuple[ExpertStore, RowLists] | None:
        return open_store(self._store, keeper=self._keeper) if self._store.exists() else None

    def check_index(self, size: int) -> None:
        if size > self._memory // 2:
            raise InvalidParameter(
                f"dealing rows at random or by strata keeps {size / 1e9:.2f} GB of row numbers in memory, more than "
                f'half of the budget; raise memory= to {2 * size / 1e9:.1f} GB, or use partition="local"'
            )

    def again(self) -> Room:
        """Beside the first store, which a fit that is resumed starts from."""
        store = self._store.with_name(f"{self._store.name}-again")
        return DiskRoom(store, self._memory, self._source, self._keeper, self._tell)

    def discard(self) -> None:
        shutil.rmtree(self._buckets, ignore_errors=True)
        if self._keeper is not None:
            self._keeper.remove()


def place(
    partitioner: Partitioner, data: ScaledRows, shape: Shape, metric: Array, sample: Sample, key_seed: int,
    rng: np.random.Generator, room: Room, engine: Engine,
) -> Placed:  # fmt: skip
    """Divide the rows among leaves and store them leaf by leaf. `metric` scales inputs where the partition is local."""
    scales = metric.astype(data.dtype)
    known = room.found()
    if known is not None:
        store, cells = known
        tree = Tree.balanced(len(cells)) if shape.levels is None else regular_tree(shape)
        return Placed(store, cells, cells, tree)
    if data.rows <= bucket_rows(data.columns) or not isinstance(partitioner, LocalPartition | Dealing):
        X, y = _whole(data)
        parts = partitioner.split(X * scales if partitioner.local else X, shape, rng)
        return Placed(ExpertStore.in_memory(X, y, parts.order), parts.cells, parts.experts, parts.tree)
    if isinstance(partitioner, LocalPartition):
        return _place_local(partitioner, data, shape, scales, sample, key_seed, room, engine)
    room.check_index(_INDEX_BYTES * data.rows)
    ordered = _spatial_order(data, sample, key_seed, room, engine) if partitioner.spatial else None
    parts = partitioner.deal(data.rows, shape, rng, ordered)
    del ordered
    return _place_dealt(parts, data, room, engine)


def _whole(data: ScaledRows) -> tuple[Array, Array]:
    if isinstance(data, ArrayRows):
        return data.X, data.y
    if data.rows > bucket_rows(data.columns):
        raise InvalidParameter(
            "this partition divides all rows at once, and they do not fit the memory budget; raise memory=, "
            'or use partition="local"'
        )
    blocks = list(data.blocks())
    return np.concatenate([X for _, X, _ in blocks]), np.concatenate([y for _, _, y in blocks])


def _coarse(data: ScaledRows, points: Array, sample: Sample, leaves: int) -> CoarseTree:
    most = max(1, bucket_rows(data.columns) * leaves // data.rows)
    return CoarseTree.of_sample(points, sample.keys, leaves, most)


def _place_local(
    partitioner: LocalPartition, data: ScaledRows, shape: Shape, scales: Array, sample: Sample, key_seed: int,
    room: Room, engine: Engine,
) -> Placed:  # fmt: skip
    wanted, tree = partitioner.hierarchy(data.rows, shape)
    coarse = _coarse(data, sample.X * scales, sample, wanted)
    buckets = room.buckets(
        data, lambda first, X: coarse.route(X * scales, row_keys(first, len(X), key_seed)), len(coarse), engine
    )
    sizes = buckets.sizes
    leaves = coarse.leaves
    if tree is None:  # leaves of the size asked for, however many that makes
        leaves = np.round(sizes * wanted / data.rows).astype(int)
        leaves = np.maximum(np.minimum(leaves, sizes // 2), sizes > 0)
        tree = Tree.balanced(int(leaves.sum()))
    elif (sizes < 2 * leaves).any():
        raise InvalidInput(
            f"{data.rows} rows cannot be divided into {wanted} neighbourhoods of at least two; use fewer levels"
        )
    starts = [cell_starts(int(n), int(k)) for n, k in zip(sizes, leaves, strict=True) if k > 0]

    def divide(bucket: int, work: Workspace) -> tuple[Array, Array]:
        X, y = buckets.take(bucket)
        order = kd_order_of_blocks(X * scales, cell_starts(len(X), int(leaves[bucket])))
        return X[order], y[order]

    def parts(append: Callable[[Array, Array], None]) -> None:
        for X, y in engine.map(divide, np.flatnonzero(leaves).tolist()):
            append(X, y)

    ends = np.cumsum([0, *(s[-1] for s in starts)])
    cells = Runs(np.concatenate([*(s[:-1] + end for s, end in zip(starts, ends, strict=False)), ends[-1:]]))
    return Placed(room.fill(data, cells, parts), cells, cells, tree)


def _spatial_order(data: ScaledRows, sample: Sample, key_seed: int, room: Room, engine: Engine) -> Array:
    """Rows in an order in which neighbours follow each other: buckets, and a KD-tree of pairs within each."""
    coarse = _coarse(data, sample.X, sample, data.rows // 2)
    ids = np.empty(data.rows, np.int32)

    def assign(first: int, X: Array) -> Array:
        here = coarse.route(X, row_keys(first, len(X), key_seed))
        ids[first : first + len(X)] = here
        return here

    buckets = room.buckets(data, assign, len(coarse), engine)

    def divide(bucket: int, work: Workspace) -> Array:
        X, _ = buckets.take(bucket)
        return kd_order(X, cell_starts(len(X), max(1, len(X) // 2)))

    ordered = np.argsort(ids, kind="stable")
    start = 0
    for order in engine.map(divide, range(len(coarse))):
        here = slice(start, start + len(order))
        ordered[here] = ordered[here][order]
        start += len(order)
    return ordered


def _place_dealt(parts: Partition, data: ScaledRows, room: Room, engine: Engine) -> Placed:
    """Rows to where the partition's order wants them."""
    order = parts.order
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    size = bucket_rows(data.columns)
    count = -(-data.rows // size)
    buckets = room.buckets(data, lambda first, X: position[first : first + len(X)] // size, count, engine)

    def fill(append: Callable[[Array, Array], None]) -> None:
        for bucket in range(count):
            X, y = buckets.take(bucket)
            # The bucket's rows come in the order of the data: their places follow from the order wanted.
            wanted = np.argsort(np.argsort(order[bucket * size : (bucket + 1) * size]))
            append(X[wanted], y[wanted])

    return Placed(room.fill(data, parts.cells, fill), parts.cells, parts.experts, parts.tree)

"""Rows sorted by bucket, in memory or through files: one pass that deals them out, then bucket by bucket.

Within a bucket rows keep the order of the data, so both ways give the same rows in the same places.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaled import ArrayRows, ScaledRows
from gigagp.engines import Engine
from gigagp.linalg.workspace import Workspace

# (number of the first row, scaled inputs) -> the bucket of each row
Assign = Callable[[int, Array], Array]


class Buckets(ABC):
    """Rows dealt into buckets."""

    sizes: Array

    @abstractmethod
    def take(self, bucket: int) -> tuple[Array, Array]:
        """Inputs and targets of one bucket, in the order of the data. Each is taken once."""


class MemoryBuckets(Buckets):
    def __init__(self, data: ArrayRows, assign: Assign, count: int) -> None:
        ids = np.concatenate([assign(first, X) for first, X, _ in data.blocks()])
        self.sizes = np.bincount(ids, minlength=count)
        self._data, self._order = data, np.argsort(ids, kind="stable")
        self._starts = np.append(0, np.cumsum(self.sizes))

    def take(self, bucket: int) -> tuple[Array, Array]:
        rows = self._order[self._starts[bucket] : self._starts[bucket + 1]]
        return self._data.X[rows], self._data.y[rows]


class FileBuckets(Buckets):
    """One file a bucket, inputs and target side by side; a file goes when its bucket is taken."""

    def __init__(self, data: ScaledRows, assign: Assign, count: int, folder: Path, memory: int, engine: Engine) -> None:
        self._folder, self._columns, self._dtype = folder, data.columns, data.dtype
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.sizes = np.zeros(count, np.int64)
        held: list[list[Array]] = [[] for _ in range(count)]
        waiting = np.zeros(count, np.int64)
        width = (data.columns + 1) * data.dtype.itemsize
        most = max(1, memory // width)  # rows waiting in memory

        def deal(block: tuple[int, Array, Array], work: Workspace) -> tuple[Array, Array]:
            """The rows of a block bucket by bucket, and how many there are of each."""
            first, X, y = block
            ids = assign(first, X)
            return np.column_stack([X, y])[np.argsort(ids, kind="stable")], np.bincount(ids, minlength=count)

        for together, counts in engine.map(deal, data.blocks()):
            ends = np.cumsum(counts)
            for bucket in np.flatnonzero(counts).tolist():
                held[bucket].append(together[ends[bucket] - counts[bucket] : ends[bucket]].copy())
            waiting += counts
            self.sizes += counts
            if waiting.sum() > most:
                for bucket in np.argsort(-waiting, kind="stable").tolist():  # the fullest first, until half is free
                    if waiting.sum() <= most // 2:
                        break
                    self._write(bucket, held[bucket])
                    held[bucket], waiting[bucket] = [], 0
        for bucket, parts in enumerate(held):
            if parts:
                self._write(bucket, parts)

    def take(self, bucket: int) -> tuple[Array, Array]:
        path = self._path(bucket)
        if self.sizes[bucket] == 0:
            return np.empty((0, self._columns), self._dtype), np.empty(0, self._dtype)
        both = np.fromfile(path, self._dtype).reshape(-1, self._columns + 1)
        path.unlink()
        return np.ascontiguousarray(both[:, :-1]), np.ascontiguousarray(both[:, -1])

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{bucket:06d}.rows"

    def _write(self, bucket: int, parts: list[Array]) -> None:
        with self._path(bucket).open("ab") as file:
            for part in parts:
                file.write(part.reshape(-1).view(np.uint8).data)

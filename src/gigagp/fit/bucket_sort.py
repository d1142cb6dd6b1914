"""Sorts rows into buckets, in memory or in files, in one pass over the data.

Within a bucket rows keep the order of the data, so both ways give the same buckets.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaled import ArrayRows, ScaledRows
from gigagp.data.store import Targets
from gigagp.engines import Engine
from gigagp.linalg.row_noise import COLUMNS
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import Assign, Buckets


class MemoryBuckets(Buckets):
    """Buckets as row numbers of data in memory."""

    def __init__(self, data: ArrayRows, assign: Assign, count: int) -> None:
        ids = np.concatenate([assign(first, X) for first, X, _ in data.blocks()])
        self.sizes = np.bincount(ids, minlength=count)
        self._data, self._order = data, np.argsort(ids, kind="stable")
        self._starts = np.append(0, np.cumsum(self.sizes))

    def take(self, bucket: int) -> tuple[Array, Targets]:
        rows = self._order[self._starts[bucket] : self._starts[bucket + 1]]
        return self._data.X[rows], self._data.y[rows]


class FileBuckets(Buckets):
    """One file per bucket, with inputs and targets; the file is removed when its bucket is taken."""

    def __init__(self, data: ScaledRows, assign: Assign, count: int, folder: Path, memory: int, engine: Engine) -> None:
        self._folder, self._columns, self._dtype, self._noisy = folder, data.columns, data.dtype, data.noisy
        self._others = data.others
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.sizes = np.zeros(count, np.int64)
        unwritten: list[list[Array]] = [[] for _ in range(count)]
        unwritten_rows = np.zeros(count, np.int64)
        width = (data.columns + self._target_columns) * data.dtype.itemsize
        most = max(1, memory // width)  # rows in memory that are not yet written

        def deal(block: tuple[int, Array, Array], work: Workspace) -> tuple[Array, Array]:
            """The rows of a block bucket by bucket, and how many there are of each."""
            first, X, y = block
            ids = assign(first, X)
            return np.column_stack([X, y])[np.argsort(ids, kind="stable")], np.bincount(ids, minlength=count)

        for together, counts in engine.map(deal, data.blocks()):
            ends = np.cumsum(counts)
            for bucket in np.flatnonzero(counts).tolist():
                unwritten[bucket].append(together[ends[bucket] - counts[bucket] : ends[bucket]].copy())
            unwritten_rows += counts
            self.sizes += counts
            if unwritten_rows.sum() > most:
                # The fullest buckets are written first, until half of the memory is free.
                for bucket in np.argsort(-unwritten_rows, kind="stable").tolist():
                    if unwritten_rows.sum() <= most // 2:
                        break
                    self._write(bucket, unwritten[bucket])
                    unwritten[bucket], unwritten_rows[bucket] = [], 0
        for bucket, parts in enumerate(unwritten):
            if parts:
                self._write(bucket, parts)

    @property
    def _target_columns(self) -> int:
        return (1 + COLUMNS if self._noisy else 1) + self._others

    def take(self, bucket: int) -> tuple[Array, Targets]:
        path = self._path(bucket)
        both = np.empty((0, self._columns + self._target_columns), self._dtype)
        if self.sizes[bucket] > 0:
            both = np.fromfile(path, self._dtype).reshape(-1, both.shape[1])
            path.unlink()
        X, targets = np.ascontiguousarray(both[:, : self._columns]), np.ascontiguousarray(both[:, self._columns :])
        return X, targets if self._target_columns > 1 else targets[:, 0]

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{bucket:06d}.rows"

    def _write(self, bucket: int, parts: list[Array]) -> None:
        with self._path(bucket).open("ab") as file:
            for part in parts:
                file.write(part.reshape(-1).view(np.uint8).data)

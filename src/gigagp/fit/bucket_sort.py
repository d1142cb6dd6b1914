"""Sorts rows into buckets, in memory or in files, in one pass over the data.

Within a bucket rows keep the order of the data, so both ways give the same buckets, whoever has sorted them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import scaling
from gigagp.data.scaled import ArrayRows, ScaledRows
from gigagp.data.store import Targets
from gigagp.engines import Engine
from gigagp.fit.bucket_runs import Piece, Runs, WriteRun
from gigagp.linalg.compiled import compiled_strict, read_only
from gigagp.linalg.row_noise import COLUMNS
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import Assign, Buckets

_GROUPS = 64  # files that the buckets of a run are divided among: the disk is freed by one group at a time
_TASKS = 16  # tasks per worker, at least, if the data can be divided into so many: small runs are sorted in the cache
_AHEAD = 3  # parts of the data per worker that are in memory, where the source can only be read from the beginning

ScaledBlock = tuple[int, Array, Targets]


class MemoryBuckets(Buckets):
    """Buckets as row numbers of data in memory."""

    def __init__(self, data: ArrayRows, assign: Assign, count: int, engine: Engine) -> None:
        def ids_of(block: ScaledBlock, work: Workspace) -> Array:
            return np.asarray(assign(block[0], block[1]), np.int32)

        ids = np.concatenate(list(engine.map(ids_of, data.blocks())))
        self.sizes = np.bincount(ids, minlength=count)
        self._starts = np.append(0, np.cumsum(self.sizes))
        self._data, self._order = data, np.empty(len(ids), np.int64)
        _order(ids, self._starts[:-1].copy(), self._order)

    def take(self, bucket: int) -> tuple[Array, Targets]:
        rows = self._order[self._starts[bucket] : self._starts[bucket + 1]]
        return self._data.X[rows], self._data.y[rows]


@dataclass(frozen=True)
class RowLayout:
    """A row in a file: its inputs, then its targets."""

    columns: int
    targets: int
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, data: ScaledRows) -> RowLayout:
        return cls(data.columns, (1 + COLUMNS if data.noisy else 1) + data.others, data.dtype)

    @property
    def width(self) -> int:
        """Numbers per row."""
        return self.columns + self.targets

    @property
    def bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def split(self, rows: Array) -> tuple[Array, Targets]:
        """Inputs and targets."""
        X, targets = (np.ascontiguousarray(part) for part in (rows[:, : self.columns], rows[:, self.columns :]))
        return X, targets if self.targets > 1 else targets[:, 0]


@compiled_strict
def _order(ids: Array, places: Array, out: Array) -> None:
    """out := the rows bucket by bucket, in order; `places` says where each bucket begins, and is changed."""
    for i in range(len(ids)):
        out[places[ids[i]]] = i
        places[ids[i]] += 1


@compiled_strict
def _deal(X: Array, targets: Array, ids: Array, places: Array, out: Array) -> None:
    """Write rows, inputs before targets, where their buckets have their next places, which are counted on."""
    columns = X.shape[1]
    for i in range(len(ids)):
        place = places[ids[i]]
        places[ids[i]] += 1
        for d in range(columns):
            out[place, d] = X[i, d]
        for t in range(targets.shape[1]):
            out[place, columns + t] = targets[i, t]


@dataclass(frozen=True, eq=False)
class RunCounts:
    """The number of rows of each bucket in a run, and the CRCs of their bytes where these are compared."""

    rows: Array
    crcs: Array | None


@dataclass(frozen=True, eq=False)
class SortTask:
    """Sorts some rows by bucket, into runs that are complete or absent.

    It is a function of the data alone: where it is repeated, because its worker was lost or its result did not arrive,
    it writes the same runs again. A run is what fits into memory; the files of a run have some buckets each.
    """

    data: ScaledRows
    assign: Assign
    layout: RowLayout
    runs: Runs
    groups: Array  # the first bucket of each file, and the number of buckets
    most: int  # rows of a run
    name = "sort"

    def __call__(self, part: tuple[int, int, int, list[ScaledBlock] | None], work: Workspace) -> list[RunCounts]:
        """The number of rows of each bucket in each run.

        part : its number, first row and end, and its rows if they have been read already
        """
        number, start, stop, blocks = part
        given = self.data.blocks(start, stop) if blocks is None else blocks
        with self.runs.writing(f"{number:06d}") as write:
            return [self._write(_run_name(number, run), rows, write) for run, rows in enumerate(self._runs(given))]

    def _runs(self, blocks: Any) -> Iterator[list[tuple[Array, Array, Array]]]:
        """Inputs, targets and buckets of as many rows at a time as fit into memory."""
        parts: list[tuple[Array, Array, Array]] = []
        filled = 0
        for first, X, targets in blocks:
            ids, done = np.asarray(self.assign(first, X), np.int32), 0
            while done < len(X):
                here = slice(done, done + min(len(X) - done, self.most - filled))
                parts.append((X[here], targets[here].reshape(-1, self.layout.targets), ids[here]))
                filled, done = filled + here.stop - here.start, here.stop
                if filled == self.most:
                    yield parts
                    parts, filled = [], 0
        if parts:
            yield parts

    def _write(self, name: str, parts: list[tuple[Array, Array, Array]], write: WriteRun) -> RunCounts:
        counts = np.asarray(sum(np.bincount(ids, minlength=int(self.groups[-1])) for _, _, ids in parts))
        ends = np.cumsum(counts)
        ordered, places = np.empty((int(ends[-1]), self.layout.width), self.layout.dtype), ends - counts
        for X, targets, ids in parts:
            _deal(read_only(X), read_only(targets), ids, places, ordered)
        parts.clear()
        raw, size = ordered.reshape(-1).view(np.uint8).data, self.layout.bytes
        borders = size * np.append(0, ends)[self.groups]
        write({f"{name}-{g:04d}.rows": raw[borders[g] : borders[g + 1]] for g in range(len(self.groups) - 1)})
        if not self.runs.checked:
            return RunCounts(counts, None)
        crcs = [zlib.crc32(raw[size * start : size * end]) for start, end in zip(ends - counts, ends, strict=True)]
        return RunCounts(counts, np.array(crcs, np.uint32))


def _run_name(number: int, run: int) -> str:
    return f"{number:06d}/{run:04d}"


class FileBuckets(Buckets):
    """Rows sorted by bucket in files: tasks of an engine sort one part of the data each, and buckets gather theirs."""

    def __init__(self, data: ScaledRows, assign: Assign, count: int, runs: Runs, memory: int, engine: Engine) -> None:
        self._runs, self._layout = runs, RowLayout.of(data)
        self._groups = np.unique(np.arange(_GROUPS + 1) * count // _GROUPS)
        runs.begin()
        bytes_per_row = 2 * self._layout.bytes + 4  # as they are read, sorted, and their buckets
        most = max(1, memory // (engine.workers * bytes_per_row))
        self._names: list[str] = []  # of each run
        counts: list[RunCounts] = []
        task = SortTask(data, assign, self._layout, runs, self._groups, most)
        done = 0
        for number, sorted_runs in enumerate(engine.map(task, _parts(data, most, engine.workers))):
            self._names += [_run_name(number, run) for run in range(len(sorted_runs))]
            counts += sorted_runs
            done += int(sum(run.rows.sum() for run in sorted_runs))
            data.say(done)
        self._counts = np.stack([run.rows for run in counts])
        self._crcs = np.stack([run.crcs for run in counts]) if runs.checked else None  # type: ignore[misc]
        self.sizes = self._counts.sum(axis=0)
        before = np.cumsum(self._counts, axis=1) - self._counts
        group_of = np.searchsorted(self._groups, np.arange(count), side="right") - 1
        self._places = before - before[:, self._groups[group_of]]  # of each bucket, in the file of its group
        self._group_of = group_of

    def take(self, bucket: int) -> tuple[Array, Targets]:
        rows = np.empty((int(self.sizes[bucket]), self._layout.width), self._layout.dtype)
        raw, filled, pieces = rows.reshape(-1).view(np.uint8), 0, []
        for run in np.flatnonzero(self._counts[:, bucket]).tolist():
            size = int(self._counts[run, bucket]) * self._layout.bytes
            start = int(self._places[run, bucket]) * self._layout.bytes
            crc = 0 if self._crcs is None else int(self._crcs[run, bucket])
            name = self._file(run, int(self._group_of[bucket]))
            pieces.append(Piece(name, start, raw[filled : filled + size], crc))
            filled += size
        self._runs.read(pieces)
        return self._layout.split(rows)

    def remove(self, bucket: int) -> None:
        """Buckets are removed in order; the files of a group go with the last of its buckets."""
        group = int(self._group_of[bucket])
        if self.sizes[bucket + 1 : self._groups[group + 1]].any():
            return
        self._runs.remove([self._file(run, group) for run in range(len(self._names))])

    def end(self) -> None:
        """Remove what is left."""
        self._runs.end()

    def _file(self, run: int, group: int) -> str:
        return f"{self._names[run]}-{group:04d}.rows"


def _parts(data: ScaledRows, most: int, workers: int) -> Iterator[tuple[int, int, int, list[ScaledBlock] | None]]:
    """The tasks of `SortTask`: ranges of rows or, where the source cannot be divided, rows that are read here."""
    about = max(scaling.BLOCK, min(most, data.rows // (_TASKS * workers)))
    ranges = data.ranges(about)
    if ranges is not None:
        for number, (start, stop) in enumerate(ranges):
            yield number, start, stop, None
        return
    blocks: list[ScaledBlock] = []
    number = start = rows = 0
    for block in data.blocks():
        blocks.append(block)
        rows += len(block[1])
        if rows >= max(1, most // _AHEAD):
            yield number, start, start + rows, blocks
            number, start, rows, blocks = number + 1, start + rows, 0, []
    if blocks:
        yield number, start, start + rows, blocks

"""Writes the predictions of files of any size to one Parquet or CSV file, in bounded memory; a call can be resumed.

The rows are divided into blocks. Where queries are answered independently of each other, each block is a task of the
engine: a worker reads its queries, answers them in the order of the rows that they need, and writes them, in their own
order, as a part of the file. If the model does not fit into memory, the queries of all blocks are sorted together
before they are answered (`sorted_predictions`). Where queries are not independent, this process takes one block after
the other, and the engine answers its queries together. The parts are joined at the end. The file is the same to the bit
in all cases.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.addresses import is_remote
from gigagp.data.parts import CSV, ROW_GROUP, PartFolder, Parts
from gigagp.data.sources import Block, Rows
from gigagp.engines import Engine, SerialEngine
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.linalg.workspace import Workspace
from gigagp.model.fingerprint import fingerprint
from gigagp.model.remote_outputs import RemoteOutput
from gigagp.model.sorted_predictions import AnswerPiece, Buckets, MergeRun, Runs, SortBlock, SortFolder, block_of
from gigagp.progress import Counter, Listener, silent

ENDINGS = (".parquet", ".pq", CSV)
_GROUP_BYTES = 1 << 27  # bytes of the largest row group; where kept columns are wide it has fewer rows
_SAMPLE_ROWS = 1024  # rows from which the size of kept columns is estimated
_BLOCKS_PER_WORKER = 8  # fewest blocks per worker, so that workers finish at about the same time
_BLOCKS_READ_AHEAD = 3  # blocks in memory per worker where this process reads the queries
_UNKNOWN_ROWS = 1 << 20  # rows that a source is assumed to have where their number is not known
_SKIPPED_BLOCKS = 16  # blocks that a worker may have to read before its own, in the same row group
_MOST_BUCKETS = 1024  # parts of a model that queries are sorted by


@dataclass(frozen=True)
class PredictionReport:
    """What `predict_file` did."""

    output: Path | str  # an address is a string
    rows: int  # rows predicted
    dropped: int  # rows with missing values
    seconds: float
    resumed: int = 0  # rows that an interrupted call had predicted
    discarded: str = ""  # what an interrupted call left that could not be used, and why


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be predicted, and how. `model` is the fingerprint of everything that determines predictions."""

    rows: Rows
    predict: Callable[[Array], list[Array]]  # queries -> the predicted columns
    names: tuple[str, ...]  # of the predicted columns
    options: dict[str, Any]  # plain values that determine what is predicted
    model: str
    at_once: int  # queries of a block, a power of two
    tell: Listener = silent
    engine: Engine = field(default_factory=SerialEngine)  # which takes a block at a time
    buckets: Buckets | None = None  # by which the queries of all blocks are sorted; None: each block on its own

    def __post_init__(self) -> None:
        assert self.at_once & (self.at_once - 1) == 0
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise InvalidParameter(f"predicted columns must be different; got {twice[0]} twice")
        for name in self.rows.keep:
            if name in self.names:
                raise InvalidParameter(
                    f"keep: the prediction writes a column {name!r} of its own; rename the one in the data, or leave "
                    "it out"
                )

    def identity(self) -> dict[str, str]:
        """Everything that determines the content of the output."""
        options = [*self.options.values(), self.rows.keep, self.rows.missing]
        names = ("gigagp", "numpy", "scipy", "numba", "llvmlite", "pyarrow")
        versions = [*(metadata.version(name) for name in names), platform.machine()]
        return {
            "data": self.rows.fingerprint(),
            "model": self.model,
            "options": fingerprint([json.dumps(options)]),
            "versions": fingerprint([json.dumps(versions)]),
        }


@dataclass(frozen=True)
class _Predicted:
    """A block of rows that is predicted."""

    first: int
    end: int
    table: Any = None  # the predictions, where the worker could not write them


@dataclass(frozen=True, eq=False)
class _PredictBlock:
    """Predicts a block of queries and writes it as a part of the file. A repeated task writes the same part."""

    rows: Rows | None  # to read the queries from; None where tasks have them
    keep: tuple[str, ...]
    predict: Callable[[Array], list[Array]]
    names: tuple[str, ...]
    place: PartFolder | None  # None: the predictions are returned

    name = "predict-block"

    def __call__(self, task: tuple[int, int] | Block, work: Workspace) -> _Predicted:
        block = task if isinstance(task, Block) else block_of(self.rows, task)
        table = pa.table(dict(zip(self.names, self.predict(block.X), strict=True)))
        for at, name in enumerate(self.keep):
            table = table.add_column(at, name, block.kept[name])
        end = block.first_row + len(table)
        if self.place is None:
            return _Predicted(block.first_row, end, table)
        self.place.write(block.first_row, table)
        return _Predicted(block.first_row, end)


@dataclass(frozen=True, eq=False)
class Division:
    """How the queries of a file are divided among workers."""

    blocks: Engine  # takes a block at a time
    queries: Engine  # answers the queries of a block
    at_once: int  # queries of a block, a power of two
    buckets: int = 0  # number of buckets by which the queries of all blocks are sorted; 0: each block on its own

    @classmethod
    def of(
        cls, rows: Rows, engine: Engine, independent: bool, most: Callable[[int], int], budget: int, mapped: int = 0
    ) -> Division:
        """Blocks that fit into memory and, where each is a task of the engine, give several to every worker.

        independent : whether queries are answered one by one, so that each block can be a task
        most : bytes -> as many queries as may be in memory with so many bytes, a power of two
        budget : bytes of memory for all workers of this machine
        mapped : bytes of the model's files
        """
        if not independent:
            return cls(SerialEngine(), engine, most(budget))
        together = min(engine.slots, os.cpu_count() or 1)  # workers of a cluster, as far as they are on one machine
        waits = _alone(engine) or _workers_read(rows, engine, most(budget // together))
        ahead = 1 if waits else _BLOCKS_READ_AHEAD
        even = max(1, (rows.n_rows or _UNKNOWN_ROWS) // (_BLOCKS_PER_WORKER * engine.slots))
        size = min(most(budget // (together * ahead)), 1 << (even.bit_length() - 1))
        size = max(most(0), size)
        several = rows.n_rows is None or rows.n_rows > size
        return cls(engine, SerialEngine(), size, _buckets(mapped, budget, engine.slots, together) if several else 0)


def _buckets(mapped: int, budget: int, slots: int, together: int) -> int:
    """By how many buckets queries are sorted: those that workers answer at a time should fit into half of the memory.

    None where the model fits into memory: the page cache of the system then keeps it from one block to the next.
    """
    if mapped <= budget:
        return 0
    return min(_MOST_BUCKETS, max(_BLOCKS_PER_WORKER * slots, -(-2 * together * mapped // budget)))


def _alone(engine: Engine) -> bool:
    """Whether one worker of this process does everything; it reads the rows one after the other."""
    return engine.slots == 1 and not engine.reads_files


def _workers_read(rows: Rows, engine: Engine, size: int) -> bool:
    """Whether workers should read blocks of `size` rows themselves: they read few rows that are not theirs."""
    ranges = None if _alone(engine) or not rows.n_rows else rows.ranges(1, 1)
    if ranges is None or max(end - first for first, end in ranges) > _SKIPPED_BLOCKS * size:
        return False
    return engine.that_reads(rows.paths) is engine


def predict_file(task: Task, data: Any, output: str | os.PathLike[str], overwrite: bool = False) -> PredictionReport:
    """Predict all rows of the task into `output`, a path or an address. `data` is what the user called them."""
    if not is_remote(output):
        return _predict_here(task, data, output, overwrite)
    _check_ending(str(output).partition("?")[0])
    there = RemoteOutput(str(output), overwrite)
    there.check_apart(data, (file.path for file in getattr(getattr(task.rows.source, "files", None), "files", ())))
    identity = task.identity()
    counts = there.complete(identity)  # of a file that an earlier call could not upload
    if counts is None:
        report = _predict_here(task, data, there.local, overwrite=True)
        there.note(identity, {"rows": report.rows, "dropped": report.dropped})
    else:
        report = PredictionReport(there.local, counts["rows"], counts["dropped"], 0.0, counts["rows"])
    there.send()
    return replace(report, output=there.name)


def _predict_here(task: Task, data: Any, output: str | os.PathLike[str], overwrite: bool) -> PredictionReport:
    begun = time.perf_counter()
    parts = Parts(_path(output))
    with parts.disk_errors():
        _check_apart(parts.final, data, task.rows)
        if not parts.folder.exists():
            parts.check_free(overwrite)
        identity = task.identity()
        with parts.claimed():
            about = parts.published() if parts.existed else {}
            resumed = known = 0
            if about.get("identity") != identity:  # otherwise only the cleaning up was interrupted
                parts.check_free(overwrite)
                columns = [*task.rows.keep, *task.names]
                resumed = parts.resume(identity, columns, task.names, task.at_once).rows
                about, known = _predict(task, identity, parts, overwrite)
            parts.clear()
    seconds = time.perf_counter() - begun
    return PredictionReport(parts.final, about["rows"], about["dropped"], seconds, resumed + known, parts.discarded)


def _predict(task: Task, identity: dict[str, str], parts: Parts, overwrite: bool) -> tuple[dict[str, Any], int]:
    """Predict the remaining rows, and join the parts to one file.

    Returns its metadata, and the number of rows that were not in a part, but had been predicted before.
    """
    progress, rows, known = parts.progress, task.rows, 0
    if progress.counts.get("rows") != progress.rows:
        n_rows, sort = rows.source.n_rows, task.buckets is not None and task.engine.sees(parts.folder)
        if n_rows is not None:
            left = n_rows - progress.rows
            size = 16 * len(task.names) * left
            if sort:
                per_row = 8 * len(task.names) + 4 + rows.n_features * rows.dtype.itemsize
                size += max(0, per_row * left - parts.sorted_bytes())
            folders.check_space(parts.folder, size, "the prediction")
        count = Counter("prediction", n_rows, task.tell)
        with _bad_data(parts):
            if sort:
                known = _predict_sorted(task, parts, count)
            else:
                _predict_blocks(task, parts, count)
        assert rows.n_dropped is not None
        parts.complete({"rows": progress.rows, "dropped": rows.n_dropped})
    about = {"version": metadata.version("gigagp"), **task.options}
    about |= {**progress.counts, "identity": identity}
    most = _GROUP_BYTES // (bytes_of_kept(rows) + 8 * len(task.names))
    parts.publish(about, min(ROW_GROUP, 1 << max(0, most.bit_length() - 1)), overwrite)
    return about, known


def _predict_blocks(task: Task, parts: Parts, count: Counter) -> None:
    """Predict the blocks that are missing, each on its own, on the engine."""
    rows, engine, size = task.rows, task.engine, parts.progress.rows_at_once
    by_workers = _workers_read(rows, engine, size)
    place = parts.place if engine.sees(parts.folder) else None
    function = _PredictBlock(rows if by_workers else None, rows.keep, task.predict, task.names, place)
    for done in engine.map(function, _blocks(rows, size, parts.progress.blocks_done(), by_workers)):
        if done.table is None:
            parts.accept(done.first, done.end)
        else:
            parts.add(done.first, done.table)
        count(parts.progress.rows)


def _blocks(rows: Rows, size: int, done: set[int], by_workers: bool) -> Iterator[tuple[int, int] | Block]:
    """The blocks whose first rows are not among those that are done: their rows, unless workers read them."""
    if by_workers:
        assert rows.n_rows is not None
        starts = (first for first in range(0, rows.n_rows, size) if first not in done)
        yield from ((first, min(first + size, rows.n_rows)) for first in starts)
    else:
        start = next(first for first in itertools.count(0, size) if first not in done)
        yield from (block for block in rows.blocks(size, start) if block.first_row not in done)


def _predict_sorted(task: Task, parts: Parts, count: Counter) -> int:
    """Predict the blocks that are missing, their queries sorted by bucket (`sorted_predictions`).

    Returns how many rows of them had been predicted before.
    """
    assert task.buckets is not None
    rows, engine, size, progress = task.rows, task.engine, parts.progress.rows_at_once, parts.progress
    by_workers = _workers_read(rows, engine, size)
    source = rows if by_workers else None
    folder = SortFolder.of(parts.place, size, task.buckets.count)
    folder.remove_others()
    ranges = folder.runs()
    known = progress.blocks_done() | {first for first, _ in ranges}
    sort, sorting = SortBlock(source, task.buckets, folder), Counter("sort of queries", rows.n_rows, task.tell)
    for run in engine.map(sort, _blocks(rows, size, known, by_workers)):
        ranges.append(run)
        sorting.add(run[1] - run[0])
    missing = {first for first, _ in ranges} - progress.blocks_done()
    if not missing:
        return 0
    runs = Runs.read(folder, sorted(ranges), task.buckets.count)
    pieces = list(runs.pieces(size))
    left = [piece for piece in pieces if not folder.answers(piece).exists()]
    answered = sum(runs.queries_of(piece, missing) for piece in set(pieces) - set(left))
    count(progress.rows + answered)
    for queries in engine.map(AnswerPiece(runs, task.predict, task.names), left):
        count.add(queries)
    merge = MergeRun(source, rows.keep, runs, pieces, parts.place)
    numbers = {first: run for run, (first, _) in enumerate(runs.ranges) if first in missing}
    tasks: Iterable[int | tuple[int, Block]] = numbers.values()
    if rows.keep and not by_workers:  # which are in no file of ours
        blocks = rows.blocks(size, min(missing))
        tasks = ((numbers[block.first_row], block) for block in blocks if block.first_row in missing)
    for first, end in engine.map(merge, tasks):
        parts.accept(first, end)
    return answered


@contextmanager
def _bad_data(parts: Parts) -> Iterator[None]:
    """Add to an error in the data how many rows are done."""
    try:
        yield
    except InvalidInput as error:
        raise type(error)(f"{error}; {parts.standing()}") from error


def has_types(output: Any) -> bool:
    """Whether the columns of an output have types; those of a CSV file have none."""
    return not str(output).lower().endswith(CSV)


def bytes_of_kept(rows: Rows) -> int:
    """Bytes per row of the columns that are copied to the output, estimated from the first rows."""
    for batch in islice(rows.source.batches(rows.keep, _SAMPLE_ROWS) if rows.keep else (), 1):
        return int(batch.table(rows.keep).nbytes // max(1, batch.n_rows)) + 1
    return 0


def _path(output: str | os.PathLike[str]) -> Path:
    name = os.fspath(output) if isinstance(output, str | os.PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name or "://" in name:
        raise InvalidParameter(f"output must be a path, or an address such as s3://bucket/key; got {output!r}")
    _check_ending(name)
    return Path(os.path.realpath(os.path.expanduser(name)))


def _check_ending(name: str) -> None:
    if not name.lower().endswith(ENDINGS):
        raise InvalidParameter(f"output is written as Parquet or CSV, and must end in {', '.join(ENDINGS)}; got {name}")


def _check_apart(final: Path, data: Any, rows: Rows) -> None:
    """Raise InvalidParameter for an output that would replace the data, or lie in the folder that is read."""
    if final.exists() and not final.is_file():
        raise InvalidParameter(f"{final} is not a file; choose another output")
    read = [file.path for file in getattr(getattr(rows.source, "files", None), "files", ())]
    if isinstance(data, str | os.PathLike):
        read.append(os.path.expanduser(os.fspath(data).removeprefix("file://")))
    for path in map(Path, map(os.path.realpath, read)):
        if path == final or path in final.parents:
            raise InvalidParameter(f"{final} would lie among the data that are read; choose another output")

"""Predictions of files of queries by models that do not fit into memory: all queries are sorted by place first.

Each bucket is a range of the model's rows. Three passes of tasks, each a function of files, so that it may be repeated:

sort : a block of queries becomes a file in which they are sorted by bucket
answer : the queries of a bucket, from the files of all blocks, are predicted where the rows of the bucket are read
merge : the predictions of a block, from all buckets, become a part of the output in the order of the queries

The files lie beside the parts of the output (`data.parts`). Each range of rows is read once, not once per block, apart
from rows across the borders of buckets. A query is answered independently of others, so that the parts are those of
blocks that are predicted alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from gigagp.arrays import Array
from gigagp.data.folders import writing_file
from gigagp.data.parts import PartFolder
from gigagp.data.sources import Block, Rows
from gigagp.errors import InvalidInput
from gigagp.linalg.workspace import Workspace

Range = tuple[int, int]  # first row of a block, and the row after its last

_HEADER = 3  # numbers before the counts of a run: columns, bytes per number, buckets


class Buckets(Protocol):
    """Which bucket a query belongs to."""

    @property
    def count(self) -> int:
        """The number of buckets."""

    def __call__(self, X: Array) -> Array:
        """The bucket of each query in the user's units; any bucket for a query with missing values."""


@dataclass(frozen=True)
class SortFolder:
    """Where the files of the passes are: a value that can be sent to other processes."""

    path: str
    key: str  # of the prediction, the blocks and the buckets

    @classmethod
    def of(cls, place: PartFolder, rows_at_once: int, buckets: int) -> SortFolder:
        key = hashlib.blake2b(f"{place.key} {rows_at_once} {buckets}".encode(), digest_size=8)
        return cls(place.path, key.hexdigest())

    def run(self, first: int, end: int) -> Path:
        return Path(self.path) / f"queries-{self.key}-{first:012}-{end:012}.rows"

    def runs(self) -> list[Range]:
        """The blocks that are sorted already, in order."""
        names = (path.stem.split("-") for path in Path(self.path).glob(f"queries-{self.key}-*.rows"))
        return sorted((int(first), int(end)) for _, _, first, end in names)

    def remove_others(self) -> None:
        """Remove files of the same prediction that were divided otherwise."""
        for kind in ("queries", "answers"):
            for path in Path(self.path).glob(f"{kind}-*"):
                if path.name.split("-")[1] != self.key:
                    path.unlink()

    def answers(self, piece: Piece) -> Path:
        name = f"answers-{self.key}-{piece.bucket:06}-{piece.first:012}-{piece.end:012}-{piece.queries:012}.arrow"
        return Path(self.path) / name


@dataclass(frozen=True)
class Piece:
    """Queries of one bucket that are answered together: those of consecutive runs."""

    bucket: int
    runs: Range  # numbers of the first run and of the run after the last
    first: int  # row with which the first run begins
    end: int  # row with which the last run ends
    queries: int


@dataclass(frozen=True, eq=False)
class SortBlock:
    """Sorts a block of queries by bucket. A repeated task writes the same file."""

    rows: Rows | None  # to read the queries from; None where tasks have them
    buckets: Buckets
    folder: SortFolder

    name = "sort-queries"

    def __call__(self, task: Range | Block, work: Workspace) -> Range:
        block = task if isinstance(task, Block) else block_of(self.rows, task)
        ids = np.asarray(self.buckets(block.X))
        order = np.argsort(ids, kind="stable").astype(np.int32)
        counts = np.bincount(ids, minlength=self.buckets.count)
        header = np.array([block.X.shape[1], block.X.itemsize, len(counts), *counts], np.int64)
        end = block.first_row + len(ids)
        with writing_file(self.folder.run(block.first_row, end)) as file:
            for part in (header, order, block.X[order]):
                file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return block.first_row, end


@dataclass(frozen=True, eq=False)
class Runs:
    """The sorted blocks: where each file has the queries of each bucket."""

    folder: SortFolder
    ranges: list[Range]
    counts: Array  # (runs, buckets)
    columns: int
    itemsize: int

    @classmethod
    def read(cls, folder: SortFolder, ranges: list[Range], buckets: int) -> Runs:
        headers = [_numbers(folder.run(*each), np.int64, _HEADER + buckets) for each in ranges]
        columns, itemsize, _ = headers[0][:_HEADER].tolist()
        return cls(folder, ranges, np.stack(headers)[:, _HEADER:], columns, itemsize)

    def pieces(self, most: int) -> Iterator[Piece]:
        """Bucket by bucket, runs with at most so many queries together, or one run."""
        for bucket in range(self.counts.shape[1]):
            filled = np.flatnonzero(self.counts[:, bucket]).tolist()
            while filled:
                totals = np.cumsum(self.counts[filled, bucket])
                taken = max(1, int(np.searchsorted(totals, most, side="right")))
                here, filled = filled[:taken], filled[taken:]
                first, end = self.ranges[here[0]][0], self.ranges[here[-1]][1]
                yield Piece(bucket, (here[0], here[-1] + 1), first, end, int(totals[taken - 1]))

    def queries_of(self, piece: Piece, blocks: set[int]) -> int:
        """How many queries of a piece belong to blocks with these first rows."""
        runs = [run for run in range(*piece.runs) if self.ranges[run][0] in blocks]
        return int(self.counts[runs, piece.bucket].sum())

    def order(self, run: int) -> Array:
        """The places in the block of a run's queries, which are sorted by bucket."""
        return _numbers(self._path(run), np.int32, self._rows(run), self._before_order)

    def queries(self, run: int, bucket: int) -> Array:
        before = int(self.counts[run, :bucket].sum()) * self.columns * self.itemsize
        offset = self._before_order + 4 * self._rows(run) + before
        dtype = np.dtype(f"f{self.itemsize}")
        numbers = _numbers(self._path(run), dtype, int(self.counts[run, bucket]) * self.columns, offset)
        return numbers.reshape(-1, self.columns)

    @property
    def _before_order(self) -> int:
        return int(8 * (_HEADER + self.counts.shape[1]))

    def _rows(self, run: int) -> int:
        first, end = self.ranges[run]
        return end - first

    def _path(self, run: int) -> Path:
        return self.folder.run(*self.ranges[run])


@dataclass(frozen=True, eq=False)
class AnswerPiece:
    """Predicts the queries of a piece and writes them run by run. A repeated task writes the same file."""

    runs: Runs
    predict: Callable[[Array], list[Array]]
    names: tuple[str, ...]

    name = "answer-queries"

    def __call__(self, piece: Piece, work: Workspace) -> int:
        filled = [run for run in range(*piece.runs) if self.runs.counts[run, piece.bucket]]
        X = np.concatenate([self.runs.queries(run, piece.bucket) for run in filled])
        table = pa.table(dict(zip(self.names, self.predict(X), strict=True))).combine_chunks()
        done = 0
        with (
            writing_file(self.runs.folder.answers(piece)) as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            for run in filled:
                count = int(self.runs.counts[run, piece.bucket])
                writer.write_table(table.slice(done, count))  # one batch, since the table has one chunk
                done += count
        return piece.queries


@dataclass(frozen=True, eq=False)
class MergeRun:
    """Writes the predictions of a run in the order of its queries, as a part of the output."""

    rows: Rows | None  # to read the columns from that are carried along; None where tasks have the block
    keep: tuple[str, ...]
    runs: Runs
    pieces: Sequence[Piece]
    place: PartFolder

    name = "merge-answers"

    def __call__(self, task: int | tuple[int, Block], work: Workspace) -> Range:
        run, block = (task, None) if isinstance(task, int) else task
        first, end = self.runs.ranges[run]
        answers = [self._answer(piece, run) for piece in self.pieces if self._has(piece, run)]
        order = self.runs.order(run)
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        table = pa.concat_tables(answers).combine_chunks().take(pa.array(places))
        if self.keep:
            kept = (block or block_of(self.rows, (first, end))).kept
            for at, name in enumerate(self.keep):
                table = table.add_column(at, name, kept[name])
        self.place.write(first, table)
        return first, end

    def _has(self, piece: Piece, run: int) -> bool:
        return piece.runs[0] <= run < piece.runs[1] and bool(self.runs.counts[run, piece.bucket])

    def _answer(self, piece: Piece, run: int) -> Any:
        """The predictions of those queries of a run that lie in the bucket of a piece."""
        path, counts = self.runs.folder.answers(piece), self.runs.counts[:, piece.bucket]
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
                batch = reader.get_batch(int(np.count_nonzero(counts[piece.runs[0] : run])))
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, " ".join(str(error).split())) from error
        if len(batch) != counts[run]:
            raise _damaged(path, f"{len(batch)} instead of {counts[run]} predictions")
        return pa.Table.from_batches([batch])


def block_of(rows: Rows | None, block: Range) -> Block:
    """The rows of a block, read from their source."""
    assert rows is not None
    first, end = block
    return next(rows.blocks(end - first, first, end))


def _numbers(path: Path, dtype: Any, count: int, offset: int = 0) -> Array:
    try:
        numbers = np.fromfile(path, dtype, count, offset=offset)
    except OSError as error:
        raise _damaged(path, error.strerror or "it cannot be read") from error
    if len(numbers) != count:
        raise _damaged(path, "it is shorter than it was written")
    return numbers


def _damaged(path: Path, why: str) -> InvalidInput:
    path.unlink(missing_ok=True)
    return InvalidInput(f"{path} was damaged ({why}), and has been removed; repeat the call")

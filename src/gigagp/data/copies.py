"""Exact copies of rows: the same inputs and the same target, given more than once.

A copy carries no information of its own. Counted as an observation it says that the target has no noise, and this
ruins theta. But where rows with the same inputs have different targets, inputs are repeated on purpose, and
two equal outcomes may be two observations: there all rows count.

Copies are looked for during the first pass over the data, by digests of rows. Where those of all rows exceed the memory
given to them, a random part of the digests is kept: all copies of a row have the same digest, so that they are all in
this part or all outside. Only if it has copies is the data read again, and the digests of all rows are sorted in files.

Rows of classes always count. There a row that is given twice is the same as a row of weight two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.folders import TemporaryFolder
from gigagp.data.row_digests import BYTES, DigestFiles, digests, is_in, repeated
from gigagp.data.sources.row_noise import RowNoise
from gigagp.data.sources.rows import BLOCK, Block, Rows

_LEAST_DIGESTS = 1 << 16  # of rows that are kept, whatever the memory
_MOST_DIGESTS = 1 << 24  # likewise
_SLACK = 1.1  # by which their number may exceed what is expected
_MOST_WEIGHTED = 99  # rows of a table in which rows of classes are combined: more are also held out, one by one


class RowSet:
    """A set of row numbers, one bit per row."""

    def __init__(self, n_rows: int) -> None:
        self._bits, self.count = np.zeros(-(-n_rows // 8), np.uint8), 0

    def add(self, rows: Array) -> None:
        """Add different rows that are not in the set."""
        np.bitwise_or.at(self._bits, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
        self.count += len(rows)

    def has(self, first: int, count: int) -> Array:
        """Which of consecutive rows are in the set."""
        rows = np.arange(first, first + count)
        return np.asarray((self._bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1, bool)


@dataclass(frozen=True, eq=False)
class Digests:
    """Digests of consecutive rows (`data.row_digests`).

    Thinned digests are those of rows whose digest of the inputs is a multiple of `thinning`.
    """

    rows: int  # that were read
    inputs: Array
    both: Array

    @classmethod
    def of(cls, block: Block, thinning: int) -> Digests:
        return cls(len(block.X), *digests(block.X, _targets(block))).thinned(thinning)

    def thinned(self, thinning: int) -> Digests:
        if thinning == 1:
            return self
        chosen = self.inputs % np.uint64(thinning) == 0
        return Digests(self.rows, self.inputs[chosen], self.both[chosen])


class CopySearch:
    """Looks for copies among rows that are read once.

    most_bytes : of memory that digests may take
    n_rows : the number of rows, if it is known
    """

    def __init__(self, most_bytes: int, n_rows: int | None = None) -> None:
        # Sorting takes as much memory again. Digests also travel between machines.
        self._most = min(max(_LEAST_DIGESTS, most_bytes // (2 * BYTES)), _MOST_DIGESTS)
        self._kept: list[Digests] = []
        self._count = 0  # of digests
        self.thinning, self.n_rows = 1, 0
        while n_rows is not None and n_rows > self._most * self.thinning:
            self.thinning *= 2

    def watched(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """The same blocks; the rows of those that have been taken are known."""
        for block in blocks:
            self.add(Digests.of(block, self.thinning))
            yield block

    def add(self, digests: Digests) -> None:
        """Take the digests of the next rows, thinned at most as much as `thinning` says."""
        self.n_rows += digests.rows
        self._kept.append(digests.thinned(self.thinning))
        self._count += len(self._kept[-1].inputs)
        while self._count > self._most * _SLACK:
            self.thinning *= 2
            self._kept = [each.thinned(self.thinning) for each in self._kept]
            self._count = sum(len(each.inputs) for each in self._kept)

    def copies(self, rows: Rows, folder: Path | None = None) -> RowSet | None:
        """The rows that are copies of earlier ones and need not be counted; None where there are none.

        None, too, if inputs are repeated on purpose, or if fewer than two rows would remain.

        rows : those whose digests were taken; read once more if not all digests fitted into memory and copies were seen
        folder : for temporary files
        """
        inputs, both = (np.concatenate([getattr(each, name) for each in self._kept]) for name in ("inputs", "both"))
        self._kept = []
        later = _later_copies(inputs, both, np.arange(len(inputs)))
        if later is None or len(later) == 0:
            return None
        result = RowSet(self.n_rows)
        if self.thinning == 1:
            result.add(later)
            return result if self.n_rows - result.count > 1 else None
        return self._sorted_in_files(rows, folder, result)

    def _sorted_in_files(self, rows: Rows, folder: Path | None, result: RowSet) -> RowSet | None:
        temporary = TemporaryFolder(folder)
        try:
            with folders.disk_errors("looking for copies of rows", temporary.path):
                files = DigestFiles(temporary.path, -(-2 * self.n_rows // self._most))
                for block in rows.blocks(BLOCK):
                    files.add(block.first_row, *digests(block.X, _targets(block)))
                for part in files.parts():
                    later = _later_copies(*part)
                    if later is None:
                        return None
                    result.add(later)
        finally:
            temporary.remove()
        return result if self.n_rows - result.count > 1 else None


def _later_copies(inputs: Array, both: Array, rows: Array) -> Array | None:
    """The numbers of the rows that are copies of earlier ones; None where the same inputs have different targets.

    inputs, both : digests of the inputs, and of inputs and target, of rows whose numbers ascend
    """
    often = repeated(inputs)
    if not len(often):
        return np.empty(0, np.int64)
    places = np.flatnonzero(is_in(inputs, often))
    places = places[np.argsort(inputs[places], kind="stable")]
    again = inputs[places][1:] == inputs[places][:-1]
    if (both[places][1:][again] != both[places][:-1][again]).any():
        return None
    return np.asarray(rows[places[1:][again]])


class DistinctRows:
    """The rows of a table without copies; used in place of the `Rows` that they come from.

    copies : found by a search; None if a resumed fit has skipped the first pass. They are then searched for when blocks
        are read, which a fit whose rows are already sorted never does
    """

    def __init__(self, rows: Rows, n_rows: int, copies: RowSet | None = None) -> None:
        self._rows, self.n_rows, self._copies = rows, n_rows, copies
        self.source, self.noise, self.n_features = rows.source, rows.noise, rows.n_features

    @property
    def n_dropped(self) -> int | None:
        return self._rows.n_dropped

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """All rows; every block has `size` rows but the last, as if copies had never been."""
        if self._copies is None:
            self._copies = find_copies(self._rows)
        assert self._copies is not None
        parts: list[Block] = []
        waiting, first = 0, 0
        for block in self._rows.blocks(size):
            chosen = np.flatnonzero(~self._copies.has(block.first_row, len(block.X)))
            parts.append(_numbered(block).at(chosen))
            waiting += len(chosen)
            if waiting >= size:
                whole = _joined(parts, first)
                yield whole.at(np.arange(size))
                first, waiting = first + size, waiting - size
                parts = [whole.at(np.arange(size, size + waiting))]
        if waiting:
            yield _joined(parts, first)


def find_copies(rows: Rows, most_bytes: int = 1 << 30, folder: Path | None = None) -> RowSet | None:
    """Read the rows once, and return those that are copies; None where all rows count."""
    if rows.noise is not None:
        return None
    search = CopySearch(most_bytes)
    for _ in search.watched(rows.blocks(BLOCK)):
        pass
    return search.copies(rows, folder)


def _numbered(block: Block) -> Block:
    """The block with the numbers of its rows in the source."""
    if block.source_rows is not None:
        return block
    numbers = np.arange(block.first_row, block.first_row + len(block.X))
    return Block(block.first_row, block.X, block.y, None, numbers, block.weights_and_noise)


def _joined(parts: list[Block], first_row: int) -> Block:
    """Blocks of numbered rows as one."""
    X, y, numbers = (
        np.concatenate([np.asarray(getattr(part, name)) for part in parts]) for name in ("X", "y", "source_rows")
    )
    return Block(first_row, X, y, None, numbers)


def _targets(block: Block) -> Array:
    assert block.y is not None
    return block.y


class CombinedRows:
    """A few rows with weights, in memory; used in place of the `Rows` that they come from."""

    def __init__(self, rows: Rows, block: Block, chosen: Array, weights: Array) -> None:
        self.source, self.n_features, self.n_dropped = rows.source, rows.n_features, rows.n_dropped
        self.noise, self.n_rows = RowNoise(), len(chosen)
        source_rows = chosen if block.source_rows is None else block.source_rows[chosen]
        weights_and_noise = np.column_stack([weights, np.zeros(len(weights))])
        self._block = Block(
            0, np.ascontiguousarray(block.X[chosen]), _targets(block)[chosen], None, source_rows, weights_and_noise
        )

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        assert size >= self.n_rows
        yield self._block


CountedRows = Rows | DistinctRows | CombinedRows  # the rows of a source that a fit counts


def combined(rows: Rows) -> Rows | CombinedRows:
    """The rows of few rows of classes, in the order of their values; copies are one row with the sum of their weights.

    The model is then the same to the bit whether a row is given twice or with weight two, and in any order of rows.
    Unchanged where there are neither copies nor weights.
    """
    if rows.n_rows is not None and rows.n_rows > _MOST_WEIGHTED:
        return rows
    block = next(rows.blocks(_MOST_WEIGHTED + 1))
    values = np.column_stack([block.X, _targets(block)])
    distinct, first, places = np.unique(values, axis=0, return_index=True, return_inverse=True)
    if len(values) > _MOST_WEIGHTED or len(distinct) < 2 or (rows.noise is None and len(distinct) == len(values)):
        return rows
    weights = np.bincount(places.ravel(), block.weights, minlength=len(distinct))
    return CombinedRows(rows, block, first, weights)

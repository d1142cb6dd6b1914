"""The expert store: the rows, sorted by leaf, that every expert reads and none changes. In memory or in a folder.

A folder holds X.npy, y.npy, row_noise.npy where rows differ in noise, the cells they are sorted by, and manifest.json,
which is written last: without it there is no store. Rows are written one after the other, and mapped into memory to be
read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.array_files import ArrayFile, ArrayFiles, ArrayPlace, write_lists
from gigagp.data.mapped_file import MappedFile
from gigagp.data.mapped_pages import WINDOW, mapped_now, take_in_pieces, windows_of
from gigagp.data.row_lists import RowLists
from gigagp.errors import InvalidInput
from gigagp.linalg.row_noise import COLUMNS

FORMAT = "gigagp-store"
VERSION = 3  # of a store whose files have checksums of parts; version 2 has row noise, and 1 neither
DTYPES = ("float32", "float64")
ROW_NOISE = "row_noise"  # name of the file with the row noise, which only stores with such noise have
OTHERS = "others"  # name of the file with several targets, which only stores of fits with a common theta have
MANIFEST = "manifest.json"
_RELEASE = 256 << 20  # bytes of mapped pages after which they are released
_MOST_MAPPED = 512 << 20  # bytes of all mapped files in memory from which on pages are released
_MAPPED_PER_TASK = 128 << 20  # bytes that the queries of one task may map before its pages can be released
_WINDOWS_PER_QUERY = 4  # that a search maps in the files of the rows (1e9 rows in 3 columns, a trial)
_FEWEST_QUERIES = 16  # of a task, whatever they map
_BLOCK = 1 << 24  # bytes of rows per block
_POPULATE_READ = 22  # advice of Linux 5.14: map all pages now; Python has no name for it


# Targets on their way into a store: one number per row or, where rows differ in noise, three: the target, the factor of
# the noise and the added variance. Further columns may follow: other targets, which are only carried along.
Targets = Array


class ExpertStore:
    """Scaled inputs and targets in storage order, read-only. Experts share rows by index; rows are never copied.

    row_noise : factor of the noise and added variance of each row (`linalg.row_noise`); None where all noise is equal
    others : other targets of the rows, which are only carried along
    """

    def __init__(
        self, X: Array, y: Array, row_noise: Array | None = None, keeper: Any = None, release: int = _RELEASE,
        others: Array | None = None,
    ) -> None:  # fmt: skip
        arrays = [a for a in (X, y, row_noise) if a is not None]
        self._given = X, row_noise  # as they came: mapped, if they are files
        self.others = others
        self._maps = [m for a in arrays if isinstance(m := getattr(a, "_mmap", None), mmap.mmap)]
        self.files = tuple(MappedFile.of(a) for a in arrays if isinstance(a, np.memmap))
        self.X, self.y = frozen(np.asarray(X)), frozen(np.asarray(y))
        self.row_noise = None if row_noise is None else frozen(np.asarray(row_noise))
        self.keeper = keeper  # an object that must exist as long as the store: its temporary folder
        self._limit, self._touched, self._kept = release, 0, False

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpertStore, (self.X, self.y, self.row_noise)  # read-only again after unpickling

    @classmethod
    def in_memory(cls, X: Array, targets: Targets, order: Array, others: int = 0) -> ExpertStore:
        """The rows in this order; `others` is the number of other targets."""
        own, carried = split_others(targets[order], others)
        return cls(np.ascontiguousarray(X[order]), *split_targets(own), others=carried)

    def with_target(self, y: Array) -> ExpertStore:
        """The same rows with another target."""
        X, row_noise = self._given
        return ExpertStore(X, y, row_noise, self.keeper, self._limit)

    @property
    def mapped(self) -> bool:
        """Whether rows lie in files and come into memory as they are read."""
        return bool(self._maps)

    def read(self, groups: RowLists, leaf: int) -> tuple[Array, Array]:
        """Inputs and targets of one leaf: views where its rows are consecutive, else gathered for the moment."""
        return self.gather(groups.rows(leaf))

    def gather(self, rows: slice | Array) -> tuple[Array, Array]:
        if not self._maps:
            return frozen(self.X[rows]), frozen(self.y[rows])
        X, y = self._take((self.X, self.y), rows)
        return X, y

    def _take(self, arrays: tuple[Array, ...], rows: slice | Array) -> list[Array]:
        """Some rows of arrays; of mapped ones no more is in memory at a time than the limit, however scattered."""
        size, per_row = len(arrays) * WINDOW, self.X.itemsize * self.X.shape[1]
        if self._maps and not isinstance(rows, slice):
            size *= windows_of(rows, per_row)
            if size > self._limit:
                most = self._limit // (len(arrays) * WINDOW)
                return [frozen(each) for each in take_in_pieces(arrays, rows, per_row, most, self.release)]
            size *= 2  # their neighbours were looked at before
        taken = [frozen(array[rows]) for array in arrays]
        if self._maps:
            self._mapped(size + sum(each.nbytes for each in taken))
        return taken

    def _mapped(self, size: int) -> None:
        """Account for bytes that were mapped; pages are given back when they are many."""
        self._touched += size
        if self._touched > self._limit:
            self.release()

    def queries_together(self, queries: int = 1) -> int:
        """How many of so many queries, in the order of their places, one task should answer.

        Its pages can only be given back when it has ended. Where queries are scattered, each maps windows of its own.
        """
        size = 0 if self._kept else sum(map(len, self._maps))
        each = min(_WINDOWS_PER_QUERY * WINDOW, 2 * size // queries)
        return max(_FEWEST_QUERIES, _MAPPED_PER_TASK // max(1, each))

    def touched(self, rows: int, places: int = 0) -> None:
        """Account for rows that compiled code has read directly; their pages are given back when they are many.

        places : how many runs of rows they are, where around each run more may have been mapped
        """
        if self._maps:
            numbers = self.X.shape[1] + 1 + (0 if self.row_noise is None else COLUMNS)
            self._mapped(rows * numbers * self.X.itemsize + 2 * WINDOW * places)
            if mapped_now() > _MOST_MAPPED:
                self.release()

    def noise_of(self, rows: slice | Array) -> Array | None:
        """The row noise of some rows; None where all rows have the same noise."""
        if self.row_noise is None or isinstance(rows, slice):
            return None if self.row_noise is None else frozen(self.row_noise[rows])
        return self._take((self.row_noise,), rows)[0]

    def targets_of(self, rows: slice | Array) -> Array:
        """Targets of some rows and, where rows differ in noise, their row noise: see `Targets`."""
        return join_targets(self.y[rows], self.noise_of(rows), None if self.others is None else self.others[rows])

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """Inputs and `Targets` of all rows, some MB at a time; of mapped ones no more than that is in memory."""
        step = max(1, _BLOCK // (self.X.itemsize * (self.X.shape[1] + 1)))
        for start in range(0, len(self.y), step):
            rows = slice(start, start + step)
            yield self.gather(rows)[0], self.targets_of(rows)
            self.release()

    def keep_mapped(self, limit: int) -> None:
        """Map all pages now if they take at most `limit` bytes, and do not give them back.

        Otherwise the first queries would wait for every page that they are the first to read.
        """
        if sum(map(len, self._maps)) <= limit:
            self._kept = True
            for mapped in self._maps:
                with suppress(OSError):  # on systems that do not know this advice
                    mapped.madvise(_POPULATE_READ)

    def release(self) -> None:
        """Give mapped pages back to the system, unless they are kept; what is read again is mapped again."""
        self._touched = 0
        for mapped in () if self._kept else self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)


def join_targets(y: Array, row_noise: Array | None, others: Array | None = None) -> Targets:
    parts = [part for part in (row_noise, others) if part is not None]
    return np.column_stack([y, *parts]) if parts else y


def split_others(targets: Targets, others: int) -> tuple[Targets, Array | None]:
    """The targets without the other ones, and those."""
    if others == 0:
        return targets, None
    own = targets[:, :-others]
    return own[:, 0] if own.shape[1] == 1 else own, np.ascontiguousarray(targets[:, -others:])


def split_targets(targets: Targets) -> tuple[Array, Array | None]:
    """The target of each row, and the row noise where there is one."""
    if targets.ndim == 1:
        return np.ascontiguousarray(targets), None
    return np.ascontiguousarray(targets[:, 0]), np.ascontiguousarray(targets[:, 1:])


def frozen(array: Array) -> Array:
    """The array, made read-only. Experts see nothing else, so their code is compiled once."""
    array.flags.writeable = False
    return array


class MemoryWriter:
    """Takes rows with their places in storage order and keeps them in memory."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype[Any], noisy: bool = False, others: int = 0) -> None:
        self._X, self._y = np.empty((rows, columns), dtype), np.empty(rows, dtype)
        self._row_noise = np.empty((rows, COLUMNS), dtype) if noisy else None
        self._others = np.empty((rows, others), dtype) if others else None

    def write(self, first: int, X: Array, targets: Targets) -> None:
        """Put rows in their place, from number `first` on."""
        targets, others = split_others(targets, 0 if self._others is None else self._others.shape[1])
        rows, (y, row_noise) = slice(first, first + len(X)), split_targets(targets)
        if self._others is not None:
            self._others[rows] = others
        self._X[rows], self._y[rows] = X, y
        if self._row_noise is not None:
            self._row_noise[rows] = row_noise

    def finish(self) -> ExpertStore:
        return ExpertStore(self._X, self._y, self._row_noise, others=self._others)


def _files(rows: int, columns: int, noisy: bool, others: int) -> dict[str, tuple[int, ...]]:
    """The names of a store's files, and the shapes of their arrays."""
    files: dict[str, tuple[int, ...]] = {"X": (rows, columns), "y": (rows,)}
    if noisy:
        files[ROW_NOISE] = (rows, COLUMNS)
    if others:
        files[OTHERS] = (rows, others)
    return files


def _arrays_of(X: Array, targets: Targets, others: int) -> list[Array]:
    """Rows as the arrays of a store's files, in their order."""
    own, carried = split_others(targets, others)
    return [X, *(part for part in (*split_targets(own), carried) if part is not None)]


@dataclass(frozen=True)
class StorePlaces:
    """The files of a store that is being written: a value that can be sent to other processes, which write the rows."""

    files: tuple[ArrayPlace, ...]
    others: int

    def write(self, first: int, X: Array, targets: Targets) -> list[bytes]:
        """Write rows from number `first` on; returns their checksums, one per file."""
        return [file.write(first, array) for file, array in zip(self.files, self.arrays(X, targets), strict=True)]

    def arrays(self, X: Array, targets: Targets) -> list[Array]:
        """Rows as the arrays of the files, in their order."""
        return _arrays_of(X, targets, self.others)


class PlacedWriter:
    """A store in a folder whose rows are written in any order, also by other processes.

    noisy : whether rows differ in noise
    others : the number of other targets
    """

    def __init__(
        self, folder: Path, rows: int, columns: int, dtype: np.dtype[Any], noisy: bool = False, others: int = 0
    ) -> None:
        self._folder, self._shape, self._dtype = folder, (rows, columns), dtype
        shapes = _files(rows, columns, noisy, others)
        files = (ArrayPlace.create(folder / f"{name}.npy", shape, dtype) for name, shape in shapes.items())
        self.places = StorePlaces(tuple(files), others)

    def finish(self, cells: RowLists, source: str, ends: list[int], checksums: list[list[bytes]]) -> None:
        """Complete the store with its cells and its manifest.

        source : the fingerprint of the data
        ends : the number of the row after each part, in order
        checksums : what `StorePlaces.write` has returned for each part
        """
        (rows, columns), others = self._shape, self.places.others
        entries = {
            Path(file.path).name: file.finish(ends, list(of_file))
            for file, of_file in zip(self.places.files, zip(*checksums, strict=True), strict=True)
        }
        content = {"rows": rows, "columns": columns, "dtype": self._dtype.name, "source": source}
        content |= {"others": others} if others else {}
        content |= {"cells": len(cells), "files": entries | write_lists(self._folder, "cells", cells)}
        folders.write_manifest(self._folder / MANIFEST, {"format": FORMAT, "version": VERSION, **content})


class FolderWriter:
    """Takes rows in storage order and writes them to a folder."""

    def __init__(self, folder: Path, rows: int, columns: int, dtype: np.dtype[Any], noisy: bool = False) -> None:
        shapes = _files(rows, columns, noisy, 0)
        self._files = [ArrayFile(folder / f"{name}.npy", shape, dtype) for name, shape in shapes.items()]

    def append(self, X: Array, targets: Targets) -> None:
        for file, part in zip(self._files, _arrays_of(X, targets, 0), strict=True):
            file.append(part)

    def close(self) -> dict[str, Any]:
        """The rows' entries in a manifest."""
        return {file.path.name: file.close() for file in self._files}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as every:  # on a full disk closing fails too
            for file in self._files:
                every.callback(file.close)


def write_rows(folder: Path, store: ExpertStore) -> dict[str, Any]:
    """The rows of a store, and their entries in a manifest.

    The files of an expert store never change, so that they are linked where the file system allows it: nothing is
    written, and the files exist until both folders are removed.
    """
    linked = _linked_rows(folder, store)
    if linked is not None:
        return linked
    rows, columns = store.X.shape
    with FolderWriter(folder, rows, columns, store.X.dtype, store.row_noise is not None) as writer:
        for X, targets in store.blocks():
            writer.append(X, targets)
        return writer.close()


def _linked_rows(folder: Path, store: ExpertStore) -> dict[str, Any] | None:
    """Links to the files of a store on disk, and their entries in its manifest; None where that is not possible."""
    rows, columns = store.X.shape
    names = {f"{name}.npy" for name in _files(rows, columns, store.row_noise is not None, 0)}
    if {Path(file.path).name for file in store.files} != names or len({Path(f.path).parent for f in store.files}) != 1:
        return None
    source, links = Path(store.files[0].path).parent, [folder / name for name in sorted(names)]
    try:
        entries = folders.read_manifest(source / MANIFEST, FORMAT, VERSION)["files"]
        for file in store.files:
            file.check()
        for link in links:
            os.link(source / link.name, link)
        return {link.name: entries[link.name] for link in links}
    except (InvalidInput, OSError, KeyError, TypeError):  # another file system, or the rows of a saved model
        for link in links:
            link.unlink(missing_ok=True)
        return None


def read_rows(
    files: ArrayFiles, rows: int, columns: int, dtype: str, verify: bool, keeper: Any = None, others: int = 0
) -> ExpertStore:
    """A store of the rows that lie in a folder, mapped into memory."""
    X, y = files.map("X", (rows, columns), dtype, verify), files.map("y", (rows,), dtype, verify)
    row_noise = files.map(ROW_NOISE, (rows, COLUMNS), dtype, verify) if ROW_NOISE in files else None
    if verify and row_noise is not None and row_noise.min() < 0:
        raise folders.damaged(files.path(ROW_NOISE), "it has negative numbers")
    carried = files.map(OTHERS, (rows, others), dtype, verify) if others else None
    return ExpertStore(X, y, row_noise, keeper, others=carried)


def open_store(folder: Path, verify: bool = True, keeper: Any = None) -> tuple[ExpertStore, RowLists]:
    """The store in a folder, mapped into memory, and the cells its rows are sorted by."""
    manifest = folders.read_manifest(folder / MANIFEST, FORMAT, VERSION)
    rows, columns, cells, dtype = (manifest.get(key) for key in ("rows", "columns", "cells", "dtype"))
    if not all(type(n) is int and n > 0 for n in (rows, columns, cells)) or dtype not in DTYPES:
        raise folders.damaged(folder / MANIFEST, "it has no valid counts or type of numbers")
    others = manifest.get("others", 0)
    if type(others) is not int or others < 0:
        raise folders.damaged(folder / MANIFEST, "it has no valid number of targets")
    files = ArrayFiles(folder, manifest.get("files"))
    store = read_rows(files, rows, columns, dtype, verify, keeper, others)  # type: ignore[arg-type]
    return store, files.lists("cells", cells, rows, verify)  # type: ignore[arg-type]

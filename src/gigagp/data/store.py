"""The expert store: the rows, sorted by leaf, that every expert reads and none changes. In memory or in a folder.

A folder holds X.npy, y.npy, the cells they are sorted by, and manifest.json, which is written last: without it there
is no store. Rows are written one after the other, and mapped into memory to be read.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.array_files import ArrayFile, ArrayFiles, write_lists
from gigagp.data.row_lists import RowLists

FORMAT = "gigagp-store"
VERSION = 1
DTYPES = ("float32", "float64")
_MANIFEST = "manifest.json"
_RELEASE = 256 << 20  # bytes of mapped pages after which they are released
_BLOCK = 1 << 24  # bytes of rows per block
_WINDOW = 1 << 21  # bytes that the system may map around each position that is read


@dataclass(frozen=True)
class MappedFile:
    """The file of a mapped array, so that other processes can map it too. A file that has changed is an error."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    changed: int  # nanoseconds of its last change

    @classmethod
    def of(cls, array: np.memmap[Any, Any]) -> MappedFile:
        path = os.path.abspath(str(array.filename))
        status = os.stat(path)
        return cls(path, array.offset, array.shape, array.dtype.str, status.st_size, status.st_mtime_ns)

    def open(self) -> np.memmap[Any, Any]:
        self.check()
        return np.memmap(self.path, np.dtype(self.dtype), "r", self.offset, self.shape)

    def check(self) -> None:
        """Raise DamagedFile if the file is missing or has changed."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise folders.damaged(Path(self.path), f"it cannot be read here ({error.strerror})") from None
        if (status.st_size, status.st_mtime_ns) != (self.bytes, self.changed):
            raise folders.damaged(Path(self.path), "it has changed since it was opened")


class ExpertStore:
    """Scaled inputs and targets in storage order, read-only. Experts share rows by index; rows are never copied."""

    def __init__(self, X: Array, y: Array, keeper: Any = None, release: int = _RELEASE) -> None:
        self._maps = [m for a in (X, y) if isinstance(m := getattr(a, "_mmap", None), mmap.mmap)]
        self.files = tuple(MappedFile.of(a) for a in (X, y) if isinstance(a, np.memmap))
        self.X, self.y = frozen(np.asarray(X)), frozen(np.asarray(y))
        self.keeper = keeper  # an object that must exist as long as the store: its temporary folder
        self._limit, self._touched = release, 0

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpertStore, (self.X, self.y)  # read-only again after unpickling

    @classmethod
    def in_memory(cls, X: Array, y: Array, order: Array) -> ExpertStore:
        return cls(np.ascontiguousarray(X[order]), np.ascontiguousarray(y[order]))

    @property
    def mapped(self) -> bool:
        """Whether rows lie in files and come into memory as they are read."""
        return bool(self._maps)

    def read(self, groups: RowLists, leaf: int) -> tuple[Array, Array]:
        """Inputs and targets of one leaf: views where its rows are consecutive, else gathered for the moment."""
        return self.gather(groups.rows(leaf))

    def gather(self, rows: slice | Array) -> tuple[Array, Array]:
        X, y = frozen(self.X[rows]), frozen(self.y[rows])
        if self._maps:
            self._touched += X.nbytes + y.nbytes + 2 * _WINDOW
            if not isinstance(rows, slice):  # and its neighbours were looked at before
                places = rows * X.itemsize * X.shape[1] // _WINDOW
                self._touched += 4 * _WINDOW * int(np.count_nonzero(np.diff(places)))
            if self._touched > self._limit:
                self.release()
        return X, y

    def touched(self, rows: int, places: int = 0) -> None:
        """Account for rows that compiled code has read directly; their pages are given back when they are many.

        places : how many runs of rows they are, where around each run more may have been mapped
        """
        if self._maps:
            self._touched += rows * (self.X.shape[1] + 1) * self.X.itemsize + 2 * _WINDOW * places
            if self._touched > self._limit:
                self.release()

    def blocks(self) -> Iterator[tuple[Array, Array]]:
        """All rows, some MB at a time; of mapped ones no more than that is in memory."""
        step = max(1, _BLOCK // (self.X.itemsize * (self.X.shape[1] + 1)))
        for start in range(0, len(self.y), step):
            yield self.gather(slice(start, start + step))
            self.release()

    def release(self) -> None:
        """Give mapped pages back to the system; what is read again is mapped again."""
        self._touched = 0
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)


def frozen(array: Array) -> Array:
    """The array, made read-only. Experts see nothing else, so their code is compiled once."""
    array.flags.writeable = False
    return array


class MemoryWriter:
    """Takes rows in storage order and keeps them in memory."""

    def __init__(self, rows: int, columns: int, dtype: np.dtype[Any]) -> None:
        self._X, self._y, self._filled = np.empty((rows, columns), dtype), np.empty(rows, dtype), 0

    def append(self, X: Array, y: Array) -> None:
        end = self._filled + len(X)
        self._X[self._filled : end], self._y[self._filled : end] = X, y
        self._filled = end

    def finish(self) -> ExpertStore:
        assert self._filled == len(self._y)
        return ExpertStore(self._X, self._y)


class FolderWriter:
    """Takes rows in storage order and writes them to a folder."""

    def __init__(self, folder: Path, rows: int, columns: int, dtype: np.dtype[Any]) -> None:
        self._folder = folder
        self._files = [
            ArrayFile(folder / "X.npy", (rows, columns), dtype),
            ArrayFile(folder / "y.npy", (rows,), dtype),
        ]

    def append(self, X: Array, y: Array) -> None:
        for file, part in zip(self._files, (X, y), strict=True):
            file.append(part)

    def finish(self, cells: RowLists, source: str) -> None:
        """Complete the store with its cells and its manifest; `source` is the fingerprint of the data."""
        rows, columns = self._files[0].shape
        content = {"rows": rows, "columns": columns, "dtype": self._files[0].dtype.name, "source": source}
        content |= {"cells": len(cells), "files": self.close() | write_lists(self._folder, "cells", cells)}
        folders.write_manifest(self._folder / _MANIFEST, {"format": FORMAT, "version": VERSION, **content})

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
    """The rows of a store, and their entries in a manifest."""
    rows, columns = store.X.shape
    with FolderWriter(folder, rows, columns, store.X.dtype) as writer:
        for X, y in store.blocks():
            writer.append(X, y)
        return writer.close()


def read_rows(files: ArrayFiles, rows: int, columns: int, dtype: str, verify: bool, keeper: Any = None) -> ExpertStore:
    """A store of the rows that lie in a folder, mapped into memory."""
    X = files.map("X", (rows, columns), dtype, verify)
    return ExpertStore(X, files.map("y", (rows,), dtype, verify), keeper)


def open_store(folder: Path, verify: bool = True, keeper: Any = None) -> tuple[ExpertStore, RowLists]:
    """The store in a folder, mapped into memory, and the cells its rows are sorted by."""
    manifest = folders.read_manifest(folder / _MANIFEST, FORMAT, VERSION)
    rows, columns, cells, dtype = (manifest.get(key) for key in ("rows", "columns", "cells", "dtype"))
    if not all(type(n) is int and n > 0 for n in (rows, columns, cells)) or dtype not in DTYPES:
        raise folders.damaged(folder / _MANIFEST, "it has no valid counts or type of numbers")
    files = ArrayFiles(folder, manifest.get("files"))
    store = read_rows(files, rows, columns, dtype, verify, keeper)  # type: ignore[arg-type]
    return store, files.lists("cells", cells, rows, verify)  # type: ignore[arg-type]

"""The expert store: the rows, sorted by leaf, that every expert reads and none changes. In memory or in a folder.

A folder holds X.npy, y.npy, the cells they are sorted by, and manifest.json, which is written last: without it there
is no store. Rows are written one after the other, and mapped into memory to be read.
"""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.errors import DamagedFile
from gigagp.partition.base import Groups, RowLists, Runs

FORMAT, VERSION = "gigagp-store", 1
DTYPES = ("float32", "float64")
_MANIFEST = "manifest.json"
_RELEASE = 256 << 20  # bytes read from a mapped file before its pages are given back


class ExpertStore:
    """Scaled inputs and targets in storage order, read-only. Experts share rows by index; rows are never copied."""

    def __init__(self, X: Array, y: Array, keeper: Any = None, release: int = _RELEASE) -> None:
        self._maps = [m for a in (X, y) if isinstance(m := getattr(a, "_mmap", None), mmap.mmap)]
        self.X, self.y = frozen(np.asarray(X)), frozen(np.asarray(y))
        self.keeper = keeper  # what must live as long as the store: its temporary folder
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
            self._touched += X.nbytes + y.nbytes + 8192 * (0 if isinstance(rows, slice) else len(rows) // 32)
            if self._touched > self._limit:
                self.release()
        return X, y

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
            _ArrayFile(folder / "X.npy", (rows, columns), dtype),
            _ArrayFile(folder / "y.npy", (rows,), dtype),
        ]

    def append(self, X: Array, y: Array) -> None:
        for file, part in zip(self._files, (X, y), strict=True):
            file.append(part)

    def finish(self, cells: RowLists, source: str) -> None:
        """Complete the store with its cells and its manifest; `source` is the fingerprint of the data."""
        files = {file.path.name: file.close() for file in self._files}
        rows, columns = self._files[0].shape
        content = {"rows": rows, "columns": columns, "dtype": self._files[0].dtype.name, "source": source}
        content |= {"cells": len(cells), "files": files | write_lists(self._folder, "cells", cells)}
        folders.write_manifest(self._folder / _MANIFEST, {"format": FORMAT, "version": VERSION, **content})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()


class _ArrayFile:
    """A .npy file written from front to back, summed on the way."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self._file: IO[bytes] = path.open("wb")
        self._digest = hashlib.blake2b(digest_size=16)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.flush()
        self._digest.update(path.read_bytes())

    def append(self, part: Array) -> None:
        raw = np.ascontiguousarray(part, self.dtype).reshape(-1).view(np.uint8).data
        self._digest.update(raw)
        self._file.write(raw)

    def close(self) -> dict[str, Any]:
        self._file.close()
        return {"bytes": self.path.stat().st_size, "checksum": self._digest.hexdigest()}


def read_array(folder: Path, name: str, entry: Any, shape: tuple[int, ...], dtype: str, verify: bool = True) -> Array:
    """A .npy file of a folder, mapped into memory, if it is what the manifest says."""
    path = folder / name
    try:
        size = path.stat().st_size
        if not isinstance(entry, dict) or size != entry.get("bytes"):
            raise DamagedFile(f"{path} is damaged: it has {size} bytes, not what the manifest says")
        if verify and folders.checksum(path) != entry.get("checksum"):
            raise DamagedFile(f"{path} is damaged: its checksum is not what the manifest says")
        empty = 0 in shape
        found = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
    except FileNotFoundError:
        raise DamagedFile(f"{folder} is damaged: {name} is missing") from None
    except DamagedFile:
        raise
    except (OSError, ValueError, EOFError, TypeError, SyntaxError) as error:
        raise DamagedFile(f"{path} is damaged: {error}") from None
    if found.shape != shape or found.dtype != np.dtype(dtype) or not found.flags.c_contiguous:
        raise DamagedFile(f"{path} holds {found.dtype} of shape {found.shape}, not {dtype} of {shape}")
    return np.asarray(found) if empty else found


def write_array(path: Path, array: Array) -> dict[str, Any]:
    """A .npy file, and its entry in a manifest."""
    file = _ArrayFile(path, array.shape, array.dtype)
    file.append(array)
    return file.close()


def write_lists(folder: Path, name: str, lists: RowLists) -> dict[str, Any]:
    """Lists of row numbers as .npy files, and their entries in a manifest."""
    if isinstance(lists, Runs):
        return {f"{name}_starts.npy": write_array(folder / f"{name}_starts.npy", lists.starts.astype(np.int64))}
    assert isinstance(lists, Groups)
    arrays = {f"{name}_starts.npy": lists.starts, f"{name}_rows.npy": lists.indices}
    return {file: write_array(folder / file, array.astype(np.int64)) for file, array in arrays.items()}


def read_lists(folder: Path, name: str, count: Any, rows: int, files: dict[str, Any], verify: bool = True) -> RowLists:
    """Lists of row numbers, checked to be that: each within the `rows` there are, none empty."""
    if not isinstance(count, int) or not 0 < count <= 2**40:
        raise DamagedFile(f"{folder} is damaged: {count!r} lists of rows")
    starts = np.array(read_array(folder, f"{name}_starts.npy", files.get(f"{name}_starts.npy"), (count + 1,), "int64"))
    if starts[0] != 0 or (np.diff(starts) <= 0).any():
        raise DamagedFile(f"{folder / name}_starts.npy is damaged: its numbers do not ascend from 0")
    if f"{name}_rows.npy" not in files:
        if starts[-1] != rows:
            raise DamagedFile(f"{folder / name}_starts.npy is damaged: it ends at {starts[-1]}, with {rows} rows")
        return Runs(starts)
    shape = (int(starts[-1]),)
    indices = read_array(folder, f"{name}_rows.npy", files[f"{name}_rows.npy"], shape, "int64", verify)
    if indices.min() < 0 or indices.max() >= rows:
        raise DamagedFile(f"{folder / name}_rows.npy is damaged: it names rows that are not there")
    return Groups(starts, np.asarray(indices))


def open_store(folder: Path, verify: bool = True, keeper: Any = None) -> tuple[ExpertStore, RowLists]:
    """The store in a folder, mapped into memory, and the cells its rows are sorted by."""
    manifest = folders.read_manifest(folder / _MANIFEST, FORMAT, VERSION)
    rows, columns, dtype, files = (manifest.get(key) for key in ("rows", "columns", "dtype", "files"))
    sound = isinstance(rows, int) and isinstance(columns, int) and rows > 0 and columns > 0
    if not sound or dtype not in DTYPES or not isinstance(files, dict):
        raise DamagedFile(f"{folder / _MANIFEST} is damaged: rows={rows!r}, columns={columns!r}, dtype={dtype!r}")
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    X = read_array(folder, "X.npy", files.get("X.npy"), (rows, columns), dtype, verify)
    y = read_array(folder, "y.npy", files.get("y.npy"), (rows,), dtype, verify)
    return ExpertStore(X, y, keeper), read_lists(folder, "cells", manifest.get("cells"), rows, files, verify)

"""Arrays as .npy files of a folder, listed in its manifest: written sequentially, and mapped into memory to be read.

Files are not trusted: size, header and checksum must be those that the manifest and the caller expect before the
content is used, and no number in a file determines the size of an allocation.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.folders import damaged
from gigagp.data.row_lists import IndexLists, RowLists, Runs

_CHUNK = 1 << 24  # bytes read or written at a time
_MAGIC = b"\x93NUMPY\x01\x00"  # version 1.0 of the format: two bytes with the header's length follow


class ArrayFile:
    """A .npy file that is written sequentially, with a checksum."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, tuple(int(n) for n in shape), dtype
        self._file: IO[bytes] = path.open("wb")
        self._digest = hashlib.blake2b(digest_size=16)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        self._file.flush()
        self._digest.update(path.read_bytes())

    def append(self, part: Array) -> None:
        raw = np.ascontiguousarray(part, self.dtype).reshape(-1).view(np.uint8).data
        for start in range(0, len(raw), _CHUNK):
            self._digest.update(raw[start : start + _CHUNK])
            self._file.write(raw[start : start + _CHUNK])

    def close(self) -> dict[str, Any]:
        """The file's entry in the manifest."""
        self._file.close()
        return {"bytes": self.path.stat().st_size, "checksum": self._digest.hexdigest()}


@dataclass(frozen=True)
class ArrayPlace:
    """A .npy file of known size, to which several processes write different rows. `finish` makes its manifest entry.

    Its checksum is that of the checksums of the parts, so that the parts can be written in any order.
    """

    path: str
    header: bytes
    row_bytes: int
    dtype: np.dtype[Any]

    @classmethod
    def create(cls, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ArrayPlace:
        file = ArrayFile(path, shape, dtype)
        file.close()
        header = path.read_bytes()
        row_bytes = math.prod(shape[1:]) * dtype.itemsize
        os.truncate(path, len(header) + int(shape[0]) * row_bytes)
        return cls(str(path), header, row_bytes, dtype)

    def write(self, first_row: int, part: Array) -> bytes:
        """Write rows from `first_row` on; returns their checksum."""
        raw = self.raw(part)
        self.fill(first_row, raw)
        return hashlib.blake2b(raw, digest_size=16).digest()

    def raw(self, part: Array) -> memoryview:
        """The bytes of rows."""
        return np.ascontiguousarray(part, self.dtype).reshape(-1).view(np.uint8).data

    def place(self, row: int) -> int:
        """The byte of the file at which a row begins."""
        return len(self.header) + row * self.row_bytes

    def fill(self, first_row: int, raw: memoryview) -> None:
        """Write the bytes of rows from `first_row` on."""
        at, handle = self.place(first_row), os.open(self.path, os.O_WRONLY)
        try:
            written = 0
            while written < len(raw):
                written += os.pwrite(handle, raw[written : written + _CHUNK], at + written)
        finally:
            os.close(handle)

    def finish(self, ends: list[int], checksums: list[bytes]) -> dict[str, Any]:
        """The file's entry in the manifest, from the last rows of the parts and their checksums, in order."""
        digest = hashlib.blake2b(self.header, digest_size=16)
        for checksum in checksums:
            digest.update(checksum)
        parts = [self.place(end) for end in ends]
        return {"bytes": os.path.getsize(self.path), "checksum": digest.hexdigest(), "parts": parts}


def write_array(folder: Path, name: str, array: Array) -> dict[str, Any]:
    """Write an array to a file of that name; returns its entry in the manifest."""
    file = ArrayFile(folder / f"{name}.npy", array.shape, array.dtype)
    try:
        file.append(array)
    finally:
        entry = file.close()
    return {file.path.name: entry}


def write_lists(folder: Path, name: str, lists: RowLists) -> dict[str, Any]:
    """Write lists of row numbers; returns their entries in the manifest."""
    if isinstance(lists, Runs):
        return write_array(folder, f"{name}_starts", np.asarray(lists.starts, np.int64))
    if not isinstance(lists, IndexLists):
        lists = IndexLists.of([lists[group] for group in range(len(lists))])
    starts = write_array(folder, f"{name}_starts", np.asarray(lists.starts, np.int64))
    return starts | write_array(folder, f"{name}_rows", np.asarray(lists.indices, np.int64))


class ArrayFiles:
    """The .npy files of a folder, as its manifest lists them."""

    def __init__(self, folder: Path, listed: Any) -> None:
        if not isinstance(listed, dict):
            raise damaged(folder, "its manifest lists no files")
        self._folder, self._listed = folder, listed

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.npy"

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._listed

    def length(self, name: str) -> int:
        """The first dimension that the header of a file gives; `map` compares it with the size of the file."""
        try:
            with self.path(name).open("rb") as file:
                match = re.search(rb"'shape': \((\d{1,18}),", _header(file))
        except OSError as error:
            raise damaged(self.path(name), f"it cannot be read ({error.strerror or error})") from None
        if match is None:
            raise damaged(self.path(name), "it has no valid header")
        return int(match[1])

    def read(self, name: str, shape: tuple[int, ...], dtype: str, finite: bool = True) -> Array:
        """An array, read into memory. With `finite`, numbers that are not finite are an error."""
        return np.array(self.map(name, shape, dtype, finite=finite))

    def map(self, name: str, shape: tuple[int, ...], dtype: str, verify: bool = True, finite: bool = True) -> Array:
        """An array, mapped into memory. With `verify`, checksum and numbers are checked."""
        path, entry, kind = self.path(name), self._listed.get(f"{name}.npy"), np.dtype(dtype)
        try:
            if not path.is_file():
                raise damaged(self._folder, f"{path.name} is missing")
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if not isinstance(entry, dict) or size != entry.get("bytes"):
                    raise damaged(path, f"it has {size} bytes, not what the manifest says")
                header = _header(file)
                if not _fits(header, shape, kind) or size != len(header) + math.prod(shape) * kind.itemsize:
                    raise damaged(path, f"it does not hold what the manifest says, {dtype} of shape {shape}")
                if verify:
                    _verify(file, header, kind if finite else None, entry, path)
                return np.memmap(file, kind, "r", len(header), shape) if 0 not in shape else np.empty(shape, kind)
        except OSError as error:
            raise damaged(path, f"it cannot be read ({error.strerror or error})") from None

    def lists(self, name: str, count: int, rows: int, verify: bool = True, trusted: bool = False) -> RowLists:
        """`count` lists of row numbers; an error if a list is empty or has a number that is not below `rows`.

        trusted : whether lists of consecutive rows are only mapped, without any check
        """
        starts = np.asarray(self.map(f"{name}_starts", (count + 1,), "int64", verify=not trusted))
        if trusted and f"{name}_rows" not in self:
            return Runs(starts)
        if starts[0] != 0 or (starts[1:] <= starts[:-1]).any():
            raise damaged(self.path(f"{name}_starts"), "its numbers do not ascend from 0")
        if f"{name}_rows" not in self:
            if starts[-1] != rows:
                raise damaged(self.path(f"{name}_starts"), f"it ends at {starts[-1]}, with {rows} rows")
            return Runs(starts)
        indices = self.map(f"{name}_rows", (int(starts[-1]),), "int64", verify)
        if indices.min() < 0 or indices.max() >= rows:
            raise damaged(self.path(f"{name}_rows"), "it contains row numbers that do not exist")
        return IndexLists(starts, np.asarray(indices))


def _header(file: IO[bytes]) -> bytes:
    """The first bytes of the file, up to its numbers."""
    start = file.read(len(_MAGIC) + 2)
    return start + file.read(int.from_bytes(start[len(_MAGIC) :], "little"))


def _fits(header: bytes, shape: tuple[int, ...], kind: np.dtype[Any]) -> bool:
    """Whether a header is that of such an array. It is compared, not parsed: NumPy's reader evaluates its text."""
    text = f"{{'descr': '{kind.str}', 'fortran_order': False, 'shape': {shape}, }}"
    return header.startswith(_MAGIC) and header[len(_MAGIC) + 2 :].strip() == text.encode()


def _verify(file: IO[bytes], header: bytes, finite: np.dtype[Any] | None, entry: dict[str, Any], path: Path) -> None:
    """Check the rest of the file: its checksum, and that all numbers are finite."""
    digest = hashlib.blake2b(header, digest_size=16)
    sound, at = True, len(header)
    for end in _parts(entry, len(header), path):
        part = digest if "parts" not in entry else hashlib.blake2b(digest_size=16)
        while at < end and (chunk := file.read(min(_CHUNK, end - at))):
            at += len(chunk)
            part.update(chunk)
            sound = sound and (finite is None or bool(np.isfinite(np.frombuffer(chunk, finite)).all()))
        if part is not digest:
            digest.update(part.digest())
    if digest.hexdigest() != entry.get("checksum"):
        raise damaged(path, "its checksum is not what the manifest says")
    if not sound:
        raise damaged(path, "it contains numbers that are not finite")


def _parts(entry: dict[str, Any], header: int, path: Path) -> list[int]:
    """Where the parts of a file end that have checksums of their own; a file without such parts is one."""
    if "parts" not in entry:
        return [entry["bytes"]]
    parts = entry["parts"]
    if not isinstance(parts, list) or not all(type(end) is int for end in parts):
        raise damaged(path, "the manifest does not say where its parts end")
    if any(b <= a for a, b in zip([header, *parts], parts, strict=False)) or (parts or [header])[-1] != entry["bytes"]:
        raise damaged(path, "its parts are not those that the manifest lists")
    return parts

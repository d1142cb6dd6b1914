"""Files whose content is in objects at an address: one object per part, and an index with the checksum of each part.

Any process can open such a file. It is a sparse file in a folder of that process, whose parts are read from their
objects when they are first needed, and is mapped into memory like any other. The reference to a file has the checksum
of its index, and the index those of the parts: an object that is missing or has changed is an error.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.folders import TemporaryFolder
from gigagp.data.objects import ObjectFolder, cache_folder, side_by_side
from gigagp.errors import DamagedFile

_INDEX = "index"  # name of the object with the index, beside the parts
_PART = 1 << 26  # bytes of a part of a file that has no parts of its own

Ranges = tuple[Array, Array]  # first bytes and ends


def checksum(content: Any) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def part_name(file: str, start: int) -> str:
    """The object of the part of a file that begins at a byte."""
    return f"{file}/{start:015d}"


def changed(folder: ObjectFolder, name: str, what: str) -> DamagedFile:
    """The error for an object that differs from what gigagp wrote."""
    return DamagedFile(f"{folder.name}/{name} {what} since it was written; fit again when nothing else writes there")


def read_part(folder: ObjectFolder, name: str, expected: bytes) -> bytes:
    """The content of an object with that checksum; an error if it is missing or has changed."""
    content = folder.get(name)
    if content is None:
        raise changed(folder, name, "was removed")
    if checksum(content) != expected:
        raise changed(folder, name, "has changed")
    return content


@dataclass(frozen=True)
class PartIndex:
    """Where the parts of a file end, and their checksums; the first bytes of the file, its header, are here."""

    header: bytes
    ends: tuple[int, ...]
    checksums: tuple[bytes, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        return (len(self.header), *self.ends[:-1])

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else len(self.header)

    def to_bytes(self) -> bytes:
        checksums = [each.hex() for each in self.checksums]
        return json.dumps({"header": self.header.hex(), "ends": self.ends, "checksums": checksums}).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> PartIndex:
        saved = json.loads(content)
        header, ends = bytes.fromhex(saved["header"]), tuple(map(int, saved["ends"]))
        index = cls(header, ends, tuple(map(bytes.fromhex, saved["checksums"])))
        if len(ends) != len(index.checksums) or any(a >= b for a, b in zip(index.starts, ends, strict=True)):
            raise ValueError("parts without checksums or without content")
        return index


@dataclass(frozen=True)
class RemoteFile:
    """A file at an address."""

    address: str  # of its folder
    name: str
    index: bytes  # checksum of the index

    @classmethod
    def publish(cls, folder: ObjectFolder, name: str, index: PartIndex) -> RemoteFile:
        """The file of parts that have been written."""
        content = index.to_bytes()
        folder.put(f"{name}/{_INDEX}", content)
        return cls(folder.address, name, checksum(content))

    @classmethod
    def upload(cls, folder: ObjectFolder, name: str, path: Path) -> RemoteFile:
        """A file of this machine, as it is now."""
        size = path.stat().st_size
        ends = (*range(_PART, size, _PART), size)

        def send(part: tuple[int, int]) -> bytes:
            with path.open("rb") as file:
                file.seek(part[0])
                content = file.read(part[1] - part[0])
            folder.put(part_name(name, part[0]), content)
            return checksum(content)

        checksums = side_by_side(send, list(zip((0, *ends), ends, strict=False)))
        return cls.publish(folder, name, PartIndex(b"", ends, tuple(checksums)))

    @classmethod
    def at(cls, folder: ObjectFolder, name: str) -> RemoteFile:
        """A file at an address, with the index that it has there; its content is for the caller to compare."""
        content = folder.get(f"{name}/{_INDEX}")
        if content is None:
            raise changed(folder, f"{name}/{_INDEX}", "was removed")
        return cls(folder.address, name, checksum(content))

    @property
    def path(self) -> str:
        """What errors call it."""
        return f"{ObjectFolder(self.address).name}/{self.name}"

    def local(self, ranges: Ranges | None = None) -> Path:
        """The path of a copy in this process's folder, complete, or at least in these ranges of bytes."""
        return _copies.of(self).filled(ranges)


@dataclass(frozen=True)
class RemoteArray:
    """An array in such a file, as `data.mapped_file.MappedFile` is one in a local file."""

    file: RemoteFile
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def path(self) -> str:
        return self.file.path

    def check(self) -> None:
        """Nothing to compare: what is read is compared with its checksums."""

    def open(self, rows: slice | Array | None = None) -> np.memmap[Any, Any]:
        """The array, mapped into memory: all rows, or at least these."""
        kind = np.dtype(self.dtype)
        width = kind.itemsize * int(np.prod(self.shape[1:], dtype=int))
        ranges = None
        if rows is not None:
            first = np.array([rows.start]) if isinstance(rows, slice) else rows
            end = np.array([rows.stop]) if isinstance(rows, slice) else rows + 1
            ranges = self.offset + first * width, self.offset + end * width
        return np.memmap(self.file.local(ranges), kind, "r", self.offset, self.shape)


class FileCopy:
    """The copy of a file on this machine, which only this process fills, and which of its parts it has."""

    def __init__(self, file: RemoteFile, path: Path) -> None:
        self._path, self._name, self._folder = path, file.name, ObjectFolder(file.address)
        self._lock = threading.Lock()
        self._index_checksum = file.index

    @cached_property
    def _index(self) -> PartIndex:
        name = f"{self._name}/{_INDEX}"
        content = read_part(self._folder, name, self._index_checksum)
        try:
            index = PartIndex.from_bytes(content)
        except (ValueError, KeyError, TypeError):
            raise changed(self._folder, name, "has changed") from None
        with self._path.open("wb") as created:
            created.write(index.header)
            created.truncate(index.size)
        self._missing = np.ones(len(index.ends), bool)
        return index

    def filled(self, ranges: Ranges | None) -> Path:
        with self._lock, folders.disk_errors(f"copying {self._folder.name}/{self._name}", self._path.parent):
            index = self._index
            needed = self._missing if ranges is None else self._missing & _overlapping(index, ranges)
            parts = np.flatnonzero(needed).tolist()
            if parts:
                size = sum(index.ends[part] - index.starts[part] for part in parts)
                folders.check_space(self._path.parent, size, f"a copy of {self._folder.name}/{self._name}")
                side_by_side(self._fill, parts)
        return self._path

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)  # what is still mapped stays until it is not

    def _fill(self, part: int) -> None:
        index = self._index
        start, end = index.starts[part], index.ends[part]
        content = read_part(self._folder, part_name(self._name, start), index.checksums[part])
        if len(content) != end - start:
            raise changed(self._folder, part_name(self._name, start), "has changed")
        write_at(self._path, start, content)
        self._missing[part] = False


def _overlapping(index: PartIndex, ranges: Ranges) -> Array:
    """Whether each part has bytes of the ranges."""
    change = np.zeros(len(index.ends) + 1, int)
    np.add.at(change, np.searchsorted(index.ends, ranges[0], side="right"), 1)
    np.add.at(change, np.searchsorted(index.starts, ranges[1]), -1)
    return np.asarray(np.cumsum(change)[:-1] > 0)


def write_at(path: Path | str, start: int, content: Any) -> None:
    """Write bytes to their place in an existing file."""
    handle, raw, written = os.open(path, os.O_WRONLY), memoryview(content), 0
    try:
        while written < len(raw):
            written += os.pwrite(handle, raw[written:], start + written)
    finally:
        os.close(handle)


class _Copies:
    """The copies of this process, in a temporary folder of the cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folder: TemporaryFolder | None = None
        self._copies: dict[RemoteFile, FileCopy] = {}
        self._count = 0

    def of(self, file: RemoteFile) -> FileCopy:
        with self._lock:
            if file not in self._copies:
                if self._folder is None or not self._folder.path.exists():
                    self._folder, self._copies = TemporaryFolder(cache_folder()), {}
                self._count += 1
                self._copies[file] = FileCopy(file, self._folder.path / f"{self._count:06d}.npy")
            return self._copies[file]

    def forget(self, address: str) -> None:
        with self._lock:
            kept = {file: copy for file, copy in self._copies.items() if not _is_below(file.address, address)}
            for file in self._copies.keys() - kept.keys():
                self._copies[file].remove()
            self._copies = kept


def _is_below(address: str, folder: str) -> bool:
    return f"{address.partition('?')[0]}/".startswith(f"{folder.partition('?')[0].rstrip('/')}/")


_copies = _Copies()


def forget_copies(address: str) -> None:
    """Remove the copies of this process of files at an address and below."""
    _copies.forget(address)

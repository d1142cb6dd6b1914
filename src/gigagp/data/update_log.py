"""The log of a saved model's updates: records that are appended and, once acknowledged, never lost.

The file begins with `MAGIC`. A record is a header (mark, kind, length of the content, checksum of kind, length, place
and content) and its content. `append` returns when the record is on the disk (fsync). A process that is killed while it
writes leaves a record that is too short or has a wrong checksum at the end of the file: readers do not see it, and the
next writer overwrites it. A wrong record that is not the last one means that the file is damaged, and is an error.

One process writes at a time: the writer holds a lock beside the folder, which may be replaced while it is in use. The
file of the log is created by the first record, and that of the lock is removed in the end, so that a writer that writes
nothing leaves nothing.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from gigagp.arrays import Array
from gigagp.data.folder_lock import FolderLock
from gigagp.data.folders import damaged, disk_errors, sync

NAME = "updates.log"
MAGIC = b"gigagp updates 1\n"
# Kinds of records.
ROWS = 1
FORGET = 2
CHANGE = 3  # of the calibration or of the record of scores (`model.adaptation`)
_MARK = b"GGPR"
_HEADER = struct.Struct("<4sIQ16s")  # mark, kind, length, checksum
_ROWS_HEADER = struct.Struct("<QIHH")  # rows, columns, bytes per number, numbers of the score
_CHUNK = 1 << 16  # bytes that are searched together for a mark
_NOISE_COLUMNS = 2  # of the row noise
_IN_USE = "{folder} is open for updates in another process or estimator{owner}; close that one first"


@dataclass(frozen=True, eq=False)
class Record:
    """One update, and where the next record begins."""

    kind: int
    content: bytes
    end: int


@dataclass(frozen=True, eq=False)
class RowsRecord:
    """Scaled rows that arrived: inputs, targets, row noise, numbers of arrival, and their score."""

    X: Array
    y: Array
    row_noise: Array | None
    arrivals: Array
    score: Array

    def to_bytes(self) -> bytes:
        n, columns = self.X.shape
        noisy = 0 if self.row_noise is None else _NOISE_COLUMNS
        head = _ROWS_HEADER.pack(n, columns + (noisy << 24), self.X.itemsize, len(self.score))
        arrays = [self.X, self.y, *([] if self.row_noise is None else [self.row_noise]), self.arrivals, self.score]
        return head + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)

    @classmethod
    def of(cls, content: bytes) -> RowsRecord:
        """From the content of a record; ValueError if it is not one of rows."""
        if len(content) < _ROWS_HEADER.size:
            raise ValueError("a record of rows is too short")
        n, packed, size, scores = _ROWS_HEADER.unpack_from(content)
        columns, noisy = packed & 0xFFFFFF, packed >> 24
        if size not in (4, 8) or noisy not in (0, _NOISE_COLUMNS):
            raise ValueError("a record of rows is not valid")
        dtype, at, parts = np.dtype(f"<f{size}"), _ROWS_HEADER.size, []
        for kind, count in ((dtype, n * columns), (dtype, n), (dtype, n * noisy), (np.dtype("<i8"), n),
                            (np.dtype("<f8"), scores)):  # fmt: skip
            end = at + count * kind.itemsize
            if end > len(content):
                raise ValueError("a record of rows is too short")
            parts.append(np.frombuffer(content, kind, count, at))
            at = end
        X, y, noise, arrivals, score = parts
        if at != len(content) or not (np.isfinite(X).all() and np.isfinite(y).all() and (noise >= 0).all()):
            raise ValueError("a record of rows has numbers that are not valid")
        return cls(X.reshape(n, columns), y, noise.reshape(n, noisy) if noisy else None, arrivals, score)


def _checksum(kind: int, place: int, content: bytes) -> bytes:
    digest = hashlib.blake2b(struct.pack("<IQQ", kind, place, len(content)), digest_size=16)
    digest.update(content)
    return digest.digest()


def read(path: Path, start: int = 0) -> Iterator[Record]:
    """The records after a position, which is 0 or the end of a record; a record that is being written is left out."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if start == 0:
            if file.read(len(MAGIC)) != MAGIC:
                if size < len(MAGIC):
                    return  # its writer was killed before it was complete
                raise damaged(path, "it is not a log of updates")
            start = len(MAGIC)
        while (record := _record_at(file, start, size)) is not None:
            yield record
            start = record.end
        # A writer may have completed the record at `start` meanwhile, and others after it.
        if _others_follow(file, start, size) and _record_at(file, start, size) is None:
            raise damaged(path, f"the record at byte {start} has a wrong checksum or header, and others follow it")


def _record_at(file: BinaryIO, start: int, size: int) -> Record | None:
    """The record that begins there; None where there is no whole record."""
    file.seek(start)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    mark, kind, length, checksum = _HEADER.unpack(header)
    end = start + _HEADER.size + length
    if mark != _MARK or end > size:
        return None
    content = file.read(length)
    return Record(kind, content, end) if _checksum(kind, start, content) == checksum else None


def _others_follow(file: BinaryIO, start: int, size: int) -> bool:
    """Whether records begin behind this place: then the one there was acknowledged, and is damaged.

    One that is not whole counts only where the record at this place says that it ends.
    """
    file.seek(start)
    header = file.read(_HEADER.size)
    if len(header) == _HEADER.size and header.startswith(_MARK):
        end = start + _HEADER.size + int(_HEADER.unpack(header)[2])
        if end < size:
            file.seek(end)
            if file.read(len(_MARK)) == _MARK:
                return True
    place = start + 1
    while place + _HEADER.size <= size:
        file.seek(place)
        chunk = file.read(_CHUNK)
        mark = chunk.find(_MARK)
        if mark < 0:
            place += max(1, len(chunk) - len(_MARK) + 1)
        elif _record_at(file, place + mark, size) is not None:
            return True
        else:
            place += mark + 1
    return False


class UpdateLog:
    """The log of one folder, open for writing by this process alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self._file = folder, folder / NAME, -1
        with disk_errors("opening the log of updates", folder):
            self._lock: FolderLock | None = FolderLock(folder, folder.parent / f".{folder.name}.writer", _IN_USE)
        try:
            self.reopen()
        except BaseException:
            self.close()
            raise

    def reopen(self) -> None:
        """Read where the log ends, at first and after its folder was replaced, with the lock held all the time."""
        self._close_file()
        with disk_errors("opening the log of updates", self.folder):
            self.end = len(MAGIC)
            for record in read(self.path) if self.path.exists() else ():
                self.end = record.end

    def _open_file(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if self.end == len(MAGIC):
                os.pwrite(self._file, MAGIC, 0)
            os.ftruncate(self._file, self.end)  # what a killed writer left
            os.fsync(self._file)
            sync(self.folder)
        except BaseException:  # the next record begins again: without MAGIC no record could be read
            self._close_file()
            raise

    def append(self, kind: int, content: bytes) -> int:
        """Write a record; returns when it is on the disk, with the place where the next one begins."""
        header = _HEADER.pack(_MARK, kind, len(content), _checksum(kind, self.end, content))
        with disk_errors("writing the log of updates", self.folder):
            if self._file < 0:
                self._open_file()
            try:
                _write(self._file, header + content, self.end)
                os.fdatasync(self._file)
            except BaseException:
                os.ftruncate(self._file, self.end)
                raise
        self.end += len(header) + len(content)
        return self.end

    def close(self) -> None:
        """Release the folder. May be called again."""
        self._close_file()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _write(handle: int, content: bytes, place: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, place)
        view, place = view[written:], place + written

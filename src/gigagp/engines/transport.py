"""Sending work to other processes: functions as bytes, and large values once, through files that all processes see.

Of a mapped expert store, and of other mapped arrays, only the paths are sent. An expert store in memory, and every
value that is large or has `travels_once`, is written to the depot's folder when it is first sent, and read once by each
worker that needs it. Workers map large arrays into memory: those of one machine share them, and read only what they
need. Where workers share no folder, all these files are sent through objects at an address instead.
"""

from __future__ import annotations

import io
import mmap
import pickle
import shutil
import weakref
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.leases import TemporaryObjects
from gigagp.data.mapped_file import MappedFile
from gigagp.data.mirrors import Mirror
from gigagp.data.object_files import RemoteArray, RemoteFile, forget_copies
from gigagp.data.store import ExpertStore, frozen
from gigagp.errors import DiskFull

_LARGE = 1 << 16  # bytes of the largest array that is sent with every task
_ARRAY = "array.npy"  # file of an array that is sent
_VALUE = "value"  # file of another value
_CACHED_VALUES = 16  # values and functions that a worker keeps

File = MappedFile | RemoteArray  # of a mapped array


@dataclass(frozen=True, eq=False)
class Packed:
    """Bytes from which `unpack` restores a value, in any process that sees the depot, while this object exists."""

    data: bytes
    needs: list[Any]  # values that are sent through the depot


class Depot:
    """A folder through which large values are sent. The files of a value are removed when the value is deleted.

    mirror, objects : the files that are at an address already, and a folder at an address for all others, where
        workers do not see the folder
    """

    def __init__(self, folder: Path, mirror: Mirror | None = None, objects: TemporaryObjects | None = None) -> None:
        self.folder, self._mirror, self.objects = folder, mirror, objects
        self._sent: dict[int, tuple[weakref.ref[Any], Path, list[Any]]] = {}
        self._files: dict[Path, tuple[MappedFile, ...]] = {}
        self._count = 0

    def pack(self, value: Any, within: bool = False) -> Packed:
        """The bytes of a value. With `within` the value itself is not sent through the depot."""
        out, needs = io.BytesIO(), []  # type: ignore[var-annotated]
        _Packer(out, self, needs, value if within else None).dump(value)
        return Packed(out.getvalue(), needs)

    def send(self, value: Any) -> Path:
        """The folder of a value, which is written at the first call."""
        entry = self._sent.get(id(value))
        if entry is not None and entry[0]() is value:
            return entry[1]
        path, key = self.folder / f"{self._count:06d}", id(value)
        self._count += 1
        path.mkdir()
        needs: list[Any] = []
        if isinstance(value, ExpertStore):
            for name, array in _arrays(value).items():
                np.save(path / f"{name}.npy", array, allow_pickle=False)
        elif isinstance(value, np.ndarray):
            np.save(path / _ARRAY, value, allow_pickle=False)
        else:
            packed = self.pack(value, within=True)
            (path / _VALUE).write_bytes(packed.data)
            needs = packed.needs
        self._sent[key] = weakref.ref(value, lambda _: self._forget(key)), path, needs
        return path

    def files(self, store: ExpertStore) -> tuple[File, ...]:
        """The files of a store's rows, so that any worker can map them."""
        return tuple(map(self.for_workers, self._files_here(store)))

    def for_workers(self, file: MappedFile) -> File:
        """A mapped file, as workers see it."""
        if self._mirror is None or self.objects is None:
            return file
        return self._mirror.reference(file, self.objects.folder)

    def place(self, value: Any) -> str | RemoteFile:
        """Where workers find a value that is sent: a folder, or a file at an address."""
        folder = self.send(value)
        if self._mirror is None or self.objects is None:
            return str(folder)
        (path,) = folder.iterdir()
        return self._mirror.uploaded(path, self.objects.folder)

    def _files_here(self, store: ExpertStore) -> tuple[MappedFile, ...]:
        if len(store.files) == len(_arrays(store)):
            return store.files
        folder = self.send(store)
        if folder not in self._files:  # their state is kept: a file that changes later is refused
            self._files[folder] = tuple(
                MappedFile.of(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in _arrays(store)
            )
        return self._files[folder]

    def _forget(self, key: int) -> None:
        _, path, _ = self._sent.pop(key)
        self._files.pop(path, None)
        shutil.rmtree(path, ignore_errors=True)


def _arrays(store: ExpertStore) -> dict[str, Array]:
    """The arrays of a store in the order of its files."""
    arrays = {"X": store.X, "y": store.y}
    return arrays if store.row_noise is None else {**arrays, "row_noise": store.row_noise}


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, out: io.BytesIO, depot: Depot, needs: list[Any], within: Any) -> None:
        super().__init__(out, protocol=5)
        self._depot, self._needs, self._within = depot, needs, within

    def persistent_id(self, value: Any) -> Any:
        if value is self._within:
            return None
        large = isinstance(value, np.ndarray) and value.nbytes > _LARGE and value.dtype != object
        if not (large or isinstance(value, ExpertStore) or getattr(type(value), "travels_once", False)):
            return None
        self._needs.append(value)
        if isinstance(value, ExpertStore):
            return "store", self._depot.files(value)
        file = _file_of(value) if large else None
        return ("array", self._depot.for_workers(file)) if file is not None else ("value", self._depot.place(value))


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, name: Any) -> Any:
        kind, where = name
        if kind == "store":
            return mapped_store(where)
        return _mapped_array(where) if kind == "array" else _fetch(where)


def unpack(data: bytes) -> Any:
    return _Unpacker(io.BytesIO(data)).load()


@lru_cache(maxsize=_CACHED_VALUES)
def unpack_once(data: bytes) -> Any:
    """The value of the bytes, restored once: many tasks use the same function."""
    return unpack(data)


@lru_cache(maxsize=_CACHED_VALUES)
def mapped_store(files: tuple[File, ...]) -> ExpertStore:
    """The expert store in these files, mapped into this process."""
    return store_of_rows(files, None)


def store_of_rows(files: tuple[File, ...], rows: slice | Array | None) -> ExpertStore:
    """The expert store in these files, of which only some rows are read; None for all."""
    X, y, *others = (file.open(rows) for file in files)
    return ExpertStore(X, y, others[0] if others else None)


def forget_values(*addresses: str) -> None:
    """Give back what this process has been sent, and remove what it has copied from addresses."""
    for cached in (mapped_store, _mapped_array, _fetch, unpack_once):
        cached.cache_clear()
    for address in addresses:
        forget_copies(address)


def _file_of(array: Array) -> MappedFile | None:
    """The file that an array was mapped from, if the array is all of what was mapped."""
    mapped: Any = array
    while mapped is not None and not isinstance(mapped, np.memmap):
        mapped = mapped.base if isinstance(mapped.base, np.ndarray) else None
    if mapped is None or mapped.filename is None or not isinstance(mapped.base, mmap.mmap):
        return None
    same = mapped.ctypes.data == array.ctypes.data and array.flags.c_contiguous
    return MappedFile.of(mapped) if same and (mapped.shape, mapped.dtype) == (array.shape, array.dtype) else None


@lru_cache(maxsize=_CACHED_VALUES)
def _mapped_array(file: File) -> Array:
    return frozen(np.asarray(file.open()))


@lru_cache(maxsize=_CACHED_VALUES)
def _fetch(where: str | RemoteFile) -> Any:
    try:
        if isinstance(where, RemoteFile):
            path, is_array = where.local(), where.name.endswith(_ARRAY)
        else:
            is_array = (Path(where) / _ARRAY).exists()
            path = Path(where) / (_ARRAY if is_array else _VALUE)
        if is_array:
            return frozen(np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)))
        data = path.read_bytes()
    except OSError as error:
        if isinstance(error, DiskFull):
            raise
        raise folders.damaged(Path(str(where)), f"it cannot be read here ({error.strerror})") from None
    return unpack(data)

"""How work travels to other processes: functions as bytes, what is large once, through files that all of them see.

A mapped expert store travels as the place where it lies; an expert store in memory, and whatever else is large or says
`travels_once`, is written to the depot's folder when it is first sent, and read once by each worker that meets it.
"""

from __future__ import annotations

import io
import pickle
import shutil
import weakref
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

from gigagp.data.store import ExpertStore, MappedFile

_LARGE = 1 << 16  # bytes of an array that is not sent again and again
_KEPT = 16  # values and functions a worker keeps at hand


class Depot:
    """A folder through which large values travel. What it has of a value goes when the value does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sent: dict[int, tuple[weakref.ref[Any], Path]] = {}
        self._count = 0

    def pack(self, value: Any) -> bytes:
        """Bytes that `unpack` makes the value of, in any process that sees the folder."""
        out = io.BytesIO()
        _Packer(out, self).dump(value)
        return out.getvalue()

    def send(self, value: Any) -> Path:
        """The folder of a value, written when it is first asked for."""
        known = self._sent.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        path, key = self.folder / f"{self._count:06d}", id(value)
        self._count += 1
        path.mkdir()
        if isinstance(value, ExpertStore):
            for name, array in (("X", value.X), ("y", value.y)):
                np.save(path / f"{name}.npy", array, allow_pickle=False)
        else:
            out = io.BytesIO()
            _Packer(out, self, within=value).dump(value)
            (path / "value").write_bytes(out.getbuffer())
        self._sent[key] = weakref.ref(value, lambda _: self._forget(key)), path
        return path

    def files(self, store: ExpertStore) -> tuple[MappedFile, ...]:
        """Where the rows of a store lie, so that any worker can map them."""
        if store.files:
            return store.files
        folder = self.send(store)
        return tuple(MappedFile.of(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in ("X", "y"))

    def _forget(self, key: int) -> None:
        _, path = self._sent.pop(key)
        shutil.rmtree(path, ignore_errors=True)


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, out: io.BytesIO, depot: Depot, within: Any = None) -> None:
        super().__init__(out, protocol=5)
        self._depot, self._within = depot, within

    def persistent_id(self, value: Any) -> Any:
        if value is self._within:
            return None
        if isinstance(value, ExpertStore):
            return "store", self._depot.files(value)
        large = isinstance(value, np.ndarray) and value.nbytes > _LARGE and value.dtype != object
        if large or getattr(type(value), "travels_once", False):
            return "value", str(self._depot.send(value))
        return None


class _Unpacker(pickle.Unpickler):
    def persistent_load(self, name: Any) -> Any:
        kind, where = name
        return mapped_store(where) if kind == "store" else _fetch(where)


def unpack(data: bytes) -> Any:
    return _Unpacker(io.BytesIO(data)).load()


@lru_cache(maxsize=_KEPT)
def unpack_once(data: bytes) -> Any:
    """The same object for the same bytes: a function that many tasks use is made once."""
    return unpack(data)


@lru_cache(maxsize=_KEPT)
def mapped_store(files: tuple[MappedFile, ...]) -> ExpertStore:
    """The expert store that lies there, mapped into this process."""
    X, y = (file.open() for file in files)
    return ExpertStore(X, y)


@lru_cache(maxsize=_KEPT)
def _fetch(path: str) -> Any:
    value = unpack((Path(path) / "value").read_bytes())
    if isinstance(value, np.ndarray):
        value.flags.writeable = False  # every task sees the same
    return value

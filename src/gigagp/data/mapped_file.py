"""References to mapped files, which other processes can map too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders


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

    def open(self, rows: slice | Array | None = None) -> np.memmap[Any, Any]:
        """The array, mapped into memory; `rows` are those that will be read."""
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

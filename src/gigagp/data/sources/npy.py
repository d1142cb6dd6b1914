"""An .npy file, memory-mapped."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.array import ArrayBatch, columns_of, cut
from gigagp.data.sources.base import Addressable, digest, hash_ends
from gigagp.errors import InvalidInput


class NpySource(Addressable):
    """An array in a file; one of a single dimension is one column."""

    named = False

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(os.path.expanduser(path))
        self.name = path
        self._state = self._look()
        array = self._map()
        super().__init__(path, columns_of(array, path), len(array))

    def _look(self) -> tuple[int, int]:
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise InvalidInput(f"cannot open {self.name}: {error.strerror} (looked for {self._path})") from error
        return status.st_size, status.st_mtime_ns

    def _map(self) -> Array:
        # Mapped anew for every batch, so that pages read are given back and the process stays small.
        try:
            array = np.lib.format.open_memmap(self._path, mode="r")
        except Exception as error:  # a damaged header may also raise errors of Python's own parser
            raise InvalidInput(
                f"cannot read {self.name} as .npy: {error}; write it again with numpy.save, as an array of numbers"
            ) from error
        return array[:, None] if array.ndim == 1 else array

    def read(self, columns: Sequence[str], start: int, stop: int) -> ArrayBatch:
        return cut(self._map(), self.name, columns, start, stop)

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        return [(self._path, self._state[0])]

    def fingerprint(self) -> str:
        with open(self._path, "rb") as file:
            return digest([os.path.basename(self._path), self._state, hash_ends(file, self._state[0])])

    def check_unchanged(self) -> None:
        if self._look() != self._state:
            raise InvalidInput(f"{self.name} changed after it was opened; run again when nothing writes to it")

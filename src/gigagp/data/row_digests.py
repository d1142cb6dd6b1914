"""Digests of rows: equal rows have equal digests, and different rows have different ones but for a rare accident.

A row has two digests of 64 bits, of its inputs and of inputs and targets. Rows are taken for copies if both agree, so
an accident has the probability 2**-128 per pair of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gigagp.arrays import Array

BYTES = 16  # of the two digests of a row
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))  # of MurmurHash3's last step
_SHIFT = np.uint64(33)
_RECORD = np.dtype([("inputs", np.uint64), ("both", np.uint64), ("row", np.int64)])


def digests(X: Array, y: Array) -> tuple[Array, Array]:
    """The digests of the inputs, and those of inputs and targets, one per row."""
    inputs = np.full(len(X), X.shape[1], np.uint64)
    for column in X.T:
        _absorb(inputs, column)
    both = inputs.copy()
    _absorb(both, y)
    return inputs, both


def _absorb(state: Array, values: Array) -> None:
    """Take one more number per row into the digests, in place."""
    state += (np.asarray(values, np.float64) + 0.0).view(np.uint64)  # the sum makes zeros of both signs equal
    for factor in _FACTORS:
        state ^= state >> _SHIFT
        state *= factor
    state ^= state >> _SHIFT


def repeated(values: Array) -> Array:
    """The values that occur more than once, in order."""
    ordered = np.sort(values)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def is_in(values: Array, wanted: Array) -> Array:
    """Which of the values are among the wanted ones, which are in order."""
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    return np.asarray(wanted[places] == values)


class DigestFiles:
    """Digests and row numbers of rows that exceed memory, in files: equal digests of inputs are in one file."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, max(1, count)

    def add(self, first_row: int, inputs: Array, both: Array) -> None:
        records = np.empty(len(inputs), _RECORD)
        records["inputs"], records["both"], records["row"] = inputs, both, first_row + np.arange(len(inputs))
        files = inputs % np.uint64(self._count)
        order = np.argsort(files, kind="stable")
        starts = np.searchsorted(files[order], np.arange(self._count + 1))
        for number in range(self._count):
            with (self._folder / f"{number}.digests").open("ab") as file:
                file.write(records[order[starts[number] : starts[number + 1]]].tobytes())

    def parts(self) -> Iterator[tuple[Array, Array, Array]]:
        """Digests of the inputs, of inputs and targets, and row numbers in order; each file is removed afterwards."""
        for number in range(self._count):
            path = self._folder / f"{number}.digests"
            records = np.fromfile(path, _RECORD)
            path.unlink()
            yield records["inputs"], records["both"], records["row"]

"""Digests of rows: equal rows have equal digests, and different rows have different ones but for a rare accident.

A row has two digests of 64 bits, of its inputs and of inputs and targets. Rows are taken for copies if both agree, so
an accident has the probability 2**-128 per pair of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_strict, read_only
from gigagp.linalg.searching import bits

BYTES = 16  # of the two digests of a row
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))  # of MurmurHash3's last step
_SHIFT = np.uint64(33)
_RECORD = np.dtype([("inputs", np.uint64), ("both", np.uint64), ("row", np.int64)])


def digests(X: Array, y: Array) -> tuple[Array, Array]:
    """The digests of the inputs, and those of inputs and targets, one per row."""
    inputs, both = np.empty(len(X), np.uint64), np.empty(len(X), np.uint64)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(float)
    _digest(read_only(X), read_only(np.asarray(y, float)), inputs, both)
    return inputs, both


@compiled_strict
def _absorb(state: Any, value: float) -> Any:
    """The digest after one more number."""
    state += np.uint64(bits(value + 0.0))  # the sum makes zeros of both signs equal
    state = (state ^ (state >> _SHIFT)) * _FACTORS[0]
    state = (state ^ (state >> _SHIFT)) * _FACTORS[1]
    return state ^ (state >> _SHIFT)


@compiled_strict
def _digest(X: Array, y: Array, inputs: Array, both: Array) -> None:
    columns = X.shape[1]
    for i in range(len(X)):
        state = np.uint64(columns)
        for d in range(columns):
            state = _absorb(state, np.float64(X[i, d]))
        inputs[i], both[i] = state, _absorb(state, y[i])


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

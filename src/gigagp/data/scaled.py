"""Scaled rows in the experts' precision, in the order of the data, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import BLOCK, Scaling
from gigagp.data.sources.rows import Rows
from gigagp.data.store import ExpertStore


class ScaledRows(Protocol):
    """Rows that can be read any number of times."""

    rows: int
    columns: int
    dtype: np.dtype[Any]

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        """(number of the first row, inputs, targets) of consecutive blocks of bounded size."""


class ArrayRows:
    """Scaled rows in memory."""

    def __init__(self, X: Array, y: Array) -> None:
        self.X, self.y = X, y
        (self.rows, self.columns), self.dtype = X.shape, X.dtype

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        for start in range(0, self.rows, BLOCK):
            here = slice(start, start + BLOCK)
            yield start, self.X[here], self.y[here]


class StreamedRows:
    """Rows of a source, scaled as they are read."""

    def __init__(
        self, source: Rows, rows: int, inputs: Scaling, target: Scaling, dtype: np.dtype[Any],
        say: Callable[[int], None] = lambda rows: None,
    ) -> None:  # fmt: skip
        self._source, self._inputs, self._target, self._say = source, inputs, target, say
        self.rows, self.columns, self.dtype = rows, source.n_features, dtype

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        for block in self._source.blocks(BLOCK):
            assert block.y is not None
            y = self._target.apply(block.y[:, None], self.dtype)[:, 0]
            yield block.first_row, self._inputs.apply(block.X, self.dtype), y
            self._say(block.first_row + len(y))

    def in_memory(self) -> ArrayRows:
        """Read all rows into memory."""
        X, y = np.empty((self.rows, self.columns), self.dtype), np.empty(self.rows, self.dtype)
        for first, inputs, targets in self.blocks():
            X[first : first + len(inputs)], y[first : first + len(targets)] = inputs, targets
        return ArrayRows(X, y)


class StoredRows:
    """The rows of a store, in its order."""

    def __init__(self, store: ExpertStore) -> None:
        self._store = store
        (self.rows, self.columns), self.dtype = store.X.shape, store.X.dtype

    def blocks(self) -> Iterator[tuple[int, Array, Array]]:
        for start in range(0, self.rows, BLOCK):
            X, y = self._store.gather(slice(start, start + BLOCK))
            yield start, X, y

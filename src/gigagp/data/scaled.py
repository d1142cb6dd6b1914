"""Scaled rows in the experts' precision, in the order of the data, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.data.copies import CountedRows
from gigagp.data.outliers import NONE, Outliers
from gigagp.data.scaling import BLOCK, Scaling
from gigagp.data.sphere import InputScaling
from gigagp.data.store import ExpertStore, Targets, join_targets
from gigagp.linalg.row_noise import ADDED, COLUMNS

LARGEST_SHARE = 1e-12  # of the largest number: a row of more noise has no influence, and sums must not overflow


class ScaledRows(Protocol):
    """Rows that can be read any number of times."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    noisy: bool  # whether rows differ in noise; targets then have the row noise beside them
    others: int  # the number of other targets that are carried along

    def blocks(self) -> Iterator[tuple[int, Array, Targets]]:
        """(number of the first row, inputs, targets) of consecutive blocks of bounded size."""


class ArrayRows:
    """Scaled rows in memory."""

    def __init__(self, X: Array, y: Targets, others: int = 0) -> None:
        self.X, self.y, self.others = X, y, others
        self.noisy = y.ndim > 1 and y.shape[1] > 1 + others
        (self.rows, self.columns), self.dtype = X.shape, X.dtype

    def blocks(self) -> Iterator[tuple[int, Array, Targets]]:
        for start in range(0, self.rows, BLOCK):
            here = slice(start, start + BLOCK)
            yield start, self.X[here], self.y[here]


class StreamedRows:
    """Rows of a source, scaled as they are read."""

    def __init__(
        self, source: CountedRows, rows: int, inputs: InputScaling, target: Scaling, dtype: np.dtype[Any],
        say: Callable[[int], None] = lambda rows: None, outliers: Outliers = NONE,
    ) -> None:  # fmt: skip
        self._source, self._inputs, self._target, self._say = source, inputs, target, say
        self._outliers = outliers
        self.rows, self.columns, self.dtype = rows, len(inputs.scaling.scale), dtype
        self.noisy = source.noise is not None or len(outliers) > 0
        self.others = getattr(source, "others", 0)

    def blocks(self) -> Iterator[tuple[int, Array, Targets]]:
        for block in self._source.blocks(BLOCK):
            assert block.y is not None
            targets = join_targets(block.y, block.row_noise)
            targets = self._outliers.mark(targets, block.first_row + np.arange(len(targets)))
            y = scaled_targets(targets, self._target, self.dtype)
            if block.others is not None:  # standardised already
                y = np.column_stack([y, block.others.astype(self.dtype)])
            yield block.first_row, self._inputs.apply(block.X, self.dtype), y
            self._say(block.first_row + len(y))

    def in_memory(self) -> ArrayRows:
        """Read all rows into memory."""
        X = np.empty((self.rows, self.columns), self.dtype)
        numbers = (1 + COLUMNS if self.noisy else 1) + self.others
        y = np.empty((self.rows, numbers) if numbers > 1 else self.rows, self.dtype)
        for first, inputs, targets in self.blocks():
            X[first : first + len(inputs)], y[first : first + len(targets)] = inputs, targets
        return ArrayRows(X, y, self.others)


class StoredRows:
    """The rows of a store, in its order."""

    def __init__(self, store: ExpertStore) -> None:
        self._store = store
        (self.rows, self.columns), self.dtype = store.X.shape, store.X.dtype
        self.noisy = store.row_noise is not None
        self.others = 0 if store.others is None else store.others.shape[1]

    def blocks(self) -> Iterator[tuple[int, Array, Targets]]:
        for start in range(0, self.rows, BLOCK):
            rows = slice(start, start + BLOCK)
            yield start, self._store.gather(rows)[0], self._store.targets_of(rows)


def scaled_targets(targets: Targets, scaling: Scaling, dtype: np.dtype[Any]) -> Targets:
    """Targets in the model's units: variances are divided by the square of the target's scale."""
    y = scaling.apply(targets.reshape(len(targets), -1)[:, :1], dtype)[:, 0]
    if targets.ndim == 1:
        return y
    row_noise = targets[:, 1:].copy()
    with np.errstate(over="ignore"):
        row_noise[:, ADDED] = row_noise[:, ADDED] / scaling.scale[0] / scaling.scale[0]
    largest = float(np.finfo(dtype).max) * LARGEST_SHARE
    return join_targets(y, np.minimum(row_noise, largest).astype(dtype))

"""Scaled rows in the experts' precision, in the order of the data, one block at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.data.copies import CountedRows
from gigagp.data.directions import Directions
from gigagp.data.outliers import NONE, Outliers
from gigagp.data.scaling import BLOCK, Scaling
from gigagp.data.sources.rows import Rows
from gigagp.data.sphere import InputScaling
from gigagp.data.store import ExpertStore, Targets, join_targets
from gigagp.linalg.row_noise import ADDED, COLUMNS

LARGEST_SHARE = 1e-12  # of the largest number: a row of more noise has no influence, and sums must not overflow


def _silent(rows: int) -> None:
    pass


class ScaledRows(Protocol):
    """Rows that can be read any number of times."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    noisy: bool  # whether rows differ in noise; targets then have the row noise beside them
    others: int  # the number of other targets that are carried along

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Array, Targets]]:
        """(number of the first row, inputs, targets) of consecutive blocks of bounded size.

        start, stop : one of the `ranges`; all rows where they are not given
        """

    def ranges(self, about: int) -> list[tuple[int, int]] | None:
        """Ranges of about so many rows that can be read independently; None where only all rows can be read."""

    def say(self, rows: int) -> None:
        """Report that so many rows have been read."""

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        """Local files, with their sizes, that another process must see to read the rows; None where it cannot."""


class _RowsAtHand:
    """Rows that are already scaled: any range can be read, and reading them is no progress to report."""

    rows: int

    def ranges(self, about: int) -> list[tuple[int, int]] | None:
        return _even_ranges(self.rows, about)

    def say(self, rows: int) -> None:
        pass


class ArrayRows(_RowsAtHand):
    """Scaled rows in memory."""

    def __init__(self, X: Array, y: Targets, others: int = 0) -> None:
        self.X, self.y, self.others = X, y, others
        self.noisy = y.ndim > 1 and y.shape[1] > 1 + others
        (self.rows, self.columns), self.dtype = X.shape, X.dtype

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Array, Targets]]:
        for here in _slices(start, self.rows if stop is None else stop):
            yield here.start, self.X[here], self.y[here]

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        return None


class StreamedRows:
    """Rows of a source, scaled as they are read."""

    def __init__(
        self, source: CountedRows, rows: int, inputs: InputScaling, target: Scaling, dtype: np.dtype[Any],
        say: Callable[[int], None] = _silent, outliers: Outliers = NONE,
    ) -> None:  # fmt: skip
        self._source, self._inputs, self._target, self._say = source, inputs, target, say
        self._outliers = outliers
        self.rows, self.columns, self.dtype = rows, len(inputs.scaling.scale), dtype
        self.noisy = source.noise is not None or len(outliers) > 0
        self.others = getattr(source, "others", 0)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Array, Targets]]:
        blocks = (
            self._source.blocks(BLOCK)
            if stop is None or not isinstance(self._source, Rows)
            else self._source.blocks(BLOCK, start, stop)
        )
        for block in blocks:
            assert block.y is not None
            targets = join_targets(block.y, block.row_noise)
            targets = self._outliers.mark(targets, block.first_row + np.arange(len(targets)))
            y = scaled_targets(targets, self._target, self.dtype)
            if block.others is not None:  # standardised already
                y = np.column_stack([y, block.others.astype(self.dtype)])
            yield block.first_row, self._inputs.apply(block.X, self.dtype), y

    def ranges(self, about: int) -> list[tuple[int, int]] | None:
        return self._source.ranges(about, BLOCK) if isinstance(self._source, Rows) else None

    def say(self, rows: int) -> None:
        self._say(rows)

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        return self._source.paths if isinstance(self._source, Rows) else None

    def __getstate__(self) -> dict[str, Any]:
        """Without the listener, which other processes do not have."""
        return {**vars(self), "_say": _silent}

    def in_memory(self) -> ArrayRows:
        """Read all rows into memory."""
        X = np.empty((self.rows, self.columns), self.dtype)
        numbers = (1 + COLUMNS if self.noisy else 1) + self.others
        y = np.empty((self.rows, numbers) if numbers > 1 else self.rows, self.dtype)
        for first, inputs, targets in self.blocks():
            X[first : first + len(inputs)], y[first : first + len(targets)] = inputs, targets
            self.say(first + len(inputs))
        return ArrayRows(X, y, self.others)


class StoredRows(_RowsAtHand):
    """The rows of a store, in its order."""

    def __init__(self, store: ExpertStore) -> None:
        self._store = store
        (self.rows, self.columns), self.dtype = store.X.shape, store.X.dtype
        self.noisy = store.row_noise is not None
        self.others = 0 if store.others is None else store.others.shape[1]

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Array, Targets]]:
        for rows in _slices(start, self.rows if stop is None else stop):
            yield rows.start, self._store.gather(rows)[0], self._store.targets_of(rows)

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        """None where there are other targets, which are not sent with a store."""
        mapped = self._store.mapped and self.others == 0
        return [(file.path, file.bytes) for file in self._store.files] if mapped else None


class CombinedRows(StoredRows):
    """The rows of a store with directions instead of columns."""

    def __init__(self, store: ExpertStore, directions: Directions) -> None:
        super().__init__(store)
        self._directions = directions

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Array, Targets]]:
        for first, X, targets in super().blocks(start, stop):
            yield first, self._directions.apply(X), targets


def _slices(start: int, stop: int) -> Iterator[slice]:
    """The blocks of a range of rows."""
    for first in range(start, stop, BLOCK):
        yield slice(first, min(first + BLOCK, stop))


def _even_ranges(rows: int, about: int) -> list[tuple[int, int]]:
    """Ranges of so many rows, a multiple of the size of a block."""
    step = max(1, about // BLOCK) * BLOCK
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


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

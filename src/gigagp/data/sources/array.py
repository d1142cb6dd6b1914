"""NumPy arrays. Columns have no names, and are called x0, x1, ... as scikit-learn calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.base import (
    PER_SECOND,
    Addressable,
    Batch,
    Column,
    category_text,
    content_fingerprint,
    seconds,
)
from gigagp.errors import InvalidInput

_KINDS = {"f": "float", "i": "integer", "u": "integer", "b": "boolean"}
_TIMES = {"h", "m", *PER_SECOND}  # units; what is finer is not read, and a month has no length


class ArrayBatch(Batch):
    """Columns that are NumPy arrays."""

    def numbers(self, name: str) -> Array:
        values: Array = self.columns[name]
        if values.dtype.kind not in "mM":
            return values if values.dtype == np.float32 else values.astype(float, copy=False)
        missing = np.isnat(values)
        if kind_of(values.dtype) == "date":
            out: Array = values.astype("M8[D]").astype(np.int64).astype(float)
        else:
            unit = np.datetime_data(values.dtype)[0]
            fine = unit if unit in PER_SECOND else "s"
            ticks = values.astype(f"{values.dtype.kind}8[{fine}]").astype(np.int64)
            out = seconds(ticks, PER_SECOND[fine])
        out[missing] = np.nan
        return out

    def categories(self, name: str) -> tuple[Array, list[str | None]]:
        distinct, codes = np.unique(self.columns[name], return_inverse=True)
        return codes, [category_text(value) for value in distinct.tolist()]

    def table(self, names: Sequence[str]) -> Any:
        import pyarrow as pa  # noqa: PLC0415 arrays do without it, unless columns are kept

        return pa.table({name: np.ascontiguousarray(self.columns[name]) for name in names})


def kind_of(dtype: np.dtype[Any]) -> str:
    unit = np.datetime_data(dtype)[0] if dtype.kind in "mM" else ""
    if dtype.kind == "M" and unit in ("Y", "M", "W", "D"):
        return "date"
    if dtype.kind == "M" and unit in _TIMES:
        return "timestamp"
    if dtype.kind == "m" and unit in {"W", "D", *_TIMES}:
        return "duration"
    if dtype.kind == "f" and dtype.itemsize == 4:
        return "float32"
    return _KINDS.get(dtype.kind, "other")


def check_dimensions(array: Array, name: str) -> None:
    if array.ndim != 2:
        cure = "; reshape(-1, 1) makes one column, reshape(1, -1) one row" if array.ndim == 1 else ""
        raise InvalidInput(f"{name} must have two dimensions, rows and columns; it has {array.ndim}{cure}")


def columns_of(array: Array, name: str) -> list[Column]:
    """Columns x0, x1, ... of a 2-D array of numbers."""
    check_dimensions(array, name)
    kind = kind_of(array.dtype)
    if kind == "other":
        raise InvalidInput(f"{name} has type {array.dtype}, not numbers; convert it, or give a table")
    return [Column(f"x{j}", kind, str(array.dtype)) for j in range(array.shape[1])]


class ArraySource(Addressable):
    """A 2-D array."""

    named = False

    def __init__(self, array: Array, name: str = "X") -> None:
        super().__init__(name, columns_of(array, name), len(array))
        self._array = array

    def read(self, columns: Sequence[str], start: int, stop: int) -> ArrayBatch:
        return cut(self._array, self.name, columns, start, stop)

    def fingerprint(self) -> str:
        return content_fingerprint(self)


def cut(array: Array, name: str, columns: Sequence[str], start: int, stop: int) -> ArrayBatch:
    rows = array[start:stop]
    return ArrayBatch(name, start, stop - start, {column: rows[:, int(column[1:])] for column in columns})

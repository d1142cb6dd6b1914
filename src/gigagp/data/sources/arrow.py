"""Columns as pyarrow has them. Imported only where a table, Parquet or CSV is read: pyarrow takes time to load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from gigagp.arrays import Array
from gigagp.data.sources.base import PER_SECOND, Batch, Column, category_text, seconds
from gigagp.errors import InvalidInput

_MILLISECONDS_A_DAY = 86_400_000
_KINDS = (
    (types.is_float32, "float32"),
    (types.is_floating, "float"),
    (types.is_integer, "integer"),
    (types.is_boolean, "boolean"),
    (types.is_decimal, "decimal"),
    (types.is_date, "date"),
    (types.is_timestamp, "timestamp"),
    (types.is_time, "time"),
    (types.is_duration, "duration"),
    (types.is_string, "text"),
    (types.is_large_string, "text"),
    (types.is_string_view, "text"),
    (types.is_dictionary, "text"),
)


def kind_of(type_: Any) -> str:
    return next((kind for test, kind in _KINDS if test(type_)), "other")


def columns_of(schema: Iterable[Any]) -> list[Column]:
    """Columns of a schema, or of any fields with a name and a type."""
    return [Column(field.name, kind_of(field.type), str(field.type)) for field in schema]


class ArrowBatch(Batch):
    """Columns that are pyarrow Arrays."""

    def numbers(self, name: str) -> Array:
        values = self.columns[name]
        kind = kind_of(values.type)
        if kind == "decimal":
            values = values.cast(pa.string())  # text is parsed exactly; the direct cast may miss the last bit
        if kind in ("date", "timestamp", "time", "duration"):
            return _ticks(values, kind)
        if kind != "float32":
            values = values.cast(pa.float64(), safe=False)  # integers beyond 2^53 are rounded
        out: Array = values.to_numpy(zero_copy_only=False)
        return out

    def categories(self, name: str) -> tuple[Array, list[str | None]]:
        encoded = plain(self.columns[name]).dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        try:
            return codes, [category_text(value) for value in encoded.dictionary.to_pylist()]
        except UnicodeDecodeError as error:
            raise InvalidInput(
                f"column {name!r} of {self.file} contains text that is not UTF-8; write the file again: "
                "it may be damaged"
            ) from error

    def table(self, names: Sequence[str]) -> Any:
        return pa.table({name: plain(self.columns[name]) for name in names})

    def content(self, name: str) -> bytes:
        if kind_of(self.columns[name].type) == "text":
            return super().content(name)
        return json.dumps(self.columns[name].to_pylist(), default=repr).encode()


def plain(values: Any) -> Any:
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def _ticks(values: Any, kind: str) -> Array:
    """Dates to days, all else to seconds."""
    ticks = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    count = ticks.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if kind != "date":
        out = seconds(count, PER_SECOND[values.type.unit])
    else:
        out = (count // _MILLISECONDS_A_DAY if types.is_date64(values.type) else count).astype(float)
    if values.null_count:
        out[values.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return out

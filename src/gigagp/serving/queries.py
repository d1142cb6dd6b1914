"""From the body of a request to the rows of a model: JSON or Arrow, checked value by value.

A JSON body is an object with `rows`, a list of objects with one entry per column, or with `columns` and `data`, a list
of lists. Numbers are numbers, categories are texts, dates and times are ISO 8601 texts or the model's numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources import open_rows
from gigagp.data.sources.encoding import Feature
from gigagp.model.model import Model
from gigagp.serving.limits import LONGEST_TEXT, Limits, Problem

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
_BAD, _UNPROCESSABLE, _TOO_LARGE, _UNSUPPORTED = 400, 422, 413, 415
_TIMES = ("date", "timestamp")
_TYPICAL_ROWS = 1000  # rows that typical values are taken from


@dataclass(frozen=True)
class Query:
    """The rows of a request as a table, and its options."""

    table: Any  # pyarrow.Table
    options: dict[str, Any]


@lru_cache(maxsize=1)
def features_of(model: Model) -> tuple[Feature, ...]:
    """The columns that a request must have."""
    return model.reading.features


def schema_of(model: Model) -> dict[str, Any]:
    """The columns of a model: names, kinds and levels; and its target."""
    columns = [
        {"name": each.column, "kind": each.kind} | ({"levels": list(each.categories)} if each.categories else {})
        for each in features_of(model)
    ]
    return {"columns": columns, "target": model.target_name or "y", "rows": len(model.store.y)}


def typical_row(model: Model) -> dict[str, Any]:
    """A typical value of each column, as a request has it: the median of some of the model's rows, or a frequent level.

    It is not a row of the data, so that the service does not disclose any.
    """
    X, place, values = model.inputs.restore(np.asarray(model.store.X[:_TYPICAL_ROWS], float)), 0, {}
    for feature in features_of(model):
        values[feature.column] = _typical(feature, X[:, place : place + len(feature.names)])
        place += len(feature.names)
    return values


def _typical(feature: Feature, numbers: Array) -> Any:
    """A typical value of a column, from the model's numbers."""
    if feature.categories:
        level = numbers.argmax(axis=1) if feature.one_hot else np.round(numbers[:, 0]).astype(int)
        return feature.categories[int(np.bincount(np.minimum(level, len(feature.categories) - 1)).argmax())]
    median = float(np.median(numbers[:, 0]))
    if feature.kind in _TIMES:
        return str(np.datetime64(round(median), "D" if feature.kind == "date" else "s"))
    return float(f"{median:.6g}")


def read(kind: str, body: bytes, model: Model, limits: Limits, target: str | None = None) -> Query:
    """The rows of a body; `target` : the name of a further column, for updates."""
    media = kind.partition(";")[0].strip().lower()
    if media == ARROW:
        return Query(_arrow(body, model, limits, target), {})
    if media not in (JSON, ""):
        raise Problem(_UNSUPPORTED, "Unsupported media type", f"send {JSON} or {ARROW}; got {media!r}")
    content = _parsed(body)
    options = {name: value for name, value in content.items() if name not in ("rows", "columns", "data")}
    return Query(_table(_columns(content, model, limits, target), model, target), options)


def numbers_of(table: Any, model: Model) -> Array:
    """The rows of a table as the model's columns."""
    if model.encoding is None:
        return _matrix(table, [feature.column for feature in features_of(model)])
    return np.concatenate([np.asarray(block.X, float) for block in open_rows(table, encoding=model.reading).blocks()])


def rows_of(table: Any, model: Model, target: str) -> tuple[Any, Any]:
    """The rows of a table as `partial_fit` takes them."""
    if model.encoding is not None or model.feature_names is not None:
        return table, target
    return _matrix(table, [feature.column for feature in features_of(model)]), _matrix(table, [target])[:, 0]


def _matrix(table: Any, names: list[str]) -> Array:
    import pyarrow as pa  # noqa: PLC0415

    try:
        columns = [table.column(name).cast(pa.float64()).to_numpy() for name in names]
    except (pa.ArrowException, ValueError) as error:
        raise Problem(_UNPROCESSABLE, "Wrong type", f"columns must be numbers: {str(error)[:200]}") from None
    X = np.ascontiguousarray(np.column_stack(columns), float)
    bad = ~np.isfinite(X)
    if bad.any():
        row, place = (int(i) for i in np.argwhere(bad)[0])
        raise _wrong(row, names[place], "a finite number", X[row, place])
    return X


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Problem(_BAD, "Not JSON", f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise Problem(_UNPROCESSABLE, "Not an object", "the body must be an object with rows, or with columns and data")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _columns(content: dict[str, Any], model: Model, limits: Limits, target: str | None) -> dict[str, list[Any]]:
    names = [feature.column for feature in features_of(model)] + ([target] if target is not None else [])
    if "rows" in content:
        return _from_objects(content["rows"], names, limits)
    if "data" not in content:
        raise Problem(_UNPROCESSABLE, "No rows", 'the body must have "rows", or "columns" and "data"')
    given = content.get("columns", names)
    if not isinstance(given, list) or sorted(map(str, given)) != sorted(names):
        detail = f"columns must be {', '.join(names)}"
        raise Problem(_UNPROCESSABLE, "Wrong columns", detail)
    data = _list(content["data"], limits)
    for row, values in enumerate(data):
        if not isinstance(values, list) or len(values) != len(given):
            raise Problem(_UNPROCESSABLE, "Wrong row", f"row {row} must have {len(given)} values", row=row)
    return {name: [values[place] for values in data] for place, name in enumerate(map(str, given))}


def _from_objects(rows: Any, names: Sequence[str], limits: Limits) -> dict[str, list[Any]]:
    expected = set(names)
    for number, row in enumerate(_list(rows, limits)):
        if not isinstance(row, dict):
            raise Problem(_UNPROCESSABLE, "Wrong row", f"row {number} must be an object", row=number)
        if row.keys() != expected:
            missing, unknown = sorted(expected - row.keys()), sorted(map(str, row.keys() - expected))
            column = (missing or unknown)[0]
            what = "lacks" if missing else "has the unknown"
            detail = f"row {number} {what} column {column[:200]!r}"
            raise Problem(_UNPROCESSABLE, "Wrong columns", detail, row=number, column=column[:200])
    return {name: [row[name] for row in rows] for name in names}


def _list(rows: Any, limits: Limits) -> list[Any]:
    if not isinstance(rows, list) or not rows:
        raise Problem(_UNPROCESSABLE, "No rows", "rows must be a list with at least one row")
    if len(rows) > limits.rows:
        raise Problem(_TOO_LARGE, "Too many rows", f"a request may have {limits.rows} rows; got {len(rows)}")
    return rows


def _table(columns: dict[str, list[Any]], model: Model, target: str | None) -> Any:
    import pyarrow as pa  # noqa: PLC0415 only a service needs it here

    arrays = {}
    for feature in features_of(model):
        values = columns[feature.column]
        if feature.kind == "category":
            arrays[feature.column] = pa.array([_text(v, i, feature.column) for i, v in enumerate(values)], pa.string())
        elif feature.kind in _TIMES:
            instants = [_instant(v, i, feature.column) for i, v in enumerate(values)]
            arrays[feature.column] = pa.array(instants, pa.date32() if feature.kind == "date" else pa.timestamp("us"))
        else:
            numbers = [_number(v, i, feature.column) for i, v in enumerate(values)]
            arrays[feature.column] = pa.array(numbers, pa.float64())
    if target is not None:
        arrays[target] = pa.array([_number(v, i, target) for i, v in enumerate(columns[target])], pa.float64())
    return pa.table(arrays)


def _wrong(row: int, column: str, what: str, value: Any) -> Problem:
    detail = f"row {row}, column {column!r} must be {what}; got {repr(value)[:100]}"
    return Problem(_UNPROCESSABLE, "Wrong value", detail, row=row, column=column)


def _number(value: Any, row: int, column: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(row, column, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        raise _wrong(row, column, "a number that is not so large", "a very large integer") from None
    if not math.isfinite(number) or abs(number) > 1e150:
        raise _wrong(row, column, "a finite number of at most 1e150", value)
    return number


def _text(value: Any, row: int, column: str) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise _wrong(row, column, "a text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(row, column, "a text of Unicode characters", value) from None
    return value


def _instant(value: Any, row: int, column: str) -> datetime:
    """A time of UTC; one with another offset is converted, as in tables."""
    try:
        instant = datetime.fromisoformat(value)
        return instant if instant.tzinfo is None else instant.astimezone(UTC).replace(tzinfo=None)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(row, column, "a date or time such as 2024-05-31T12:00:00", value) from None


def _arrow(body: bytes, model: Model, limits: Limits, target: str | None) -> Any:
    from gigagp.serving.arrow_bodies import read_table  # noqa: PLC0415 pyarrow takes time to load

    table = read_table(body, limits)
    names = {feature.column for feature in features_of(model)} | ({target} if target is not None else set())
    if set(table.column_names) != names or len(table.column_names) != len(names):
        raise Problem(_UNPROCESSABLE, "Wrong columns", f"columns must be {', '.join(sorted(names))}")
    return table.select([feature.column for feature in features_of(model)] + ([target] if target is not None else []))

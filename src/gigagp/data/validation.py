"""The border: what a user hands over is checked once, here, and the message says where it is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidInput


def check_columns(X: Any) -> None:
    """Refuse frames with columns that are not numbers, by name, and arrays of objects that are not, by place."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is not None and hasattr(X, "columns"):
        for column, dtype in zip(X.columns, list(dtypes), strict=True):
            kind = getattr(dtype, "kind", None)
            words = kind == "O" and any(isinstance(v, str | bytes) for v in X[column])
            if words or (kind is not None and kind not in "biufO") or str(dtype) in ("category", "str", "string"):
                raise InvalidInput(
                    f"column {column!r} of X has type {dtype}, not a number; drop it, or turn it into numbers "
                    "(for example one column per category)"
                )
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OSU" and X.ndim == 2:
        _check_objects(X)


def _check_objects(X: Array) -> None:
    for row in range(X.shape[0]):
        for column in range(X.shape[1]):
            value = X[row, column]
            if isinstance(value, str | bytes):
                raise InvalidInput(
                    f"could not convert string to float: X has {value!r} at row {row}, column {column}; "
                    "X must be an array of numbers"
                )


def check_target(y: Any) -> None:
    """Refuse a target with NaN or infinity, naming the first place; its shape is scikit-learn's to check."""
    values = np.asarray(y) if y is not None else np.empty(0)
    check_finite(values, "y")


def check_finite(values: Array, name: str, feature_names: Array | None = None) -> None:
    """Refuse NaN and infinity, naming the first place."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=float)):  # cheap, and nearly always enough
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    place = np.unravel_index(int(np.argmax(bad)), values.shape)
    what = "NaN" if np.isnan(values[place]) else "infinity"
    where = f"row {place[0]}"
    if len(place) > 1:
        where += f", column {place[1]}"
        if feature_names is not None:
            where += f" ({feature_names[place[1]]!r})"
    raise InvalidInput(
        f"Input {name} contains {what} at {where} ({int(bad.sum())} such values in all; NaN and inf are not allowed); "
        "drop those rows, or fill them in, for example with sklearn.impute.SimpleImputer"
    )

"""Checks of the user's arrays and tables; messages name the row and the column."""

from __future__ import annotations

import reprlib
from collections import Counter
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.base import is_number
from gigagp.errors import InvalidInput


def check_columns(X: Any) -> None:
    """Raise InvalidInput for tables with two columns of one name, and for columns or entries that are not numbers."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is not None and hasattr(X, "columns"):
        twice = [column for column, count in Counter(X.columns).items() if count > 1]
        if twice:
            raise InvalidInput(f"X has two columns called {twice[0]!r}; rename one")
        bad = [
            f"column {column!r} of X has type {dtype}"
            for j, (column, dtype) in enumerate(zip(X.columns, list(dtypes), strict=True))
            if is_text_column(X, j, dtype) or getattr(dtype, "kind", "f") not in "biufO"
        ]
        if bad:
            raise InvalidInput(
                f"{', '.join(bad)}, not a number; drop {'it' if len(bad) == 1 else 'them'}, or turn "
                f"{'it' if len(bad) == 1 else 'them'} into numbers (for example one column per category)"
            )
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OSU" and X.ndim == 2:
        _check_objects(X)
    elif isinstance(X, list | tuple):
        for row, values in enumerate(X):
            if isinstance(values, list | tuple) and any(isinstance(value, str | bytes) for value in values):
                _check_objects(np.array([values], dtype=object), row)


def is_text_column(X: Any, j: int, dtype: Any) -> bool:
    """Whether column j of a data frame has text or categories."""
    if str(dtype) in ("category", "str", "string"):
        return True
    if getattr(dtype, "kind", None) != "O":
        return False
    return any(isinstance(value, str | bytes) for value in (X.iloc[:, j] if hasattr(X, "iloc") else X[X.columns[j]]))


def _check_objects(X: Array, first: int = 0) -> None:
    """Raise InvalidInput for text; `first` is the number of the first row."""
    for row in range(X.shape[0]):
        for column in range(X.shape[1]):
            value = X[row, column]
            if isinstance(value, str | bytes):
                raise InvalidInput(
                    f"could not convert string to float: X has {value!r} at row {first + row}, column {column}; "
                    "X must be an array of numbers"
                )


def check_target(y: Any, n_rows: int | None = None) -> None:
    """Raise InvalidInput for several targets, text, and NaN or infinity. The length is checked by scikit-learn.

    n_rows : of the inputs, if known
    """
    check_finite(check_target_type(y, n_rows), "y")


def check_target_type(y: Any, n_rows: int | None = None) -> Array:
    """The target as an array; InvalidInput for several targets and text."""
    values: Array = np.asarray(y) if y is not None else np.empty(0)
    if values.ndim == 2 and values.shape[1] > 1:
        raise InvalidInput(
            f"y has {values.shape[1]} columns (shape {values.shape}), and a model has one target; fit one model per "
            "column, for example with sklearn.multioutput.MultiOutputRegressor"
        )
    names = isinstance(y, list | tuple) and len(y) > 0 and all(isinstance(each, str) for each in y)
    if names and n_rows is not None and len(y) != n_rows:
        raise InvalidInput(
            f"y={reprlib.repr(list(y))} has {len(y)} texts, and X has {n_rows} rows: names of targets need a table or "
            "a file with such columns; for an array, pass y as an array with one column per target"
        )
    if values.dtype.kind in "OSU":
        for row, value in enumerate(values.ravel().tolist()):
            if isinstance(value, bytes) or (isinstance(value, str) and not is_number(value)):
                raise InvalidInput(
                    f"y has the text {value!r} at row {row}, and the target must be numbers: convert it, or predict "
                    "classes with HGPClassifier. A column of X is named by its name alone, not in a list"
                )
    return values


def check_finite(values: Array, name: str, feature_names: Array | None = None) -> None:
    """Raise InvalidInput for NaN and infinity, with the first row and column."""
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=float)):  # cheap, and nearly always enough
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    place = np.unravel_index(int(np.argmax(bad)), values.shape)
    nan = bool(np.isnan(values[place]))
    what = "NaN" if nan else "infinity"
    where = f"row {place[0]}"
    if len(place) > 1:
        where += f", column {place[1]}"
        if feature_names is not None:
            where += f" ({feature_names[place[1]]!r})"
    raise InvalidInput(
        f"Input {name} contains {what} at {where} ({int(bad.sum())} such values in all; NaN and inf are not allowed); "
        "drop those rows, or fill them in, for example with sklearn.impute.SimpleImputer"
        + ('; HGPRegressor(missing="drop") leaves rows with NaN out, and missing="model" answers them' if nan else "")
    )

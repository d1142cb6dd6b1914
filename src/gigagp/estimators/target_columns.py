"""The targets that a user passes to `fit`, where they are several: names of columns, a table or an array of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.base import is_number, listed
from gigagp.data.validation import check_finite
from gigagp.errors import InvalidInput

_TABLES = ("pandas", "polars", "pyarrow", "geopandas")


@dataclass(frozen=True, eq=False)
class TargetColumns:
    """Several targets: their names, and each target as `HGPRegressor.fit` takes it alone."""

    names: tuple[str, ...]
    values: tuple[Any, ...]  # names of columns of the data, or arrays
    named: bool  # False where the targets are columns of an array, whose names are y0, y1, ...

    @property
    def in_data(self) -> bool:
        """Whether the targets are columns of the data."""
        return isinstance(self.values[0], str)


def target_columns(X: Any, y: Any, missing: str) -> TargetColumns | None:
    """Several targets; None where there is one.

    A list of names is several targets where X is a table or a path, and so is an array or a table with two
    dimensions, even if it has one column.

    missing : what the fit does with missing values
    """
    if _is_names(X, y):
        return TargetColumns(_different(list(y)), tuple(y), True)
    if _library(y) in _TABLES and hasattr(y, "columns"):
        names = [str(name) for name in (y.column_names if hasattr(y, "column_names") else y.columns)]
        columns = [np.asarray(y.iloc[:, j] if hasattr(y, "iloc") else y[name]) for j, name in enumerate(names)]
        if not columns:
            raise InvalidInput("y has no columns; pass at least one target")
        return TargetColumns(_different(names), _numbers(names, columns, missing), True)
    if y is None or isinstance(y, str | os.PathLike) or _library(y) in _TABLES or not _is_array(y):
        return None
    values = np.asarray(y)
    if values.ndim > 2:
        raise InvalidInput(f"y must have one dimension, or two with one column per target; got shape {values.shape}")
    if values.ndim != 2:
        return None
    if values.shape[1] == 0:
        raise InvalidInput(f"y has no columns (shape {values.shape}); pass at least one target")
    names = [f"y{j}" for j in range(values.shape[1])]
    return TargetColumns(tuple(names), _numbers(names, list(values.T), missing), False)


def _library(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _is_array(y: Any) -> bool:
    """Whether y can be an array of two dimensions; a list of numbers cannot, and need not be converted."""
    if isinstance(y, list | tuple):
        return len(y) > 0 and isinstance(y[0], list | tuple | np.ndarray)
    return getattr(y, "ndim", 0) == 2 or hasattr(y, "__array__")


def _is_names(X: Any, y: Any) -> bool:
    """Whether y is a list of names of columns, rather than of values."""
    is_list = isinstance(y, list | tuple) or (isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "OU")
    table = isinstance(X, str | os.PathLike) or (_library(X) in _TABLES and hasattr(X, "columns"))
    if not (is_list and table and len(y) > 0 and all(isinstance(each, str) for each in y)):
        return False
    names = set() if isinstance(X, str | os.PathLike) else {str(name) for name in _names_of(X)}
    return isinstance(X, str | os.PathLike) or len(y) != len(X) or bool(names & set(y))


def _names_of(X: Any) -> Any:
    return X.column_names if hasattr(X, "column_names") else X.columns


def _different(names: list[str]) -> tuple[str, ...]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInput(f"the target {twice[0]!r} is named twice; the targets are {listed(names)}")
    return tuple(map(str, names))


def _numbers(names: list[str], columns: list[Array], missing: str) -> tuple[Array, ...]:
    """The targets as floats; an error names the column of a text, of infinity and, unless allowed, of a gap."""
    return tuple(_column(name, values, missing) for name, values in zip(names, columns, strict=True))


def _column(name: str, values: Array, missing: str) -> Array:
    if np.iscomplexobj(values):
        raise InvalidInput("Complex data not supported: the targets must be real numbers")
    if values.dtype.kind in "OSU":
        for row, value in enumerate(values.tolist()):
            if isinstance(value, bytes) or (isinstance(value, str) and not is_number(value)):
                raise InvalidInput(
                    f"the target {name!r} has the text {value!r} at row {row}, and a target must be numbers: convert "
                    "it, or predict classes with HGPClassifier"
                )
    try:
        numbers = np.array(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the target {name!r} must be numbers ({error})") from error
    allowed = np.where(np.isnan(numbers), 0.0, numbers) if missing != "error" else numbers
    check_finite(allowed, f"y (target {name!r})")
    return numbers

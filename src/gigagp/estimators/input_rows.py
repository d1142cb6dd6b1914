"""The rows that a user passes to `fit`: arrays and data frames, checked as scikit-learn does, or sources of rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gigagp.arrays import Array
from gigagp.data.sources import Rows, Share, open_rows
from gigagp.data.sources.opening import is_geographic
from gigagp.data.validation import check_columns, check_finite, check_target
from gigagp.errors import InvalidInput, InvalidParameter, choose


def is_source(X: Any, y: Any, tables: bool = False) -> bool:
    """Whether X is read through a source: a path, a table, dates, or anything whose target is given by its name."""
    module = type(X).__module__.partition(".")[0]
    named = isinstance(y, str) or module in ("polars", "pyarrow") or (tables and module == "pandas")
    return named or isinstance(X, str | os.PathLike) or is_geographic(X) or _has_dates(X)


def _has_dates(X: Any) -> bool:
    """Whether an array or a data frame has dates or times, which a source reads as numbers."""
    types = X.dtypes if type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "columns") else [
        getattr(X, "dtype", None)
    ]  # fmt: skip
    return any(getattr(each, "kind", None) in ("M", "m") for each in types)


def check_options_of_sources(
    features: Any, drop: Any, categorical: Any, missing: str, share: Share | None, numbers: tuple[Any, ...]
) -> None:
    """Raise InvalidParameter for options that only tables and files with named columns have.

    numbers : weights and noise, which may be given by the names of their columns there
    """
    for name, value in zip(("sample_weight", "noise_std"), numbers, strict=True):
        if isinstance(value, str):
            raise InvalidParameter(
                f"{name}={value!r} names a column of a table or file, with the target given by its name; pass an array"
            )
    if share is not None:
        raise InvalidParameter("share= needs a table or file with the target given by its name; slice arrays instead")
    for name, value, plain in (("features", features, None), ("drop", drop, ()), ("categorical", categorical, ())):
        if value is not plain and not (plain == () and len(value) == 0):
            raise InvalidParameter(
                f"{name}= names columns of a table or file, with the target given by its name; got {value!r}"
            )
    choose("missing", missing, {"error": None, "drop": None})
    if missing == "drop":
        raise InvalidParameter('missing="drop" is for tables and files with the target given by its name')


def array_rows(estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, noise_std: Any) -> Rows:
    """The rows of arrays or data frames, after the checks of scikit-learn."""
    check_target(y, len(X) if hasattr(X, "__len__") else None)
    check_columns(X)
    X, y = validate_data(
        estimator, X, y, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, y_numeric=True,
        ensure_min_samples=2,
    )  # fmt: skip
    check_finite(X, "X", getattr(estimator, "feature_names_in_", None))
    weights, deviations = (
        _numbers(a, name) for a, name in ((sample_weight, "sample_weight"), (noise_std, "noise_std"))
    )
    return open_rows(X, np.asarray(y, dtype=float), weights=weights, deviations=deviations)


def _numbers(values: Any, name: str) -> Array | None:
    """Weights or noise as an array of one dimension; their values are checked where they are read."""
    if values is None:
        return None
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} must be numbers, one per row ({error})") from error
    if array.ndim != 1:
        raise InvalidInput(f"{name} must have one dimension, one number per row; got shape {array.shape}")
    return array

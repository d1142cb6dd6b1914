"""The rows that a user passes to `fit`: arrays and data frames, checked as scikit-learn does, or sources of rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gigagp.arrays import Array
from gigagp.data.sources import Encoding, Rows, Share, open_rows
from gigagp.data.sources.opening import is_geographic
from gigagp.data.validation import check_columns, check_finite, check_target, check_target_type, is_text_column
from gigagp.errors import InvalidInput, InvalidParameter


def is_source(X: Any, y: Any, tables: bool = False) -> bool:
    """Whether X is read through a source: a path, a table, or anything whose target is given by its name.

    Also data frames and arrays of objects with dates or categories.

    tables : whether all data frames are
    """
    module = type(X).__module__.partition(".")[0]
    named = isinstance(y, str) or module in ("polars", "pyarrow") or (tables and module == "pandas")
    return named or isinstance(X, str | os.PathLike) or is_geographic(X) or _has_dates_or_categories(X)


class EncodedQueries(np.ndarray[Any, Any]):
    """Queries as the model's own columns, such as training rows: categories are the numbers of their levels."""


def reads_queries(X: Any, encoding: Encoding | None) -> bool:
    """Whether queries are read through a source: as `is_source`, and wherever numbers may be categories."""
    if isinstance(X, EncodedQueries):
        return False
    categories = encoding is not None and any(feature.categories is not None for feature in encoding.features)
    return categories or is_source(X, None, tables=encoding is not None)


def _has_dates_or_categories(X: Any) -> bool:
    """Whether an array or a data frame has dates, times or categories, which a source reads as numbers."""
    if type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "columns"):
        dates = any(getattr(dtype, "kind", None) in ("M", "m") for dtype in X.dtypes)
        return dates or any(is_text_column(X, j, dtype) for j, dtype in enumerate(X.dtypes))
    kind = getattr(getattr(X, "dtype", None), "kind", None)
    if kind == "O" and getattr(X, "ndim", 0) == 2:
        return any(isinstance(value, str) for value in X.ravel())
    return kind in ("M", "m")


def check_options_of_sources(features: Any, drop: Any, share: Share | None, numbers: tuple[Any, ...]) -> None:
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
    for name, value, plain in (("features", features, None), ("drop", drop, ())):
        if value is not plain and not (plain == () and len(value) == 0):
            raise InvalidParameter(
                f"{name}= names columns of a table or file, with the target given by its name; got {value!r}"
            )


def check_beside(y: Any) -> None:
    """Raise InvalidInput for targets beside the inputs that are missing or not numbers; gaps in them are allowed."""
    if y is None:
        raise InvalidInput("y is missing: a fit requires y to be passed, but the target y is None")
    if not hasattr(y, "to_frame"):
        check_target_type(y)


def array_rows(estimator: BaseEstimator, X: Any, y: Any, sample_weight: Any, noise_std: Any) -> Rows:
    """The rows of arrays or data frames, after the checks of scikit-learn."""
    check_target(y, len(X) if hasattr(X, "__len__") and not issparse(X) else None)
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

"""The rows that a user passes to `fit`: arrays and data frames, checked as scikit-learn does, or sources of rows."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from gigagp.data.sources import Rows, Share, open_rows
from gigagp.data.validation import check_columns, check_finite, check_target
from gigagp.errors import InvalidParameter, choose


def is_source(X: Any, y: Any, tables: bool = False) -> bool:
    """Whether X is read through a source: a path, a table, dates, or anything whose target is given by its name."""
    module = type(X).__module__.partition(".")[0]
    named = isinstance(y, str) or module in ("polars", "pyarrow") or (tables and module == "pandas")
    return named or isinstance(X, str | os.PathLike) or _has_dates(X)


def _has_dates(X: Any) -> bool:
    """Whether an array or a data frame has dates or times, which a source reads as numbers."""
    types = X.dtypes if type(X).__module__.partition(".")[0] == "pandas" and hasattr(X, "columns") else [
        getattr(X, "dtype", None)
    ]  # fmt: skip
    return any(getattr(each, "kind", None) in ("M", "m") for each in types)


def array_rows(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    features: Any,
    drop: Any,
    categorical: Any,
    missing: str,
    share: Share | None,
) -> Rows:
    """The rows of arrays or data frames, after the checks of scikit-learn."""
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
    check_columns(X)
    check_target(y)
    X, y = validate_data(
        estimator, X, y, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, y_numeric=True,
        ensure_min_samples=2,
    )  # fmt: skip
    check_finite(X, "X", getattr(estimator, "feature_names_in_", None))
    return open_rows(X, np.asarray(y, dtype=float))

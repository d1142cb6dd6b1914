"""Queries with missing values: they get no prediction, and keep their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gigagp.arrays import Array


def complete_rows(answer: Callable[[Array], Sequence[Array | None]]) -> Callable[[Array], Any]:
    """The same function of queries, for queries of which some have missing values (NaN).

    answer : queries -> arrays with one entry per query; where a query is not complete these become NaN, or None where
        they are not numbers
    """

    def answer_complete(X: Array) -> Sequence[Array | None]:
        complete = np.asarray(~np.isnan(X).any(axis=1))
        if complete.all():
            return answer(X)
        some = X[complete] if complete.any() else np.zeros((1, X.shape[1]), X.dtype)
        parts = answer(np.ascontiguousarray(some))
        return [None if part is None else _spread(part[: complete.sum()], complete) for part in parts]

    return answer_complete


def _spread(part: Array, complete: Array) -> Array:
    """The entries of the complete rows among those of all rows."""
    number = part.dtype.kind == "f"
    out = np.full((len(complete), *part.shape[1:]), np.nan if number else None, part.dtype if number else object)
    out[complete] = part
    return out

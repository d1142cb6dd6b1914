"""Missing values that the model accepts: how a missing number is filled in and marked.

A column with gaps in the training data becomes two: the number, and a category that says whether it is missing, so that
the model learns what a gap means, with a length-scale of its own. A missing number is replaced by its conditional mean
given the numbers that are present, under a Gaussian whose means and covariances come from all pairs of present values.
A missing level of a category is a level of its own.

If all skewed columns become normal scores (`warp`, the default for classes), the mean of the column is used instead: in
a column most of whose values are equal, normal scores would turn small differences between conditional means into large
ones. Where held-out rows decide whether they do, they see these values as well, and conditional means are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidInput

_RIDGE = 1e-3  # least eigenvalue of the correlations: pairs of columns with few rows in common give poor ones
_LEAST_PAIRS = 10  # rows in which two columns must both be present for their correlation to count


class GapMoments:
    """Numbers of values, sums and products of columns with gaps, over the rows where both of two are present."""

    def __init__(self, columns: int) -> None:
        self._shift: Array | None = None
        self._counts, self._sums, self._products = (np.zeros((columns, columns)) for _ in range(3))
        self.missing = np.zeros(columns, np.int64)
        self.rows = 0

    @property
    def counts(self) -> Array:
        """The number of values of each column."""
        return np.asarray(self.rows - self.missing)

    def add(self, X: Array) -> None:
        """One more block of rows, with NaN where values are missing."""
        present = np.isfinite(X)
        if self._shift is None:
            counts = np.maximum(present.sum(axis=0), 1)
            self._shift = np.where(present, X, 0.0).sum(axis=0) / counts
        values, here = np.where(present, X - self._shift, 0.0), present.astype(float)
        self.rows += len(X)
        self.missing += np.isnan(X).sum(axis=0)
        self._counts += here.T @ here
        self._sums += values.T @ here  # of the row's column, where the column's column is present
        self._products += values.T @ values

    def filling(self) -> tuple[Array, Array]:
        """Mean of each column, and covariances that are positive definite."""
        if self._shift is None:  # no columns, or columns that are not numbers
            return np.zeros(len(self.missing)), np.eye(len(self.missing))
        counts = np.maximum(self._counts, 1.0)
        means = self._sums / counts
        covariances = self._products / counts - means * means.T
        variances = np.maximum(np.diagonal(covariances), 0.0)
        deviations = np.where(variances > 0, np.sqrt(variances), 1.0)
        correlations = covariances / np.outer(deviations, deviations)
        correlations[(self._counts < _LEAST_PAIRS) | ~np.isfinite(correlations)] = 0.0
        np.fill_diagonal(correlations, 1.0)
        values, vectors = np.linalg.eigh(np.clip(correlations, -1.0, 1.0))
        positive = (vectors * np.maximum(values, _RIDGE)) @ vectors.T
        return self._shift + np.diagonal(means), positive * np.outer(deviations, deviations)


@dataclass(frozen=True)
class Gaps:
    """What stands in the place of missing numbers. `columns` are the features that are numbers, in their order."""

    columns: tuple[str, ...]
    incomplete: tuple[str, ...]  # those of them that had gaps in the training data
    means: tuple[float, ...]
    covariances: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[str], moments: GapMoments, conditional: bool = True) -> Gaps:
        """conditional : whether the numbers that are present matter; if not, the mean of the column is filled in."""
        means, covariances = moments.filling()
        covariances = covariances if conditional else np.diag(np.diagonal(covariances))
        incomplete = tuple(name for name, count in zip(columns, moments.missing.tolist(), strict=True) if count)
        return cls(tuple(columns), incomplete, tuple(means.tolist()), tuple(map(tuple, covariances.tolist())))

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        return np.array(self.means), np.array(self.covariances).reshape(len(self.columns), -1)

    def fill(self, X: Array) -> Array:
        """X, whose columns are `columns`, with the expected value in place of each missing one of `incomplete`."""
        mean, covariance = self._moments
        missing = np.isnan(X)
        rows = np.flatnonzero(missing.any(axis=1))
        if len(rows) == 0:
            return X
        filled, fillable = X.copy(), np.isin(self.columns, self.incomplete)
        patterns, which = np.unique(missing[rows], axis=0, return_inverse=True)
        for number, gap in enumerate(patterns):
            own, known = rows[which.ravel() == number], ~gap
            expected = np.tile(mean[gap], (len(own), 1))
            if known.any():
                weights = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, gap)])
                expected += (X[np.ix_(own, known)] - mean[known]) @ weights
            filled[np.ix_(own, gap)] = expected
        return np.where(missing & ~fillable, np.nan, filled)

    def to_dict(self) -> dict[str, Any]:
        """Lists, numbers and strings only, fit for JSON."""
        return {
            "columns": list(self.columns), "incomplete": list(self.incomplete), "means": list(self.means),
            "covariances": [list(row) for row in self.covariances],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, content: object) -> Gaps:
        """What `to_dict` described; anything else is refused."""
        if not isinstance(content, Mapping) or set(content) != {"columns", "incomplete", "means", "covariances"}:
            raise InvalidInput("not an encoding of columns: 'gaps' must have columns, incomplete, means, covariances")
        columns, incomplete, means, covariances = (
            content[name] for name in ("columns", "incomplete", "means", "covariances")
        )
        try:
            table = np.array(covariances, float).reshape(len(columns), len(columns))
            valid = np.isfinite(table).all() and np.isfinite(np.array(means, float)).all() and len(means) == len(table)
            valid = valid and all(isinstance(name, str) for name in columns) and set(incomplete) <= set(columns)
            if len(table) > 0:
                np.linalg.cholesky(table)
        except (TypeError, ValueError, np.linalg.LinAlgError):
            valid = False
        if not valid:
            raise InvalidInput("not an encoding of columns: 'gaps' has no valid means and covariances")
        return cls(tuple(columns), tuple(incomplete), tuple(map(float, means)), tuple(map(tuple, table.tolist())))

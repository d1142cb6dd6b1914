"""Linear combinations of the columns that take their places, so that length-scales belong to directions.

A kernel has one length-scale per column, and its level sets are ellipsoids along the axes. Where a target varies with a
combination of columns, such as their difference, no length-scales per column describe it, but after a linear map
z = x A of the scaled columns they do: the metric A diag(l)^-2 A^T is then a full matrix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_strict, read_only

_LARGEST_CONDITION = 1e8  # condition number of a map whose inverse restores the columns
_LEAST_DEVIATION = 0.1  # along a direction; others have no variation that a target could follow
DIRECTION = "[direction "  # in the names of parameters that belong to a direction
_LENGTHSCALE = re.compile(r"(?<=lengthscale)\[(\d+)\]$")  # in the name of a parameter


@compiled_strict
def _combine(X: Array, matrix: Array, out: Array) -> None:
    """out := X @ matrix, each element summed in the order of the columns, whatever rows are beside it."""
    row = np.empty(matrix.shape[1])
    for i in range(len(X)):
        row[:] = 0.0
        for j in range(matrix.shape[0]):
            x = np.float64(X[i, j])
            for k in range(matrix.shape[1]):
                row[k] += x * matrix[j, k]
        out[i] = row


def _combined(X: Array, matrix: Array, dtype: np.dtype[Any]) -> Array:
    """Rows times a matrix; a single row may be one-dimensional."""
    rows = np.ascontiguousarray(X).reshape(-1, len(matrix))
    out = np.empty(rows.shape, dtype)
    _combine(read_only(rows), read_only(np.ascontiguousarray(matrix)), out)
    return out.reshape(X.shape)


@dataclass(frozen=True, eq=False)
class Directions:
    """z = x A, where x are the scaled columns of a row and the columns of A are directions."""

    matrix: Array  # A, (columns, columns)

    @staticmethod
    def is_valid(matrix: Array) -> bool:
        """Whether columns can be restored from directions that a matrix describes."""
        return bool(np.isfinite(matrix).all() and np.linalg.cond(matrix) < _LARGEST_CONDITION)

    @cached_property
    def inverse(self) -> Array:
        return np.linalg.inv(self.matrix)

    @property
    def combined(self) -> tuple[int, ...]:
        """The places that have a direction instead of a column of their own."""
        identity = np.eye(len(self.matrix))
        own = (self.matrix == identity).all(axis=0) & (self.matrix == identity).all(axis=1)
        return tuple(np.flatnonzero(~own).tolist())

    def named(self, parameters: Sequence[str]) -> tuple[str, ...]:
        """Names of parameters in which length-scales of directions do not have the numbers of columns."""
        combined = set(self.combined)
        return tuple(
            _LENGTHSCALE.sub(lambda m: f"{DIRECTION}{m[1]}]" if int(m[1]) in combined else m[0], name)
            for name in parameters
        )

    def apply(self, X: Array) -> Array:
        """Coordinates along the directions, in the precision of X; those of a row depend on that row alone."""
        return _combined(X, self.matrix, X.dtype)

    def restore(self, Z: Array) -> Array:
        """The inverse of `apply`, up to rounding; equal rows stay equal."""
        return _combined(Z, self.inverse, np.dtype(float))

    def lengths(self, deviations: Array) -> Array:
        """The deviation of each coordinate, which is one along directions, and a length of one column where columns are
        linearly dependent: coordinates along such a direction are rounding errors."""
        small = np.zeros(len(self.matrix), bool)
        small[list(self.combined)] = True
        return np.where(small & (deviations < _LEAST_DEVIATION), 1.0, deviations)

    def below(self, Z: Array, column: int, limit: float) -> Array:
        """Which rows have a value below a limit in a column; a row of that value is not, however it was rounded."""
        inverse = np.abs(self.inverse)
        sizes = np.abs(np.asarray(Z, float)) @ inverse
        stored = 2 * np.finfo(Z.dtype).eps * sizes[:, column]
        computed = 2 * len(self.matrix) * np.finfo(float).eps * (sizes @ np.abs(self.matrix) @ inverse)[:, column]
        return np.asarray(self.restore(Z)[:, column] < limit - (stored + computed))

    def pulled(self, gradient: Array) -> Array:
        """Derivatives by the scaled columns, from those by the coordinates."""
        return np.asarray(gradient @ self.matrix.T)

    def along_columns(self, metric: Array) -> Array:
        """1 / length-scale along each column, the others being fixed, where `metric` has 1 / length-scale of the
        directions."""
        return np.asarray(np.sqrt(np.square(self.matrix * metric).sum(axis=1)))

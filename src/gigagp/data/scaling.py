"""Standardisation: inputs and target to mean 0 and deviation 1, and answers back to the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array

# A column whose deviation is below this share of its largest value is constant but for rounding.
_CONSTANT = 1e-12
_BLOCK = 65536


@dataclass(frozen=True, eq=False)
class Scaling:
    """x -> (x - centre) / scale, column by column."""

    centre: Array
    scale: Array

    @classmethod
    def identity(cls, n_columns: int) -> Scaling:
        return cls(np.zeros(n_columns), np.ones(n_columns))

    @classmethod
    def standardising(cls, X: Array) -> Scaling:
        """Mean and deviation of each column; a constant column is only centred.

        Computed after division by the largest value, so that columns of 1e300 or 1e-300 do not overflow or vanish.
        """
        centre, scale = np.empty(X.shape[1]), np.empty(X.shape[1])
        for d in range(X.shape[1]):  # a column at a time: no second copy of the data
            column = X[:, d]
            largest = max(float(column.max()), -float(column.min()))
            if largest == 0:
                centre[d], scale[d] = 0.0, 1.0
                continue
            relative = column / largest
            deviation = float(relative.std())
            centre[d] = float(relative.mean()) * largest
            scale[d] = deviation * largest if deviation > _CONSTANT else 1.0
            if deviation <= _CONSTANT:
                centre[d] = float(column[0])
        return cls(centre, scale)

    def apply(self, X: Array, dtype: np.dtype[Any]) -> Array:
        """Scaled copy of X in the given precision, row-major.

        Values so far out that squared distances would overflow are drawn in; to any kernel they are equally far.
        """
        out = np.empty(X.shape, dtype)
        limit = float(np.sqrt(np.finfo(dtype).max / (4 * max(1, X.shape[1])))) * 1e-4
        with np.errstate(over="ignore"):
            for start in range(0, len(X), _BLOCK):
                block = X[start : start + _BLOCK]
                scaled = (block - self.centre) / self.scale
                out[start : start + len(block)] = np.clip(scaled, -limit, limit)
        return out

    def undo(self, Z: Array) -> Array:
        return Z * self.scale + self.centre

"""Standardisation: inputs and target to mean 0 and deviation 1, and answers back to the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array

_ROUNDING = 8 * np.finfo(float).eps  # a column that varies by less, relative to its size, is constant
_BLOCK = 65536


def is_constant(column: Array) -> bool:
    """Whether all values are the same but for rounding."""
    low, high = float(column.min()), float(column.max())
    return bool(0.5 * high - 0.5 * low <= 0.5 * _ROUNDING * max(abs(low), abs(high)))


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
        """Mean and deviation of each column; a constant column is only centred."""
        centre, scale = np.empty(X.shape[1]), np.ones(X.shape[1])
        for d in range(X.shape[1]):  # a column at a time: no second copy of the data
            column = X[:, d].astype(float)
            centre[d] = column[0]
            if is_constant(column):
                continue
            # From the first value, in units of the largest step away from it: nothing overflows, vanishes or cancels.
            half = 0.5 * column - 0.5 * column[0]
            step = float(np.abs(half).max())
            half /= step
            centre[d] = column[0] + 2 * (float(half.mean()) * step)
            scale[d] = 2 * (float(half.std()) * step)
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

"""Noise that differs between rows: row i has the noise variance  noise a_i + b_i.

`noise` is the learnt variance of a row of weight one; a_i is a factor (one over the row's weight) and b_i a known
variance that is added. The two are the columns of an array `row_noise`, which is absent (None, or in compiled code an
array without rows) where all rows have the same noise. With W the cotangent of K + diag(noise a + b),

    d evidence / d log noise = noise sum_i a_i W_ii.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled, read_only

# Columns of `row_noise`.
FACTOR = 0
ADDED = 1
COLUMNS = 2


def variances(noise: float, row_noise: Array) -> Array:
    """The noise variance of each row, in double precision."""
    row_noise = row_noise.astype(float)
    return np.asarray(noise * row_noise[:, FACTOR] + row_noise[:, ADDED])


def for_compiled(row_noise: Array | None, dtype: np.dtype[np.floating]) -> Array:
    """What compiled functions are given: an array of the rows' precision, without rows where all noise is equal."""
    return read_only(np.empty((0, COLUMNS), dtype) if row_noise is None else np.ascontiguousarray(row_noise, dtype))


@compiled
def add_row_noise(A: Array, noise: float, row_noise: Array, p: int) -> None:
    """Add the noise variance of each row to the diagonal of A."""
    for i in range(p):
        A[i, i] += A.dtype.type(noise * row_noise[i, FACTOR] + row_noise[i, ADDED])


@compiled
def weighted_trace(alpha: Array, A: Array, row_noise: Array, p: int) -> float:
    """sum_i a_i W_ii,  W = (alpha alpha^T - A) / 2,  A the inverse of the noisy covariance."""
    total = 0.0
    for i in range(p):
        a = np.float64(alpha[i])
        total += 0.5 * row_noise[i, FACTOR] * (a * a - np.float64(A[i, i]))
    return total

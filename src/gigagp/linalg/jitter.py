"""The jitter policy: nothing is added to a diagonal until a Cholesky factorisation has failed."""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import cholesky
from gigagp.linalg.compiled import compiled
from gigagp.linalg.row_noise import add_row_noise, for_compiled, variances
from gigagp.linalg.team import Team
from gigagp.linalg.transpose import SIDE, transpose_block

# Jitter is relative to the mean of the diagonal.
_FIRST = {"float64": 1e-12, "float32": 1e-6}  # at the first attempt
_GROWTH = 10.0  # factor from one attempt to the next
_LARGEST = {"float64": 1e-5, "float32": 1e-3}  # more would change the model noticeably


@compiled
def transpose_and_add(K: Array, A: Array, p: int, added: float) -> None:
    """Upper triangle of A := K + added * I, from K's lower triangle."""
    ldk, lda, whole = K.shape[1], A.shape[1], p // SIDE * SIDE
    for i in range(0, whole, SIDE):
        for j in range(0, i, SIDE):
            transpose_block(K, i * ldk + j, ldk, A, j * lda + i, lda)
        for r in range(i, i + SIDE):
            for c in range(i, r + 1):
                A[c, r] = K[r, c]
    for r in range(whole, p):
        for c in range(r + 1):
            A[c, r] = K[r, c]
    for i in range(p):
        A[i, i] += A.dtype.type(added)


def factor_noisy(
    K: Array, noise: float, A: Array, D: Array, p: int, team: Team | None = None, row_noise: Array | None = None
) -> float:
    """A := upper Cholesky factor of K + noise I, K is unchanged. Returns the jitter, or infinity if none sufficed.

    row_noise : as `linalg.row_noise` describes; diag(noise a + b) then takes the place of noise I
    """
    of_rows = for_compiled(row_noise, K.dtype)
    common = noise if row_noise is None else 0.0
    smallest = noise if row_noise is None else float(variances(noise, row_noise).min())

    def factored(added: float) -> bool:
        transpose_and_add(K, A, p, added)
        if row_noise is not None:
            add_row_noise(A, noise, of_rows, p)
        return cholesky.factor(A, D, p, team) == 0

    if factored(common):
        return 0.0
    kind = K.dtype.name
    level = float(np.mean(np.diagonal(K)[:p], dtype=float)) + smallest
    if not np.isfinite(level):
        return np.inf
    relative = _FIRST[kind]
    while relative <= _LARGEST[kind] * 1.0001:
        if factored(common + relative * level):
            return relative * level
        relative *= _GROWTH
    return np.inf


def largest_jitter(dtype: str) -> float:
    """The bound on the jitter, relative to the mean of the diagonal."""
    return _LARGEST[dtype]

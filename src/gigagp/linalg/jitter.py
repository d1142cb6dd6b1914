"""The jitter policy: nothing is added to a diagonal until a Cholesky factorisation has failed."""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import cholesky
from gigagp.linalg.compiled import compiled

# Jitter, relative to the mean of the diagonal: first try, growth, and the largest that is still honest.
_FIRST = {"float64": 1e-12, "float32": 1e-6}
_GROWTH = 10.0
_LARGEST = {"float64": 1e-5, "float32": 1e-3}


@compiled
def copy_lower(K: Array, A: Array, p: int, added: float) -> None:
    """Lower triangle of A := K + added * I."""
    for i in range(p):
        for j in range(i + 1):
            A[i, j] = K[i, j]
        A[i, i] += A.dtype.type(added)


def factor_noisy(K: Array, noise: float, A: Array, D: Array, panel: Array, p: int) -> float:
    """A := Cholesky factor of K + noise I, K kept. Returns the jitter it took, or infinity when none sufficed."""
    copy_lower(K, A, p, noise)
    if cholesky.factor(A, D, panel, p) == 0:
        return 0.0
    kind = K.dtype.name
    level = float(np.mean(np.diagonal(K)[:p], dtype=float)) + noise
    if not np.isfinite(level):
        return np.inf
    relative = _FIRST[kind]
    while relative <= _LARGEST[kind] * 1.0001:
        copy_lower(K, A, p, noise + relative * level)
        if cholesky.factor(A, D, panel, p) == 0:
            return relative * level
        relative *= _GROWTH
    return np.inf


def largest_jitter(dtype: str) -> float:
    """The bound on the jitter, relative to the mean of the diagonal."""
    return _LARGEST[dtype]

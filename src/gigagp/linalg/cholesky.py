"""Cholesky factor, triangular solves and inverse of one leaf's matrix.

LAPACK's potrf and potri run at an eighth to two fifths of GEMM's speed at the sizes of a leaf (benchmarks/products.py).
Here a schedule of block operations (see `schedule`) is followed, in which all but small diagonal tiles is matrix
products.
Matrices are row-major, square parts of arrays whose row length (`stride`) may exceed p: rows of a power of two would
fall on the same cache sets. The factor is U = L^T, above the diagonal; the inverse is formed below it. The other
triangle is scratch. `D` is (p, WIDTH): the inverses of L's diagonal tiles, stacked.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import schedule
from gigagp.linalg.compiled import compiled
from gigagp.linalg.gemm import multiply

WIDTH = 24  # of a diagonal tile: one strip of the micro-kernel
_TILE = 16  # inner tile, factored element by element


def stride(p: int) -> int:
    """Row length in which p x p matrices are stored: a multiple of 8 that is no multiple of 64."""
    rounded = -(-p // 8) * 8
    return rounded + 8 if rounded % 64 == 0 else rounded


@compiled
def _factor_tile(A: Array, o: int, D: Array, d: int, b: int) -> int:
    """Factor the tile A[o:o+b, o:o+b]; L^-1 goes to D[o:o+b, d:d+b]. Returns 0, or 1 + the bad row."""
    for j in range(b):
        pivot = A[o + j, o + j]
        if not (pivot > 0 and pivot < np.inf):
            return j + 1
        pivot = np.sqrt(pivot)
        A[o + j, o + j] = pivot
        reciprocal = 1 / pivot
        for k in range(j + 1, b):
            A[o + j, o + k] *= reciprocal
        for i in range(j + 1, b):
            value = A[o + j, o + i]
            for k in range(i, b):
                A[o + i, o + k] -= value * A[o + j, o + k]
    for i in range(b):
        for k in range(i):
            value = A[o + k, o + i]
            for j in range(k + 1):
                D[o + i, d + j] += value * D[o + k, d + j]
        reciprocal = 1 / A[o + i, o + i]
        for j in range(i):
            D[o + i, d + j] *= -reciprocal
        D[o + i, d + i] = reciprocal
    return 0


@compiled
def _factor_block(A: Array, D: Array, panel: Array, s: int, n: int) -> int:
    """Factor the block A[s:s+n, s:s+n] by inner tiles; the whole L^-1 goes to D[s:s+n, :n]."""
    for i in range(s, s + n):
        for j in range(D.shape[1]):
            D[i, j] = 0
    for j in range(0, n, _TILE):
        b, o = min(_TILE, n - j), s + j
        rest = n - j - b
        if j > 0:
            multiply(-1.0, A, s, o, True, A, s, o, 1.0, A, o, o, b, n - j, j)
        bad = _factor_tile(A, o, D, j, b)
        if bad > 0:
            return o + bad
        if rest > 0:
            for i in range(b):
                for c in range(rest):
                    panel[i, c] = A[o + i, o + b + c]
            multiply(1.0, D, o, j, False, panel, 0, 0, 0.0, A, o, o + b, b, rest, b)
    for i in range(_TILE, n, _TILE):  # D_i := -D_ii (L_i D), row by row of tiles
        b = min(_TILE, n - i)
        multiply(1.0, A, s, s + i, True, D, s, 0, 0.0, panel, 0, 0, b, i, i)
        multiply(-1.0, D, s + i, i, False, panel, 0, 0, 0.0, D, s + i, 0, b, i, b)
    return 0


@compiled
def follow(operations: Array, matrices: tuple[Array, ...], q: int) -> int:
    """Carry out a schedule. Returns 0, or 1 + the row at which a factorisation failed."""
    A, T, D, panel = matrices[schedule.A], matrices[schedule.T], matrices[schedule.D], matrices[schedule.PANEL]
    for o in operations:
        if o[0] == schedule.MULTIPLY:
            a, b, c = matrices[o[2]], matrices[o[6]], matrices[o[10]]
            n = q if o[14] == schedule.ALL else o[14]
            multiply(
                np.float64(o[1]),
                a,
                o[3],
                o[4],
                o[5] == 1,
                b,
                o[7],
                o[8],
                np.float64(o[9]),
                c,
                o[11],
                o[12],
                o[13],
                n,
                o[15],
            )
        elif o[0] == schedule.TO_PANEL:
            block, row, column = matrices[o[1]], o[2], o[3]
            n = q if o[5] == schedule.ALL else o[5]
            for i in range(o[4]):
                for j in range(n):
                    panel[i, j] = block[row + i, column + j]
        elif o[0] == schedule.TILE_INVERSE:
            for i in range(o[1], o[1] + o[2]):
                for j in range(o[2]):
                    T[i, o[1] + j] = D[i, j]
        else:
            bad = _factor_block(A, D, panel, o[1], o[2])
            if bad > 0:
                return bad
    return 0


def factor(A: Array, D: Array, panel: Array, p: int) -> int:
    """Upper triangle of A := U in place, D := inverses of L's tiles. Returns 0, or 1 + the row that failed.

    `panel` is scratch of D's width in rows and A's length in columns.
    """
    return int(follow(schedule.factoring(p, D.shape[1]), (A, A, A, D, panel, A), 0))


def inverse(U: Array, D: Array, T: Array, S: Array, p: int) -> None:
    """Lower triangle of U := (U^T U)^-1; the factor is lost. T and S are scratch of U's shape."""
    follow(schedule.inverting(p, D.shape[1]), (U, T, S, D, D, U), 0)


def solve_lower(U: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-1 B. `scratch` has at least D's width rows of B's length."""
    follow(schedule.solving(p, D.shape[1], False), (U, U, U, D, scratch, B), q)


def solve_lower_transposed(U: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-T B. `scratch` as in `solve_lower`."""
    follow(schedule.solving(p, D.shape[1], True), (U, U, U, D, scratch, B), q)


@compiled
def log_determinant(U: Array, p: int) -> float:
    """ln |U^T U|."""
    total = 0.0
    for i in range(p):
        total += np.log(np.float64(U[i, i]))
    return 2 * total


@compiled
def solve_vector(U: Array, b: Array, p: int) -> None:
    """b := (U^T U)^-1 b."""
    for i in range(p):
        value = b[i] / U[i, i]
        b[i] = value
        for k in range(i + 1, p):
            b[k] -= U[i, k] * value
    for i in range(p - 1, -1, -1):
        total = b[i]
        for k in range(i + 1, p):
            total -= U[i, k] * b[k]
        b[i] = total / U[i, i]

"""Cholesky factor, triangular solves and inverse of one leaf's matrix.

LAPACK's potrf and potri run at a fifth to a third of GEMM's speed at the sizes of a leaf. Here a schedule of block
operations (see `schedule`) is followed, in which all but small diagonal tiles is GEMM.
Matrices are row-major, square parts of arrays whose row length (`stride`) may exceed p: rows of a power of two would
fall on the same cache sets. Only lower triangles are read and written, but for scratch inside tiles.
`D` is (p, width): the inverses of the diagonal tiles, stacked.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import schedule
from gigagp.linalg.blas import multiply
from gigagp.linalg.compiled import compiled

WIDTH = 32  # of a diagonal tile: best or nearly so at every leaf size, in either precision
_TILE = 16  # inner tile, factored element by element


def stride(p: int) -> int:
    """Row length in which p x p matrices are stored: a multiple of 8 that is no multiple of 64."""
    rounded = -(-p // 8) * 8
    return rounded + 8 if rounded % 64 == 0 else rounded


@compiled
def _factor_tile(A: Array, o: int, D: Array, d: int, b: int) -> int:
    """Factor the tile A[o:o+b, o:o+b]; its inverse goes to D[o:o+b, d:d+b]. Returns 0, or 1 + the bad row."""
    for j in range(b):
        pivot = A[o + j, o + j]
        if not (pivot > 0 and pivot < np.inf):
            return j + 1
        pivot = np.sqrt(pivot)
        A[o + j, o + j] = pivot
        reciprocal = 1 / pivot
        for i in range(j + 1, b):
            value = A[o + i, o + j] * reciprocal
            A[o + i, o + j] = value
            D[o + j, d + i] = value  # column j of the tile as a row: contiguous for the update below
        for i in range(j + 1, b):
            value = A[o + i, o + j]
            for k in range(j + 1, i + 1):
                A[o + i, o + k] -= value * D[o + j, d + k]
    for i in range(b):
        for j in range(b):
            D[o + i, d + j] = 0
        for k in range(i):
            value = A[o + i, o + k]
            for j in range(k + 1):
                D[o + i, d + j] += value * D[o + k, d + j]
        reciprocal = 1 / A[o + i, o + i]
        for j in range(i):
            D[o + i, d + j] *= -reciprocal
        D[o + i, d + i] = reciprocal
    return 0


@compiled
def _scale_panel(A: Array, D: Array, panel: Array, j: int, d: int, b: int, end: int) -> None:
    """A[j+b:end, j:j+b] := A[j+b:end, j:j+b] D_jj^T."""
    rows = end - j - b
    if rows <= 0:
        return
    for i in range(rows):
        for c in range(b):
            panel[i, c] = A[j + b + i, j + c]
    multiply(1, panel, 0, 0, False, D, j, d, True, 0, A, j + b, j, rows, b, b)


@compiled
def _update_column(A: Array, start: int, j: int, b: int, end: int) -> None:
    """A[j:end, j:j+b] -= A[j:end, start:j] A[j:j+b, start:j]^T."""
    if j > start:
        multiply(-1, A, j, start, False, A, j, start, True, 1, A, j, j, end - j, b, j - start)


@compiled
def _invert_block(A: Array, D: Array, panel: Array, s: int, n: int) -> None:
    """Complete D[s:s+n, :n] from the inverses of its inner tiles to the inverse of the whole block."""
    for i in range(_TILE, n, _TILE):
        b = min(_TILE, n - i)
        for j in range(0, i, _TILE):
            multiply(1, A, s + i, s + j, False, D, s + j, j, False, 0, panel, 0, j, b, min(_TILE, i - j), i - j)
        multiply(-1, D, s + i, i, False, panel, 0, 0, False, 0, D, s + i, 0, b, i, b)


@compiled
def _factor_block(A: Array, D: Array, panel: Array, s: int, n: int) -> int:
    """Factor the diagonal block A[s:s+n, s:s+n]; its whole inverse goes to D[s:s+n, :n]."""
    for i in range(s, s + n):
        for j in range(D.shape[1]):
            D[i, j] = 0
    for j in range(s, s + n, _TILE):
        b = min(_TILE, s + n - j)
        _update_column(A, s, j, b, s + n)
        bad = _factor_tile(A, j, D, j - s, b)
        if bad > 0:
            return j + bad
        _scale_panel(A, D, panel, j, j - s, b, s + n)
    _invert_block(A, D, panel, s, n)
    return 0


@compiled
def follow(operations: Array, matrices: tuple[Array, ...], q: int) -> int:
    """Carry out a schedule. Returns 0, or 1 + the row at which a factorisation failed."""
    A, T, D, panel = matrices[schedule.A], matrices[schedule.T], matrices[schedule.D], matrices[schedule.PANEL]
    for o in operations:
        if o[0] == schedule.MULTIPLY:
            a, b, c = matrices[o[2]], matrices[o[6]], matrices[o[11]]
            n = q if o[15] == schedule.ALL else o[15]
            multiply(o[1], a, o[3], o[4], o[5] == 1, b, o[7], o[8], o[9] == 1, o[10], c, o[12], o[13], o[14], n, o[16])
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
    """A := L in place, D := inverses of the diagonal tiles. Returns 0, or 1 + the row that failed.

    `panel` is scratch of D's shape.
    """
    return int(follow(schedule.factoring(p, D.shape[1]), (A, A, A, D, panel, A), 0))


def inverse(L: Array, D: Array, T: Array, S: Array, p: int) -> None:
    """L := lower triangle of (L L^T)^-1. T and S are scratch of L's shape."""
    follow(schedule.inverting(p, D.shape[1]), (L, T, S, D, D, L), 0)


def solve_lower(L: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-1 B. `scratch` has at least D's width rows of B's length."""
    follow(schedule.solving(p, D.shape[1], False), (L, L, L, D, scratch, B), q)


def solve_lower_transposed(L: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-T B. `scratch` as in `solve_lower`."""
    follow(schedule.solving(p, D.shape[1], True), (L, L, L, D, scratch, B), q)


@compiled
def log_determinant(L: Array, p: int) -> float:
    """ln |L L^T|."""
    total = 0.0
    for i in range(p):
        total += np.log(np.float64(L[i, i]))
    return 2 * total


@compiled
def solve_vector(L: Array, b: Array, p: int) -> None:
    """b := (L L^T)^-1 b."""
    for i in range(p):
        total = b[i]
        for k in range(i):
            total -= L[i, k] * b[k]
        b[i] = total / L[i, i]
    for i in range(p - 1, -1, -1):
        value = b[i] / L[i, i]
        b[i] = value
        for k in range(i):
            b[k] -= L[i, k] * value

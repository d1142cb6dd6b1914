"""Cholesky factor, triangular solves and inverse of one leaf's matrix, blocked over GEMM.

LAPACK's potrf and potri run at a fifth to a third of GEMM's speed at the sizes of a leaf. Here every
flop outside small diagonal tiles is a GEMM, and a tile's inverse replaces each triangular solve:
    L_jj       = chol(A_jj - L_j L_j^T),  D_jj = L_jj^-1        (tiles)
    L_ij       = (A_ij - L_i L_j^T) D_jj^T
    T          = L^-1 by block rows,  A^-1 = T^T T by block rows.
Matrices are row-major, square parts of arrays whose row length (`stride`) may exceed p: rows of a power
of two would fall on the same cache sets. Only lower triangles are read and written, but for scratch.
`D` is (p, width): the inverses of the diagonal tiles, stacked.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.blas import multiply
from gigagp.linalg.compiled import compiled

_TILE = 16  # inner tile: small enough for the caches, large enough to feed GEMM


def tile_width(p: int) -> int:
    """The measured best outer block for a leaf of p points."""
    if p <= 384:
        return 32
    return 48 if p <= 768 else 96


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
def factor(A: Array, D: Array, panel: Array, p: int) -> int:
    """A := L in place, D := inverses of the diagonal blocks. Returns 0, or 1 + the row that failed.

    `panel` is scratch of D's shape.
    """
    width = D.shape[1]
    for j in range(0, p, width):
        b = min(width, p - j)
        _update_column(A, 0, j, b, p)
        bad = _factor_block(A, D, panel, j, b)
        if bad > 0:
            return bad
        _scale_panel(A, D, panel, j, 0, b, p)
    return 0


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


@compiled
def solve_lower(L: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-1 B. `scratch` has at least D's width rows of B's length."""
    width = D.shape[1]
    for j in range(0, p, width):
        b = min(width, p - j)
        if j > 0:
            multiply(-1, L, j, 0, False, B, 0, 0, False, 1, B, j, 0, b, q, j)
        for i in range(b):
            for c in range(q):
                scratch[i, c] = B[j + i, c]
        multiply(1, D, j, 0, False, scratch, 0, 0, False, 0, B, j, 0, b, q, b)


@compiled
def solve_lower_transposed(L: Array, D: Array, B: Array, scratch: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-T B. `scratch` as in `solve_lower`."""
    width = D.shape[1]
    last = ((p - 1) // width) * width
    for j in range(last, -1, -width):
        b = min(width, p - j)
        below = p - j - b
        if below > 0:
            multiply(-1, L, j + b, j, True, B, j + b, 0, False, 1, B, j, 0, b, q, below)
        for i in range(b):
            for c in range(q):
                scratch[i, c] = B[j + i, c]
        multiply(1, D, j, 0, True, scratch, 0, 0, False, 0, B, j, 0, b, q, b)


@compiled
def inverse(L: Array, D: Array, T: Array, panel: Array, p: int) -> None:
    """L := lower triangle of (L L^T)^-1. T is scratch of L's shape, `panel` of D's."""
    width = D.shape[1]
    row = panel.reshape(width, panel.shape[0])  # one block row
    for i in range(0, p, width):  # T = L^-1, by block rows
        b = min(width, p - i)
        for r in range(b):
            for c in range(b):
                T[i + r, i + c] = D[i + r, c]
        for j in range(0, i, width):
            multiply(1, L, i, j, False, T, j, j, False, 0, row, 0, j, b, min(width, i - j), i - j)
        if i > 0:
            multiply(-1, T, i, i, False, row, 0, 0, False, 0, T, i, 0, b, i, b)
    for i in range(0, p, width):  # A^-1 = T^T T, by block rows: row i needs only T's rows from i on
        b = min(width, p - i)
        multiply(1, T, i, i, True, T, i, 0, False, 0, L, i, 0, b, i + b, p - i)

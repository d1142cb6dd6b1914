"""Cholesky factor, triangular solves and inverse of one leaf's matrix.

LAPACK's potrf and potri run at an eighth to two fifths of GEMM's speed at the sizes of a leaf (benchmarks/products.py).
Here a schedule of block operations (see `schedule`) is followed, in which all but small diagonal tiles is matrix
products.
Matrices are row-major, square parts of arrays whose row length (`stride`) may exceed p: rows of a power of two would
fall on the same cache sets. The factor is U = L^T, above the diagonal; the inverse is formed below it. The other
triangle is scratch. `D` is (p, WIDTH): the inverses of L's diagonal tiles, stacked.
"""

from functools import partial

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import schedule, tile
from gigagp.linalg.compiled import compiled, compiled_apart, compiled_apart_in_place, compiled_in_place
from gigagp.linalg.gemm import FULL, multiply
from gigagp.linalg.team import Team
from gigagp.linalg.vectors import whole_registers

WIDTH = 3 * tile.ROWS  # of a diagonal block


def stride(p: int) -> int:
    """Row length in which p x p matrices are stored: a multiple of 8 that is no multiple of 64."""
    rounded = -(-p // 8) * 8
    return rounded + 8 if rounded % 64 == 0 else rounded


@compiled_in_place  # which is strict, so that tiles are rounded as they are written
def _factor_whole_block(A: Array, D: Array, s: int, n: int) -> int:
    """`_factor_block` where WIDTH rows are there, of which n are wanted."""
    lda, ldd = A.shape[1], D.shape[1]
    # For constants among the arguments Numba would compile `multiply` again, once per combination of them.
    transposed, first_column, shape = s >= 0, s - s, FULL + (s - s)
    for i in range(WIDTH):
        for j in range(WIDTH):
            D[s + i, j] = 0
        D[s + i, i] = 1
    for j in range(0, n, tile.ROWS):
        o = s + j
        if j > 0:
            multiply(-1.0, A, s, o, transposed, A, s, o, 1.0, A, o, o, tile.ROWS, WIDTH - j, j, shape)
            multiply(-1.0, A, s, o, transposed, D, s, first_column, 0.0, D, o, first_column, tile.ROWS, j, j, shape)
        if j == 0:
            bad = tile.eliminate_first(A, o * lda + o, lda, D, o * ldd, ldd)
        elif j == tile.ROWS:
            bad = tile.eliminate_second(A, o * lda + o, lda, D, o * ldd, ldd)
        else:
            bad = tile.eliminate_last(A, o * lda + o, lda, D, o * ldd, ldd)
        if bad > 0:
            return int(o + bad)
    return 0


@compiled_apart
def _factor_last_block(A: Array, D: Array, s: int, n: int) -> int:
    """`_factor_block` for n < WIDTH: the block is filled up with rows of the identity, which change nothing."""
    block, inverse = np.eye(WIDTH, dtype=A.dtype), np.empty((WIDTH, WIDTH), A.dtype)
    for i in range(n):
        for j in range(i, n):
            block[i, j] = A[s + i, s + j]
    bad = _factor_whole_block(block, inverse, s - s, n)
    if bad > 0:
        return int(s + bad)
    for i in range(n):
        for j in range(i, n):
            A[s + i, s + j] = block[i, j]
        for j in range(D.shape[1]):
            D[s + i, j] = inverse[i, j]
    return 0


@compiled_in_place
def _factor_block(A: Array, D: Array, s: int, n: int) -> int:
    """Factor the block A[s:s+n, s:s+n], n up to WIDTH; its L^-1 goes to D[s:s+n, :n]. Returns 0, or 1 + the bad row."""
    if n == WIDTH:
        return int(_factor_whole_block(A, D, s, n))
    return int(_factor_last_block(A, D, s, n))


@compiled_in_place
def _tile_inverse(D: Array, T: Array, o: int, n: int, p: int) -> None:
    """T's tile at (o, o) := its inverse in D, with zeros to the right, where products look for them."""
    if n == WIDTH and o + 2 * WIDTH <= p:  # lengths that are constants: LLVM leaves short loops of others unvectorised
        for i in range(o, o + WIDTH):
            for j in range(WIDTH):
                T[i, o + j] = D[i, j]
            for j in range(WIDTH):
                T[i, o + WIDTH + j] = 0
        return
    end = min(o + 2 * WIDTH, p)
    for i in range(o, o + n):
        for j in range(n):
            T[i, o + j] = D[i, j]
        for j in range(o + n, end):
            T[i, j] = 0


@compiled_apart_in_place
def follow(operations: Array, matrices: tuple[Array, ...], q: int) -> int:
    """Carry out a schedule. Returns 0, or 1 + the row at which a factorisation failed.

    q : the number of right-hand sides, for schedules that solve; in compiled callers no constant, for which Numba would
        compile this function again
    """
    A, T, D = matrices[schedule.A], matrices[schedule.T], matrices[schedule.D]
    for o in operations:
        if o[0] == schedule.MULTIPLY:
            a, b, c = matrices[o[2]], matrices[o[6]], matrices[o[10]]
            n = q if o[14] == schedule.ALL else o[14]
            multiply(
                np.float64(o[1]), a, o[3], o[4], o[5] == 1, b, o[7], o[8], np.float64(o[9]), c, o[11], o[12],
                o[13], n, o[15], o[16],
            )  # fmt: skip
        elif o[0] == schedule.TILE_INVERSE:
            _tile_inverse(D, T, o[1], o[2], D.shape[0])
        else:
            bad = _factor_block(A, D, o[1], o[2])
            if bad > 0:
                return bad
    return 0


def _follow_together(planned: schedule.Schedule, matrices: tuple[Array, ...], team: Team | None) -> int:
    """`follow`, with large products divided among the spare members of a team."""
    operations, groups = planned
    if team is None:
        groups = ()
    done = 0
    for start, end, axis in groups:
        bad = int(follow(operations[done:start], matrices, 0))
        if bad > 0:
            return bad
        assert team is not None
        done = start
        if team.spare > 0:  # otherwise the group is followed with what comes after it: dividing takes time
            parts = schedule.split(operations[start:end], axis, 1 + team.spare)
            team.run([partial(follow, part, matrices, 0) for part in parts])
            done = end
    return int(follow(operations[done:], matrices, 0))


def factor(A: Array, D: Array, p: int, team: Team | None = None) -> int:
    """Upper triangle of A := U in place, D := inverses of L's tiles. Returns 0, or 1 + the row that failed."""
    return _follow_together(schedule.factoring(p, D.shape[1]), (A, A, D, A), team)


def inverse(U: Array, D: Array, T: Array, p: int, team: Team | None = None) -> None:
    """Lower triangle of U := (U^T U)^-1; the factor is lost. T, of U's shape, becomes L^-1."""
    _follow_together(schedule.inverting(p, D.shape[1]), (U, T, D, U), team)


def solve_lower(U: Array, D: Array, B: Array, p: int, q: int, start: int = 0) -> None:
    """B[:p, :q] := L^-1 B. The rows of B before `start`, a multiple of WIDTH, are zero and are not read."""
    follow(schedule.solving(p, D.shape[1], False, start), (U, U, D, B), q)


def solve_lower_transposed(U: Array, D: Array, B: Array, p: int, q: int) -> None:
    """B[:p, :q] := L^-T B."""
    follow(schedule.solving(p, D.shape[1], True), (U, U, D, B), q)


@compiled
def log_determinant(U: Array, p: int) -> float:
    """ln |U^T U|."""
    total = 0.0
    for i in range(p):
        total += np.log(np.float64(U[i, i]))
    return 2 * total


@compiled
def solve_vector(U: Array, b: Array, p: int) -> None:
    """b := (U^T U)^-1 b, four rows of U at a time."""
    whole_registers()
    whole = p // 4 * 4
    zero = b.dtype.type(0)
    for i in range(0, whole, 4):
        for j in range(i, i + 4):
            b[j] /= U[j, j]
            for k in range(j + 1, i + 4):
                b[k] -= U[j, k] * b[j]
        r, s, t, u = b[i], b[i + 1], b[i + 2], b[i + 3]
        first, second, third, last = U[i], U[i + 1], U[i + 2], U[i + 3]
        for k in range(i + 4, p):
            b[k] -= (first[k] * r + second[k] * s) + (third[k] * t + last[k] * u)
    for i in range(whole, p):
        b[i] /= U[i, i]
        for k in range(i + 1, p):
            b[k] -= U[i, k] * b[i]
    for i in range(p - 1, whole - 1, -1):
        for k in range(i + 1, p):
            b[i] -= U[i, k] * b[k]
        b[i] /= U[i, i]
    for i in range(whole - 4, -1, -4):
        first, second, third, last = U[i], U[i + 1], U[i + 2], U[i + 3]
        r, s, t, u = zero, zero, zero, zero
        for k in range(i + 4, p):
            r += first[k] * b[k]
            s += second[k] * b[k]
            t += third[k] * b[k]
            u += last[k] * b[k]
        b[i] -= r
        b[i + 1] -= s
        b[i + 2] -= t
        b[i + 3] -= u
        for j in range(i + 3, i - 1, -1):
            for k in range(j + 1, i + 4):
                b[j] -= U[j, k] * b[k]
            b[j] /= U[j, j]

"""The order of block operations by which a leaf's matrix is factored, inverted and solved with.

Each algorithm is a recursion that halves a matrix until it is a small tile, with U = L^T in the upper triangle:
    [U11  U12]   U11^T U11 = A11,  U12 = L11^-1 A12,  U22^T U22 = A22 - U12^T U12
    [     U22]
    T = L^-1 (lower):  T21 = -T22 L21 T11;     A^-1 = T^T T (lower).
Every product between halves is a matrix product on blocks as square as can be, and has the form A B or A^T B, which
`gemm.multiply` takes without packing; that is why the factor is stored above the diagonal and the inverse below.
Products with a triangle end in one operation at SPAN, for `multiply` skips what is zero; the inverse of a tile replaces
each small triangular solve. The recursion depends on the size alone, so it is run once per size, here, and written down
as a list of operations that compiled code follows (Numba cannot cache compiled functions that call themselves). A block
is given by its corner (row, column) and size.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.gemm import FULL, LEFT_LOWER, LEFT_UPPER, LOWER_ONLY, RIGHT_LOWER, UPPER_ONLY

# Codes of operations.
FACTOR_TILE, TILE_INVERSE, MULTIPLY = range(3)
# Codes of matrices: the leaf's, the inverse of its factor, the inverses of tiles, right-hand sides.
A, T, D, B = range(4)
ALL = -1  # number of columns that is set only when the schedule is followed
_LARGE = 1 << 24  # multiply-adds from which a product is divided among threads
_STRIP = 48  # columns or rows of C: products are divided at multiples of it
ROWS = 13  # position of the number of rows of a product in its operation
COLUMNS = 14  # position of its number of columns
_OFFSETS = {ROWS: (4, 11), COLUMNS: (8, 12)}  # places that move with it: rows of A^T and C, columns of B and C
SPAN = 192  # rows up to which a product with a triangle is one operation

Operation = tuple[int, ...]
Place = tuple[int, int, int]  # matrix, row, column


class Group(NamedTuple):
    """Operations start..end, products all, that may be divided by the rows or columns of C."""

    start: int
    end: int
    axis: int


class Schedule(NamedTuple):
    """Operations in order, and which of them may be divided among threads."""

    operations: Array
    groups: tuple[Group, ...]  # those worth dividing, in order; none within another


class _Writer:
    """Writes operations down as the recursions go along."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.operations: list[Operation] = []
        self.groups: list[Group] = []

    def half(self, n: int) -> int:
        """Where to halve n: at a border of tiles; where there are many, of pairs of them, which fill vectors of 16."""
        unit = self.width if n <= 4 * self.width else 2 * self.width
        return (n + 2 * unit - 1) // (2 * unit) * unit

    def write(self, code: int, *numbers: int) -> None:
        self.operations.append((code, *numbers, *[0] * (16 - len(numbers))))

    def multiply(
        self, alpha: int, a: Place, transposed: bool, b: Place, beta: int, c: Place, m: int, n: int, k: int,
        shape: int = FULL,
    ) -> None:  # fmt: skip
        """c := alpha op(a) b + beta c; m x n from m x k and k x n."""
        self.write(MULTIPLY, alpha, *a, transposed, *b, beta, *c, m, n, k, shape)

    def factor(self, o: int, n: int) -> None:
        """A's block at (o, o) := its factor U."""
        if n <= self.width:
            self.write(FACTOR_TILE, o, n)
            return
        h = self.half(n)
        self.factor(o, h)
        self.divisible(COLUMNS, self.divide, o, o + h, h, n - h)
        self.subtract_square(o + h, n - h, o, h)
        self.factor(o + h, n - h)

    def divide(self, r: int, c: int, m: int, n: int) -> None:
        """A[r:r+m, c:c+n] := L^-1 A[r:r+m, c:c+n], L the factored block at (r, r)."""
        if m <= self.width:
            self.multiply(1, (D, r, 0), False, (A, r, c), 0, (A, r, c), m, n, m, LEFT_LOWER)
            return
        h = self.half(m)
        self.divide(r, c, h, n)
        self.multiply(-1, (A, r, r + h), True, (A, r, c), 1, (A, r + h, c), m - h, n, h)
        self.divide(r + h, c, m - h, n)

    def subtract_square(self, o: int, n: int, r: int, k: int) -> None:
        """Upper triangle of A's block at (o, o) -= X^T X, X = A[r:r+k, o:o+n]."""
        if n <= SPAN:
            self.multiply(-1, (A, r, o), True, (A, r, o), 1, (A, o, o), n, n, k, UPPER_ONLY)
            return
        h = self.half(n)
        self.subtract_square(o, h, r, k)
        self.divisible(COLUMNS, self.subtract_corner, o, h, n, r, k)
        self.subtract_square(o + h, n - h, r, k)

    def subtract_corner(self, o: int, h: int, n: int, r: int, k: int) -> None:
        self.multiply(-1, (A, r, o), True, (A, r, o + h), 1, (A, o, o + h), h, n - h, k)

    def invert_lower(self, o: int, n: int) -> None:
        """T's block at (o, o) := L^-1, from A's, which is U."""
        if n <= self.width:
            self.write(TILE_INVERSE, o, n)
            return
        h = self.half(n)
        self.invert_lower(o, h)
        self.invert_lower(o + h, n - h)
        self.divisible(ROWS, self.times_lower, o + h, o, n - h, h)
        self.divisible(COLUMNS, self.minus_lower_times, o + h, o, n - h, h)

    def times_lower(self, r: int, c: int, m: int, n: int) -> None:
        """A[r:r+m, c:c+n] := L[r:r+m, c:c+n] T_cc."""
        if n <= SPAN:
            self.multiply(1, (A, c, r), True, (T, c, c), 0, (A, r, c), m, n, n, RIGHT_LOWER)
            return
        h = self.half(n)
        self.times_lower(r, c, m, h)
        self.multiply(1, (A, c + h, r), True, (T, c + h, c), 1, (A, r, c), m, h, n - h)
        self.times_lower(r, c + h, m, n - h)

    def minus_lower_times(self, r: int, c: int, m: int, n: int) -> None:
        """T[r:r+m, c:c+n] := -T_rr A[r:r+m, c:c+n]."""
        if m <= SPAN:
            self.multiply(-1, (T, r, r), False, (A, r, c), 0, (T, r, c), m, n, m, LEFT_LOWER)
            return
        h = self.half(m)
        self.minus_lower_times(r, c, h, n)
        self.minus_lower_times(r + h, c, m - h, n)
        self.multiply(-1, (T, r + h, r), False, (A, r, c), 1, (T, r + h, c), m - h, n, h)

    def square_lower(self, o: int, n: int) -> None:
        """Lower triangle of A's block at (o, o) := T_oo^T T_oo."""
        if n <= SPAN:
            self.multiply(1, (T, o, o), True, (T, o, o), 0, (A, o, o), n, n, n, LEFT_UPPER | LOWER_ONLY)
            return
        h = self.half(n)
        self.square_lower(o, h)
        self.add_square(o + h, n - h, o, h)
        self.divisible(COLUMNS, self.lower_transposed_times, o + h, o, n - h, h)
        self.square_lower(o + h, n - h)

    def add_square(self, r: int, m: int, o: int, n: int) -> None:
        """Lower triangle of A's block at (o, o) += X^T X, X = T[r:r+m, o:o+n]."""
        if n <= SPAN:
            self.multiply(1, (T, r, o), True, (T, r, o), 1, (A, o, o), n, n, m, LOWER_ONLY)
            return
        h = self.half(n)
        self.add_square(r, m, o, h)
        self.divisible(COLUMNS, self.add_corner, r, m, o, h, n)
        self.add_square(r, m, o + h, n - h)

    def add_corner(self, r: int, m: int, o: int, h: int, n: int) -> None:
        self.multiply(1, (T, r, o + h), True, (T, r, o), 1, (A, o + h, o), n - h, h, m)

    def lower_transposed_times(self, r: int, c: int, m: int, n: int) -> None:
        """A[r:r+m, c:c+n] := T_rr^T T[r:r+m, c:c+n]."""
        if m <= SPAN:
            self.multiply(1, (T, r, r), True, (T, r, c), 0, (A, r, c), m, n, m, LEFT_UPPER)
            return
        h = self.half(m)
        self.lower_transposed_times(r, c, h, n)
        self.multiply(1, (T, r + h, r), True, (T, r + h, c), 1, (A, r, c), h, n, m - h)
        self.lower_transposed_times(r + h, c, m - h, n)

    def solve(self, o: int, n: int, transposed: bool) -> None:
        """B[o:o+n] := L^-1 B[o:o+n], or L^-T B[o:o+n], L the block at (o, o)."""
        if n <= self.width:
            triangle = LEFT_UPPER if transposed else LEFT_LOWER
            self.multiply(1, (D, o, 0), transposed, (B, o, 0), 0, (B, o, 0), n, ALL, n, triangle)
            return
        h = self.half(n)
        if transposed:
            self.solve(o + h, n - h, transposed)
            self.multiply(-1, (A, o, o + h), False, (B, o + h, 0), 1, (B, o, 0), h, ALL, n - h)
            self.solve(o, h, transposed)
        else:
            self.solve(o, h, transposed)
            self.multiply(-1, (A, o, o + h), True, (B, o, 0), 1, (B, o + h, 0), n - h, ALL, h)
            self.solve(o + h, n - h, transposed)

    def listed(self) -> Array:
        return _read_only(np.array(self.operations, dtype=np.int64))

    def divisible(self, axis: int, write: Callable[..., None], *place: int) -> None:
        """Write operations that may be divided among threads: each column, or row, of C goes its own way in all."""
        start = len(self.operations)
        write(*place)
        work = sum(o[13] * o[14] * o[15] for o in self.operations[start:] if o[14] != ALL)
        if work >= _LARGE:
            self.groups.append(Group(start, len(self.operations), axis))


def split(operations: Array, axis: int, parts: int) -> list[Array]:
    """Products as several lists of products, each of some of their columns, or rows, of C."""
    size = int(operations[0, axis])
    borders = np.unique(np.append(np.arange(parts) * size // parts // _STRIP * _STRIP, size))
    pieces = []
    for first, end in pairwise(borders):
        piece = operations.copy()
        piece[:, list(_OFFSETS[axis])] += first
        piece[:, axis] = end - first
        pieces.append(_read_only(piece))
    return pieces


def _read_only(operations: Array) -> Array:
    operations.flags.writeable = False
    return operations


@lru_cache(maxsize=512)
def factoring(p: int, width: int) -> Schedule:
    """A := U, D := inverses of L's diagonal tiles."""
    writer = _Writer(width)
    writer.factor(0, p)
    return Schedule(writer.listed(), tuple(writer.groups))


@lru_cache(maxsize=512)
def inverting(p: int, width: int) -> Schedule:
    """A := (L L^T)^-1 below the diagonal, from U above it and D."""
    writer = _Writer(width)
    writer.invert_lower(0, p)
    writer.square_lower(0, p)
    return Schedule(writer.listed(), tuple(writer.groups))


@lru_cache(maxsize=512)
def inverting_factor(p: int, width: int) -> Array:
    """T := L^-1, from U above A's diagonal and D."""
    writer = _Writer(width)
    writer.invert_lower(0, p)
    return writer.listed()


@lru_cache(maxsize=512)
def solving(p: int, width: int, transposed: bool, start: int = 0) -> Array:
    """B := L^-1 B, or L^-T B, with the part of L from row and column `start` on; it begins at a border of tiles."""
    writer = _Writer(width)
    writer.solve(start, p - start, transposed)
    return writer.listed()

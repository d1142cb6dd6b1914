"""Products of blocks against NumPy: what may hold anything holds NaN, and what is not asked for stays as it was."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.linalg.gemm import (
    _K_BLOCK,
    FULL,
    IN_PLACE_ROWS,
    LEFT_LOWER,
    LEFT_UPPER,
    LOWER_ONLY,
    RIGHT_LOWER,
    ROWS,
    UPPER_ONLY,
    multiply,
)
from gigagp.linalg.vectors import VECTOR_BYTES

KINDS = [np.float64, np.float32]
SIZES = [1, 7, 8, 9, 23, 24, 25, 48, 49, 64, 65, 100, _K_BLOCK - 1, _K_BLOCK, _K_BLOCK + 1, 400]
NAMES = {
    LEFT_LOWER: "left lower",
    LEFT_UPPER: "left upper",
    RIGHT_LOWER: "right lower",
    LOWER_ONLY: "lower only",
    UPPER_ONLY: "upper only",
}
# All but a product of two lower triangles, which is one itself: it must be asked for as such.
SHAPES = [
    left | right | only
    for left in (FULL, LEFT_LOWER, LEFT_UPPER)
    for right in (FULL, RIGHT_LOWER)
    for only in (FULL, LOWER_ONLY, UPPER_ONLY)
    if left | right != LEFT_LOWER | RIGHT_LOWER or only == LOWER_ONLY
]


def named(shape):
    return ", ".join(name for flag, name in NAMES.items() if shape & flag) or "full"


both_kinds = pytest.mark.parametrize("kind", KINDS)
both_ways = pytest.mark.parametrize("transposed", [False, True], ids=["A", "A^T"])
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=named)


def strip(kind):
    """Columns of a micro-kernel."""
    return 3 * VECTOR_BYTES // np.dtype(kind).itemsize


def below_blocks(rows, columns, side):
    """Places below the blocks of `side` on the diagonal."""
    i, j = np.indices((rows, columns))
    return i // side > j // side


def above_blocks(rows, columns, side):
    return below_blocks(columns, rows, side).T


def strictly_upper(rows, columns):
    return above_blocks(rows, columns, 1)


class Product:
    """Blocks somewhere inside larger matrices, NaN wherever the docstring does not ask for a number."""

    def __init__(self, m, n, k, kind, transposed, shape, seed=0):
        self.sizes, self.kind, self.transposed, self.shape = (m, n, k), kind, transposed, shape
        self.rng = rng = np.random.default_rng([seed, m, n, k, shape])
        left, right = (rng.standard_normal(size).astype(kind) for size in ((m, k), (k, n)))
        unread_left, unread_right = np.zeros((m, k), bool), np.zeros((k, n), bool)
        if shape & LEFT_LOWER:
            left[strictly_upper(m, k)] = 0
            unread_left = above_blocks(m, k, ROWS)
        if shape & LEFT_UPPER:
            left[strictly_upper(k, m).T] = 0
            unread_left = below_blocks(m, k, ROWS)
        if shape & RIGHT_LOWER:
            right[strictly_upper(k, n)] = 0
            unread_right = above_blocks(k, n, strip(kind))
        self.right = np.where(unread_right, kind(0), right)
        self.product = left.astype(float) @ right.astype(float)
        left[unread_left], right[unread_right] = np.nan, np.nan
        self.A, self.a = self.surrounded(left.T if transposed else left)
        self.B, self.b = self.surrounded(right)
        i, j = np.indices((m, n))
        self.wanted, self.spared = np.ones((m, n), bool), np.zeros((m, n), bool)
        if shape & LOWER_ONLY:
            self.wanted, self.spared = i >= j, above_blocks(m, n, ROWS)
        if shape & UPPER_ONLY:
            self.wanted, self.spared = i <= j, below_blocks(m, n, ROWS)

    def surrounded(self, block):
        """A larger matrix with `block` at a corner, and the corner."""
        i, j = (int(n) for n in self.rng.integers(0, 10, 2))
        inside = np.full((i + block.shape[0] + 1, j + block.shape[1] + 3), np.nan, self.kind)
        inside[i : i + block.shape[0], j : j + block.shape[1]] = block
        return inside, (i, j)

    def into(self, C, alpha, beta, c=(0, 0)):
        multiply(alpha, self.A, *self.a, self.transposed, self.B, *self.b, beta, C, *c, *self.sizes, self.shape)

    def fresh(self):
        """The product alone, in a matrix of its own; NaN where nothing was written."""
        C = np.full(self.sizes[:2], np.nan, self.kind)
        self.into(C, 1.0, 0.0)
        return C

    def close(self, got, wanted):
        error = 20 * np.finfo(self.kind).eps * np.sqrt(self.sizes[2])
        np.testing.assert_allclose(got[self.wanted], wanted[self.wanted], rtol=10 * error, atol=error)


def sizes_of(shape):
    """(m, n, k): every size as the side of the triangles, others beside it; triangles are square."""
    for number, size in enumerate(SIZES):
        other, third = SIZES[(number + 7) % len(SIZES)], SIZES[(number + 12) % len(SIZES)]
        left, right = shape & (LEFT_LOWER | LEFT_UPPER), shape & RIGHT_LOWER
        if left and right:
            yield size, size, size
        elif left:
            yield size, other, size
            yield size, size, size
        elif right:
            yield other, size, size
            yield size, size, size
        else:
            yield size, other, third
            yield size, size, third


@both_kinds
@both_ways
@each_shape
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.5, 1.0)])
def test_only_what_is_asked_for_is_read_and_written(kind, transposed, shape, alpha, beta):
    for m, n, k in sizes_of(shape):
        product = Product(m, n, k, kind, transposed, shape)
        before = product.rng.standard_normal((m, n)).astype(kind)
        wanted = alpha * product.product + (beta * before.astype(float) if beta else 0)
        C, (i, j) = product.surrounded(np.where(product.wanted & (beta != 0), before, kind(np.nan)))
        product.into(C, alpha, beta, (i, j))
        got = C[i : i + m, j : j + n].copy()
        product.close(got, wanted)
        assert np.isnan(got[product.spared]).all()
        C[i : i + m, j : j + n] = np.nan
        assert np.isnan(C).all(), "written around the block"


@given(
    sizes=st.tuples(*[st.integers(1, 70)] * 3),
    corners=st.tuples(*[st.integers(0, 9)] * 6),
    transposed=st.booleans(),
    kind=st.sampled_from(KINDS),
    beta=st.sampled_from([0.0, 1.0, -2.0]),
)
def test_products_of_blocks(sizes, corners, transposed, kind, beta):
    (m, n, k), (ai, aj, bi, bj, ci, cj) = sizes, corners
    rng = np.random.default_rng([*sizes, *corners])
    rows, columns = (k, m) if transposed else (m, k)
    A = rng.standard_normal((ai + rows, aj + columns + 3)).astype(kind)
    B = rng.standard_normal((bi + k, bj + n)).astype(kind)
    C = rng.standard_normal((ci + m + 2, cj + n + 5)).astype(kind)
    left = A[ai:, aj : aj + columns].astype(float)
    wanted = C.astype(float)
    block = (slice(ci, ci + m), slice(cj, cj + n))
    wanted[block] = 0.5 * (left.T if transposed else left) @ B[bi:, bj:].astype(float) + beta * wanted[block]
    if beta == 0:
        C[block] = np.nan
    multiply(0.5, A, ai, aj, transposed, B, bi, bj, beta, C, ci, cj, m, n, k, FULL)
    np.testing.assert_allclose(C, wanted, atol=1e3 * np.finfo(kind).eps)


@both_kinds
@both_ways
@pytest.mark.parametrize("shape", [LEFT_LOWER, LEFT_UPPER], ids=named)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-0.5, 1.0)])
def test_a_triangle_may_multiply_in_place(kind, transposed, shape, alpha, beta):
    borders = {b + offset for b in (48, 64, 96, IN_PLACE_ROWS) for offset in (-1, 0, 1)}
    for m in sorted({*range(1, 34), *borders} & {*range(1, IN_PLACE_ROWS + 1)}):
        for n in (1, 17, 24, 50, 100):
            product = Product(m, n, m, kind, transposed, shape)
            product.into(product.B, alpha, beta, product.b)
            i, j = product.b
            product.close(product.B[i : i + m, j : j + n], alpha * product.product + beta * product.right)
            product.B[i : i + m, j : j + n] = np.nan
            assert np.isnan(product.B).all(), "written around the block"


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page by mprotect")
@both_kinds
@pytest.mark.parametrize("shape", [FULL, UPPER_ONLY], ids=named)
def test_nothing_beyond_the_array_is_read(kind, shape):
    """B ends where a page begins that must not be read: a product that does ends the process."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 64 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    guarded = ctypes.c_void_p(address + 63 * page)
    assert libc.mprotect(guarded, ctypes.c_size_t(page), 0) == 0
    try:
        for n in (1, 7, 9, 23, 25, 41, 100):
            whole = np.frombuffer(memory, kind, 63 * page // np.dtype(kind).itemsize)
            B, A = whole[len(whole) - n * n :].reshape(n, n), np.eye(n, dtype=kind)
            B[:] = np.random.default_rng(0).standard_normal((n, n))
            C = np.zeros((n, n), kind)
            multiply(1.0, A, 0, 0, True, B, 0, 0, 0.0, C, 0, 0, n, n, n, shape)
            np.testing.assert_array_equal(np.triu(C), np.triu(B))
    finally:
        assert libc.mprotect(guarded, ctypes.c_size_t(page), mmap.PROT_READ | mmap.PROT_WRITE) == 0


@both_kinds
@each_shape
def test_what_is_skipped_changes_no_bit(kind, shape):
    for m, n, k in sizes_of(shape):
        skipping, whole = (Product(m, n, k, kind, True, shape) for _ in range(2))
        whole.A, whole.B, whole.shape = np.nan_to_num(whole.A), np.nan_to_num(whole.B), FULL
        asked = skipping.wanted
        np.testing.assert_array_equal(skipping.fresh()[asked], whole.fresh()[asked])


@given(data=st.data(), kind=st.sampled_from(KINDS), transposed=st.booleans())
def test_who_computes_a_column_or_a_row_changes_no_bit(data, kind, transposed):
    """However a product is cut; threads rely on it."""
    m, n = data.draw(st.integers(1, 130)), data.draw(st.integers(1, 130))
    k = data.draw(st.sampled_from([1, 5, 100, _K_BLOCK, _K_BLOCK + 1, 450]))
    product = Product(m, n, k, kind, transposed, FULL)
    whole = product.fresh()
    top, left = data.draw(st.integers(0, m - 1)), data.draw(st.integers(0, n - 1))
    height, width = data.draw(st.integers(1, m - top)), data.draw(st.integers(1, n - left))
    (ai, aj), (bi, bj) = product.a, product.b
    corner = (ai, aj + top) if transposed else (ai + top, aj)
    C = np.full((height, width), np.nan, kind)
    multiply(1.0, product.A, *corner, transposed, product.B, bi, bj + left, 0.0, C, 0, 0, height, width, k, FULL)
    np.testing.assert_array_equal(C, whole[top : top + height, left : left + width])


@both_kinds
@pytest.mark.parametrize("size", [1, 8, 25, 60, 130])
@pytest.mark.parametrize("shape", [LEFT_LOWER, LEFT_UPPER, RIGHT_LOWER], ids=named)
def test_who_computes_a_part_of_a_product_with_a_triangle_changes_no_bit(kind, size, shape):
    """Columns where the triangle is on the left, rows where it is on the right."""
    by_rows = shape == RIGHT_LOWER
    m, n, k = (200, 130, 130) if by_rows else (130, 200, 130)
    product = Product(m, n, k, kind, True, shape)
    whole = product.fresh()
    for start in (0, 3, 48, 200 - size):
        (ai, aj), (bi, bj) = product.a, product.b
        if by_rows:
            m, aj, asked = size, aj + start, whole[start : start + size]
        else:
            n, bj, asked = size, bj + start, whole[:, start : start + size]
        part = np.full((m, n), np.nan, kind)
        multiply(1.0, product.A, ai, aj, True, product.B, bi, bj, 0.0, part, 0, 0, m, n, k, shape)
        np.testing.assert_array_equal(part, asked)

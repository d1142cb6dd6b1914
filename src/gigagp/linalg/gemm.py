"""Matrix products at the size of a leaf's blocks, in explicit vector code.

A library's GEMM packs its operands and is made for matrices of thousands; at blocks of 128 and 256 it loses a fifth of
its rate (benchmarks/products.py), and every call has a price. Here a micro-kernel holds ROWS x 3 vectors of C in
registers and walks along k; A is read element by element (so it may as well be transposed), B by rows, neither is
packed. Each sum is formed by fused multiply-adds in the order of k, so its rounding depends on nothing but the numbers.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled
from gigagp.linalg.vectors import AVX512, I64, VECTOR_BYTES, VectorCode

ROWS = 8 if AVX512 else 4  # with 3 vectors a row: all registers but those for A and B
_K_BLOCK, _M_BLOCK = 192, 64  # rows of B, and rows of A, that stay in the nearest caches
_AHEAD = 8  # steps along k by which data are called for before they are used


def _emit(code: VectorCode, vectors: int, data: list[Any], numbers: list[Any]) -> None:
    """C (rows x columns) := alpha A B + beta C, accumulators in registers, the last vector of a row masked."""
    b = code.b
    pa, pb, pc = data
    oa, row_step, k_step, ob, ldb, oc, ldc, k, rows, last, alpha, beta = numbers
    mask = code.first_lanes(last)
    masks = [None] * (vectors - 1) + [mask]
    bottom = b.sub(rows, code.constant(1))
    starts = []
    for i in range(ROWS):  # rows beyond the last repeat it, and are not stored
        row = code.constant(i)
        row = b.select(b.icmp_signed("<", row, bottom), row, bottom)
        starts.append(b.gep(pa, [b.add(oa, b.mul(row, row_step))]))
    before = b.block
    loop, done = b.append_basic_block("along_k"), b.append_basic_block("summed")
    b.branch(loop)
    b.position_at_end(loop)
    step = b.phi(I64)
    step.add_incoming(code.constant(0), before)
    sums = [[b.phi(code.vector) for _ in range(vectors)] for _ in range(ROWS)]
    at_a, at_b = b.mul(step, k_step), b.add(ob, b.mul(step, ldb))
    across = [code.load(code.place(pb, b.add(at_b, code.constant(v * code.lanes))), masks[v]) for v in range(vectors)]
    # Rows are further apart than the processor's own prefetching looks.
    code.prefetch(b.gep(starts[0], [b.add(at_a, b.mul(k_step, code.constant(_AHEAD)))]))
    ahead = b.add(at_b, b.mul(ldb, code.constant(_AHEAD)))
    for v in range(vectors):
        code.prefetch(b.gep(pb, [b.add(ahead, code.constant(v * code.lanes))]))
    following = b.add(step, code.constant(1))
    step.add_incoming(following, loop)
    totals = []
    for i in range(ROWS):
        a = code.spread(b.load(b.gep(starts[i], [at_a])), code.scalar)
        total = [code.multiply_add(a, across[v], sums[i][v]) for v in range(vectors)]
        for v in range(vectors):
            sums[i][v].add_incoming(code.zero, before)
            sums[i][v].add_incoming(total[v], loop)
        totals.append(total)
    b.cbranch(b.icmp_signed("<", following, k), loop, done)
    b.position_at_end(done)
    alphas, betas = code.spread(alpha, code.scalar), code.spread(beta, code.scalar)
    fresh = b.fcmp_ordered("==", beta, ir.Constant(code.scalar, 0.0))  # then C may hold anything, NaN included
    for i in range(ROWS):
        with b.if_then(b.icmp_signed("<", code.constant(i), rows)):
            for v in range(vectors):
                offset = b.add(b.add(oc, b.mul(code.constant(i), ldc)), code.constant(v * code.lanes))
                place = code.place(pc, offset)
                scaled = b.select(fresh, code.zero, b.fmul(betas, code.load(place, masks[v])))
                code.store(code.multiply_add(alphas, totals[i][v], scaled), place, masks[v])


def _micro_kernel(vectors: int) -> Any:
    @intrinsic
    def kernel(
        typingctx: Any, A: Any, oa: Any, row_step: Any, k_step: Any, B: Any, ob: Any, ldb: Any, C: Any, oc: Any,
        ldc: Any, k: Any, rows: Any, last: Any, alpha: Any, beta: Any,
    ) -> Any:  # fmt: skip
        kind, size = A.dtype, types.intp
        signature = types.void(
            A, size, size, size, B, size, size, C, size, size, size, size, size, kind, kind
        )  # fmt: skip

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def data(position: int) -> Any:
                return context.make_array(signature.args[position])(context, builder, args[position]).data

            numbers = [args[i] for i in (1, 2, 3, 5, 6, 8, 9, 10, 11, 12, 13, 14)]
            _emit(VectorCode(builder, kind), vectors, [data(0), data(4), data(7)], numbers)
            return context.get_dummy_value()

        return signature, codegen

    return kernel


_one, _two, _three = _micro_kernel(1), _micro_kernel(2), _micro_kernel(3)


# What is known to be zero, or not wanted, in a product: rows and columns are skipped by whole micro-kernels.
FULL, LEFT_LOWER, LEFT_UPPER, RIGHT_LOWER, LOWER_ONLY, UPPER_ONLY = 0, 1, 2, 4, 8, 16


@compiled
def _wanted(shape: int, i: int, bottom: int, j: int, right: int, k: int) -> tuple[int, int, int, int]:
    """What of k, and of the columns j..right, matters for rows i..bottom of C."""
    low, high, left = 0, k, j
    if shape & LEFT_LOWER:
        high = min(high, bottom)
    if shape & LEFT_UPPER:
        low = i
    if shape & RIGHT_LOWER:
        low = max(low, j)
    if shape & LOWER_ONLY:
        right = min(right, bottom)
    if shape & UPPER_ONLY:
        left = max(left, i)
    return low, high, left, right


@njit(nogil=True, cache=True, error_model="numpy")  # not inlined: the order of its sums is fixed in any copy
def multiply(
    alpha: float, A: Array, ai: int, aj: int, transposed: bool, B: Array, bi: int, bj: int,
    beta: float, C: Array, ci: int, cj: int, m: int, n: int, k: int, shape: int = FULL,
) -> None:  # fmt: skip
    """C[ci:, cj:] := alpha op(A[ai:, aj:]) B[bi:, bj:] + beta C[ci:, cj:], m x n from m x k and k x n.

    op(A) is A, or A^T when `transposed`. Where beta is 0, C may hold anything. `shape` adds up: op(A) is lower or
    upper triangular, B is lower triangular, only the lower or upper triangle of C is wanted (some more is written: what
    the micro-kernels on the diagonal reach, which is also what must be zero of a triangular A or B). With a triangular
    op(A) of no more than _M_BLOCK rows C may be B itself.
    """
    lda, ldb, ldc = A.shape[1], B.shape[1], C.shape[1]
    row_step, k_step = (1, lda) if transposed else (lda, 1)
    scale, first = C.dtype.type(alpha), C.dtype.type(beta)
    lanes = VECTOR_BYTES // C.itemsize
    strip = 3 * lanes
    a, b, c = ai * lda + aj, bi * ldb + bj, ci * ldc + cj
    for start in range(0, k, _K_BLOCK):
        for top in range(0, m, _M_BLOCK):
            height = min(_M_BLOCK, m - top)
            for j in range(0, n, strip):
                for step in range(0, height, ROWS):
                    i = top + step
                    if shape & LEFT_LOWER:  # from below, so that what is still to be read is not yet written
                        i = top + (height - 1) // ROWS * ROWS - step
                    rows = min(ROWS, m - i)
                    low, high, left, right = _wanted(shape, i, i + rows, j, min(j + strip, n), k)
                    begin, depth = max(low, start), min(high, start + _K_BLOCK) - max(low, start)
                    columns = right - left
                    if depth <= 0 or columns <= 0:
                        continue
                    keep = first if begin == low else C.dtype.type(1)
                    ia, jb, ic = a + i * row_step + begin * k_step, b + begin * ldb + left, c + i * ldc + left
                    if columns > 2 * lanes:
                        last = columns - 2 * lanes
                        _three(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, last, scale, keep)
                    elif columns > lanes:
                        last = columns - lanes
                        _two(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, last, scale, keep)
                    else:
                        _one(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, columns, scale, keep)

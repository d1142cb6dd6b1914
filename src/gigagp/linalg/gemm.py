"""Matrix products at the size of a leaf's blocks, in explicit vector code.

A library's GEMM packs both operands and is made for matrices of thousands; at the blocks of small leaves it loses part
of its rate (benchmarks/products.py), and every call has a price. Here a micro-kernel holds ROWS x VECTORS vectors of C
in registers and walks along k. A is read element by element, so it may as well be transposed; B is read by rows. With
AVX-512 nothing is packed, and a strip of B is copied only where reading whole vectors would leave the array. Without it
a strip of B is first copied to where it is contiguous, because AVX2 has fewer registers; where C has several strips of
columns, a block of A is copied too, so that the micro-kernel reads one stream of each. Each sum is formed by
multiply-adds in the order of k, so its rounding depends on nothing but the numbers, and copying changes no bit.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled, compiled_apart_in_place
from gigagp.linalg.vectors import AVX512, I64, VECTOR_BYTES, VectorCode

# 24 sums of 32 registers with AVX-512, otherwise 12 of 16; the others hold what is read of A and B.
ROWS = 8 if AVX512 else 4
VECTORS = 3
_K_BLOCK = 192 if AVX512 else 128  # rows of B whose strip stays in the first cache
_M_BLOCK = 64 if AVX512 else 192  # rows of A that stay in the second cache
IN_PLACE_ROWS = min(_K_BLOCK, _M_BLOCK)  # rows of a triangle that may be multiplied in place: one block holds them
_PREFETCH_STEPS = 8  # along k, because rows are further apart than the processor prefetches on its own
COPIES = not AVX512  # whether strips of B and blocks of A are copied: masked loads are slow without AVX-512
_COPY_ROWS = 8  # rows of C beyond which copying B pays
_PACK_COLUMNS = 72  # columns of C beyond which copying A pays


def _emit(code: VectorCode, vectors: int, numbers: list[Any]) -> None:
    """C (rows x columns) := alpha A B + beta C, accumulators in registers; of the last vector, `last` lanes count."""
    b = code.b
    pa, row_step, k_step, pb, ldb, pc, ldc, k, rows, last, alpha, beta = numbers
    mask = code.first_lanes(last)
    bottom = b.sub(rows, code.constant(1))
    offsets = []  # of rows of A; those beyond the last repeat it, and are not stored
    for i in range(ROWS):
        row = code.constant(i)
        row = b.select(b.icmp_signed("<", row, bottom), row, bottom)
        offsets.append(b.mul(row, row_step))
        for column in (0, vectors * code.lanes - 1) if COPIES else range(0, vectors * code.lanes, code.lanes):
            code.prefetch(b.gep(pc, [b.add(b.mul(row, ldc), code.constant(column))]))
    a_ahead, b_ahead = (b.mul(step, code.constant(_PREFETCH_STEPS)) for step in (k_step, ldb))

    def step_along_k(_: Any, carried: list[Any]) -> list[Any]:
        at_a, at_b, *sums = carried  # pointers that move, so that rows need one register each and no more
        across = [code.load(code.place(at_b, code.constant(v * code.lanes)), None) for v in range(vectors)]
        code.prefetch(b.gep(at_a, [a_ahead]))
        if not COPIES:
            for v in range(vectors):
                code.prefetch(b.gep(at_b, [b.add(b_ahead, code.constant(v * code.lanes))]))
        totals = []
        for i in range(ROWS):
            a = code.spread(b.load(b.gep(at_a, [offsets[i]])), code.scalar)
            totals += [code.multiply_add(a, across[v], sums[i * vectors + v]) for v in range(vectors)]
        return [b.gep(at_a, [k_step]), b.gep(at_b, [ldb]), *totals]

    _, _, *totals = code.loop(k, [pa, pb, *[code.zero] * (ROWS * vectors)], step_along_k, unroll=False)
    alphas, betas = code.spread(alpha, code.scalar), code.spread(beta, code.scalar)
    fresh = b.fcmp_ordered("==", beta, ir.Constant(code.scalar, 0.0))  # then C may hold anything, NaN included

    def store(write_masks: list[Any]) -> None:
        for i in range(ROWS):
            with b.if_then(b.icmp_signed("<", code.constant(i), rows)):
                for v in range(vectors):
                    place = code.place(pc, b.add(b.mul(code.constant(i), ldc), code.constant(v * code.lanes)))
                    scaled = b.select(fresh, code.zero, b.fmul(betas, code.load(place, write_masks[v])))
                    code.store(code.multiply_add(alphas, totals[i * vectors + v], scaled), place, write_masks[v])

    masked = [None] * (vectors - 1) + [mask]
    if not COPIES:
        store(masked)
        return
    with b.if_else(b.icmp_signed("==", last, code.constant(code.lanes))) as (whole, partial):
        with whole:  # masked stores are slow without AVX-512
            store([None] * vectors)
        with partial:
            store(masked)


def _micro_kernel(vectors: int) -> Any:
    @intrinsic
    def kernel(
        typingctx: Any, pa: Any, row_step: Any, k_step: Any, pb: Any, ldb: Any, pc: Any, ldc: Any, k: Any, rows: Any,
        last: Any, alpha: Any, beta: Any,
    ) -> Any:  # fmt: skip
        kind, size = pa.dtype, types.intp
        signature = types.void(pa, size, size, pb, size, pc, size, size, size, size, kind, kind)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _emit(VectorCode(builder, kind), vectors, list(args))
            return context.get_dummy_value()

        return signature, codegen

    return kernel


_one, _two, _three = (_micro_kernel(vectors) for vectors in (1, 2, 3))


@intrinsic
def _address(typingctx: Any, A: Any, offset: Any) -> Any:
    """The address of an element, by its offset."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.gep(data, [args[1]])

    return types.CPointer(A.dtype)(A, types.intp), codegen


@intrinsic
def _beyond(typingctx: Any, pointer: Any, offset: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


def _stack_memory(elements: Callable[[int], int]) -> Any:
    """Stack memory for a number of elements that depends on the lanes of a vector."""

    @intrinsic
    def stack_memory(typingctx: Any, A: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_data_type(A.dtype)
            count = elements(VECTOR_BYTES * 8 // A.dtype.bitwidth)
            with builder.goto_entry_block():
                place = builder.alloca(ir.ArrayType(kind, count))  # cgutils.alloca_once would fill it with zeros
                place.align = 64
            return builder.bitcast(place, kind.as_pointer())

        return types.CPointer(A.dtype)(A), codegen

    return stack_memory


_strip_of_b = _stack_memory(
    lambda lanes: (_K_BLOCK + 1) * VECTORS * lanes
)  # and what a last, shifted vector reads beyond it
_block_of_a = _stack_memory(lambda lanes: _K_BLOCK * _M_BLOCK if COPIES else 1)


@intrinsic
def _pack(typingctx: Any, pa: Any, row_step: Any, k_step: Any, rows: Any, k: Any, block: Any) -> Any:
    """ROWS rows of A at a time, column after column, as a micro-kernel reads them; after the last row, it again."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, row_step, k_step, rows, count, target = args
        code = VectorCode(b, pa.dtype, ROWS)
        last = b.sub(rows, code.constant(1))

        def panels(contiguous: bool) -> None:
            with cgutils.for_range_slice(b, code.constant(0), rows, code.constant(ROWS), I64) as (first, _):
                numbers = [b.add(first, code.constant(i)) for i in range(ROWS)]
                offsets = [b.mul(b.select(b.icmp_signed("<", i, last), i, last), row_step) for i in numbers]

                def column(_: Any, carried: list[Any]) -> list[Any]:
                    at, to = carried
                    if contiguous:
                        code.store(code.load(code.place(at, first), None), code.place(to, code.constant(0)), None)
                    else:
                        for i in range(ROWS):
                            b.store(b.load(b.gep(at, [offsets[i]])), b.gep(to, [code.constant(i)]))
                    return [b.gep(at, [k_step]), b.gep(to, [code.constant(ROWS)])]

                code.loop(count, [source, b.gep(target, [b.mul(first, count)])], column)

        whole = b.icmp_signed("==", b.srem(rows, code.constant(ROWS)), code.constant(0))
        with b.if_else(b.and_(whole, b.icmp_signed("==", row_step, code.constant(1)))) as (vectors, numbers):
            with vectors:
                panels(True)
            with numbers:
                panels(False)
        return context.get_dummy_value()

    size = types.intp
    return types.void(pa, size, size, size, size, block), codegen


@intrinsic
def _copy_strip(typingctx: Any, pb: Any, ldb: Any, k: Any, columns: Any, strip: Any) -> Any:
    """Rows of B, `columns` of each, to rows of VECTORS vectors; zeros beyond."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        source, step, count, columns, target = args
        code = VectorCode(b, pb.dtype)
        width = VECTORS * code.lanes

        def copy(masks: list[Any]) -> None:
            def row(number: Any, carried: list[Any]) -> list[Any]:
                for v in range(VECTORS):
                    from_place = code.place(source, b.add(b.mul(number, step), code.constant(v * code.lanes)))
                    to_place = code.place(
                        target, b.add(b.mul(number, code.constant(width)), code.constant(v * code.lanes))
                    )
                    code.store(code.load(from_place, masks[v]), to_place, None)
                return []

            code.loop(count, [], row)

        with b.if_else(b.icmp_signed("==", columns, code.constant(width))) as (whole, partial):
            with whole:
                copy([None] * VECTORS)
            with partial:
                copy([code.first_lanes(b.sub(columns, code.constant(v * code.lanes))) for v in range(VECTORS)])
        return context.get_dummy_value()

    size = types.intp
    return types.void(pb, size, size, size, strip), codegen


# Shapes of a product, which add up. What is zero or not needed is skipped by whole micro-kernels.
FULL = 0
LEFT_LOWER = 1  # op(A) is lower triangular
LEFT_UPPER = 2  # op(A) is upper triangular
RIGHT_LOWER = 4  # B is lower triangular
LOWER_ONLY = 8  # only the lower triangle of C is needed
UPPER_ONLY = 16  # only the upper triangle of C is needed


@compiled
def _needed_range(shape: int, i: int, bottom: int, j: int, right: int, k: int) -> tuple[int, int, int, int]:
    """The range of k, and of the columns j..right, that rows i..bottom of C need."""
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


@compiled_apart_in_place
def multiply(  # noqa: PLR0912 (in functions of their own the branches cost a tenth of the speed of small products)
    alpha: float, A: Array, ai: int, aj: int, transposed: bool, B: Array, bi: int, bj: int,
    beta: float, C: Array, ci: int, cj: int, m: int, n: int, k: int, shape: int,
) -> None:  # fmt: skip
    """C[ci:, cj:] := alpha op(A[ai:, aj:]) B[bi:, bj:] + beta C[ci:, cj:], m x n from m x k and k x n.

    op(A) is A, or A^T when `transposed`. If beta is 0, the content of C does not matter. Micro-kernels on the diagonal
    read and write somewhat beyond the triangles of `shape`: of a triangular A or B that part must be zero. With a
    triangular op(A) of at most IN_PLACE_ROWS rows C may be B itself.
    """
    lda, ldb, ldc = A.shape[1], B.shape[1], C.shape[1]
    row_step, k_step = (1, lda) if transposed else (lda, 1)
    scale, first = C.dtype.type(alpha), C.dtype.type(beta)
    lanes, width = VECTOR_BYTES // C.itemsize, VECTORS * (VECTOR_BYTES // C.itemsize)
    a, b, c = ai * lda + aj, bi * ldb + bj, ci * ldc + cj
    strip, block = _strip_of_b(B), _block_of_a(A)
    for start in range(0, k, _K_BLOCK):
        end = min(k, start + _K_BLOCK)
        for top in range(0, m, _M_BLOCK):
            height = min(_M_BLOCK, m - top)
            packed = COPIES and height > _COPY_ROWS and n > _PACK_COLUMNS
            if packed:
                _pack(_address(A, a + top * row_step + start * k_step), row_step, k_step, height, end - start, block)
            for j in range(0, n, width):
                across = min(width, n - j)
                # Whole vectors are read; the strip has room for what reaches beyond the last column. With AVX-512 that
                # may be other elements of B, whose products are not stored, but nothing beyond the array.
                partial = across % lanes > 0 or shape & UPPER_ONLY > 0
                if COPIES:
                    copied = partial or height > _COPY_ROWS
                else:
                    copied = partial and b + (end - 1) * ldb + j + across + lanes > B.size
                if copied:
                    above = max(top, j // ROWS * ROWS - ROWS) if shape & LOWER_ONLY else top  # rows that are needed
                    low, high, _, _ = _needed_range(shape, above, top + height, j, j + across, k)
                    begin, stop = max(start, low), min(end, high)
                    if begin >= stop:
                        continue
                    target = _beyond(strip, (begin - start) * width)
                    _copy_strip(_address(B, b + begin * ldb + j), ldb, stop - begin, across, target)
                for step in range(0, height, ROWS):
                    # Where op(A) is lower triangular, from below, so that rows are read before they are overwritten.
                    i = top + ((height - 1) // ROWS * ROWS - step if shape & LEFT_LOWER else step)
                    rows = min(ROWS, m - i)
                    low, high, left, right = _needed_range(shape, i, i + rows, j, j + across, k)
                    begin, depth = max(low, start), min(high, end) - max(low, start)
                    if depth <= 0 or right <= left:
                        continue
                    pc = _address(C, c + i * ldc + left)
                    if packed:
                        pa, r, s = _beyond(block, (i - top) * (end - start) + (begin - start) * ROWS), 1, ROWS
                    else:
                        pa, r, s = _address(A, a + i * row_step + begin * k_step), row_step, k_step
                    if copied:
                        pb, b_step = _beyond(strip, (begin - start) * width + left - j), width
                    else:
                        pb, b_step = _address(B, b + begin * ldb + left), ldb
                    keep = first if begin == low else C.dtype.type(1)
                    columns = right - left
                    if columns > 2 * lanes:
                        _three(pa, r, s, pb, b_step, pc, ldc, depth, rows, columns - 2 * lanes, scale, keep)
                    elif columns > lanes:
                        _two(pa, r, s, pb, b_step, pc, ldc, depth, rows, columns - lanes, scale, keep)
                    else:
                        _one(pa, r, s, pb, b_step, pc, ldc, depth, rows, columns, scale, keep)

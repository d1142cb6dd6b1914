"""Matrix products at the size of a leaf's blocks, in explicit vector code.

A library's GEMM packs its operands and is made for matrices of thousands; at blocks of 128 and 256 it loses a fifth of
its rate (benchmarks/products.py), and every call has a price. Here a micro-kernel holds ROWS x 3 vectors of C in
registers and walks along k; A is read element by element (so it may as well be transposed), B by rows, neither is
packed. Each sum is formed by fused multiply-adds in the order of k, so its rounding depends on nothing but the numbers.
"""

from typing import Any

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.arrays import Array

_WIDE = "avx512f" in binding.get_host_cpu_features() and binding.get_host_cpu_features()["avx512f"]
VECTOR_BYTES = 64 if _WIDE else 32
ROWS = 8 if _WIDE else 4  # with 3 vectors a row: all registers but those for A and B
_K_BLOCK, _M_BLOCK = 192, 64  # rows of B, and rows of A, that stay in the nearest caches

_I1, _I32, _I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


class _Code:
    """Vector instructions of one micro-kernel."""

    def __init__(self, builder: Any, kind: Any) -> None:
        self.b = builder
        double = kind == types.float64
        self.scalar = ir.DoubleType() if double else ir.FloatType()
        self.size = 8 if double else 4
        self.lanes = VECTOR_BYTES // self.size
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.size}"
        self.zero = ir.Constant(self.vector, [ir.Constant(self.scalar, 0.0)] * self.lanes)

    def _call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        kind = ir.FunctionType(result, [a.type for a in arguments])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), arguments)

    def constant(self, value: int) -> Any:
        return ir.Constant(_I64, value)

    def spread(self, value: Any, lane: Any) -> Any:
        """A vector with the same value in every lane."""
        kind = ir.VectorType(lane, self.lanes)
        empty = ir.Constant(kind, ir.Undefined)
        one = self.b.insert_element(empty, value, ir.Constant(_I32, 0))
        return self.b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes))

    def first_lanes(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        numbers = ir.Constant(ir.VectorType(_I64, self.lanes), [self.constant(i) for i in range(self.lanes)])
        return self.b.icmp_signed("<", numbers, self.spread(count, _I64))

    def place(self, pointer: Any, offset: Any) -> Any:
        return self.b.bitcast(self.b.gep(pointer, [offset]), self.vector.as_pointer())

    def load(self, place: Any, mask: Any | None) -> Any:
        if mask is None:
            return self.b.load(place, align=self.size)
        arguments = [place, ir.Constant(_I32, self.size), mask, self.zero]
        return self._call(f"llvm.masked.load.{self.suffix}.p0", self.vector, arguments)

    def store(self, value: Any, place: Any, mask: Any | None) -> None:
        if mask is None:
            self.b.store(value, place, align=self.size)
        else:
            arguments = [value, place, ir.Constant(_I32, self.size), mask]
            self._call(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), arguments)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self._call(f"llvm.fma.{self.suffix}", self.vector, [a, b, c])


def _emit(code: _Code, vectors: int, data: list[Any], numbers: list[Any]) -> None:
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
    step = b.phi(_I64)
    step.add_incoming(code.constant(0), before)
    sums = [[b.phi(code.vector) for _ in range(vectors)] for _ in range(ROWS)]
    at_a, at_b = b.mul(step, k_step), b.add(ob, b.mul(step, ldb))
    across = [code.load(code.place(pb, b.add(at_b, code.constant(v * code.lanes))), masks[v]) for v in range(vectors)]
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
            _emit(_Code(builder, kind), vectors, [data(0), data(4), data(7)], numbers)
            return context.get_dummy_value()

        return signature, codegen

    return kernel


_one, _two, _three = _micro_kernel(1), _micro_kernel(2), _micro_kernel(3)


@njit(nogil=True, cache=True, error_model="numpy")  # not inlined: the order of its sums is fixed in any copy
def multiply(
    alpha: float, A: Array, ai: int, aj: int, transposed: bool, B: Array, bi: int, bj: int,
    beta: float, C: Array, ci: int, cj: int, m: int, n: int, k: int,
) -> None:  # fmt: skip
    """C[ci:, cj:] := alpha op(A[ai:, aj:]) B[bi:, bj:] + beta C[ci:, cj:], m x n from m x k and k x n.

    op(A) is A, or A^T when `transposed`. Where beta is 0, C may hold anything.
    """
    lda, ldb, ldc = A.shape[1], B.shape[1], C.shape[1]
    row_step, k_step = (1, lda) if transposed else (lda, 1)
    scale, first = C.dtype.type(alpha), C.dtype.type(beta)
    lanes = VECTOR_BYTES // C.itemsize
    strip = 3 * lanes
    for start in range(0, k, _K_BLOCK):
        depth = min(_K_BLOCK, k - start)
        keep = first if start == 0 else C.dtype.type(1)
        a, b, c = ai * lda + aj + start * k_step, (bi + start) * ldb + bj, ci * ldc + cj
        for top in range(0, m, _M_BLOCK):
            for j in range(0, n, strip):
                columns = min(strip, n - j)
                for i in range(top, min(top + _M_BLOCK, m), ROWS):
                    rows = min(ROWS, m - i)
                    ia, jb, ic = a + i * row_step, b + j, c + i * ldc + j
                    if columns > 2 * lanes:
                        last = columns - 2 * lanes
                        _three(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, last, scale, keep)
                    elif columns > lanes:
                        last = columns - lanes
                        _two(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, last, scale, keep)
                    else:
                        _one(A, ia, row_step, k_step, B, jb, ldb, C, ic, ldc, depth, rows, columns, scale, keep)

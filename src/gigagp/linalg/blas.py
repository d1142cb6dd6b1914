"""SciPy's own GEMM, callable from compiled code without the GIL.

The address is registered under a name, so the compiled code refers to a symbol and not to a
number that changes from process to process: that is what keeps Numba's on-disk cache valid.
"""

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from scipy.linalg import cython_blas

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled

_SYMBOL = {types.float64: "gigagp_dgemm", types.float32: "gigagp_sgemm"}
_LLVM = {types.float64: ir.DoubleType(), types.float32: ir.FloatType()}
_I8, _I32 = ir.IntType(8), ir.IntType(32)

for _name in ("dgemm", "sgemm"):
    if "int *" not in str(cython_blas.__pyx_capi__[_name]):
        raise ImportError(f"SciPy's {_name} does not take 32-bit integers; install SciPy from a wheel")
    binding.add_symbol(f"gigagp_{_name}", get_cython_function_address("scipy.linalg.cython_blas", _name))


@intrinsic
def gemm(
    typingctx: Any,
    transpose_a: Any,
    transpose_b: Any,
    m: Any,
    n: Any,
    k: Any,
    alpha: Any,
    A: Any,
    offset_a: Any,
    lda: Any,
    B: Any,
    offset_b: Any,
    ldb: Any,
    beta: Any,
    C: Any,
    offset_c: Any,
    ldc: Any,
) -> Any:
    """C := alpha op(A) op(B) + beta C, column-major as BLAS reads it, each matrix from an offset.

    A row-major matrix is its transpose to BLAS, so a row-major product C = A B is asked as
    C^T = B^T A^T: pass B first, with no transposition.
    """
    kind = A.dtype
    size = types.intp
    signature = types.void(
        types.boolean, types.boolean, size, size, size, kind, A, size, size, B, size, size, kind, C, size, size
    )  # fmt: skip

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def slot(value: Any, kind: Any) -> Any:
            place = cgutils.alloca_once(builder, kind)
            builder.store(value, place)
            return place

        def flag(value: Any) -> Any:
            letter = builder.select(value, ir.Constant(_I8, ord("T")), ir.Constant(_I8, ord("N")))
            return slot(letter, _I8)

        def integer(value: Any) -> Any:
            return slot(builder.trunc(value, _I32), _I32)

        def pointer(position: int, offset: Any) -> Any:
            array = context.make_array(signature.args[position])(context, builder, args[position])
            return builder.gep(array.data, [offset])

        scalar = _LLVM[kind]
        passed = [
            flag(args[0]), flag(args[1]), integer(args[2]), integer(args[3]), integer(args[4]),
            slot(args[5], scalar), pointer(6, args[7]), integer(args[8]),
            pointer(9, args[10]), integer(args[11]), slot(args[12], scalar),
            pointer(13, args[14]), integer(args[15]),
        ]  # fmt: skip
        kind_of_call = ir.FunctionType(ir.VoidType(), [value.type for value in passed])
        builder.call(cgutils.get_or_insert_function(builder.module, kind_of_call, _SYMBOL[kind]), passed)
        return context.get_dummy_value()

    return signature, codegen


@compiled
def multiply(
    alpha: float, A: Array, ai: int, aj: int, ta: bool, B: Array, bi: int, bj: int, tb: bool,
    beta: float, C: Array, ci: int, cj: int, m: int, n: int, k: int,
) -> None:  # fmt: skip
    """C[ci:, cj:] := alpha op(A[ai:, aj:]) op(B[bi:, bj:]) + beta C[ci:, cj:]; row-major, m x k by k x n."""
    a, b, c = A.shape[1], B.shape[1], C.shape[1]
    one = C.dtype.type
    gemm(
        tb, ta, n, m, k, one(alpha), B, bi * b + bj, b, A, ai * a + aj, a, one(beta), C, ci * c + cj, c
    )  # fmt: skip

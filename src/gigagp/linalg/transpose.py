"""Transposes blocks of 8 x 8 elements in registers."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_I32 = ir.IntType(32)
SIDE = 8


@intrinsic
def transpose_block(typingctx: Any, K: Any, from_: Any, ldk: Any, A: Any, to: Any, lda: Any) -> Any:
    """A[to + j * lda + i] := K[from_ + i * ldk + j] for i, j < 8 (offsets into the flat arrays).

    Three rounds of exchanging the off-diagonal blocks of size 1, 2 and 4.
    """
    kind, size = K.dtype, types.intp
    signature = types.void(K, size, size, A, size, size)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        double = kind == types.float64
        vector = ir.VectorType(ir.DoubleType() if double else ir.FloatType(), SIDE)
        align = 8 if double else 4

        def place(position: int, offset: Any, stride: Any, row: int) -> Any:
            data = context.make_array(signature.args[position])(context, b, args[position]).data
            at = b.add(offset, b.mul(stride, ir.Constant(ir.IntType(64), row)))
            return b.bitcast(b.gep(data, [at]), vector.as_pointer())

        rows = [b.load(place(0, args[1], args[2], i), align=align) for i in range(SIDE)]
        for s in (1, 2, 4):
            low = [lane if lane & s == 0 else SIDE + lane - s for lane in range(SIDE)]
            high = [lane + s if lane & s == 0 else SIDE + lane for lane in range(SIDE)]
            for i in range(SIDE):
                if i & s == 0:
                    first, second = rows[i], rows[i + s]
                    for row, lanes in ((i, low), (i + s, high)):
                        mask = ir.Constant(ir.VectorType(_I32, SIDE), lanes)
                        rows[row] = b.shuffle_vector(first, second, mask)
        for j in range(SIDE):
            b.store(rows[j], place(3, args[4], args[5], j), align=align)
        return context.get_dummy_value()

    return signature, codegen

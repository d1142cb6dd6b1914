"""Eight rows of a Cholesky factorisation, and of the factor's inverse, wholly in registers.

Elimination turns [A | I] into [U | L^-1]. Done element by element in memory, the small tiles on the diagonal cost more
than all products around them at leaves of a hundred points.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gigagp.linalg.vectors import VectorCode

ROWS = 8


def _emit(code: VectorCode, vectors: tuple[int, int], data: list[Any], numbers: list[Any]) -> Any:
    """Load both panels, eliminate, store. Returns 0, or 1 + the first row whose pivot is not positive."""
    b = code.b
    a, lda, columns, d, ldd, inverse_columns, rows = numbers
    places, masks, panels = [], [], []  # per row, the vectors of both panels
    for i in range(ROWS):
        row = code.constant(i)
        inside = b.icmp_signed("<", row, rows)
        line: list[Any] = []
        for pointer, offset, step, count, n in (
            (data[0], a, lda, columns, vectors[0]),
            (data[1], d, ldd, inverse_columns, vectors[1]),
        ):
            start = b.add(offset, b.mul(row, step))
            held = b.select(inside, count, code.constant(0))
            for v in range(n):
                place = code.place(pointer, b.add(start, code.constant(v * code.lanes)))
                line.append((place, code.first_lanes(b.sub(held, code.constant(v * code.lanes)))))
        places.append([place for place, _ in line])
        masks.append([mask for _, mask in line])
        panels.append([code.load(place, mask) for place, mask in line])
        # Rows beyond the last are those of the identity, and are not stored.
        unit = ir.Constant(code.vector, [ir.Constant(code.scalar, float(lane == i)) for lane in range(code.lanes)])
        panels[i][0] = b.select(inside, panels[i][0], unit)
    zero, one, infinity = (ir.Constant(code.scalar, x) for x in (0.0, 1.0, float("inf")))
    bad = code.constant(0)
    for j in range(ROWS):
        pivot = code.lane(panels[j][0], j)
        good = b.and_(b.fcmp_ordered(">", pivot, zero), b.fcmp_ordered("<", pivot, infinity))
        first = b.and_(b.not_(good), b.icmp_signed("==", bad, code.constant(0)))
        bad = b.select(first, code.constant(j + 1), bad)
        reciprocal = code.spread(b.fdiv(one, code.square_root(pivot)), code.scalar)
        panels[j] = [b.fmul(reciprocal, value) for value in panels[j]]
        for i in range(j + 1, ROWS):
            factor = b.fneg(code.repeat(panels[j][0], i))
            panels[i] = [
                code.multiply_add(factor, above, value) for above, value in zip(panels[j], panels[i], strict=True)
            ]
    for line, where, which in zip(panels, places, masks, strict=True):
        for value, place, mask in zip(line, where, which, strict=True):
            code.store(value, place, mask)
    return bad


def _eliminate(vectors: tuple[int, int]) -> Any:
    @intrinsic
    def eliminate(
        typingctx: Any,
        A: Any,
        a: Any,
        lda: Any,
        columns: Any,
        D: Any,
        d: Any,
        ldd: Any,
        inverse_columns: Any,
        rows: Any,
    ) -> Any:
        size = types.intp
        signature = types.int64(A, size, size, size, D, size, size, size, size)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def pointer(position: int) -> Any:
                return context.make_array(signature.args[position])(context, builder, args[position]).data

            numbers = [args[i] for i in (1, 2, 3, 5, 6, 7, 8)]
            code = VectorCode(builder, A.dtype, ROWS)
            return _emit(code, vectors, [pointer(0), pointer(4)], numbers)

        return signature, codegen

    return eliminate


# The first, second and last eight rows of a block of up to 24: so many vectors of U, and of L^-1, in a row.
eliminate_first, eliminate_second, eliminate_last = (_eliminate(v) for v in ((3, 1), (2, 2), (1, 3)))

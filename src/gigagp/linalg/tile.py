"""Eight rows of a Cholesky factorisation, and of the factor's inverse, wholly in registers.

Elimination turns [A | I] into [U | L^-1]. Done element by element in memory, the small tiles on the diagonal cost more
than all products around them at leaves of a hundred points.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.linalg.vectors import AVX512, I64, VECTOR_BYTES, VectorCode

ROWS = 8


class _Columns:
    """A vector of columns, eight rows of it, in registers."""

    def __init__(self, code: VectorCode, places: list[Any], masks: list[Any]) -> None:
        self.code, self.places, self.masks = code, places, masks
        self.rows = [code.load(place, mask) for place, mask in zip(places, masks, strict=True)]

    def scale(self, j: int, reciprocal: Any) -> None:
        self.rows[j] = self.code.b.fmul(self.code.spread(reciprocal, self.code.scalar), self.rows[j])

    def subtract(self, j: int, i: int, factor: Any) -> None:
        """Row i += factor * row j."""
        factors = self.code.spread(factor, self.code.scalar)
        self.rows[i] = self.code.multiply_add(factors, self.rows[j], self.rows[i])

    def store(self) -> None:
        for value, place, mask in zip(self.rows, self.places, self.masks, strict=True):
            self.code.store(value, place, mask)


def _emit(b: Any, kind: Any, vectors: tuple[int, int], data: list[Any], numbers: list[Any], whole: bool) -> Any:
    """Load both panels, eliminate, store. Returns 0, or 1 + the first row whose pivot is not positive.

    Columns of U beyond the first eight, and those of L^-1, follow the first. Where registers are enough for all they do
    so at once, which hides the time that pivots take; otherwise one after another, with the multipliers in memory.
    `whole`: all rows and columns are there, and nothing is masked.
    """
    a, lda, columns, d, ldd, inverse_columns, rows = numbers
    code = VectorCode(b, kind, ROWS)
    narrow = VectorCode(b, kind, min(ROWS, VECTOR_BYTES // code.size))

    def load(code: VectorCode, panel: int, first: int) -> _Columns:
        pointer, offset, step, count = ((data[0], a, lda, columns), (data[1], d, ldd, inverse_columns))[panel]
        places, masks = [], []
        for i in range(ROWS):
            row = code.constant(i)
            places.append(code.place(pointer, b.add(b.add(offset, b.mul(row, step)), code.constant(first))))
            count_here = b.select(b.icmp_signed("<", row, rows), count, code.constant(0))
            masks.append(None if whole else code.first_lanes(b.sub(count_here, code.constant(first))))
        return _Columns(code, places, masks)

    lead = load(code, 0, 0)
    if not whole:
        for i in range(ROWS):  # rows beyond the last are those of the identity, and are not stored
            unit = ir.Constant(code.vector, [ir.Constant(code.scalar, float(lane == i)) for lane in range(code.lanes)])
            lead.rows[i] = b.select(b.icmp_signed("<", code.constant(i), rows), lead.rows[i], unit)
    others = [
        (panel, first) for panel in (0, 1) for first in range(0 if panel else ROWS, ROWS * vectors[panel], narrow.lanes)
    ]
    together = [load(narrow, *place) for place in others] if AVX512 else []
    zero, one, infinity = (ir.Constant(code.scalar, x) for x in (0.0, 1.0, float("inf")))
    bad = code.constant(0)
    reciprocals, factors = [], {}
    for j in range(ROWS):
        pivot = code.lane(lead.rows[j], j)
        good = b.and_(b.fcmp_ordered(">", pivot, zero), b.fcmp_ordered("<", pivot, infinity))
        first = b.and_(b.not_(good), b.icmp_signed("==", bad, code.constant(0)))
        bad = b.select(first, code.constant(j + 1), bad)
        reciprocals.append(b.fdiv(one, code.square_root(pivot)))
        for block in (lead, *together):
            block.scale(j, reciprocals[j])
        for i in range(j + 1, ROWS):
            factors[j, i] = b.fneg(code.lane(lead.rows[j], i))
            for block in (lead, *together):
                block.subtract(j, i, factors[j, i])
    for block in (lead, *together):
        block.store()
    for place in () if AVX512 else others:
        block = load(narrow, *place)
        for j in range(ROWS):
            block.scale(j, reciprocals[j])
            for i in range(j + 1, ROWS):
                block.subtract(j, i, factors[j, i])
        block.store()
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
            panels = [pointer(0), pointer(4)]
            if AVX512:  # masks cost nothing
                return _emit(builder, A.dtype, vectors, panels, numbers, False)
            expected = [ROWS * vectors[0], ROWS * vectors[1], ROWS]
            complete = [
                builder.icmp_signed("==", number, ir.Constant(I64, size))
                for number, size in zip((args[3], args[7], args[8]), expected, strict=True)
            ]
            result = cgutils.alloca_once(builder, I64)
            with builder.if_else(builder.and_(builder.and_(complete[0], complete[1]), complete[2])) as (whole, partial):
                with whole:
                    builder.store(_emit(builder, A.dtype, vectors, panels, numbers, True), result)
                with partial:
                    builder.store(_emit(builder, A.dtype, vectors, panels, numbers, False), result)
            return builder.load(result)

        return signature, codegen

    return eliminate


# The first, second and last eight rows of a block of up to 24: so many vectors of U, and of L^-1, in a row.
eliminate_first, eliminate_second, eliminate_last = (_eliminate(v) for v in ((3, 1), (2, 2), (1, 3)))

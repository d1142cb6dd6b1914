"""Eight rows of a Cholesky factorisation, and of the factor's inverse, wholly in registers.

Elimination turns [A | I] into [U | L^-1]. Done element by element in memory, the small tiles on the diagonal cost more
than all products around them at leaves of a hundred points.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gigagp.linalg.vectors import AVX512, VECTOR_BYTES, VectorCode

ROWS = 8


class _Columns:
    """A vector of columns, eight rows of it, in registers."""

    def __init__(self, code: VectorCode, pointer: Any, offset: Any, step: Any) -> None:
        self.code = code
        starts = [code.b.add(offset, code.b.mul(code.constant(i), step)) for i in range(ROWS)]
        self.places = [code.place(pointer, start) for start in starts]
        self.rows = [code.load(place, None) for place in self.places]

    def scale(self, j: int, reciprocal: Any) -> None:
        """Row j *= reciprocal."""
        self.rows[j] = self.code.b.fmul(self.code.spread(reciprocal, self.code.scalar), self.rows[j])

    def add(self, factor: Any, j: int, i: int) -> None:
        """Row i += factor * row j; the factor is a number, or a vector that holds it in every lane."""
        factors = factor if factor.type == self.code.vector else self.code.spread(factor, self.code.scalar)
        self.rows[i] = self.code.multiply_add(factors, self.rows[j], self.rows[i])

    def store(self) -> None:
        for value, place in zip(self.rows, self.places, strict=True):
            self.code.store(value, place, None)


def _emit(b: Any, kind: Any, vectors: tuple[int, int], numbers: list[Any]) -> Any:
    """Load both panels, eliminate, store. Returns 0, or 1 + the first row whose pivot is not positive.

    Columns of U beyond the first eight, and those of L^-1, follow the first eight. Where there are registers for all,
    they do so step by step, which hides the time that pivots take; otherwise one vector after another, with the
    multipliers in memory. The arithmetic is the same.
    """
    a_pointer, a, lda, d_pointer, d, ldd = numbers
    code = VectorCode(b, kind, ROWS)
    narrow = VectorCode(b, kind, min(ROWS, VECTOR_BYTES // code.size))
    lead = _Columns(code, a_pointer, a, lda)
    others = [
        *((a_pointer, b.add(a, code.constant(c)), lda) for c in range(ROWS, ROWS * vectors[0], narrow.lanes)),
        *((d_pointer, b.add(d, code.constant(c)), ldd) for c in range(0, ROWS * vectors[1], narrow.lanes)),
    ]
    together = [lead, *(_Columns(narrow, *place) for place in others)] if AVX512 else [lead]
    zero, one, infinity = (ir.Constant(code.scalar, x) for x in (0.0, 1.0, float("inf")))
    bad = code.constant(0)
    reciprocals, factors = [], {}
    for j in range(ROWS):
        pivot = code.lane(lead.rows[j], j)
        good = b.and_(b.fcmp_ordered(">", pivot, zero), b.fcmp_ordered("<", pivot, infinity))
        first = b.and_(b.not_(good), b.icmp_signed("==", bad, code.constant(0)))
        bad = b.select(first, code.constant(j + 1), bad)
        reciprocals.append(b.fdiv(one, code.square_root(pivot)))
        for columns in together:
            columns.scale(j, reciprocals[j])
        for i in range(j + 1, ROWS):
            # One instruction with AVX-512, where all vectors have eight lanes; otherwise numbers need fewer registers.
            factors[j, i] = b.fneg(code.repeat(lead.rows[j], i) if AVX512 else code.lane(lead.rows[j], i))
            for columns in together:
                columns.add(factors[j, i], j, i)
    for columns in together:
        columns.store()
    for place in others[len(together) - 1 :]:
        columns = _Columns(narrow, *place)
        for j in range(ROWS):
            columns.scale(j, reciprocals[j])
            for i in range(j + 1, ROWS):
                columns.add(factors[j, i], j, i)
        columns.store()
    return bad


def _eliminate(vectors: tuple[int, int]) -> Any:
    @intrinsic
    def eliminate(typingctx: Any, A: Any, a: Any, lda: Any, D: Any, d: Any, ldd: Any) -> Any:
        size = types.intp

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = list(args)
            for position in (0, 3):
                array = context.make_array(signature.args[position])(context, builder, args[position])
                numbers[position] = array.data
            return _emit(builder, A.dtype, vectors, numbers)

        return types.int64(A, size, size, D, size, size), codegen

    return eliminate


# For the first, second and last eight rows of a block of 24; the pairs are the numbers of vectors of U and of L^-1.
eliminate_first, eliminate_second, eliminate_last = (_eliminate(v) for v in ((3, 1), (2, 2), (1, 3)))

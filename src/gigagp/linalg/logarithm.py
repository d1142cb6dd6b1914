"""ln t for t >= 1, in explicit vector code.

t = 2^n m, m between sqrt(1/2) and sqrt(2); ln m = 2 artanh(s), s = (m - 1) / (m + 1), by its series in s^2 (11 terms,
or 5 in float32: the remainder is below half a unit in the last place).
"""

from typing import Any, NamedTuple

from llvmlite import ir

from gigagp.linalg.vectors import VectorCode


class _Format(NamedTuple):
    """What depends on the precision."""

    shift: float  # an integer added to its bits becomes a float
    shift_bits: int
    root_half_bits: int  # of sqrt(1/2)
    mantissa_bits: int
    ln2_high: float  # ln 2 in two parts, of which the first has trailing zeros
    ln2_low: float
    terms: int


_DOUBLE = _Format(
    6755399441055744.0, 0x4338000000000000, 0x3FE6A09E667F3BCD, 52, 0.6931471803691238, 1.9082149292705877e-10, 11
)
_SINGLE = _Format(12582912.0, 0x4B400000, 0x3F3504F3, 23, 0.693359375, -2.12194440e-4, 5)


def write_log(code: VectorCode, t: Any) -> Any:
    """ln t for a vector of numbers >= 1; NaN and infinity stay what they are."""
    b = code.b
    form = _DOUBLE if code.size == 8 else _SINGLE
    integers = ir.VectorType(ir.IntType(8 * code.size), code.lanes)

    def integer(value: int) -> Any:
        return ir.Constant(integers, [ir.Constant(integers.element, value)] * code.lanes)

    bits = b.bitcast(t, integers)
    exponent = b.lshr(b.sub(bits, integer(form.root_half_bits)), integer(form.mantissa_bits))
    m = b.bitcast(b.sub(bits, b.shl(exponent, integer(form.mantissa_bits))), code.vector)
    n = b.fsub(b.bitcast(b.add(exponent, integer(form.shift_bits)), code.vector), code.number(form.shift))
    one = code.number(1.0)
    s = b.fdiv(b.fsub(m, one), b.fadd(m, one))
    square = b.fmul(s, s)
    series = code.number(2 / (2 * form.terms - 1))
    for term in range(form.terms - 2, -1, -1):
        series = code.multiply_add(series, square, code.number(2 / (2 * term + 1)))
    low = code.multiply_add(n, code.number(form.ln2_low), b.fmul(s, series))
    result = code.multiply_add(n, code.number(form.ln2_high), low)
    return b.select(b.fcmp_ordered("<", t, code.number(float("inf"))), result, t)

"""e^x for x <= 0, in explicit vector code.

x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series (degree 13, or 7 in float32: the remainder is below half
a unit in the last place); 2^n by writing n into the exponent bits. Adding 1.5 * 2^52 rounds to an integer and leaves it
in the low bits, so no float-to-integer conversion (which AVX2 lacks) is needed.
"""

from math import factorial
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gigagp.linalg.vectors import I32, VectorCode

_LOG2E = 1.4426950408889634


class _Format(NamedTuple):
    """What depends on the precision."""

    shift: float  # adding it rounds to an integer
    ln2_high: float  # ln 2 in two parts, of which the first has trailing zeros
    ln2_low: float
    lowest: float  # e^x is zero below
    degree: int
    mantissa_bits: int
    one: int  # the bits of 1.0


_DOUBLE = _Format(6755399441055744.0, 0.6931471803691238, 1.9082149292705877e-10, -708.0, 13, 52, 0x3FF0000000000000)
_SINGLE = _Format(12582912.0, 0.693359375, -2.12194440e-4, -87.0, 7, 23, 0x3F800000)


def write_exp(code: VectorCode, powers: Any) -> Any:
    """e^x for a vector of numbers <= 0; zero below e^-708 (e^-87 in float32); NaN stays NaN."""
    b = code.b
    form = _DOUBLE if code.size == 8 else _SINGLE
    integers = ir.VectorType(ir.IntType(8 * code.size), code.lanes)

    def integer(value: int) -> Any:
        return ir.Constant(integers, [ir.Constant(integers.element, value)] * code.lanes)

    lowest = code.number(form.lowest)
    below = b.fcmp_ordered("<", powers, lowest)
    x = b.select(below, lowest, powers)
    shifted = code.multiply_add(x, code.number(_LOG2E), code.number(form.shift))
    n = b.fsub(shifted, code.number(form.shift))
    r = code.multiply_add(n, code.number(-form.ln2_high), x)
    r = code.multiply_add(n, code.number(-form.ln2_low), r)
    e = code.number(1 / factorial(form.degree))
    for power in range(form.degree - 1, -1, -1):
        e = code.multiply_add(e, r, code.number(1 / factorial(power)))
    exponent = b.shl(b.bitcast(shifted, integers), integer(form.mantissa_bits))
    e = b.fmul(e, b.bitcast(b.add(integer(form.one), exponent), code.vector))
    return b.select(below, code.zero, e)


@intrinsic
def exp_nonpositive(typingctx: Any, x: Any) -> Any:
    """e^x for one number x <= 0 in compiled code."""
    kind = types.float32 if x == types.float32 else types.float64

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(builder, kind, 1)
        result = write_exp(code, code.spread(args[0], code.scalar))
        return builder.extract_element(result, ir.Constant(I32, 0))

    return kind(kind), codegen

"""e^x for x <= 0, written so that LLVM turns a loop over it into vector code.

x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series (degree 13, or 7 in float32: the remainder is below half
a unit in the last place); 2^n by writing n into the exponent bits. Adding 1.5 * 2^52 rounds to an integer and leaves it
in the low bits, so no float-to-integer conversion (which AVX2 lacks) is needed.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from gigagp.linalg.compiled import compiled_strict
from gigagp.linalg.vectors import multiply_add

_SHIFT64, _SHIFT32 = 6755399441055744.0, np.float32(12582912.0)
_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_LN2_HIGH32, _LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
_LOWEST64, _LOWEST32 = -708.0, np.float32(-87.0)


@intrinsic
def _bits(typingctx: Any, value: Any) -> Any:
    """The bits of a float as an integer of the same width."""
    integer, width = (types.int64, 64) if value == types.float64 else (types.int32, 32)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(width))

    return integer(value), codegen


@intrinsic
def _float(typingctx: Any, value: Any) -> Any:
    """The float whose bits are the given integer."""
    kind, llvm = (types.float64, ir.DoubleType()) if value == types.int64 else (types.float32, ir.FloatType())

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], llvm)

    return kind(value), codegen


def _exp64(given: float) -> float:
    x = _LOWEST64 if given < _LOWEST64 else given  # NaN stays NaN
    shifted = multiply_add(x, _LOG2E, _SHIFT64)
    n = shifted - _SHIFT64
    r = multiply_add(n, -_LN2_LOW, multiply_add(n, -_LN2_HIGH, x))
    e = 1 / 6227020800.0
    e = multiply_add(e, r, 1 / 479001600.0)
    e = multiply_add(e, r, 1 / 39916800.0)
    e = multiply_add(e, r, 1 / 3628800.0)
    e = multiply_add(e, r, 1 / 362880.0)
    e = multiply_add(e, r, 1 / 40320.0)
    e = multiply_add(e, r, 1 / 5040.0)
    e = multiply_add(e, r, 1 / 720.0)
    e = multiply_add(e, r, 1 / 120.0)
    e = multiply_add(e, r, 1 / 24.0)
    e = multiply_add(e, r, 1 / 6.0)
    e = multiply_add(e, r, 0.5)
    e = multiply_add(e, r, 1.0)
    e = multiply_add(e, r, 1.0)
    e = e * _float(_bits(1.0) + (_bits(shifted) << 52))
    return 0.0 if given < _LOWEST64 else e


def _exp32(given: Any) -> Any:
    f = np.float32
    x = _LOWEST32 if given < _LOWEST32 else given
    shifted = multiply_add(x, f(_LOG2E), _SHIFT32)
    n = shifted - _SHIFT32
    r = multiply_add(n, -_LN2_LOW32, multiply_add(n, -_LN2_HIGH32, x))
    e = f(1 / 5040.0)
    e = multiply_add(e, r, f(1 / 720.0))
    e = multiply_add(e, r, f(1 / 120.0))
    e = multiply_add(e, r, f(1 / 24.0))
    e = multiply_add(e, r, f(1 / 6.0))
    e = multiply_add(e, r, f(0.5))
    e = multiply_add(e, r, f(1.0))
    e = multiply_add(e, r, f(1.0))
    e = e * _float(np.int32(_bits(f(1.0)) + (_bits(shifted) << np.int32(23))))
    return f(0.0) if given < _LOWEST32 else e


_exp64_compiled = compiled_strict(_exp64)
_exp32_compiled = compiled_strict(_exp32)


def exp_nonpositive(x: float) -> float:
    """e^x for x <= 0; zero below e^-708 (e^-87 in float32)."""
    return float(np.exp(x))


@overload(exp_nonpositive, strict=False)
def _choose_by_type(x: Any) -> Any:
    def single(x: Any) -> Any:
        return _exp32_compiled(x)

    def double(x: Any) -> Any:
        return _exp64_compiled(np.float64(x))

    return single if x == types.float32 else double

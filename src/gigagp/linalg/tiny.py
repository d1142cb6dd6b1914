"""Subnormal numbers count as zero while experts compute.

Covariances decrease so fast that products of them become subnormal, above all in float32. Compared with the noise
nothing is lost, and processors take tens of times as long for such numbers as for others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.linalg.compiled import compiled_brief

P = ParamSpec("P")
R = TypeVar("R")

_HAS_REGISTER = binding.get_process_triple().startswith("x86_64")
_RESULTS_AND_OPERANDS = 0x8040  # bits of MXCSR: flush to zero, denormals are zero


@intrinsic
def _swap(typingctx: Any, value: Any) -> Any:
    """Write the thread's floating point control register, and return its former value; zero if the CPU is not x86."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not _HAS_REGISTER:
            return ir.Constant(ir.IntType(32), 0)
        place = cgutils.alloca_once(builder, ir.IntType(32))
        pointer = builder.bitcast(place, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.stmxcsr"), [pointer])
        before = builder.load(place)
        word = builder.select(builder.icmp_signed("<", args[0], ir.Constant(ir.IntType(32), 0)), before, args[0])
        builder.store(word, place)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.ldmxcsr"), [pointer])
        return before

    return types.int32(types.int32), codegen


@compiled_brief
def _control(value: int) -> int:
    """Set the register, unless the value is negative; returns its former value."""
    return _swap(value)  # type: ignore[no-any-return, call-arg]


@compiled_brief
def _flush() -> int:
    """Treat subnormal numbers as zero from now on; returns the former value of the register."""
    before = _control(-1)
    _control(before | _RESULTS_AND_OPERANDS)
    return before


def flush_in_this_thread() -> None:
    """Treat subnormal numbers as zero in this thread from now on."""
    _flush()


def tiny_is_zero(function: Callable[P, R]) -> Callable[P, R]:
    """Treat subnormal numbers as zero while the function runs; the thread's setting is restored afterwards."""

    @wraps(function)
    def flushing(*args: P.args, **named: P.kwargs) -> R:
        before = _flush()
        try:
            return function(*args, **named)
        finally:
            _control(before)

    return flushing

"""Vector instructions, written as LLVM code, for the passes in which registers decide the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# What Numba compiles for: the host, or the lesser CPU that NUMBA_CPU_NAME and NUMBA_CPU_FEATURES describe.
_TRIPLE, _, _FEATURES = cpu_target.target_context.codegen().magic_tuple()
_X86 = _TRIPLE.startswith("x86_64")
_AVAILABLE = {feature[1:] for feature in _FEATURES.split(",") if feature.startswith("+")}

AVX512 = "avx512f" in _AVAILABLE
AVX2 = "avx2" in _AVAILABLE
# Without the instruction LLVM calls a library function per number. ARM always has it.
FUSED = "fma" in _AVAILABLE or not _X86
VECTOR_BYTES = 64 if AVX512 else 16 if _X86 and not AVX2 else 32

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)


@intrinsic
def whole_registers(typingctx: Any) -> Any:
    """Called in a compiled function: its loops use the widest vectors there are; by default LLVM holds back half."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # llvmlite checks names against the attributes it knows; this one it would refuse.
        set.add(builder.function.attributes, f'"prefer-vector-width"="{8 * VECTOR_BYTES}"')
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c: rounded once where the CPU has the instruction, otherwise twice; on one CPU always alike."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _multiply_add(builder, args, f"f{signature.return_type.bitwidth}")

    return a(a, a, a), codegen


def _multiply_add(builder: Any, args: Sequence[Any], suffix: str) -> Any:
    a, b, c = args
    if not FUSED:
        return builder.fadd(builder.fmul(a, b), c)
    kind = ir.FunctionType(c.type, [c.type] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.{suffix}"), [a, b, c])


_SIDE_BY_SIDE = 4  # vectors that are worked on at a time: enough to hide the time that a multiply-add takes


def sweep(b: Any, kind: Any, n: Any, block: Callable[[VectorCode, Any, int], None]) -> None:
    """Code for n points in a row: `block` writes it for a few vectors, then for one, then for single numbers."""
    begin = ir.Constant(I64, 0)
    for lanes, vectors in ((None, _SIDE_BY_SIDE), (None, 1), (1, 1)):
        code = VectorCode(b, kind, lanes)
        width = code.constant(vectors * code.lanes)
        end = b.sub(n, b.srem(b.sub(n, begin), width))
        with cgutils.for_range_slice(b, begin, end, width, I64) as (start, _):
            block(code, start, vectors)
        begin = end


def elementwise(function: Callable[[VectorCode, Any, Any], Any]) -> Any:
    """A pass row[:n] := function(row[:n], number) for compiled code; `function` writes it for one vector.

    The same operations for whole vectors and for the remainder: an element's rounding does not depend on its place.
    Only for functions that are `compiled_strict`: where operations may be regrouped, a number that is added and
    subtracted in order to round would be cancelled.
    """

    @intrinsic
    def apply(typingctx: Any, row: Any, n: Any, number: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data

            def block(code: VectorCode, start: Any, vectors: int) -> None:
                spread = code.spread(args[2], code.scalar)
                places = [code.place(data, builder.add(start, code.constant(v * code.lanes))) for v in range(vectors)]
                results = [function(code, code.load(place, None), spread) for place in places]
                for result, place in zip(results, places, strict=True):
                    code.store(result, place, None)

            sweep(builder, row.dtype, args[1], block)
            return context.get_dummy_value()

        return types.void(row, types.intp, row.dtype), codegen

    return apply


class VectorCode:
    """Writes instructions on vectors of a number of lanes (default: a whole register)."""

    def __init__(self, builder: Any, kind: Any, lanes: int | None = None) -> None:
        self.b = builder
        double = kind == types.float64
        self.scalar = ir.DoubleType() if double else ir.FloatType()
        self.size = 8 if double else 4
        self.lanes = lanes or VECTOR_BYTES // self.size
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.suffix = f"v{self.lanes}f{8 * self.size}"
        self.zero = ir.Constant(self.vector, [ir.Constant(self.scalar, 0.0)] * self.lanes)

    def _call(self, name: str, result: Any, arguments: list[Any]) -> Any:
        kind = ir.FunctionType(result, [a.type for a in arguments])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), arguments)

    def constant(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def spread(self, value: Any, lane: Any) -> Any:
        """A vector with the same value in every lane."""
        kind = ir.VectorType(lane, self.lanes)
        empty = ir.Constant(kind, ir.Undefined)
        one = self.b.insert_element(empty, value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes))

    def first_lanes(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        numbers = ir.Constant(ir.VectorType(I64, self.lanes), [self.constant(i) for i in range(self.lanes)])
        return self.b.icmp_signed("<", numbers, self.spread(count, I64))

    def place(self, pointer: Any, offset: Any) -> Any:
        return self.b.bitcast(self.b.gep(pointer, [offset]), self.vector.as_pointer())

    def load(self, place: Any, mask: Any | None) -> Any:
        if mask is None:
            return self.b.load(place, align=self.size)
        arguments = [place, ir.Constant(I32, self.size), mask, self.zero]
        return self._call(f"llvm.masked.load.{self.suffix}.p0", self.vector, arguments)

    def store(self, value: Any, place: Any, mask: Any | None) -> None:
        if mask is None:
            self.b.store(value, place, align=self.size)
        else:
            arguments = [value, place, ir.Constant(I32, self.size), mask]
            self._call(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), arguments)

    def prefetch(self, place: Any) -> None:
        place = self.b.bitcast(place, ir.IntType(8).as_pointer())
        to_read, nearest, data = (ir.Constant(I32, n) for n in (0, 3, 1))
        self._call("llvm.prefetch.p0", ir.VoidType(), [place, to_read, nearest, data])

    def loop(
        self, count: Any, entering: list[Any], body: Callable[[Any, list[Any]], list[Any]], unroll: bool = True
    ) -> list[Any]:
        """A loop over step < count (at least one) that carries values; `body` makes the next from step and last.

        unroll : whether LLVM may unroll the loop. It then keeps a pointer for each number that any of the copies reads,
            and where these are more than there are registers it moves pointers to and from the stack at every step.
        """
        b = self.b
        before = b.block
        again, done = b.append_basic_block("loop"), b.append_basic_block("done")
        b.branch(again)
        b.position_at_end(again)
        step = b.phi(I64)
        step.add_incoming(self.constant(0), before)
        carried = [b.phi(value.type) for value in entering]
        values = body(step, carried)
        following = b.add(step, self.constant(1))
        step.add_incoming(following, b.block)
        for phi, first, value in zip(carried, entering, values, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(value, b.block)
        end = b.cbranch(b.icmp_signed("<", following, count), again, done)
        if not unroll:
            self._forbid_unrolling(end)
        b.position_at_end(done)
        return values

    def _forbid_unrolling(self, end: Any) -> None:
        """Mark a loop, given by the branch at its end."""
        module = self.b.module
        rule = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        loop = module.add_metadata([rule, self.constant(len(module.metadata))])  # a number that no other loop has
        loop.operands = loop, rule  # LLVM requires that the rules of a loop begin with a reference to themselves
        end.set_metadata("llvm.loop", loop)

    def lane(self, value: Any, index: int) -> Any:
        return self.b.extract_element(value, ir.Constant(I32, index))

    def repeat(self, value: Any, index: int) -> Any:
        """A vector with one lane of `value` in every lane."""
        empty = ir.Constant(value.type, ir.Undefined)
        pattern = ir.Constant(ir.VectorType(I32, self.lanes), [index] * self.lanes)
        return self.b.shuffle_vector(value, empty, pattern)

    def number(self, value: float) -> Any:
        """A vector with the same constant in every lane."""
        return ir.Constant(self.vector, [ir.Constant(self.scalar, value)] * self.lanes)

    def square_root(self, value: Any) -> Any:
        """Of a vector or of one number."""
        suffix = self.suffix if value.type == self.vector else f"f{8 * self.size}"
        return self._call(f"llvm.sqrt.{suffix}", value.type, [value])

    def smaller(self, a: Any, b: Any) -> Any:
        """The smaller of each two lanes; NaN where a is."""
        return self.b.select(self.b.fcmp_ordered(">", a, b), b, a)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger of each two lanes; NaN where a is."""
        return self.b.select(self.b.fcmp_ordered("<", a, b), b, a)

    def absolute(self, value: Any) -> Any:
        return self._call(f"llvm.fabs.{self.suffix}", self.vector, [value])

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return _multiply_add(self.b, (a, b, c), self.suffix)

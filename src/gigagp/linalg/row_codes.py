"""One byte per number of a row: where it lies in the box around its block, in 256ths of the side.

A search compares most rows only to find that they are too far away. From the codes it computes a lower bound of each
squared distance, and reads the row itself only where the bound is small enough, so that it reads an eighth of the
memory. Bounds are computed in float32 and allow for its rounding, therefore no row that belongs to the result is
missed, and results are the same to the bit as without codes. Codes do not depend on the metric.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_in_place, compiled_strict
from gigagp.linalg.searching import FANOUT
from gigagp.linalg.vectors import I32, I64, VectorCode

PADDING = 64  # bytes at the end of all codes: whole vectors are read
OFFSET, STEP, SLACK = 0, 1, 2  # rows of a block's `prepared` box
PREPARED = 3  # number of them
_STEPS = 256  # into which a side is divided
_SPAN = 32  # rows whose bounds are computed together
_ROUNDING = 4e-7  # of bounds in float32, relative to the largest number that occurs
_ROUNDING_OF_SUMS = 1.2e-7  # of a sum of squares in float32, relative, per column
_ROUNDING_OF_SIDES = 1e-14  # of the box in float64, likewise


@compiled_strict
def _encode(X: Array, starts: Array, frames: Array, corners: Array, codes: Array) -> None:
    columns, place = X.shape[1], 0
    for block in range(len(starts) - 1):
        node, child = block // FANOUT, block % FANOUT
        for d in range(columns):
            base, unit = np.float64(frames[node, 0, d]), np.float64(frames[node, 1, d])
            low = base + unit * corners[node, 0, d, child]
            width = unit * (np.int64(corners[node, 1, d, child]) - np.int64(corners[node, 0, d, child]))
            scale = _STEPS / width if 0 < width < np.inf else 0.0
            scale = scale if scale < np.inf else 0.0
            for i in range(starts[block], starts[block + 1]):
                codes[place] = min(max(int((X[i, d] - low) * scale), 0), _STEPS - 1)
                place += 1


def encode(X: Array, starts: Array, frames: Array, corners: Array) -> Array:
    """The codes of rows: block after block, and in a block column after column.

    starts, frames, corners : rows and boxes of blocks (`model.block_tree`), of which the first are those of X
    """
    codes = np.zeros(length(*X.shape), np.uint8)
    _encode(X, starts, frames, corners, codes)
    return codes


def length(rows: int, columns: int) -> int:
    """How long the codes of so many rows are, with their padding."""
    return rows * columns + PADDING


@intrinsic
def _within(
    typingctx: Any, codes: Any, first: Any, stride: Any, columns: Any, prepared: Any, worst: Any, count: Any
) -> Any:
    """Bit i of the result: whether the bound of row i < count is at most `worst`.

    first, stride : place of the first row's code in the first column, and how far columns are apart
    """

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data, box = (context.make_array(signature.args[i])(context, b, args[i]).data for i in (0, 4))
        first, stride, columns, worst, count = (args[i] for i in (1, 2, 3, 5, 6))
        lanes = min(_SPAN, VectorCode(b, types.float32).lanes)
        code = VectorCode(b, types.float32, lanes)
        parts = range(0, _SPAN, lanes)
        bytes_, whole = ir.VectorType(ir.IntType(8), lanes), ir.VectorType(I32, lanes)

        def add_column(d: Any, sums: list[Any]) -> list[Any]:
            offset, step, slack = (
                code.spread(b.load(b.gep(box, [b.add(d, b.mul(columns, code.constant(i)))])), code.scalar)
                for i in range(PREPARED)
            )
            start, totals = b.add(first, b.mul(d, stride)), []
            for part, total in zip(parts, sums, strict=True):
                place = b.bitcast(b.gep(data, [b.add(start, code.constant(part))]), bytes_.as_pointer())
                number = b.sitofp(b.zext(b.load(place, align=1), whole), code.vector)
                t = b.fsub(code.absolute(code.multiply_add(number, step, offset)), slack)
                t = code.larger(code.zero, t)  # zero where t is not a number
                totals.append(code.multiply_add(t, t, total))
            return totals

        totals = code.loop(columns, [code.zero] * len(parts), add_column)
        bound, mask = code.spread(worst, code.scalar), code.constant(0)
        for part, total in zip(parts, totals, strict=True):
            near = b.bitcast(b.fcmp_ordered("<=", total, bound), ir.IntType(lanes))
            mask = b.or_(mask, b.shl(b.zext(near, I64), code.constant(part)))
        beyond = b.shl(ir.Constant(I64, -1), count)  # count < 64
        return b.and_(mask, b.not_(beyond))

    return types.int64(codes, types.intp, types.intp, types.intp, prepared, types.float32, types.intp), codegen


@intrinsic
def _lowest_bit(typingctx: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set; the mask must not be zero."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(I64, [I64, ir.IntType(1)])
        function = cgutils.get_or_insert_function(b.module, kind, "llvm.cttz.i64")
        return b.call(function, [args[0], ir.Constant(ir.IntType(1), 1)])

    return types.int64(types.int64), codegen


@compiled_in_place
def prepare_box(
    frames: Array, corners: Array, node: int, child: int, metric: Array, point: Array, prepared: Array
) -> None:
    """prepared := the box of one block as `rows_possibly_within` needs it.

    With code c a number lies between low + c step and low + (c + 1) step; its distance to the point is at least
    |offset + c step| - slack, where offset is measured from the middle of that interval and slack is half its length.

    metric, point : factors of the columns, and the point in the metric; the block is the child-th below that node
    """
    for d in range(len(point)):
        base, unit = np.float64(frames[node, 0, d]) * metric[0, d], np.float64(frames[node, 1, d]) * metric[0, d]
        low, high = base + unit * corners[node, 0, d, child], base + unit * corners[node, 1, d, child]
        step = (high - low) / _STEPS
        offset = low - point[d] + 0.5 * step
        rounding = _ROUNDING * (abs(offset) + (high - low)) + _ROUNDING_OF_SIDES * (abs(low) + abs(high))
        prepared[OFFSET, d], prepared[STEP, d] = np.float32(offset), np.float32(step)
        prepared[SLACK, d] = np.float32(0.5 * step + rounding + _ROUNDING_OF_SIDES * abs(point[d]))


@compiled_in_place
def rows_possibly_within(codes: Array, begin: int, end: int, prepared: Array, worst: float, rows: Array) -> int:
    """Which rows of the block begin .. end may lie within the squared distance `worst`; returns how many.

    rows : numbers of these rows; at least as long as the block
    """
    columns, count = prepared.shape[1], 0
    bound = np.float32(worst * (1 + _ROUNDING_OF_SUMS * (columns + 8)))
    for start in range(begin, end, _SPAN):
        place = begin * columns + start - begin
        mask = _within(codes, place, end - begin, columns, prepared, bound, min(_SPAN, end - start))
        while mask != 0:
            rows[count] = start + _lowest_bit(mask)
            count += 1
            mask &= mask - 1
    return count

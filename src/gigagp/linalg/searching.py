"""The inner loops of the search for the nearest rows, in explicit vector code.

Rows lie one after the other, few columns each, so a vector holds columns of one row; as many rows as it has lanes are
compared together, and their lanes are added up in a transposition. The rounding of a distance does not depend on the
position of its row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_in_place
from gigagp.linalg.vectors import I64, VECTOR_BYTES, VectorCode, multiply_add

FANOUT = 8  # boxes whose distances are computed together
STEPS = 255  # into which the sides of a frame are divided: a corner is one byte
_ROUNDING_OF_SUMS = 1e-12  # of sums of squares, relative, in any order of the columns
_MOST_LANES = VECTOR_BYTES // 8
_LINE = 64  # bytes fetched together


@compiled_in_place
def _lanes(columns: int) -> int:
    """Columns that a vector holds: as many as there are registers for, but never more than a row has."""
    lanes = _MOST_LANES
    while lanes > columns:
        lanes //= 2
    return lanes


@compiled_in_place
def padded_length(columns: int) -> int:
    """How many numbers `pad` writes for a row."""
    lanes = _lanes(columns)
    return -(-columns // lanes) * lanes


@compiled_in_place
def pad(values: Array, out: Array) -> None:
    """The columns in the order in which vectors hold them.

    The last vector ends with the last column, so that no load leaves its row; where it holds columns that the vector
    before it has too, there are zeros, and they count once.
    """
    columns = len(values)
    repeated = padded_length(columns) - columns
    last = columns - _lanes(columns)
    for d in range(last + repeated):
        out[d] = values[d]
    for d in range(last + repeated, last + 2 * repeated):
        out[d] = 0.0
    for d in range(last + repeated, columns):
        out[d + repeated] = values[d]


def _add_up(b: Any, sums: list[Any]) -> Any:
    """One vector whose lane i is the sum of the lanes of vector i, added in pairs."""
    lanes = len(sums)
    together = 1
    while len(sums) > 1:
        first, second = (
            ir.Constant(
                ir.VectorType(ir.IntType(32), lanes),
                [
                    (lane // together % 2) * lanes + lane // (2 * together) * 2 * together + odd * together
                    + lane % together
                    for lane in range(lanes)
                ],
            )
            for odd in (0, 1)
        )  # fmt: skip
        sums = [
            b.fadd(b.shuffle_vector(x, y, first), b.shuffle_vector(x, y, second))
            for x, y in zip(sums[::2], sums[1::2], strict=True)
        ]
        together *= 2
    return sums[0]


class _RowCode:
    """Writes the comparison of rows with a point for one number of lanes."""

    def __init__(
        self, b: Any, kind: Any, lanes: int, columns: Any, metric: Any, point: Any, limits: Any | None
    ) -> None:
        self.b, self.code, self.stored = b, VectorCode(b, types.float64, lanes), VectorCode(b, kind, lanes)
        self.columns, self.metric, self.point, self.limits = columns, metric, point, limits
        count = b.add(columns, self.code.constant(lanes - 1))
        self.vectors = b.sdiv(count, self.code.constant(lanes))

    def _load(self, pointer: Any, offset: Any) -> Any:
        value = self.stored.load(self.stored.place(pointer, offset), None)
        return value if value.type == self.code.vector else self.b.fpext(value, self.code.vector)

    def squares(self, rows: list[Any]) -> Any:
        """Squared distances of the rows at these pointers, one per lane."""
        b, code = self.b, self.code
        last = b.sub(self.columns, code.constant(code.lanes))

        def add_columns(step: Any, sums: list[Any]) -> list[Any]:
            padded = b.mul(step, code.constant(code.lanes))
            start = b.select(b.icmp_signed("<", padded, last), padded, last)
            scale, own = (code.load(code.place(p, padded), None) for p in (self.metric, self.point))
            minus = b.fneg(own)
            differences = [code.multiply_add(self._load(row, start), scale, minus) for row in rows]
            if self.limits is not None:
                most = code.load(code.place(self.limits, padded), None)
                squares = [code.smaller(b.fmul(t, t), most) for t in differences]
                return [b.fadd(square, total) for square, total in zip(squares, sums, strict=True)]
            return [code.multiply_add(t, t, total) for t, total in zip(differences, sums, strict=True)]

        return _add_up(b, code.loop(self.vectors, [code.zero] * code.lanes, add_columns))


def _write_rows_within(lanes: int, listed: bool, limited: bool = False) -> Any:
    """The code of `rows_within` or, if `listed`, of `listed_within`, for one number of lanes and with limits or not."""

    @intrinsic
    def rows_within(
        typingctx: Any, X: Any, first: Any, end: Any, metric: Any, point: Any, worst: Any, squares: Any, rows: Any,
        limits: Any,
    ) -> Any:  # fmt: skip
        size = types.intp

        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            arrays = {i: context.make_array(signature.args[i])(context, b, args[i]) for i in (0, 3, 4, 6, 7, 8)}
            data, squares_data, rows_data = arrays[0].data, arrays[6].data, arrays[7].data
            _, columns = cgutils.unpack_tuple(b, arrays[0].shape, 2)
            most = arrays[8].data if limited else None
            write = _RowCode(b, X.dtype, lanes, columns, arrays[3].data, arrays[4].data, most)
            code = write.code
            begin, stop = args[1], args[2]
            bound = code.spread(args[5], code.scalar)
            count = cgutils.alloca_once_value(b, code.constant(0))

            def row_number(place: Any) -> Any:
                return b.load(b.gep(rows_data, [place])) if listed else place

            def compare(places: list[Any], counted: Any | None) -> None:
                numbers = [row_number(place) for place in places]
                square = write.squares([b.gep(data, [b.mul(number, columns)]) for number in numbers])
                near = b.fcmp_ordered("<=", square, bound)
                near = near if counted is None else b.and_(near, counted)
                bits = b.bitcast(near, ir.IntType(lanes))
                with b.if_then(b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0)), likely=False):
                    place = b.load(count)
                    for lane, number in enumerate(numbers):
                        b.store(code.lane(square, lane), b.gep(squares_data, [place]))
                        b.store(number, b.gep(rows_data, [place]))
                        place = b.add(place, b.zext(code.lane(near, lane), I64))
                    b.store(place, count)

            width = code.constant(lanes)
            whole = b.sub(stop, b.srem(b.sub(stop, begin), width))
            with cgutils.for_range_slice(b, begin, whole, width, I64) as (start, _):
                compare([b.add(start, code.constant(i)) for i in range(lanes)], None)
            with b.if_then(b.icmp_signed("<", whole, stop)):
                bottom = b.sub(stop, code.constant(1))
                places = [b.add(whole, code.constant(i)) for i in range(lanes)]
                places = [b.select(b.icmp_signed("<", place, bottom), place, bottom) for place in places]
                compare(places, code.first_lanes(b.sub(stop, whole)))
            return b.load(count)

        return size(X, size, size, metric, point, types.float64, squares, rows, limits), codegen

    return rows_within


_by_eight, _by_four, _by_two = (_write_rows_within(lanes, listed=False) for lanes in (8, 4, 2))
_listed_by_eight, _listed_by_four, _listed_by_two = (_write_rows_within(lanes, listed=True) for lanes in (8, 4, 2))
_limited_by_eight, _limited_by_four, _limited_by_two = (
    _write_rows_within(lanes, listed=False, limited=True) for lanes in (8, 4, 2)
)


@compiled_in_place
def rows_within(
    X: Array, first: int, end: int, metric: Array, point: Array, worst: float, squares: Array, rows: Array
) -> int:
    """Which of the rows first..end lie within the squared distance `worst` of a point; returns how many.

    metric, point : as `pad` arranges them; the point is in the metric, rows are not
    squares, rows : squared distances and numbers of these rows; arrays of at least end - first + 8 entries
    """
    lanes = _lanes(X.shape[1])
    if _MOST_LANES >= 8 and lanes == 8:
        return _by_eight(X, first, end, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    if _MOST_LANES >= 4 and lanes == 4:
        return _by_four(X, first, end, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    if lanes == 2:
        return _by_two(X, first, end, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    for row in range(first, end):
        rows[row - first] = row
    return _one_column_within(X, end - first, metric, point, worst, squares, rows, np.inf)


@compiled_in_place
def listed_within(X: Array, count: int, metric: Array, point: Array, worst: float, squares: Array, rows: Array) -> int:
    """`rows_within` for the rows rows[:count]; these numbers are overwritten."""
    lanes = _lanes(X.shape[1])
    if _MOST_LANES >= 8 and lanes == 8:
        return _listed_by_eight(X, 0, count, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    if _MOST_LANES >= 4 and lanes == 4:
        return _listed_by_four(X, 0, count, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    if lanes == 2:
        return _listed_by_two(X, 0, count, metric, point, worst, squares, rows, metric)  # type: ignore[no-any-return]
    return _one_column_within(X, count, metric, point, worst, squares, rows, np.inf)


@compiled_in_place
def _one_column_within(
    X: Array, count: int, metric: Array, point: Array, worst: float, squares: Array, rows: Array, limit: float
) -> int:
    """`listed_within` for rows of one column, whose squared difference has a limit."""
    kept = 0
    for i in range(count):
        row = rows[i]
        t = multiply_add(np.float64(X[row, 0]), metric[0], -point[0])
        square = min(t * t, limit)
        if square <= worst:
            squares[kept], rows[kept] = square, row
            kept += 1
    return kept


@compiled_in_place
def rows_within_limited(
    X: Array, first: int, end: int, metric: Array, point: Array, worst: float, squares: Array, rows: Array,
    limits: Array,
) -> int:  # fmt: skip
    """`rows_within` where the squared difference in each column has a limit, in the order of `pad`."""
    lanes = _lanes(X.shape[1])
    if _MOST_LANES >= 8 and lanes == 8:
        return _limited_by_eight(X, first, end, metric, point, worst, squares, rows, limits)  # type: ignore[no-any-return]
    if _MOST_LANES >= 4 and lanes == 4:
        return _limited_by_four(X, first, end, metric, point, worst, squares, rows, limits)  # type: ignore[no-any-return]
    if lanes == 2:
        return _limited_by_two(X, first, end, metric, point, worst, squares, rows, limits)  # type: ignore[no-any-return]
    for row in range(first, end):
        rows[row - first] = row
    return _one_column_within(X, end - first, metric, point, worst, squares, rows, limits[0])


def _write_box_distances(limited: bool) -> Any:
    @intrinsic
    def box_distances(
        typingctx: Any, frames: Any, corners: Any, node: Any, metric: Any, point: Any, out: Any, limits: Any
    ) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            arrays = {i: context.make_array(signature.args[i])(context, b, args[i]) for i in (0, 1, 3, 4, 5, 6)}
            columns = cgutils.unpack_tuple(b, arrays[1].shape, 4)[2]
            code = VectorCode(b, types.float64, min(FANOUT, _MOST_LANES))
            bytes_, whole = ir.VectorType(ir.IntType(8), code.lanes), ir.VectorType(ir.IntType(32), code.lanes)
            bases = b.gep(arrays[0].data, [b.mul(args[2], b.mul(columns, code.constant(2)))])
            side = b.mul(columns, code.constant(FANOUT))
            lows = b.gep(arrays[1].data, [b.mul(args[2], b.mul(side, code.constant(2)))])
            highs = b.gep(lows, [side])
            parts = range(0, FANOUT, code.lanes)

            def double(value: Any) -> Any:
                return value if value.type == code.scalar else b.fpext(value, code.scalar)

            def steps(sides: Any, at: Any) -> tuple[Any, Any]:
                raw = b.load(b.bitcast(b.gep(sides, [at]), bytes_.as_pointer()), align=1)
                return raw, b.sitofp(b.zext(raw, whole), code.vector)

            def add_column(d: Any, sums: list[Any]) -> list[Any]:
                base, step = (double(b.load(b.gep(bases, [at]))) for at in (d, b.add(d, columns)))
                factor, own = (b.load(b.gep(arrays[i].data, [d])) for i in (3, 4))
                origin = code.spread(b.fsub(b.fmul(base, factor), own), code.scalar)
                unit = code.spread(b.fmul(step, factor), code.scalar)
                most = code.spread(b.load(b.gep(arrays[6].data, [d])), code.scalar) if limited else None
                start = b.mul(d, code.constant(FANOUT))
                totals = []
                for part, total in zip(parts, sums, strict=True):
                    at = b.add(start, code.constant(part))
                    (low_byte, low), (high_byte, high) = (steps(sides, at) for sides in (lows, highs))
                    below = code.multiply_add(low, unit, origin)
                    above = b.fneg(code.multiply_add(high, unit, origin))
                    t = code.larger(code.larger(below, above), code.zero)
                    square = b.fmul(t, t) if most is None else code.smaller(b.fmul(t, t), most)
                    absent = b.icmp_unsigned(">", low_byte, high_byte)
                    totals.append(b.fadd(total, b.select(absent, code.number(float("inf")), square)))
                return totals

            totals = code.loop(columns, [code.zero] * len(parts), add_column)
            for part, total in zip(parts, totals, strict=True):
                least = b.fmul(total, code.number(1 - _ROUNDING_OF_SUMS))
                code.store(least, code.place(arrays[5].data, code.constant(part)), None)
            return context.get_dummy_value()

        return types.void(frames, corners, types.intp, metric, point, out, limits), codegen

    return box_distances


_plain_box_distances, _limited_box_distances = (_write_box_distances(limited) for limited in (False, True))


@compiled_in_place
def box_distances(
    frames: Array, corners: Array, node: int, metric: Array, point: Array, limits: Array, out: Array
) -> None:
    """out[:FANOUT] := squared distances of a point to the boxes below a node (`model.block_tree`), infinite for none.

    They are never larger than the computed distance to a row in the box.

    metric, point : factors of the columns in the first row, and the point in the metric
    limits : of the squared difference in each column; empty where there are none
    """
    if len(limits) == 0:
        _plain_box_distances(frames, corners, node, metric, point, out, limits)
    else:
        _limited_box_distances(frames, corners, node, metric, point, out, limits)


@intrinsic
def bits(typingctx: Any, x: Any) -> Any:
    """The bits of a double as an integer: of numbers that are not negative, in the same order."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return b.bitcast(args[0], I64)

    return types.int64(types.float64), codegen


@intrinsic
def fetch(typingctx: Any, array: Any, first: Any, count: Any) -> Any:
    """Ask for `count` numbers of an array, from number `first` on, so that they are in the cache when they are read."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, b, args[0]).data
        code = VectorCode(b, types.float64)
        end, line = b.add(args[1], args[2]), code.constant(8 * _LINE // array.dtype.bitwidth)
        with cgutils.for_range_slice(b, args[1], end, line, I64) as (start, _):
            code.prefetch(b.gep(data, [start]))
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen

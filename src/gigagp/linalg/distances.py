"""Squared distances from one point to many, in explicit vector code.

Written in Python, the loop over points would be guarded by checks of addresses and would store a row once for every few
columns; at leaves of a hundred points that costs as much as the arithmetic.

The squared difference in a column may have a limit (`limits`). A category is a column whose levels lie so far apart
that the limit is always reached: two different levels have the same distance, whichever they are.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled_strict
from gigagp.linalg.vectors import VectorCode, sweep


def _write(context: Any, b: Any, signature: Any, args: Any, limited: bool) -> Any:
    """Code of `squared_distances` and `_limited_distances`, whose limits are the last argument."""
    arrays = [context.make_array(signature.args[k])(context, b, args[k]) for k in (0, 2, 3)]
    limits = context.make_array(signature.args[5])(context, b, args[5]).data if limited else None
    x_data, z_data, row_data = (array.data for array in arrays)
    columns, x_step = cgutils.unpack_tuple(b, arrays[0].shape, 2)
    _, z_step = cgutils.unpack_tuple(b, arrays[1].shape, 2)
    x_start = b.gep(x_data, [args[1]])

    def block(code: VectorCode, start: Any, vectors: int) -> None:
        """Distances to the points from `start` on."""

        def limit_of(d: Any) -> Any:
            value = b.load(b.gep(limits, [d]))
            return code.spread(value if value.type == code.scalar else b.fptrunc(value, code.scalar), code.scalar)

        def add_column(d: Any, sums: list[Any]) -> list[Any]:
            own = code.spread(b.load(b.gep(x_start, [b.mul(d, x_step)])), code.scalar)
            first = b.add(b.mul(d, z_step), start)
            most = limit_of(d) if limited else None
            totals = []
            for v, total in enumerate(sums):
                place = code.place(z_data, b.add(first, code.constant(v * code.lanes)))
                difference = b.fsub(code.load(place, None), own)
                if most is None:
                    totals.append(code.multiply_add(difference, difference, total))
                else:
                    totals.append(b.fadd(total, code.smaller(b.fmul(difference, difference), most)))
            return totals

        for v, total in enumerate(code.loop(columns, [code.zero] * vectors, add_column)):
            place = code.place(row_data, b.add(start, code.constant(v * code.lanes)))
            code.store(total, place, None)

    sweep(b, signature.args[3].dtype, args[4], block)
    return context.get_dummy_value()


@intrinsic
def squared_distances(typingctx: Any, x: Any, i: Any, z: Any, row: Any, n: Any) -> Any:
    """row[:n] := sum_d (z[d, j] - x[d, i])^2, each summed in the order of d; x and z are (D, points)."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _write(context, b, signature, args, limited=False)

    return types.void(x, types.intp, z, row, types.intp), codegen


@intrinsic
def _limited_distances(typingctx: Any, x: Any, i: Any, z: Any, row: Any, n: Any, limits: Any) -> Any:
    """row[:n] := sum_d min((z[d, j] - x[d, i])^2, limits[d])."""

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        return _write(context, b, signature, args, limited=True)

    return types.void(x, types.intp, z, row, types.intp, limits), codegen


@compiled_strict
def distances(x: Array, i: int, z: Array, row: Array, n: int, limits: Array) -> None:
    """row[:n] := squared distances of point i of x to points of z; `limits` is empty where no column has one."""
    if len(limits) == 0:
        squared_distances(x, i, z, row, n)
    else:
        _limited_distances(x, i, z, row, n, limits)

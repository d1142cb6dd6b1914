"""Squared distances from one point to many, in explicit vector code.

Written in Python, the loop over points would be guarded by checks of addresses and would store a row once for every few
columns; at leaves of a hundred points that costs as much as the arithmetic.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gigagp.linalg.vectors import VectorCode, sweep


@intrinsic
def squared_distances(typingctx: Any, x: Any, i: Any, z: Any, row: Any, n: Any) -> Any:
    """row[:n] := sum_d (z[d, j] - x[d, i])^2, each summed in the order of d; x and z are (D, points)."""
    kind, size = row.dtype, types.intp
    signature = types.void(x, size, z, row, size)

    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        arrays = [context.make_array(signature.args[k])(context, b, args[k]) for k in (0, 2, 3)]
        x_data, z_data, row_data = (array.data for array in arrays)
        columns, x_step = cgutils.unpack_tuple(b, arrays[0].shape, 2)
        _, z_step = cgutils.unpack_tuple(b, arrays[1].shape, 2)
        x_start = b.gep(x_data, [args[1]])

        def block(code: VectorCode, start: Any, vectors: int) -> None:
            """Distances to the points from `start` on."""

            def add_column(d: Any, sums: list[Any]) -> list[Any]:
                own = code.spread(b.load(b.gep(x_start, [b.mul(d, x_step)])), code.scalar)
                first = b.add(b.mul(d, z_step), start)
                totals = []
                for v, total in enumerate(sums):
                    place = code.place(z_data, b.add(first, code.constant(v * code.lanes)))
                    difference = b.fsub(code.load(place, None), own)
                    totals.append(code.multiply_add(difference, difference, total))
                return totals

            for v, total in enumerate(code.loop(columns, [code.zero] * vectors, add_column)):
                place = code.place(row_data, b.add(start, code.constant(v * code.lanes)))
                code.store(total, place, None)

        sweep(b, kind, args[4], block)
        return context.get_dummy_value()

    return signature, codegen

"""Compiled passes for kernels of the scaled distance: k(x, z) = variance * f(r^2), r^2 = sum_d (x_d - z_d)^2 / l_d^2.

Points come transposed and scaled by 1/l, (D, p), so that the loop over points is the contiguous one. Each pass
works a row at a time: distances, profile and sums while the row is in the nearest cache; lower triangles only;
never a p x p x D tensor. `kind` names the profile f; its slope is -2 f'(r^2), so that
    d k / d ln l_d = variance * slope(r^2) * (x_d - z_d)^2 / l_d^2.
"""

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled, compiled_in_place, compiled_strict, compiled_sums_in_place
from gigagp.linalg.distances import distances
from gigagp.linalg.exponential import write_exp
from gigagp.linalg.logarithm import write_log
from gigagp.linalg.vectors import VECTOR_BYTES, VectorCode, elementwise, whole_registers

SQUARED_EXPONENTIAL, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC = range(5)
_ROOT3 = 3.0**0.5
_ROOT5 = 5.0**0.5
# Points that a compiled loop processes at a time. Rows are filled up to a multiple of it, since a remainder costs more.
_SWEEP = VECTOR_BYTES // 2
_FAR = 1e4  # scaled distance from which exp(-r) is zero; the polynomial before it must stay finite
_NEAR = 1e-30  # smallest distance that is divided by


@compiled_strict
def scaled_transposed(X: Array, scales: Array) -> Array:
    """(D, p): column d of X times scales[d], as a row."""
    p, D = X.shape
    out = np.empty((D, p), X.dtype)
    for d in range(D):
        s = X.dtype.type(scales[d])
        for i in range(p):
            out[d, i] = X[i, d] * s
    return out


@elementwise
def _squared_exponential(code: VectorCode, square: Any, variance: Any) -> Any:
    return code.b.fmul(variance, write_exp(code, code.b.fmul(code.number(-0.5), square)))


@elementwise
def _matern12(code: VectorCode, square: Any, variance: Any) -> Any:
    return code.b.fmul(variance, write_exp(code, code.b.fneg(code.square_root(square))))


@elementwise
def _matern12_slope(code: VectorCode, square: Any, variance: Any) -> Any:
    b, r = code.b, code.square_root(square)
    # The slope is multiplied by a factor that vanishes as r^2.
    return b.fdiv(b.fmul(variance, write_exp(code, b.fneg(r))), code.larger(r, code.number(_NEAR)))


def _scaled_root(code: VectorCode, root: float, square: Any) -> Any:
    return code.smaller(code.b.fmul(code.number(root), code.square_root(square)), code.number(_FAR))


@elementwise
def _matern32(code: VectorCode, square: Any, variance: Any) -> Any:
    """(1 + r) exp(-r), r = sqrt(3) distance."""
    b, r = code.b, _scaled_root(code, _ROOT3, square)
    return b.fmul(b.fmul(variance, b.fadd(code.number(1.0), r)), write_exp(code, b.fneg(r)))


@elementwise
def _matern32_slope(code: VectorCode, square: Any, variance: Any) -> Any:
    b, r = code.b, _scaled_root(code, _ROOT3, square)
    return b.fmul(b.fmul(variance, code.number(3.0)), write_exp(code, b.fneg(r)))


@elementwise
def _matern52(code: VectorCode, square: Any, variance: Any) -> Any:
    """(1 + r + r^2 / 3) exp(-r), r = sqrt(5) distance."""
    b, r = code.b, _scaled_root(code, _ROOT5, square)
    one = code.number(1.0)
    polynomial = code.multiply_add(r, code.multiply_add(r, code.number(1 / 3), one), one)
    return b.fmul(b.fmul(variance, polynomial), write_exp(code, b.fneg(r)))


@elementwise
def _matern52_slope(code: VectorCode, square: Any, variance: Any) -> Any:
    b, r = code.b, _scaled_root(code, _ROOT5, square)
    factor = b.fmul(b.fmul(variance, code.number(5 / 3)), b.fadd(code.number(1.0), r))
    return b.fmul(factor, write_exp(code, b.fneg(r)))


@elementwise
def _log_one_plus(code: VectorCode, square: Any, scale: Any) -> Any:
    return write_log(code, code.multiply_add(square, scale, code.number(1.0)))


@elementwise
def _scaled_exp(code: VectorCode, value: Any, factor: Any) -> Any:
    return code.b.fmul(factor, write_exp(code, value))


@compiled_strict
def profile(kind: int, row: Array, n: int, variance: float, shape: float) -> None:
    """row[:n] := variance * f(r^2), from r^2."""
    v = row.dtype.type(variance)
    if kind == SQUARED_EXPONENTIAL:
        _squared_exponential(row, n, v)
    elif kind == MATERN12:
        _matern12(row, n, v)
    elif kind == MATERN32:
        _matern32(row, n, v)
    elif kind == MATERN52:
        _matern52(row, n, v)
    else:
        _log_one_plus(row, n, row.dtype.type(0.5 / shape))
        power = row.dtype.type(-shape)
        for j in range(n):
            row[j] *= power
        _scaled_exp(row, n, v)


@compiled_strict
def _slope(kind: int, row: Array, n: int, variance: float) -> None:
    """row[:n] := variance * slope(r^2), from r^2, for the Matérn family."""
    v = row.dtype.type(variance)
    if kind == MATERN12:
        _matern12_slope(row, n, v)
    elif kind == MATERN32:
        _matern32_slope(row, n, v)
    else:
        _matern52_slope(row, n, v)


@compiled_strict
def slopes(kind: int, row: Array, n: int, variance: float, shape: float) -> None:
    """row[:n] := variance * slope(r^2), from r^2, for every profile."""
    v = row.dtype.type(variance)
    if kind == SQUARED_EXPONENTIAL:
        _squared_exponential(row, n, v)
    elif kind == RATIONAL_QUADRATIC:
        _log_one_plus(row, n, row.dtype.type(0.5 / shape))
        power = row.dtype.type(-shape - 1)
        for j in range(n):
            row[j] *= power
        _scaled_exp(row, n, v)
    else:
        _slope(kind, row, n, variance)


@compiled
def query_gradient(
    kind: int, x: Array, z: Array, variance: float, shape: float, limits: Array, G: Array, out: Array
) -> None:
    """out[j, d] := sum_i G_ij d k(x_i, z_j) / d z_jd, of scaled points (D, p) and (D, q), in scaled units.

    d k / d z_d = -variance * slope(r^2) (z_d - x_d), and zero in a column whose difference has reached its limit.
    """
    (D, p), q = x.shape, z.shape[1]
    row = np.empty(p, x.dtype)
    for j in range(q):
        distances(z, j, x, row, p, limits)
        slopes(kind, row, p, variance, shape)
        for i in range(p):
            row[i] *= G[i, j]
        for d in range(D):
            own, total, limit = z[d, j], 0.0, limits[d] if len(limits) > 0 else np.inf
            for i in range(p):
                t = own - x[d, i]
                total += row[i] * t if t * t < limit else 0.0
            out[j, d] = -total


@compiled_in_place
def gram(kind: int, x: Array, variance: float, shape: float, limits: Array, K: Array) -> None:
    """Lower triangle of K := k(x, x); above it, anything. `limits` : as in `distances`"""
    p = x.shape[1]
    for i in range(p):
        row, n = K[i], min(-(-i // _SWEEP) * _SWEEP, p)
        distances(x, i, x, row, n, limits)
        profile(kind, row, n, variance, shape)
        row[i] = variance


@compiled_in_place
def cross(kind: int, x: Array, z: Array, variance: float, shape: float, limits: Array, K: Array) -> None:
    """K[:p, :q] := k(x, z)."""
    q = z.shape[1]
    for i in range(x.shape[1]):
        row = K[i]
        distances(x, i, z, row, q, limits)
        profile(kind, row, q, variance, shape)


@compiled_sums_in_place
def pull_lengthscales(x: Array, G: Array, i: int, n: int, total: Array) -> None:
    """total[d] += 2 sum_{j<n} G_j (x_id - x_jd)^2 for one row G of weights."""
    whole_registers()
    D = x.shape[0]
    d = 0
    while d + 4 <= D:
        a, b, c, e = x[d, i], x[d + 1, i], x[d + 2, i], x[d + 3, i]
        zero = x.dtype.type(0)
        sa, sb, sc, se = zero, zero, zero, zero
        for j in range(n):
            g = G[j]
            s, t, u, v = x[d, j] - a, x[d + 1, j] - b, x[d + 2, j] - c, x[d + 3, j] - e
            sa += g * s * s
            sb += g * t * t
            sc += g * u * u
            se += g * v * v
        total[d] += 2 * sa
        total[d + 1] += 2 * sb
        total[d + 2] += 2 * sc
        total[d + 3] += 2 * se
        d += 4
    while d < D:
        a, sa = x[d, i], x.dtype.type(0)
        for j in range(n):
            s = x[d, j] - a
            sa += G[j] * s * s
        total[d] += 2 * sa
        d += 1


@compiled_sums_in_place
def _pull_limited(x: Array, G: Array, i: int, n: int, limits: Array, total: Array) -> None:
    """total[d] += 2 sum_{j<n} G_j min((x_id - x_jd)^2, limit_d)."""
    whole_registers()
    for d in range(x.shape[0]):
        a, limit, s = x[d, i], x.dtype.type(limits[d]), x.dtype.type(0)
        for j in range(n):
            t = x[d, j] - a
            s += G[j] * min(t * t, limit)
        total[d] += 2 * s


@compiled_strict
def _log_bases(row: Array, n: int, shape: float) -> None:
    """row[:n] := ln(1 + r^2 / (2 shape)), from r^2."""
    _log_one_plus(row, n, row.dtype.type(0.5 / shape))


@compiled_strict
def _inverses(row: Array, n: int) -> None:
    """row[:n] := e^-row."""
    for j in range(n):
        row[j] = -row[j]
    _scaled_exp(row, n, row.dtype.type(1))


@compiled_sums_in_place
def _pull_shape(row: Array, w: Array, k: Array, n: int, shape: float) -> float:
    """d / d ln shape of sum_j 2 w_j k_j of the rational quadratic, from r^2 in `row`; then row := w times the slope.

    d k / d ln shape = k shape (1 - 1 / base - ln base), base = 1 + r^2 / (2 shape); the slope is k / base.
    """
    _log_bases(row, n, shape)
    logs = 0.0
    for j in range(n):
        logs += w[j] * k[j] * row[j]
    _inverses(row, n)
    for j in range(n):
        row[j] *= w[j] * k[j]
    rest = 0.0
    for j in range(n):
        rest += w[j] * k[j] - row[j]
    return 2 * shape * (rest - logs)


@compiled_sums_in_place
def pull_row(
    kind: int, x: Array, i: int, variance: float, shape: float, limits: Array, w: Array, k: Array, row: Array,
    gradient: Array,
) -> None:  # fmt: skip
    """What row i of the weights, w, and of the gram matrix, k, add to `pullback`. `row` is scratch."""
    whole_registers()
    D = x.shape[0]
    # Loops that sum store nothing: where arrays happen to lie close, one that does both runs in another order.
    if kind == SQUARED_EXPONENTIAL:
        for j in range(i):
            row[j] = w[j] * k[j]
    else:
        distances(x, i, x, row, i, limits)
        if kind == RATIONAL_QUADRATIC:
            gradient[D + 1] += _pull_shape(row, w, k, i, shape)
        else:
            _slope(kind, row, i, variance)
            for j in range(i):
                row[j] *= w[j]
    part = x.dtype.type(0)
    for j in range(i):
        part += w[j] * k[j]
    gradient[0] += 2 * np.float64(part) + w[i] * k[i]
    n = min(-(-i // _SWEEP) * _SWEEP, x.shape[1])
    for j in range(i, n):
        row[j] = 0
    if len(limits) == 0:
        pull_lengthscales(x, row, i, n, gradient[1 : 1 + D])
    else:
        _pull_limited(x, row, i, n, limits, gradient[1 : 1 + D])


@compiled
def pullback(
    kind: int, x: Array, variance: float, shape: float, limits: Array, W: Array, K: Array, gradient: Array
) -> None:
    """gradient := [d/d ln variance, d/d ln l_1 .. l_D, d/d ln shape] of sum_ij W_ij K_ij, W symmetric.

    K is the gram matrix of this kernel; lower triangles are read. The last entry is the rational quadratic's only.
    """
    gradient[:] = 0
    row = np.empty(x.shape[1], x.dtype)
    for i in range(x.shape[1]):
        pull_row(kind, x, i, variance, shape, limits, W[i], K[i], row, gradient)

"""Compiled passes for kernels of the scaled distance: k(x, z) = variance * f(r^2), r^2 = sum_d (x_d - z_d)^2 / l_d^2.

Points come transposed and scaled by 1/l, (D, p), so that the loop over points is the contiguous one. Each pass
works a row at a time: distances, profile and sums while the row is in the nearest cache; lower triangles only;
never a p x p x D tensor. `kind` names the profile f; its slope is -2 f'(r^2), so that
    d k / d ln l_d = variance * slope(r^2) * (x_d - z_d)^2 / l_d^2.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg.compiled import compiled, compiled_strict
from gigagp.linalg.exponential import exp_nonpositive
from gigagp.linalg.vectors import VECTOR_BYTES, multiply_add, whole_registers

SQUARED_EXPONENTIAL, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC = range(5)
_ROOT3, _ROOT5 = 3.0**0.5, 5.0**0.5
_SWEEP = VECTOR_BYTES // 2  # points that a compiled loop takes at a time; rows are filled up to it, a remainder costs more
_FAR = 1e4  # exp(-r) is zero from there on; polynomials before it must stay finite


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


@compiled_strict
def _distances(x: Array, i: int, z: Array, row: Array, n: int) -> None:
    """row[:n] := r^2 between point i of x and the first n points of z; four dimensions a sweep."""
    whole_registers()
    D = x.shape[0]
    a = x[0, i]
    if D < 4:
        d = 1
        for j in range(n):
            s = z[0, j] - a
            row[j] = s * s
    else:
        d = 4
        b, c, e = x[1, i], x[2, i], x[3, i]
        for j in range(n):
            s, t, u, v = z[0, j] - a, z[1, j] - b, z[2, j] - c, z[3, j] - e
            row[j] = multiply_add(v, v, multiply_add(u, u, multiply_add(t, t, s * s)))
    while d + 4 <= D:
        a, b, c, e = x[d, i], x[d + 1, i], x[d + 2, i], x[d + 3, i]
        for j in range(n):
            s, t, u, v = z[d, j] - a, z[d + 1, j] - b, z[d + 2, j] - c, z[d + 3, j] - e
            row[j] = multiply_add(v, v, multiply_add(u, u, multiply_add(t, t, multiply_add(s, s, row[j]))))
        d += 4
    while d < D:
        a = x[d, i]
        for j in range(n):
            s = z[d, j] - a
            row[j] = multiply_add(s, s, row[j])
        d += 1


@compiled_strict
def _profile(kind: int, row: Array, n: int, variance: float, shape: float) -> None:
    """row[:n] := variance * f(r^2), from r^2."""
    whole_registers()
    v, far = row.dtype.type(variance), row.dtype.type(_FAR)
    one, half = row.dtype.type(1), row.dtype.type(0.5)
    if kind == SQUARED_EXPONENTIAL:
        for j in range(n):
            row[j] = v * exp_nonpositive(-half * row[j])
    elif kind == MATERN12:
        for j in range(n):
            row[j] = v * exp_nonpositive(-np.sqrt(row[j]))
    elif kind == MATERN32:
        root = row.dtype.type(_ROOT3)
        for j in range(n):
            r = min(root * np.sqrt(row[j]), far)
            row[j] = v * (one + r) * exp_nonpositive(-r)
    elif kind == MATERN52:
        root, third = row.dtype.type(_ROOT5), row.dtype.type(1 / 3)
        for j in range(n):
            r = min(root * np.sqrt(row[j]), far)
            row[j] = v * multiply_add(r, multiply_add(r, third, one), one) * exp_nonpositive(-r)
    else:
        for j in range(n):
            row[j] = v * np.exp(-shape * np.log1p(np.float64(row[j]) / (2 * shape)))


@compiled_strict
def _slope(kind: int, row: Array, n: int, variance: float, shape: float) -> None:
    """row[:n] := variance * slope(r^2), from r^2."""
    whole_registers()
    v, far = row.dtype.type(variance), row.dtype.type(_FAR)
    one = row.dtype.type(1)
    if kind == MATERN12:
        tiny = row.dtype.type(1e-30)
        for j in range(n):
            r = np.sqrt(row[j])
            row[j] = v * exp_nonpositive(-r) / max(r, tiny)  # meets a factor that vanishes as r^2
    elif kind == MATERN32:
        root, three = row.dtype.type(_ROOT3), row.dtype.type(3)
        for j in range(n):
            row[j] = (three * v) * exp_nonpositive(-root * np.sqrt(row[j]))
    elif kind == MATERN52:
        root, factor = row.dtype.type(_ROOT5), row.dtype.type(5 / 3)
        for j in range(n):
            r = min(root * np.sqrt(row[j]), far)
            row[j] = (factor * v) * (one + r) * exp_nonpositive(-r)
    else:
        for j in range(n):
            row[j] = v * np.exp(-(shape + 1) * np.log1p(np.float64(row[j]) / (2 * shape)))


@compiled
def gram(kind: int, x: Array, variance: float, shape: float, K: Array) -> None:
    """Lower triangle of K := k(x, x); above it, anything."""
    p = x.shape[1]
    for i in range(p):
        row, n = K[i], min(-(-i // _SWEEP) * _SWEEP, p)
        _distances(x, i, x, row, n)
        _profile(kind, row, n, variance, shape)
        row[i] = variance


@compiled
def cross(kind: int, x: Array, z: Array, variance: float, shape: float, K: Array) -> None:
    """K[:p, :q] := k(x, z)."""
    q = z.shape[1]
    for i in range(x.shape[1]):
        row = K[i]
        _distances(x, i, z, row, q)
        _profile(kind, row, q, variance, shape)


@compiled
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


@compiled
def pull_row(
    kind: int, x: Array, i: int, variance: float, shape: float, w: Array, k: Array, row: Array, gradient: Array
) -> None:
    """What row i of the weights, w, and of the gram matrix, k, add to `pullback`. `row` is scratch."""
    whole_registers()
    D = x.shape[0]
    # Loops that sum store nothing: where arrays happen to lie close, one that does both runs in another order.
    if kind == SQUARED_EXPONENTIAL:
        for j in range(i):
            row[j] = w[j] * k[j]
    else:
        _distances(x, i, x, row, i)
        if kind == RATIONAL_QUADRATIC:
            by_shape = 0.0
            for j in range(i):
                half = 0.5 * np.float64(row[j])
                base = 1 + half / shape
                by_shape += 2 * w[j] * k[j] * (half / base - shape * np.log(base))
            gradient[D + 1] += by_shape
        _slope(kind, row, i, variance, shape)
        for j in range(i):
            row[j] *= w[j]
    part = x.dtype.type(0)
    for j in range(i):
        part += w[j] * k[j]
    gradient[0] += 2 * np.float64(part) + w[i] * k[i]
    n = min(-(-i // _SWEEP) * _SWEEP, x.shape[1])
    for j in range(i, n):
        row[j] = 0
    pull_lengthscales(x, row, i, n, gradient[1 : 1 + D])


@compiled
def pullback(kind: int, x: Array, variance: float, shape: float, W: Array, K: Array, gradient: Array) -> None:
    """gradient := [d/d ln variance, d/d ln l_1 .. l_D, d/d ln shape] of sum_ij W_ij K_ij, W symmetric.

    K is the gram matrix of this kernel; lower triangles are read. The last entry is the rational quadratic's only.
    """
    gradient[:] = 0
    row = np.empty(x.shape[1], x.dtype)
    for i in range(x.shape[1]):
        pull_row(kind, x, i, variance, shape, W[i], K[i], row, gradient)

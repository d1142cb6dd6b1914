"""Laplace's approximation: the mode of the latent f given the targets of p rows, and the evidence there.

The mode maximises ln p(y | f) - (f - m)^T K^-1 (f - m) / 2. Newton's method (Rasmussen & Williams 2006, algorithm 3.1)
works with B = I + W^1/2 K W^1/2, where W is minus the second derivative of ln p(y | f): B is well conditioned whatever
K is, so that no jitter is needed. Its start depends on the targets alone, so that the mode is a function of K and the
targets. K is given by its lower triangle; `kind` and `d` are the number of a built-in likelihood and its dispersion
(`pointwise`). `python_mode` serves likelihoods that are written in Python.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods.base import Likelihood
from gigagp.likelihoods.pointwise import derivatives, dispersion_derivatives, log_constant, log_density, newton_start
from gigagp.linalg.cholesky import follow, solve_vector
from gigagp.linalg.compiled import compiled, compiled_strict
from gigagp.linalg.jitter import transpose_and_add
from gigagp.linalg.vectors import whole_registers

_MOST_STEPS = 60  # of Newton's method
_MOST_HALVINGS = 12  # of one step
_ROUNDING = 1e-12  # relative decrease of the objective that rounding explains
EXACT = 1e-7  # largest change of f in the last step, where the gradient of the evidence is needed
CLOSE = 5e-2  # the same for predictions; the convergence is quadratic, so that the error is about its square


@compiled
def symmetric_product(K: Array, v: Array, p: int, product: Array) -> None:
    """product := K v, from the lower triangle of K."""
    whole_registers()
    for i in range(p):
        product[i] = 0.0
    for i in range(p):
        row, own = K[i], v[i]
        total = 0.0
        for j in range(i):
            total += row[j] * v[j]
        for j in range(i):
            product[j] += row[j] * own
        product[i] += total + row[i] * own


@compiled_strict
def objective(kind: int, d: float, y: Array, weights: Array, f: Array, a: Array, mean: float, p: int) -> float:
    """The sum of w_i ln p(y_i | f_i), without terms that f does not change, - (f - m)^T a / 2, where f - m = K a."""
    total = 0.0
    for i in range(p):
        total += weights[i] * log_density(kind, d, y[i], f[i]) - 0.5 * (f[i] - mean) * a[i]
    return total


@compiled_strict
def weighted_log_density(kind: int, d: float, y: Array, weights: Array, f: Array) -> float:
    """The sum of w_i ln p(y_i | f_i)."""
    total = 0.0
    for i in range(len(y)):
        total += weights[i] * (log_density(kind, d, y[i], f[i]) + log_constant(kind, d, y[i]))
    return total


@compiled
def form_b(K: Array, roots: Array, p: int, A: Array) -> None:
    """Upper triangle of A := B = I + W^1/2 K W^1/2."""
    whole_registers()
    transpose_and_add(K, A, p, 0.0)
    for i in range(p):
        row, own = A[i], roots[i]
        for j in range(i, p):
            row[j] *= own * roots[j]
        row[i] += 1.0


@compiled
def curvatures(
    kind: int, d: float, y: Array, weights: Array, f: Array, mean: float, p: int, roots: Array, b: Array
) -> None:  # fmt: skip
    """roots := W^1/2 and b := W (f - m) + d ln p / df at f."""
    for i in range(p):
        slope, curvature, _ = derivatives(kind, d, y[i], f[i])
        roots[i] = np.sqrt(weights[i] * curvature)
        b[i] = weights[i] * (curvature * (f[i] - mean) + slope)


@compiled
def newton_step(
    K: Array, mean: float, factoring: Array, A: Array, T: Array, D: Array, f: Array, a: Array, roots: Array,
    v: Array, b: Array,
) -> float:  # fmt: skip
    """v := the step of f and b := that of a, from W^1/2 in roots and W (f - m) + d ln p / df in b; A := factor of B.

    Returns the largest change of f; infinite if a number is not finite.
    """
    p = len(f)
    form_b(K, roots, p, A)
    if follow(factoring, (A, T, D, A), p) != 0:
        return np.inf
    symmetric_product(K, b, p, v)
    for i in range(p):
        v[i] *= roots[i]
    solve_vector(A, v, p)
    for i in range(p):
        b[i] -= roots[i] * v[i]  # K^-1 (f - m) after a full step
    symmetric_product(K, b, p, v)
    change = 0.0
    for i in range(p):
        v[i] += mean - f[i]
        b[i] -= a[i]
        if not abs(v[i]) < np.inf:
            return np.inf
        change = max(change, abs(v[i]))
    return change


@compiled_strict
def _step(
    kind: int, d: float, y: Array, weights: Array, mean: float, before: float, f: Array, a: Array, df: Array,
    da: Array, p: int,
) -> float:  # fmt: skip
    """Move f and a by the step, halved while the objective decreases. Returns the objective; df and da are changed."""
    for i in range(p):
        f[i] += df[i]
        a[i] += da[i]
    value: float = objective(kind, d, y, weights, f, a, mean, p)
    for _ in range(_MOST_HALVINGS):
        if value >= before - _ROUNDING * abs(before):
            break
        for i in range(p):
            df[i] *= 0.5
            da[i] *= 0.5
            f[i] -= df[i]
            a[i] -= da[i]
        value = objective(kind, d, y, weights, f, a, mean, p)
    return value


@compiled
def mode(
    kind: int, d: float, K: Array, y: Array, weights: Array, mean: float, tolerance: float, factoring: Array,
    A: Array, T: Array, D: Array, f: Array, a: Array, roots: Array, v: Array, b: Array,
) -> bool:  # fmt: skip
    """f := the mode, a := K^-1 (f - m), roots := W^1/2, and A := the factor of B, at the last point but one of Newton.

    weights : how much each row counts. v, b : scratch. Returns whether all numbers stayed finite.
    """
    p = len(y)
    for i in range(p):
        f[i], a[i] = mean, 0.0
        v[i] = newton_start(kind, y[i], mean)
    value = objective(kind, d, y, weights, f, a, mean, p)
    curvatures(kind, d, y, weights, v, mean, p, roots, b)
    for _ in range(_MOST_STEPS):
        change = newton_step(K, mean, factoring, A, T, D, f, a, roots, v, b)
        if not change < np.inf:
            return False
        value = _step(kind, d, y, weights, mean, value, f, a, v, b, p)
        if change < tolerance:
            return True
        curvatures(kind, d, y, weights, f, mean, p, roots, b)
    return True


def python_mode(
    likelihood: Likelihood, d: float, K: Array, y: Array, weights: Array, mean: float, tolerance: float,
    factoring: Array, A: Array, T: Array, D: Array, f: Array, a: Array, roots: Array, v: Array, b: Array,
) -> bool:  # fmt: skip
    """`mode` for a likelihood that is written in Python; all of its calls are for the p rows together."""
    used = weights > 0  # other places stand for no row

    def value() -> float:
        total = float(weights[used] @ likelihood.log_density(y[used], f[used], d))
        return total - 0.5 * float((f - mean) @ a)

    def linearise(at: Array) -> None:
        slope, curvature = np.zeros(len(y)), np.zeros(len(y))
        slope[used], curvature[used], _ = likelihood.derivatives(y[used], at[used], d)
        roots[:] = np.sqrt(weights * curvature)
        b[:] = weights * (curvature * (at - mean) + slope)

    f[:], a[:], start = mean, 0.0, np.full(len(y), mean)
    start[used] = likelihood.newton_start(y[used], mean)
    before = value()
    linearise(start)
    for _ in range(_MOST_STEPS):
        change = newton_step(K, mean, factoring, A, T, D, f, a, roots, v, b)
        if not change < np.inf:
            return False
        share = 1.0
        f += v
        a += b
        after = value()
        for _ in range(_MOST_HALVINGS):
            if after >= before - _ROUNDING * abs(before):
                break
            share *= 0.5
            f -= share * v
            a -= share * b
            after = value()
        before = after
        if change < tolerance:
            return True
        linearise(f)
    return True


@compiled
def add_cotangent(
    K: Array, A: Array, ratios: Array, a: Array, roots: Array, v: Array, s: Array, u: Array, times: float, W: Array
) -> None:  # fmt: skip
    """W += `times` the derivative of the evidence of one latent function by K, from B^-1 in A (lower triangles).

    With R = W^1/2 B^-1 W^1/2, a = K^-1 (f - m), s_i = Sigma_ii (d^3 ln p / df^3)_i / 2, where Sigma_ii is the posterior
    variance, and u = (I - R K) s, it is (a a^T - R + u a^T + a u^T) / 2: the terms with u are there because the mode
    moves with K (Rasmussen & Williams 2006, section 5.5.1). ratios : third derivatives over minus the curvatures.
    u is kept for the derivative by the dispersion. v, s : scratch.
    """
    p = len(ratios)
    for i in range(p):
        s[i] = 0.5 * (1 - A[i, i]) * ratios[i]  # Sigma_ii = (1 - (B^-1)_ii) / W_ii
    symmetric_product(K, s, p, v)
    for i in range(p):
        v[i] *= roots[i]
    symmetric_product(A, v, p, u)
    for i in range(p):
        u[i] = s[i] - roots[i] * u[i]
    half = 0.5 * times
    for i in range(p):
        line, row, root, first, second = A[i], W[i], roots[i], a[i] + u[i], a[i]
        for j in range(i + 1):
            row[j] += half * (first * a[j] + second * u[j] - root * roots[j] * line[j])


@compiled
def third_derivative_ratios(kind: int, d: float, y: Array, f: Array, ratios: Array) -> None:
    """ratios := the third derivatives of ln p by f, divided by minus the second."""
    for i in range(len(y)):
        ratios[i] = derivatives(kind, d, y[i], f[i])[2]


@compiled
def dispersion_terms(kind: int, d: float, y: Array, f: Array, terms: Array) -> None:
    """Rows of terms := the derivatives by ln d of ln p, of its slope, and of ln W."""
    for i in range(len(y)):
        value, slope, curvature = dispersion_derivatives(kind, d, y[i], f[i])
        terms[0, i], terms[1, i] = value, slope
        terms[2, i] = curvature / derivatives(kind, d, y[i], f[i])[1]


def dispersion_slope(K: Array, A: Array, weights: Array, terms: Array, u: Array, v: Array) -> float:
    """The derivative of the evidence by ln d, from B^-1 in A, the `terms` of `dispersion_terms` and u.

    The evidence changes with ln p and with W at the mode, by w_i d ln p_i - Sigma_ii dW_ii / 2, and because the mode
    moves: u^T K g, where g is the derivative of the weighted slopes. v : scratch
    """
    p = len(u)
    symmetric_product(K, u, p, v)
    explicit = weights * terms[0] - 0.5 * (1 - np.diagonal(A)[:p]) * terms[2]
    return float(explicit.sum() + (weights * terms[1] * v).sum())

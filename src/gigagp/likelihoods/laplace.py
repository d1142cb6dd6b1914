"""Laplace's approximation: the mode of the latent f given the labels of p rows, and the evidence there.

The mode maximises ln p(t | f) - (f - m)^T K^-1 (f - m) / 2. Newton's method (Rasmussen & Williams 2006, algorithm 3.1)
works with B = I + W^1/2 K W^1/2, where W is minus the second derivative of ln p(t | f): B is well conditioned whatever
K is, so that no jitter is needed. It starts at the prior mean, so that the mode is a function of K and the labels
alone. K is given by its lower triangle.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods.bernoulli import derivatives, log_density
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
def objective(labels: Array, weights: Array, f: Array, a: Array, mean: float, p: int) -> float:
    """The sum of w_i ln p(t_i | f_i) - (f - m)^T a / 2, where f - m = K a."""
    total = 0.0
    for i in range(p):
        total += weights[i] * log_density(labels[i], f[i]) - 0.5 * (f[i] - mean) * a[i]
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
    labels: Array, weights: Array, f: Array, mean: float, p: int, roots: Array, b: Array
) -> None:  # fmt: skip
    """roots := W^1/2 and b := W (f - m) + d ln p / df at f."""
    for i in range(p):
        slope, curvature, _ = derivatives(labels[i], f[i])
        roots[i] = np.sqrt(weights[i] * curvature)
        b[i] = weights[i] * (curvature * (f[i] - mean) + slope)


@compiled_strict
def _step(
    labels: Array, weights: Array, mean: float, before: float, f: Array, a: Array, df: Array, da: Array, p: int
) -> float:  # fmt: skip
    """Move f and a by the step, halved while the objective decreases. Returns the objective; df and da are changed."""
    for i in range(p):
        f[i] += df[i]
        a[i] += da[i]
    value: float = objective(labels, weights, f, a, mean, p)
    for _ in range(_MOST_HALVINGS):
        if value >= before - _ROUNDING * abs(before):
            break
        for i in range(p):
            df[i] *= 0.5
            da[i] *= 0.5
            f[i] -= df[i]
            a[i] -= da[i]
        value = objective(labels, weights, f, a, mean, p)
    return value


@compiled
def mode(
    K: Array, labels: Array, weights: Array, mean: float, tolerance: float, factoring: Array,
    A: Array, T: Array, S: Array, D: Array, f: Array, a: Array, roots: Array, v: Array, b: Array,
) -> bool:  # fmt: skip
    """f := the mode, a := K^-1 (f - m), roots := W^1/2, and A := the factor of B, at the last point but one of Newton.

    weights : how much each row counts. v, b : scratch. Returns whether all numbers stayed finite.
    """
    p = len(labels)
    for i in range(p):
        f[i], a[i] = mean, 0.0
    value = objective(labels, weights, f, a, mean, p)
    for _ in range(_MOST_STEPS):
        curvatures(labels, weights, f, mean, p, roots, b)
        form_b(K, roots, p, A)
        if follow(factoring, (A, T, S, D, A), p) != 0:
            return False
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
            change = max(change, abs(v[i]))
        if not change < np.inf:
            return False
        value = _step(labels, weights, mean, value, f, a, v, b, p)
        if change < tolerance:
            return True
    return True


@compiled
def add_cotangent(
    K: Array, A: Array, labels: Array, f: Array, a: Array, roots: Array, v: Array, s: Array, u: Array, times: float,
    W: Array,
) -> None:  # fmt: skip
    """W += `times` the derivative of the evidence of one latent function by K, from B^-1 in A (lower triangles).

    With R = W^1/2 B^-1 W^1/2, a = K^-1 (f - m), s_i = Sigma_ii (d^3 ln p / df^3)_i / 2, where Sigma_ii is the posterior
    variance, and u = (I - R K) s, it is (a a^T - R + u a^T + a u^T) / 2: the terms with u are there because the mode
    moves with K (Rasmussen & Williams 2006, section 5.5.1). v, s, u : scratch.
    """
    p = len(labels)
    for i in range(p):
        _, _, ratio = derivatives(labels[i], f[i])
        s[i] = 0.5 * (1 - A[i, i]) * ratio  # Sigma_ii = (1 - (B^-1)_ii) / W_ii
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

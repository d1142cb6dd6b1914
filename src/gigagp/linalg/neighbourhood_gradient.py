"""Derivatives of an exact GP on the few rows around one query, with respect to the query.

The query z enters through the covariances k_i with the neighbours and through the weights w_i of the taper, by which
the noise of a neighbour is divided (`neighbourhood.taper`): w_i depends on the distance of row i and on that of the
first row beyond the neighbours. With C = (K + N)^-1, N_i = noise_i / w_i, alpha = C y and u = C k

    mean = k^T alpha:        d mean = alpha^T dk - sum_i u_i alpha_i dN_i
    variance = k** - k^T u:  d variance = -2 u^T dk + sum_i u_i^2 dN_i
    misfit = sum_i w_i h_i / (g sum_i w_i), h_i = |alpha_i| C_ii^-1/2:
                             d alpha = -C dN alpha, d C_ii = -sum_j C_ij^2 dN_j

The derivatives are those of what `neighbourhood.posterior` computes, wherever the set of neighbours does not change.
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import stationary
from gigagp.linalg.cholesky import follow
from gigagp.linalg.compiled import compiled
from gigagp.linalg.neighbourhood import (
    GAUSSIAN_ERROR,
    LEAST_WEIGHT,
    MEAN,
    MISFIT,
    RESULTS,
    SMALLEST_VARIANCE,
    VARIANCE,
    factored,
    taper_reach,
)


@compiled
def _solve(T: Array, b: Array, count: int, half: Array, out: Array) -> None:
    """half := T b and out := T^T T b, which is C b; T is lower triangular."""
    for i in range(count):
        out[i] = 0.0
    for i in range(count):
        row, total = T[i], 0.0
        for j in range(i + 1):
            total += row[j] * b[j]
        for j in range(i + 1):
            out[j] += total * row[j]
        half[i] = total


@compiled
def _squares_times(C: Array, b: Array, count: int, out: Array) -> None:
    """out_j := sum_i C_ij^2 b_i, where the lower triangle of C is given."""
    for i in range(count):
        out[i] = 0.0
    for i in range(count):
        row, total = C[i], 0.0
        for j in range(i):
            total += row[j] * row[j] * b[j]
        for j in range(i):
            out[j] += row[j] * row[j] * b[i]
        out[i] += total + row[i] * row[i] * b[i]


@compiled
def derivatives(
    K: Array, k: Array, y: Array, noises: Array, weights: Array, count: int, prior: float, factoring: Array,
    inverting: Array, A: Array, T: Array, D: Array, vectors: Array, result: Array, by_k: Array, by_w: Array,
) -> bool:  # fmt: skip
    """result := as `neighbourhood.posterior`; by_k, by_w (RESULTS, m) := its derivatives by each k_i and w_i.

    vectors : scratch, (6, m)
    """
    if not factored(K, noises, weights, count, factoring, A, T, D):
        return False
    follow(inverting, (A, T, D, A), len(weights))
    alpha, u, c, e, spread, half = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5]
    _solve(T, y, count, half, alpha)
    _solve(T, k, count, half, u)
    mean, reduction, misfit, total = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        mean += k[i] * alpha[i]
        reduction += half[i] * half[i]
        misfit += weights[i] * abs(alpha[i]) / np.sqrt(A[i, i])
        total += weights[i]
    known = reduction > (1 - SMALLEST_VARIANCE) * prior
    result[MEAN] = mean
    result[VARIANCE] = max(prior - reduction, SMALLEST_VARIANCE * prior)
    result[MISFIT] = misfit / (GAUSSIAN_ERROR * total) if count > 0 else 1.0
    scale = 1 / (GAUSSIAN_ERROR * total) if count > 0 else 0.0
    for i in range(count):
        root = 1 / np.sqrt(A[i, i])
        sign = 1.0 if alpha[i] > 0 else -1.0
        c[i] = scale * weights[i] * sign * root
        e[i] = scale * weights[i] * 0.5 * abs(alpha[i]) * root * root * root
    _squares_times(A, e, count, spread)
    _solve(T, c, count, half, e)
    for i in range(count):
        noise = -noises[i] / (weights[i] * weights[i])  # dN_i / dw_i
        by_k[MEAN, i], by_w[MEAN, i] = alpha[i], -u[i] * alpha[i] * noise
        by_k[VARIANCE, i], by_w[VARIANCE, i] = (0.0, 0.0) if known else (-2 * u[i], u[i] * u[i] * noise)
        by_k[MISFIT, i] = 0.0
        own = abs(alpha[i]) / np.sqrt(A[i, i])
        by_w[MISFIT, i] = scale * own - result[MISFIT] / total + (spread[i] - alpha[i] * e[i]) * noise
    return True


@compiled
def taper_derivatives(squares: Array, size: int, count: int, weights: Array, by_w: Array, by_square: Array) -> None:
    """by_square (RESULTS, m + 1) := derivatives by squared distances through the weights, from those by weights.

    The last column belongs to the first row beyond the neighbours, in place `count`.
    """
    reach = taper_reach(squares, size, count)
    for result in range(RESULTS):
        at_reach = 0.0
        for i in range(count):
            by_square[result, i] = 0.0
            if reach < np.inf and weights[i] > LEAST_WEIGHT:
                slope = by_w[result, i] / (2 * weights[i] * reach)
                by_square[result, i] = -slope
                at_reach += slope * squares[i] / reach
        by_square[result, count] = at_reach


@compiled
def covariance_derivatives(
    kind: int, variance: float, shape: float, squares: Array, count: int, by_k: Array, row: Array, by_square: Array
) -> None:
    """by_square += derivatives by squared distances through the covariances with the query; `row` is scratch."""
    for i in range(count):
        row[i] = squares[i]
    stationary.slopes(kind, row, count, variance, shape)
    for result in range(RESULTS):
        for i in range(count):
            by_square[result, i] -= 0.5 * row[i] * by_k[result, i]


@compiled
def by_query(X: Array, rows: Array, used: int, metric: Array, point: Array, by_square: Array, gradient: Array) -> None:
    """gradient (RESULTS, columns) := derivatives by the scaled query, from those by squared distances.

    metric : factors of the columns and, as a second row, limits of the squared differences, where there are any
    point : the query in the metric
    used : rows that count, the first one beyond the neighbours included
    """
    limited = metric.shape[0] > 1
    for result in range(RESULTS):
        for d in range(X.shape[1]):
            gradient[result, d] = 0.0
    for i in range(used):
        row = X[rows[i]]
        for d in range(X.shape[1]):
            t = point[d] - row[d] * metric[0, d]
            if limited and t * t >= metric[1, d]:
                continue
            slope = 2 * t * metric[0, d]
            for result in range(RESULTS):
                gradient[result, d] += by_square[result, i] * slope

"""An exact GP on the few rows around one query, in one compiled call.

The noise of neighbour i, which may be its own (`row_noise`), is divided by w_i = (1 - d_i^2 / d^2)^(1/2), where d is
the distance of the first row that is no longer a neighbour. A row therefore enters and leaves the neighbourhood with
weight zero, and the prediction is a continuous function of the query. Everything is computed in float64, whatever the
precision of the stored rows is.

The nearest of the neighbours may also predict on their own (`joined`).
"""

import numpy as np

from gigagp.arrays import Array
from gigagp.linalg import stationary
from gigagp.linalg.cholesky import follow, solve_vector
from gigagp.linalg.compiled import compiled, compiled_strict
from gigagp.linalg.jitter import transpose_and_add
from gigagp.linalg.row_noise import ADDED, FACTOR

# Columns of a result.
MEAN = 0
VARIANCE = 1
MISFIT = 2
RESULTS = 3  # number of columns
GAUSSIAN_ERROR = (2 / np.pi) ** 0.5  # mean absolute value of a standard Gaussian
_EQUAL = 1e-9  # relative difference of squared distances that count as equal
_MOST_TIED = 0.25  # share of the neighbours that may be as far away as the first row beyond them
LEAST_WEIGHT = 1e-6  # of a neighbour; its noise stays finite
_FIRST_JITTER = 1e-12  # relative to the prior variance and the noise
_LARGEST_JITTER = 1e-5  # likewise
SMALLEST_VARIANCE = 1e-12  # of the prior variance: what rounding leaves of it at a noise-free row
LEAST_MISFIT = 1e-4  # added to a misfit before predictions are weighted by it: errors of zero nearby prove little


@compiled_strict
def taper_reach(squares: Array, size: int, count: int) -> float:
    """The squared distance at which weights become zero; infinite where all weights are one (see `taper`)."""
    reach = squares[count] if size > count else np.inf
    tied = 0
    for i in range(count):
        tied += squares[i] >= (1 - _EQUAL) * reach
    return reach if 0 < reach < np.inf and tied <= _MOST_TIED * count else np.inf


@compiled_strict
def few_rows(squares: Array, inner: int, count: int) -> int:
    """How many of `count` neighbours, the nearest, predict on their own; 0 for none.

    They are `inner`, and more where these would be an arbitrary choice among rows that are equally far away, such as
    some of many copies of the query, whose targets may differ: then they are all rows up to this distance.
    """
    if not 0 < inner < count:
        return 0
    few = inner
    if taper_reach(squares, count, inner) == np.inf:
        while few < count and (1 - _EQUAL) * squares[few] <= squares[inner]:
            few += 1
    return few if few < count else 0


@compiled_strict
def keep_first(few: int, K: Array, k: Array, targets: Array) -> None:
    """Make the rows from `few` on independent of everything, with targets of zero, as if they did not exist."""
    for i in range(few, len(k)):
        k[i], targets[i] = 0, 0
        for j in range(i):
            K[i, j] = 0


@compiled_strict
def taper(squares: Array, size: int, count: int, weights: Array) -> None:
    """Weights of the first `count` rows; `size` is the number of rows with distances.

    All weights are one if no row lies beyond the neighbours, if it lies at the query itself, or if so many neighbours
    are as far away as it is (copies of one another, say) that few would remain without them.
    """
    reach = taper_reach(squares, size, count)
    for i in range(count):
        weights[i] = 1.0
        if reach < np.inf:
            weights[i] = max(np.sqrt(max(1 - squares[i] / reach, 0.0)), LEAST_WEIGHT)


@compiled
def gather(X: Array, y: Array, rows: Array, count: int, scales: Array, x: Array, targets: Array) -> None:
    """x (D, m) := the scaled inputs of the first `count` rows, transposed; targets := their targets."""
    for i in range(count):
        row = X[rows[i]]
        targets[i] = y[rows[i]]
        for d in range(len(scales)):
            x[d, i] = row[d] * scales[d]
    for i in range(count, x.shape[1]):
        targets[i] = 0
        for d in range(len(scales)):
            x[d, i] = 0


@compiled
def gather_targets(Y: Array, rows: Array, count: int, targets: Array) -> None:
    """targets (targets, m) := the targets of the first `count` rows, from Y (targets, rows)."""
    for t in range(len(Y)):
        for i in range(count):
            targets[t, i] = Y[t, rows[i]]
        for i in range(count, targets.shape[1]):
            targets[t, i] = 0


@compiled_strict
def gather_noise(noise: float, row_noise: Array, rows: Array, count: int, noises: Array) -> float:
    """noises := the noise variances of the first `count` rows; returns their harmonic mean.

    A row of very much noise says nothing about the noise near the query, and hardly changes the harmonic mean.

    noise : the variance of a row of weight one, which all rows have where `row_noise` has no rows
    """
    for i in range(count):
        noises[i] = noise
    if len(row_noise) == 0 or count == 0:
        return noise
    total = 0.0
    for i in range(count):
        noises[i] = noise * row_noise[rows[i], FACTOR] + row_noise[rows[i], ADDED]
        total += 1 / noises[i]
    return count / total


@compiled
def covariances(
    kind: int, variance: float, shape: float, limits: Array, x: Array, squares: Array, count: int, K: Array, k: Array
) -> None:
    """K := covariances among the neighbours, lower triangle; k := with the query, from its squared distances.

    Places from `count` on stand for rows that do not exist: they are independent of everything.
    """
    stationary.gram(kind, x, variance, shape, limits, K)
    for i in range(count):
        k[i] = squares[i]
    stationary.profile(kind, k, count, variance, shape)
    for i in range(count, len(k)):
        k[i] = 0
        for j in range(i):
            K[i, j] = 0


@compiled_strict
def _are_equal(first: Array, second: Array) -> bool:
    """Whether inputs are equal in the precision of the first."""
    for d in range(len(first)):  # noqa: SIM110 (compiled code has no generators)
        if first[d] != first.dtype.type(second[d]):
            return False
    return True


@compiled_strict
def add_common_noise(
    common: float, X: Array, rows: Array, z: Array, squares: Array, count: int, K: Array, k: Array
) -> None:
    """Add the noise that equal inputs have in common to K, lower triangle, and to k where the query z equals a row.

    Neighbours are sorted by distance, and those with equal inputs are equally far from the query. Rounding leaves the
    query itself a small distance from rows that it equals, so that inputs are compared and not distances.
    """
    for i in range(count):
        row = X[rows[i]]
        K[i, i] += common
        if squares[i] == squares[0] and _are_equal(row, z):
            k[i] += common
        j = i - 1
        while j >= 0 and squares[j] == squares[i]:
            if _are_equal(row, X[rows[j]]):
                K[i, j] += common
            j -= 1


@compiled
def factored(
    K: Array, noises: Array, weights: Array, count: int, operations: Array, A: Array, T: Array, D: Array
) -> bool:
    """Factor K + diag(noises / weights); jitter is added only after a failure."""
    p, jitter = len(weights), 0.0
    while True:
        transpose_and_add(K, A, p, jitter * (K[0, 0] + (noises[0] if count > 0 else 0.0)))
        for i in range(count):
            A[i, i] += noises[i] / weights[i]
        if follow(operations, (A, T, D, A), p) == 0:
            return True
        jitter = max(_FIRST_JITTER, 10 * jitter)
        if jitter > _LARGEST_JITTER:
            return False


@compiled
def mean_only(
    K: Array, k: Array, y: Array, noises: Array, weights: Array, count: int, factoring: Array,
    A: Array, T: Array, D: Array, result: Array,
) -> bool:  # fmt: skip
    """The mean k^T (K + N)^-1 y; nothing is computed for the variance. `y` is overwritten."""
    if not factored(K, noises, weights, count, factoring, A, T, D):
        return False
    solve_vector(A, y, len(weights))
    mean = 0.0
    for i in range(count):
        mean += k[i] * y[i]
    result[MEAN] = mean
    return True


@compiled
def posterior(
    K: Array, k: Array, y: Array, noises: Array, weights: Array, count: int, prior: float, factoring: Array,
    inverting: Array, A: Array, T: Array, D: Array, alpha: Array, precision: Array, result: Array,
) -> bool:  # fmt: skip
    """Mean and variance of f at the query, and how large the neighbours' own held-out errors are.

    With C = (K + N)^-1 and alpha = C y, neighbour i predicted by the others has the error alpha_i / C_ii and the
    variance 1 / C_ii (Rasmussen & Williams 2006, eq. 5.12). The misfit is the weighted mean absolute error in predicted
    standard deviations, relative to that of a Gaussian: it is one where the model's deviations are right.
    """
    if not factored(K, noises, weights, count, factoring, A, T, D):
        return False
    follow(inverting, (A, T, D, A), len(weights))
    for i in range(count):
        alpha[i], precision[i] = 0, 0
    mean, reduction = 0.0, 0.0
    for i in range(count):
        row = T[i]
        a, b = 0.0, 0.0
        for j in range(i + 1):
            a += row[j] * k[j]
            b += row[j] * y[j]
        for j in range(i + 1):
            alpha[j] += b * row[j]
            precision[j] += row[j] * row[j]
        mean += a * b
        reduction += a * a
    misfit, total = 0.0, 0.0
    for i in range(count):
        misfit += weights[i] * abs(alpha[i]) / np.sqrt(precision[i])
        total += weights[i]
    result[MEAN] = mean
    result[VARIANCE] = max(prior - reduction, SMALLEST_VARIANCE * prior)
    result[MISFIT] = misfit / (GAUSSIAN_ERROR * total) if count > 0 else 1.0
    return True


@compiled
def solved_from(T: Array, b: Array, count: int, out: Array) -> None:
    """out := T^T T b: after `posterior`, which leaves L^-1 in T, the weights of the targets in the mean for b = k."""
    for i in range(count):
        out[i] = 0.0
    for i in range(count):
        row, total = T[i], 0.0
        for j in range(i + 1):
            total += row[j] * b[j]
        for j in range(i + 1):
            out[j] += total * row[j]


@compiled_strict
def weight_of_few(inner: Array, noise: float, result: Array) -> float:
    """The weight of the prediction of few neighbours where it is joined with that of many."""
    first = (inner[VARIANCE] + noise) * (inner[MISFIT] + LEAST_MISFIT) ** 2
    second = (result[VARIANCE] + noise) * (result[MISFIT] + LEAST_MISFIT) ** 2
    return second / (first + second)  # type: ignore[no-any-return]


@compiled
def means_only(
    K: Array, k: Array, targets: Array, noises: Array, weights: Array, count: int, factoring: Array,
    A: Array, T: Array, D: Array, results: Array,
) -> bool:  # fmt: skip
    """`mean_only` for several targets, one row of `targets` each, with one factor. `targets` is overwritten."""
    if not factored(K, noises, weights, count, factoring, A, T, D):
        return False
    for t in range(len(targets)):
        y = targets[t]
        solve_vector(A, y, len(weights))
        mean = 0.0
        for i in range(count):
            mean += k[i] * y[i]
        results[t, MEAN] = mean
    return True


@compiled
def posteriors(
    K: Array, k: Array, targets: Array, noises: Array, weights: Array, count: int, prior: float, factoring: Array,
    inverting: Array, A: Array, T: Array, D: Array, alpha: Array, precision: Array, solved: Array,
    results: Array,
) -> bool:  # fmt: skip
    """`posterior` for several targets, one row of `targets` each, with one factor and one inverse of it."""
    if not factored(K, noises, weights, count, factoring, A, T, D):
        return False
    follow(inverting, (A, T, D, A), len(weights))
    for i in range(count):
        precision[i] = 0
    reduction, total = 0.0, 0.0
    for i in range(count):
        row = T[i]
        a = 0.0
        for j in range(i + 1):
            a += row[j] * k[j]
        for j in range(i + 1):
            precision[j] += row[j] * row[j]
        solved[i] = a
        reduction += a * a
        total += weights[i]
    for t in range(len(targets)):
        y = targets[t]
        for i in range(count):
            alpha[i] = 0
        mean, misfit = 0.0, 0.0
        for i in range(count):
            row = T[i]
            b = 0.0
            for j in range(i + 1):
                b += row[j] * y[j]
            for j in range(i + 1):
                alpha[j] += b * row[j]
            mean += solved[i] * b
        for i in range(count):
            misfit += weights[i] * abs(alpha[i]) / np.sqrt(precision[i])
        results[t, MEAN] = mean
        results[t, VARIANCE] = max(prior - reduction, SMALLEST_VARIANCE * prior)
        results[t, MISFIT] = misfit / (GAUSSIAN_ERROR * total) if count > 0 else 1.0
    return True


@compiled_strict
def joined(inner: Array, noise: float, result: Array) -> None:
    """result := the predictions of few and of many neighbours together, weighted by their predicted precision.

    The squared deviation of a prediction is s^2 = (v + noise) misfit^2, which is small for the few nearest rows where
    these alone agree. Weights are proportional to 1 / s^2. Mean and variance of f are weighted means; the misfit is
    such that (v + noise) misfit^2 is the variance of the mixture of both, which grows where they disagree. `noise` is
    the harmonic mean of the neighbours'.
    """
    first = (inner[VARIANCE] + noise) * (inner[MISFIT] + LEAST_MISFIT) ** 2
    second = (result[VARIANCE] + noise) * (result[MISFIT] + LEAST_MISFIT) ** 2
    weight = weight_of_few(inner, noise, result)
    difference = inner[MEAN] - result[MEAN]
    total = weight * first + (1 - weight) * second + weight * (1 - weight) * difference**2
    result[MEAN] += weight * difference
    result[VARIANCE] += weight * (inner[VARIANCE] - result[VARIANCE])
    result[MISFIT] = np.sqrt(total / (result[VARIANCE] + noise))


@compiled
def join_few(
    K: Array, k: Array, y: Array, noises: Array, squares: Array, weights: Array, inner_weights: Array, count: int,
    prior: float, typical: float, factoring: Array, inverting: Array, inner_factoring: Array, inner_inverting: Array,
    A: Array, T: Array, D: Array, alpha: Array, precision: Array, few: Array, result: Array,
) -> bool:  # fmt: skip
    """result := the prediction of all neighbours, which it is, and that of the nearest of them, together.

    As many as `inner_weights` has places predict on their own, or more (`few_rows`). Then the places of the others
    remain in the matrices, without effect; K, k and y are changed.
    """
    inner = len(inner_weights)
    nearer = few_rows(squares, inner, count)
    if nearer == 0:
        return True
    usual = nearer == inner
    if not usual:
        keep_first(nearer, K, k, y)
    own_weights = inner_weights if usual else weights
    taper(squares, count, nearer, own_weights)
    good = posterior(
        K, k, y, noises, own_weights, nearer, prior, inner_factoring if usual else factoring,
        inner_inverting if usual else inverting, A, T, D, alpha, precision, few,
    )  # fmt: skip
    joined(few, typical, result)
    return good  # type: ignore[no-any-return]

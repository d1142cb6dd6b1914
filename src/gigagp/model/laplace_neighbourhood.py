"""Prediction of latent functions by Laplace's approximation on the rows nearest to each query.

One search and one covariance matrix serve all classes. The rows near a query have no stored state but their targets, so
that a row can be predicted without itself exactly, and the answer does not depend on the batch or the engine.

A label says little, so that all neighbours must count: only the weights of the last eighth decrease to zero, and the
prediction is a continuous function of the query. (With the weights of `linalg.neighbourhood.taper` most neighbours
hardly count where there are many columns, because their distances are nearly equal: 256 neighbours were then needed
to predict magic as well as 128 do now, and far probabilities were drawn to the prior; a trial.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine, own_workspace
from gigagp.errors import NotFinite
from gigagp.likelihoods import Latents, laplace, pointwise
from gigagp.linalg import leaf, neighbourhood
from gigagp.linalg.cholesky import solve_vector
from gigagp.linalg.compiled import compiled, compiled_strict, read_only
from gigagp.linalg.row_noise import FACTOR
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model.neighbour_search import NO_ROW, nearest, search_scratch
from gigagp.model.neighbourhood import Neighbourhood, chunks_of, factoring, row_noise_of, search_arguments, search_rows

_STEPS = 5  # of Newton's method for one query and latent function, about
_TAPERED = 8  # one over the share of the neighbours whose weights decrease
_LEAST_WEIGHT = 1e-6  # of a neighbour
_RESULTS = 3  # numbers per query and latent function: mean, variance, misfit
_VECTORS = 5  # of one number per neighbour that the mode needs


@dataclass(frozen=True, eq=False)
class LatentFunctions:
    """Mean and variance of each latent function at each query, all of shape (queries, latent functions).

    misfit : root mean square of the neighbours' residuals in units of their deviations, near ones counting more; one
        where targets vary around f as their likelihood says
    """

    mean: Array
    variance: Array
    misfit: Array

    def at(self, rows: slice | Array) -> LatentFunctions:
        """The predictions at some queries."""
        return LatentFunctions(self.mean[rows], self.variance[rows], self.misfit[rows])

    @classmethod
    def joined(cls, parts: list[LatentFunctions]) -> LatentFunctions:
        """The predictions of several sets of queries as one."""
        return cls(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("mean", "variance", "misfit")))


def work(model: Neighbourhood, latents: Latents) -> float:
    """About how many multiplications one query takes."""
    return model.work + latents.latents * _STEPS * float(model.count) ** 2 * (model.count / 6 + 4)


def prior_variance(model: Neighbourhood) -> float:
    """The variance of a latent function before any row is known."""
    return float(model.kernel.diagonal(model.theta[:-1], model.store.X[:1])[0])


def predict(
    model: Neighbourhood, latents: Latents, Z: Array, engine: Engine, held_out: Array | None = None
) -> LatentFunctions:
    """Mean and variance of the latent functions at scaled queries Z.

    held_out : for each query the row of the store that it is, which is then ignored
    """
    results = np.empty((len(Z), _RESULTS, latents.latents))
    rows = np.full(len(Z), NO_ROW) if held_out is None else np.asarray(held_out, np.int64)
    chunks, here = chunks_of(model, Z, work(model, latents))
    task = _PredictChunk(model, latents)
    tasks = ((Z[chunk], rows[chunk]) for chunk in chunks)
    parts = (task(each, own_workspace()) for each in tasks) if here else engine.map(task, tasks)
    for chunk, part in zip(chunks, parts, strict=True):
        results[chunk] = part
    return LatentFunctions(results[:, 0], results[:, 1], results[:, 2])


@dataclass(frozen=True, eq=False)
class _PredictChunk:
    """Predictions of some queries, of shape (queries, 3, latent functions): means, variances and misfits."""

    model: Neighbourhood
    latents: Latents

    name = "Laplace neighbourhood"

    def __call__(self, task: tuple[Array, Array], workspace: Workspace) -> Array:
        Z, held_out = task
        model = self.model
        profile = model.kernel.profile(model.theta[:-1], Z.shape[1])
        if profile is None or self.latents.likelihood.compiled == pointwise.PYTHON:
            results = _by_calls(model, self.latents, Z, held_out, workspace)
        else:
            results = _with_profile(model, self.latents, profile, Z, held_out, workspace)
        if np.isnan(results).any():
            raise NotFinite("a covariance is not finite; check the kernel with gigagp.testing.check_kernel")
        model.store.touched(len(Z) * model.limit)
        return results


@tiny_is_zero
def _with_profile(
    model: Neighbourhood, latents: Latents, profile: leaf.Profile, Z: Array, held_out: Array, workspace: Workspace
) -> Array:
    """For kernels of the scaled distance: all in one compiled call."""
    p = model.count
    results = np.empty((len(Z), _RESULTS, latents.latents))
    _predict_all(  # type: ignore[call-arg]
        *profile[:5], *search_arguments(model), model.store.y, row_noise_of(model), read_only(Z), held_out,
        model.limit, factoring(p), latents.likelihood.compiled, model.noise, latents.means, latents.row_weights,
        *leaf.buffers(p, np.dtype(float), workspace), results,
    )  # fmt: skip
    return results


@compiled
def _predict_all(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, X: Array, tree: tuple[Array, ...],
    metric: Array, y: Array, row_noise: Array, Z: Array, held_out: Array, limit: int, factoring: Array,
    likelihood: int, dispersion: float, means: Array, class_weights: Array, K: Array, A: Array, T: Array,
    D: Array, results: Array,
) -> None:  # fmt: skip
    p, columns = len(K), X.shape[1]
    scratch = search_scratch(columns, len(tree[0]) + len(tree[1]))
    squares, rows = np.empty(p + 1), np.empty(p + 1, np.int64)
    point, x, codes = np.empty(columns), np.empty((columns, p)), np.empty(p)
    weights, k, labels, vectors = np.ones(p), np.empty(p), np.empty(p), np.empty((_VECTORS, p))
    for q in range(len(Z)):
        for d in range(columns):
            point[d] = Z[q, d] * metric[0, d]
        size = nearest(
            X, tree, metric, point, held_out[q], limit, scratch, squares, rows,
        )  # fmt: skip
        count = min(size, p)
        _taper(squares, size, count, weights)
        neighbourhood.gather(X, y, rows, count, scales, x, codes)
        _weigh(codes, rows, count, class_weights, row_noise, weights)
        neighbourhood.covariances(kind, variance, shape, limits, x, squares, count, K, k)
        _latents(
            likelihood, dispersion, K, k, codes, weights, count, variance, means, len(class_weights) > 0, factoring,
            A, T, D, labels, vectors, results[q],
        )  # fmt: skip


@compiled_strict
def _taper(squares: Array, size: int, count: int, weights: Array) -> None:
    """Weights of the first `count` of `size` rows: one, and in the last eighth decreasing to zero with the distance."""
    full = count - count // _TAPERED
    reach = squares[count] if size > count else np.inf
    width = reach - squares[full - 1] if 0 < full < count else 0.0
    tapered = 0 < width < np.inf
    for i in range(count):
        weights[i] = max((reach - squares[i]) / width, _LEAST_WEIGHT) if tapered and i >= full else 1.0


@compiled_strict
def _weigh(codes: Array, rows: Array, count: int, class_weights: Array, row_noise: Array, weights: Array) -> None:
    """weights *= how much each neighbour counts in the likelihood; places that stand for no row get zero."""
    for i in range(len(weights)):
        if i >= count:
            weights[i] = 0.0
            continue
        if len(class_weights) > 0:
            weights[i] *= class_weights[int(codes[i])]
        if len(row_noise) > 0:
            weights[i] /= row_noise[rows[i], FACTOR]


@compiled
def _latents(
    likelihood: int, d: float, K: Array, k: Array, codes: Array, weights: Array, count: int, prior: float,
    means: Array, of_classes: bool, factoring: Array, A: Array, T: Array, D: Array, labels: Array,
    vectors: Array, result: Array,
) -> None:  # fmt: skip
    """result := mean and variance of each latent function at the query. codes : targets, or numbers of classes"""
    p, latents = len(codes), len(means)
    f, a, roots, v, b = vectors
    absent = -1  # a class that none of the neighbours has: all such classes have the same latent function
    for latent in range(latents):
        member = 1 if latents == 1 else latent
        members = 0.0
        for i in range(p):
            if of_classes:
                labels[i] = 1.0 if i < count and int(codes[i]) == member else 0.0
            else:
                labels[i] = codes[i] if i < count else 1.0  # possible with every likelihood; it has no weight
            members += labels[i]
        if members == 0 and latents > 1:
            if absent >= 0:
                for i in range(_RESULTS):
                    result[i, latent] = result[i, absent]
                continue
            absent = latent
        mean = means[latent]
        good = laplace.mode(
            likelihood, d, K, labels, weights, mean, laplace.CLOSE, factoring, A, T, D, f, a, roots, v, b
        )  # fmt: skip
        _posterior(k, count, prior, mean, A, a, roots, v, b, result[:, latent])
        if not good:
            result[0, latent] = np.nan


@compiled
def _posterior(
    k: Array, count: int, prior: float, mean: float, A: Array, a: Array, roots: Array, v: Array, b: Array,
    result: Array,
) -> None:  # fmt: skip
    """result := mean m + k^T a, variance k_** - k^T W^1/2 B^-1 W^1/2 k and misfit of a latent function at the query.

    The residual of a neighbour is the slope of its ln p, which is a_i at the mode, in units of its deviation W_ii^1/2.

    a, W and B are those of `laplace.mode` on the neighbours. v, b : scratch
    """
    p = len(k)
    for i in range(p):
        v[i] = roots[i] * k[i]
        b[i] = v[i]
    solve_vector(A, v, p)
    change, reduction, squares, total = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        change += k[i] * a[i]
        reduction += b[i] * v[i]
        if roots[i] > 0:
            ratio, weight = a[i] / roots[i], k[i] * k[i]
            squares += weight * ratio * ratio
            total += weight
    result[0] = mean + change
    result[1] = max(prior - reduction, 0.0)
    result[2] = np.sqrt(squares / total) if total > 0 else 1.0


@tiny_is_zero
def _by_calls(
    model: Neighbourhood, latents: Latents, Z: Array, held_out: Array, workspace: Workspace
) -> Array:  # fmt: skip
    """For composed kernels, and kernels and likelihoods that users have written: Python calls them for each query."""
    p, theta, own = model.count, model.theta[:-1], latents.likelihood
    K, A, T, D = leaf.buffers(p, np.dtype(float), workspace)
    squares, rows = np.empty(p + 1), np.empty(p + 1, np.int64)
    results = np.empty((len(Z), _RESULTS, latents.latents))
    for q, z in enumerate(Z.astype(float)):
        size = search_rows(model, z, int(held_out[q]), squares, rows)
        count = min(size, p)
        weights, k, codes = np.ones(p), np.zeros(p), np.zeros(p)
        _taper(squares, size, count, weights)
        X, codes[:count] = (np.asarray(a, float) for a in model.store.gather(rows[:count]))
        _weigh(codes, rows, count, latents.row_weights, row_noise_of(model), weights)
        K[:p, :p] = np.eye(p)
        K[:count, :count] = np.asarray(model.kernel.gram(theta, X))[:count, :count]
        k[:count] = np.asarray(model.kernel.cross(theta, X, z[None, :]))[:count, 0]
        prior, vectors = float(model.kernel.diagonal(theta, z[None, :])[0]), np.empty((_VECTORS, p))
        if own.compiled != pointwise.PYTHON:
            _latents(
                own.compiled, model.noise, K, k, codes, weights, count, prior, latents.means,
                len(latents.row_weights) > 0, factoring(p), A, T, D, np.empty(p), vectors, results[q],
            )  # fmt: skip
            continue
        mean, (f, a, roots, v, b) = float(latents.means[0]), vectors
        good = laplace.python_mode(
            own, model.noise, K, codes, weights, mean, laplace.CLOSE, factoring(p), A, T, D, f, a, roots, v, b
        )  # fmt: skip
        _posterior(k, count, prior, mean, A, a, roots, v, b, results[q, :, 0])
        if not good:
            results[q, 0] = np.nan
    return results

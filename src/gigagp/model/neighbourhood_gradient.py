"""Gradients of the predictions of neighbourhoods with respect to the queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.linalg import cholesky, leaf, neighbourhood, schedule
from gigagp.linalg import neighbourhood_gradient as passes
from gigagp.linalg.compiled import compiled, read_only
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model.duals import Dual
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbour_search import NO_ROW
from gigagp.model.neighbourhood import (
    Neighbourhood,
    averaged,
    chunks_of,
    positive_definite,
    row_noise_of,
    search_many,
)

_WORK = 3.0  # how much more a gradient takes than a prediction


def held_out_slopes(model: Neighbourhood, Z: Array, engine: Engine, rows: Array) -> Array:
    """The gradient of the mean at rows Z of the store, each predicted without itself; NaN where there is none."""
    many, _, _ = _derivatives(model, Z, engine, rows)
    return np.asarray(many[0].tangent)


def predict(model: Neighbourhood, Z: Array, engine: Engine) -> LatentPrediction:
    """Mean, variance of f and misfit at scaled queries as duals: with their derivatives by the scaled query."""
    if not model.others:
        return _predict(model, Z, engine)
    return averaged(model, [_predict(each, Z, engine) for each in model.members])


def _predict(model: Neighbourhood, Z: Array, engine: Engine) -> LatentPrediction:
    """The prediction of one member."""
    many, few, typical = _derivatives(model, Z, engine)
    mean, variance, misfit = many
    if model.inner_count:
        mean, variance, misfit = _joined(few, many, typical)
    return LatentPrediction(mean, variance, misfit)  # type: ignore[arg-type]


def _joined(few: list[Dual], many: list[Dual], noise: Array) -> tuple[Any, Any, Any]:
    """The predictions of few and of many neighbours together, as `linalg.neighbourhood.joined` describes."""
    first = (few[1] + noise) * (few[2] + neighbourhood.LEAST_MISFIT) ** 2
    second = (many[1] + noise) * (many[2] + neighbourhood.LEAST_MISFIT) ** 2
    weight = second / (first + second)
    difference = few[0] - many[0]
    total = weight * first + (1 - weight) * second + weight * (1 - weight) * difference**2
    variance = many[1] + weight * (few[1] - many[1])
    return many[0] + weight * difference, variance, np.sqrt(total / (variance + noise))


def _derivatives(
    model: Neighbourhood, Z: Array, engine: Engine, held_out: Array | None = None
) -> tuple[list[Dual], list[Dual], Array]:
    """What many and few neighbours predict, each as three duals; and the typical noise of each query's neighbours.

    held_out : for each query, a row that is ignored
    """
    held_out = np.full(len(Z), NO_ROW) if held_out is None else held_out
    shape = (len(Z), 2, neighbourhood.RESULTS)
    values, slopes, typical = np.zeros(shape), np.zeros((*shape, Z.shape[1])), np.empty(len(Z))
    chunks, _ = chunks_of(model, Z, _WORK * model.work)
    parts = engine.map(_GradientOfChunk(model), ((Z[chunk], held_out[chunk]) for chunk in chunks if len(chunk)))
    for chunk, part in zip([chunk for chunk in chunks if len(chunk)], parts, strict=True):
        values[chunk], slopes[chunk], typical[chunk] = part
    many, few = (
        [Dual(values[:, level, i].copy(), slopes[:, level, i].copy()) for i in range(neighbourhood.RESULTS)]
        for level in range(2)
    )
    return many, few, typical


@dataclass(frozen=True, eq=False)
class _GradientOfChunk:
    """Values (q, 2, RESULTS) of many and of few neighbours, their derivatives by the query, and the typical noise."""

    model: Neighbourhood

    name = "gradient"

    @tiny_is_zero
    def __call__(self, queries: tuple[Array, Array], work: Workspace) -> tuple[Array, Array, Array]:
        model, Z, held_out = self.model, np.ascontiguousarray(queries[0], float), queries[1]
        squares, rows, sizes = search_many(model, Z, held_out)
        shape = (len(Z), 2, neighbourhood.RESULTS)
        values, slopes, typical = np.zeros(shape), np.zeros((*shape, Z.shape[1])), np.empty(len(Z))
        profile = model.kernel.profile(model.theta[:-1], Z.shape[1])
        if profile is None:
            _with_any_kernel(model, Z, squares, rows, sizes, work, values, slopes, typical)
        else:
            inner, p = model.inner_count, model.count
            _with_profile(
                *profile[:5], model.common_noise, model.noise, read_only(model.store.X),
                read_only(model.router.search_metric), model.store.y, row_noise_of(model), Z, squares, rows, sizes,
                *_operations(p), inner, *_operations(inner or p), *leaf.buffers(p, np.dtype(float), work),
                values, slopes, typical,
            )  # fmt: skip
        positive_definite(model, values[:, 0, neighbourhood.MEAN])
        model.store.touched(len(Z) * model.limit)
        return values, slopes, typical


def _operations(p: int) -> tuple[Array, Array]:
    """The operations that factor the matrix of p neighbours and that invert it."""
    return schedule.factoring(p, cholesky.WIDTH).operations, schedule.inverting(p, cholesky.WIDTH).operations


@compiled
def _with_profile(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, common: float, noise: float, X: Array,
    metric: Array, y: Array, row_noise: Array, Z: Array, squares: Array, rows: Array, sizes: Array, factoring: Array,
    inverting: Array, inner: int, inner_factoring: Array, inner_inverting: Array, K: Array, A: Array, T: Array,
    D: Array, values: Array, slopes: Array, typical: Array,
) -> None:  # fmt: skip
    p, columns = len(K), X.shape[1]
    x, targets, point = np.empty((columns, p)), np.empty(p), np.empty(columns)
    weights, k, noises, vectors = np.ones(p), np.empty(p), np.empty(p), np.empty((6, p))
    by_k, by_w, by_square = np.empty((3, p)), np.empty((3, p)), np.empty((3, p + 1))
    for q in range(len(Z)):
        count = min(sizes[q], p)
        for d in range(columns):
            point[d] = Z[q, d] * metric[0, d]
        neighbourhood.gather(X, y, rows[q], count, scales, x, targets)
        typical[q] = neighbourhood.gather_noise(noise, row_noise, rows[q], count, noises)
        neighbourhood.covariances(kind, variance, shape, limits, x, squares[q], count, K, k)
        if common > 0:
            neighbourhood.add_common_noise(common, X, rows[q], Z[q], squares[q], count, K, k)
        nearer = neighbourhood.few_rows(squares[q], inner, count)
        for level in range(2 if nearer > 0 else 1):
            size, used = (sizes[q], count) if level == 0 else (count, nearer)
            smaller = level == 1 and nearer == inner
            if level == 1 and not smaller:
                neighbourhood.keep_first(nearer, K, k, targets)
            neighbourhood.taper(squares[q], size, used, weights)
            good = passes.derivatives(
                K, k, targets, noises, weights[: inner if smaller else p], used, variance + common,
                inner_factoring if smaller else factoring, inner_inverting if smaller else inverting,
                A, T, D, vectors, values[q, level], by_k, by_w,
            )  # fmt: skip
            passes.taper_derivatives(squares[q], size, used, weights, by_w, by_square)
            passes.covariance_derivatives(kind, variance, shape, squares[q], used, by_k, vectors[0], by_square)
            passes.by_query(X, rows[q], used + (size > used), metric, point, by_square, slopes[q, level])
            if not good:
                values[q, level, 0] = np.nan
        if nearer == 0:
            values[q, 1], slopes[q, 1] = values[q, 0], slopes[q, 0]


def _with_any_kernel(
    model: Neighbourhood, Z: Array, squares: Array, rows: Array, sizes: Array, work: Workspace, values: Array,
    slopes: Array, typical: Array,
) -> None:  # fmt: skip
    """For composed kernels and kernels that users have written: Python calls the kernel for each query."""
    p, theta, kernel, metric = model.count, model.theta[:-1], model.kernel, model.router.search_metric
    K, A, T, D = leaf.buffers(p, np.dtype(float), work)
    weights, noises, vectors, row_noise = np.ones(p), np.empty(p), np.empty((6, p)), row_noise_of(model)
    by_k, by_w, by_square = np.empty((3, p)), np.empty((3, p)), np.empty((3, p + 1))
    for q, z in enumerate(Z):
        size, count, one = int(sizes[q]), min(int(sizes[q]), p), z[None, :]
        X, y = (np.asarray(a, float) for a in model.store.gather(rows[q, :count]))
        typical[q] = neighbourhood.gather_noise(model.noise, row_noise, rows[q], count, noises)
        k, targets = np.zeros(p), np.zeros(p)
        targets[:count] = y
        K[:p, :p] = np.eye(p)
        K[:count, :count] = np.asarray(kernel.gram(theta, X))[:count, :count]
        k[:count] = np.asarray(kernel.cross(theta, X, one))[:count, 0]
        prior, inner = float(kernel.diagonal(theta, one)[0]), model.inner_count
        nearer = neighbourhood.few_rows(squares[q], inner, count)
        levels = [(size, count, p)] + ([(count, nearer, inner if nearer == inner else p)] if nearer else [])
        for level, (seen, used, padded) in enumerate(levels):
            if padded > used:
                neighbourhood.keep_first(used, K, k, targets)
            neighbourhood.taper(squares[q], seen, used, weights)
            good = passes.derivatives(
                K, k, targets, noises, weights[:padded], used, prior, *_operations(padded), A, T, D, vectors,
                values[q, level], by_k, by_w,
            )  # fmt: skip
            passes.taper_derivatives(squares[q], seen, used, weights, by_w, by_square)
            passes.by_query(
                model.store.X, rows[q], used + (seen > used), metric, z * metric[0], by_square, slopes[q, level]
            )
            by_kernel = kernel.query_gradient(theta, X[:used], np.repeat(one, 3, axis=0), by_k[:, :used].T)
            slopes[q, level] += by_kernel
            slopes[q, level, neighbourhood.VARIANCE] += kernel.diagonal_gradient(theta, one)[0]
            if not good:
                values[q, level, 0] = np.nan
        if nearer == 0:
            values[q, 1], slopes[q, 1] = values[q, 0], slopes[q, 0]

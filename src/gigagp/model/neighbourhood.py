"""Prediction by an exact GP on the rows nearest to each query, in the metric of the trained kernel.

Several such models of the same rows, with kernels of different families, may be averaged (`Neighbourhood.others`).
Nothing is factored in advance and no query depends on another: the answer is the same whatever the batch, the engine
or the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, own_workspace
from gigagp.errors import NotPositiveDefinite
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky, leaf, neighbourhood, schedule
from gigagp.linalg.compiled import compiled, read_only
from gigagp.linalg.jitter import largest_jitter
from gigagp.linalg.row_noise import for_compiled, variances
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model.averages import Part, average
from gigagp.model.block_tree import BlockTree
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbour_search import NO_ROW, UNLIMITED, nearest, nearest_group, search_scratch
from gigagp.model.routing import Router

_COMPARED = 64  # rows compared per neighbour, unless the search is exact
_COMPARED_BY_CELLS = 128  # the same where there are no boxes of blocks
_CHUNK_WORK = 2e8  # multiplications per task of an engine
_LITTLE_WORK = 2e6  # multiplications up to which the calling thread predicts itself
_LARGEST_CHUNK = 4096  # queries per task
_TYPICAL_ROWS = 4096  # rows that show the noise of a typical one
_SORT_FROM = 4096  # queries from which they are answered in the order of their places, for the caches


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """Everything needed to predict from the rows nearest to a query."""

    travels_once = True  # to each worker

    kernel: Kernel
    theta: Array
    store: ExpertStore
    cells: Runs
    router: Router
    neighbours: int
    exact: bool = False  # whether the search must find the nearest rows, however long that takes
    inner: int = 0  # number of nearest neighbours that also answer on their own, weighted by precision; 0 for none
    segments: int = 1  # parts of the rows that were sorted apart from each other, where rows have arrived
    common: float = 0.0  # share of the noise variance that rows with equal inputs have in common
    others: tuple[Neighbourhood, ...] = ()  # models of the same rows with other kernels, which are averaged with it

    @property
    def members(self) -> tuple[Neighbourhood, ...]:
        """The models that are averaged (`model.averages`): this one alone, and the others."""
        return (self._alone, *self.others) if self.others else (self,)

    @cached_property
    def _alone(self) -> Neighbourhood:
        return replace(self, others=())

    @property
    def noise(self) -> float:
        """The noise variance of a row of weight one, without the common noise; the mean of averaged models."""
        if not self.others:
            return (1 - self.common) * float(np.exp(self.theta[-1]))
        return sum(each.noise for each in self.members) / len(self.members)

    @property
    def common_noise(self) -> float:
        """The variance of the noise that rows with equal inputs have in common. It counts as a part of f."""
        return self.common * float(np.exp(self.theta[-1]))

    @cached_property
    def prior(self) -> float | None:
        """The variance of f far from all rows, averaged like the noise; None where the kernel is not stationary."""
        if self.others:
            return sum(each.prior or 0.0 for each in self.members) / len(self.members)
        if not self.kernel.stationary:
            return None
        return float(self.kernel.diagonal(self.theta[:-1], self.store.X[:1])[0]) + self.common_noise

    @cached_property
    def typical_noise(self) -> float:
        """The noise variance of a typical row, where rows differ in noise."""
        row_noise = self.store.row_noise
        return self.noise if row_noise is None else float(np.median(variances(self.noise, row_noise[:_TYPICAL_ROWS])))

    @property
    def count(self) -> int:
        """The number of neighbours; all rows where there are fewer."""
        return min(self.neighbours, len(self.store.y))

    @property
    def description(self) -> str:
        """For reports."""
        count = f"{self.inner} and {self.neighbours} neighbours" if self.inner else f"{self.neighbours} neighbours"
        return f"{count}, {' and '.join(self.families)} averaged" if self.others else count

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the members' kernels."""
        return tuple(type(each.kernel).__name__ for each in self.members)

    @property
    def inner_count(self) -> int:
        """The number of neighbours that also answer on their own; 0 where these would be all rows."""
        return self.inner if self.inner < self.count else 0

    @cached_property
    def tree(self) -> BlockTree:
        """Boxes around blocks of rows; around whole cells in models of earlier versions, which have no blocks."""
        blocks = self.router.blocks
        return BlockTree.of_rows(self.store.X, self.cells.starts, coded=False) if blocks is None else blocks

    @property
    def limit(self) -> int:
        """Rows that the search for one query may compare."""
        per_neighbour = _COMPARED if self.router.blocks is not None else _COMPARED_BY_CELLS
        # Each further segment has rows near the query in blocks of its own: with a quarter more per segment as many of
        # the nearest rows are found as in one (robot arm, 1e6 rows in three segments, a trial).
        return UNLIMITED if self.exact else per_neighbour * self.count * (3 + self.segments) // 4

    @property
    def work(self) -> float:
        """About how many multiplications one query takes."""
        m, columns = self.count, self.store.X.shape[1]
        compared = min(self.limit, len(self.store.y))
        own = float(0.7 * (m**3 + self.inner_count**3) + m * m * (columns + 20) + compared * (columns + 2))
        return own + sum(each.work for each in self.others)


def predict(
    model: Neighbourhood, Z: Array, engine: Engine, with_variance: bool = True, held_out: Array | None = None
) -> LatentPrediction:
    """Mean, variance of f and misfit at scaled queries Z.

    held_out : for each query the row of the store that it is, which is then ignored
    """
    if not model.others:
        return _predict(model, Z, engine, with_variance, held_out)
    # Weights depend on variances, so that they are needed for the mean too.
    combined = averaged(model, [_predict(each, Z, engine, True, held_out) for each in model.members])
    return combined if with_variance else LatentPrediction(combined.mean, None, None)


def averaged(model: Neighbourhood, predictions: list[LatentPrediction]) -> LatentPrediction:
    """The average of the predictions of a model's members."""
    assert model.prior is not None
    pairs = zip(predictions, model.members, strict=True)
    parts = [Part(prediction, each.typical_noise, each.prior or model.prior) for prediction, each in pairs]
    return average(parts, model.typical_noise, model.prior)


def _predict(
    model: Neighbourhood, Z: Array, engine: Engine, with_variance: bool, held_out: Array | None
) -> LatentPrediction:
    """The prediction of one member."""
    if len(Z) == 0:
        return _latent_prediction(np.empty((0, neighbourhood.RESULTS)), with_variance)
    rows = np.full(len(Z), NO_ROW) if held_out is None else np.asarray(held_out, np.int64)
    chunks, here = chunks_of(model, Z, model.work)
    if here:  # handing it to a worker would take longer
        results = _PredictChunk(model, with_variance)((Z, rows), own_workspace())
        return _latent_prediction(results, with_variance)
    parts = engine.map(_PredictChunk(model, with_variance), ((Z[chunk], rows[chunk]) for chunk in chunks))
    results = np.empty((len(Z), neighbourhood.RESULTS))
    for chunk, part in zip(chunks, parts, strict=True):
        results[chunk] = part
    return _latent_prediction(results, with_variance)


def is_little(model: Neighbourhood, queries: int) -> bool:
    """Whether so many queries are so little work that the calling thread should predict them, in compiled code."""
    in_one_call = model.kernel.profile(model.theta[:-1], model.store.X.shape[1]) is not None
    return in_one_call and all(queries * each.work <= _LITTLE_WORK for each in model.members)


def chunks_of(model: Neighbourhood, Z: Array, work: float) -> tuple[list[Array], bool]:
    """Queries that one task of an engine predicts; and whether they are so few that the calling thread should.

    work : multiplications per query
    """
    if len(Z) * work <= _LITTLE_WORK:
        return [np.arange(len(Z))], True
    order = _by_place(model, Z) if len(Z) >= _SORT_FROM or model.store.mapped else np.arange(len(Z))
    most = min(_LARGEST_CHUNK, model.store.queries_together(len(Z)))
    size = int(np.clip(_CHUNK_WORK / work, 1, min(most, -(-len(Z) // 8))))
    return [order[i : i + size] for i in range(0, len(Z), size)], False


def _latent_prediction(results: Array, with_variance: bool) -> LatentPrediction:
    mean, variance, misfit = np.ascontiguousarray(results.T)
    return LatentPrediction(mean, variance if with_variance else None, misfit if with_variance else None)


def _by_place(model: Neighbourhood, Z: Array) -> Array:
    """An order in which queries near to each other follow each other, so that they find rows in the caches."""
    router, points = model.router, Z.astype(float) * model.router.metric
    return np.argsort(nearest_group(model.tree, router.search_metric, points, router.limits), kind="stable")


@dataclass(frozen=True, eq=False)
class _PredictChunk:
    """Predictions of some queries: one row per query, with the columns of `linalg.neighbourhood`."""

    model: Neighbourhood
    with_variance: bool

    name = "neighbourhood"

    def __call__(self, task: tuple[Array, Array], work: Workspace) -> Array:
        Z, held_out = task
        model = self.model
        profile = model.kernel.profile(model.theta[:-1], Z.shape[1])
        if profile is None:
            results = _with_any_kernel(model, Z, held_out, self.with_variance, work)
        else:
            results = _with_profile(model, profile, Z, held_out, self.with_variance, work)
        positive_definite(model, results[:, neighbourhood.MEAN])
        model.store.touched(len(Z) * model.limit)
        return results


def positive_definite(model: Neighbourhood, means: Array) -> None:
    """Raise NotPositiveDefinite where the matrix of a neighbourhood could not be factored, which leaves no mean."""
    if np.isnan(means).any():
        names = (*model.kernel.names, "noise_variance")
        values = dict(zip(names, (float(v) for v in np.exp(model.theta)), strict=True))
        raise NotPositiveDefinite(None, values, largest_jitter("float64"), "float64")


def search_arguments(model: Neighbourhood) -> tuple[Any, ...]:
    """Rows, the arrays of their tree, and the metric, as `neighbour_search.nearest` takes them."""
    return read_only(model.store.X), model.tree.arrays, read_only(model.router.search_metric)


def factoring(p: int) -> Array:
    """The operations that factor the matrix of p neighbours."""
    return schedule.factoring(p, cholesky.WIDTH).operations


def row_noise_of(model: Neighbourhood) -> Array:
    return read_only(for_compiled(model.store.row_noise, model.store.X.dtype))


def operations(p: int) -> tuple[Array, Array]:
    """The operations that factor the matrix of p neighbours, and those that invert the factor."""
    return factoring(p), schedule.inverting_factor(p, cholesky.WIDTH)


@tiny_is_zero
def _with_profile(
    model: Neighbourhood, profile: leaf.Profile, Z: Array, held_out: Array, with_variance: bool, work: Workspace
) -> Array:
    """For kernels of the scaled distance: all in one compiled call."""
    p = model.count
    buffers = leaf.buffers(p, np.dtype(float), work)
    results = np.empty((len(Z), neighbourhood.RESULTS))
    _predict_all(  # type: ignore[call-arg]
        *profile[:5], model.common_noise, model.noise, with_variance, *search_arguments(model), model.store.y,
        row_noise_of(model), read_only(Z), read_only(held_out), model.limit, *operations(p), model.inner_count,
        *operations(model.inner_count or p), *buffers, results,
    )  # fmt: skip
    return results


@compiled
def _predict_all(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, common: float, noise: float,
    with_variance: bool, X: Array, tree: tuple[Array, ...], metric: Array, y: Array, row_noise: Array,
    Z: Array, held_out: Array, limit: int, factoring: Array, inverting: Array,
    inner: int, inner_factoring: Array, inner_inverting: Array,
    K: Array, A: Array, T: Array, D: Array, results: Array,
) -> None:  # fmt: skip
    p, columns = len(K), X.shape[1]
    scratch = search_scratch(X.shape[1], len(tree[0]) + len(tree[1]))
    squares, rows = np.empty(p + 1), np.empty(p + 1, np.int64)
    point, x, targets = np.empty(columns), np.empty((columns, p)), np.empty(p)
    weights, k, alpha, precision, noises = np.ones(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    inner_weights, few = np.ones(inner), np.empty(neighbourhood.RESULTS)
    prior = variance + common
    for q in range(len(Z)):
        for d in range(columns):
            point[d] = Z[q, d] * metric[0, d]
        size = nearest(X, tree, metric, point, held_out[q], limit, scratch, squares, rows)
        count = min(size, p)
        neighbourhood.taper(squares, size, count, weights)
        neighbourhood.gather(X, y, rows, count, scales, x, targets)
        typical = neighbourhood.gather_noise(noise, row_noise, rows, count, noises)
        neighbourhood.covariances(kind, variance, shape, limits, x, squares, count, K, k)
        if common > 0:
            neighbourhood.add_common_noise(common, X, rows, Z[q], squares, count, K, k)
        if with_variance or inner > 0:  # the variance decides how much the few nearest rows count
            good = neighbourhood.posterior(
                K, k, targets, noises, weights, count, prior, factoring, inverting, A, T, D, alpha, precision,
                results[q],
            )  # fmt: skip
            if good and inner > 0:
                good = neighbourhood.join_few(
                    K, k, targets, noises, squares, weights, inner_weights, count, prior, typical, factoring,
                    inverting, inner_factoring, inner_inverting, A, T, D, alpha, precision, few, results[q],
                )  # fmt: skip
        else:
            good = neighbourhood.mean_only(K, k, targets, noises, weights, count, factoring, A, T, D, results[q])
        if not good:
            results[q, 0] = np.nan


def nearest_rows(model: Neighbourhood, z: Array) -> Array:
    """Rows of the store around one scaled query, the nearest first, as `predict` finds them."""
    squares, rows = np.empty(model.count + 1), np.empty(model.count + 1, np.int64)
    size = search_rows(model, z, NO_ROW, squares, rows)
    return rows[: min(size, model.count)]


def search_rows(model: Neighbourhood, z: Array, held_out: int, squares: Array, rows: Array) -> int:
    """Fill in the nearest rows of one scaled query and their squared distances, one more than there are neighbours.

    Returns how many were found.
    """
    point = z.astype(float) * model.router.metric
    size = _search(*search_arguments(model), point, held_out, model.limit, squares, rows)  # type: ignore[call-arg]
    return int(size)


@compiled
def _search(
    X: Array, tree: tuple[Array, ...], metric: Array, point: Array,
    held_out: int, limit: int, squares: Array, rows: Array,
) -> int:  # fmt: skip
    scratch = search_scratch(X.shape[1], len(tree[0]) + len(tree[1]))
    return int(nearest(X, tree, metric, point, held_out, limit, scratch, squares, rows))


def search_many(model: Neighbourhood, Z: Array, held_out: Array) -> tuple[Array, Array, Array]:
    """Squared distances and rows of the store nearest to each query, (q, m + 1), and how many were found, (q,)."""
    squares, rows = np.zeros((len(Z), model.count + 1)), np.zeros((len(Z), model.count + 1), np.int64)
    sizes, points = np.empty(len(Z), np.int64), np.ascontiguousarray(Z.astype(float) * model.router.metric)
    _search_many(*search_arguments(model), points, held_out, model.limit, squares, rows, sizes)  # type: ignore[call-arg]
    return squares, rows, sizes


@compiled
def _search_many(
    X: Array, tree: tuple[Array, ...], metric: Array, points: Array,
    held_out: Array, limit: int, squares: Array, rows: Array, sizes: Array,
) -> None:  # fmt: skip
    scratch = search_scratch(X.shape[1], len(tree[0]) + len(tree[1]))
    for q in range(len(points)):
        sizes[q] = nearest(X, tree, metric, points[q], held_out[q], limit, scratch, squares[q], rows[q])


@tiny_is_zero
def _with_any_kernel(model: Neighbourhood, Z: Array, held_out: Array, with_variance: bool, work: Workspace) -> Array:
    """For composed kernels and kernels that users have written: Python calls the kernel once per query."""
    p, theta = model.count, model.theta[:-1]
    factoring, inverting = operations(p)
    K, A, T, D = leaf.buffers(p, np.dtype(float), work)
    squares, rows, weights = np.empty(p + 1), np.empty(p + 1, np.int64), np.ones(p)
    results = np.empty((len(Z), neighbourhood.RESULTS))
    inner, few = model.inner_count, np.empty(neighbourhood.RESULTS)
    inner_operations, inner_weights = operations(inner or p), np.ones(inner)
    search, row_noise, noises = search_arguments(model), row_noise_of(model), np.empty(p)
    for q, z in enumerate(Z.astype(float)):
        point = z * model.router.metric
        size = _search(*search, point, held_out[q], model.limit, squares, rows)  # type: ignore[call-arg]
        count = min(size, p)
        neighbourhood.taper(squares, size, count, weights)
        X, y = (np.asarray(a, float) for a in model.store.gather(rows[:count]))
        typical = neighbourhood.gather_noise(model.noise, row_noise, rows, count, noises)
        k, targets = np.zeros(p), np.zeros(p)
        targets[:count] = y
        K[:p, :p] = np.eye(p)
        K[:count, :count] = np.asarray(model.kernel.gram(theta, X))[:count, :count]
        k[:count] = np.asarray(model.kernel.cross(theta, X, z[None, :]))[:count, 0]
        if with_variance or inner > 0:
            prior = float(model.kernel.diagonal(theta, z[None, :])[0])
            good = neighbourhood.posterior(
                K, k, targets, noises, weights, count, prior, factoring, inverting, A, T, D, np.empty(p),
                np.empty(p), results[q],
            )  # fmt: skip
            if good and inner > 0:
                good = neighbourhood.join_few(
                    K, k, targets, noises, squares, weights, inner_weights, count, prior, typical, factoring,
                    inverting, *inner_operations, A, T, D, np.empty(p), np.empty(p), few, results[q],
                )  # fmt: skip
        else:
            good = neighbourhood.mean_only(K, k, targets, noises, weights, count, factoring, A, T, D, results[q])
        if not good:
            results[q, 0] = np.nan
    return results

"""Predictions of several targets that share a kernel and its theta: one search and one factor per query for all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine, own_workspace
from gigagp.linalg import leaf, neighbourhood
from gigagp.linalg.compiled import compiled, read_only
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbour_search import NO_ROW, nearest, search_scratch
from gigagp.model.neighbourhood import (
    Neighbourhood,
    averaged,
    chunks_of,
    operations,
    positive_definite,
    predict,
    row_noise_of,
    search_arguments,
)


@dataclass(frozen=True, eq=False)
class TargetNeighbourhoods:
    """Neighbourhoods of several targets that differ in nothing but the targets."""

    models: tuple[Neighbourhood, ...]  # one per target
    targets: Array  # scaled, one row per target, in the order of the store

    @classmethod
    def of(cls, model: Neighbourhood, targets: Array) -> TargetNeighbourhoods:
        """From the neighbourhood of another target of the same rows."""

        def with_target(y: Array) -> Neighbourhood:
            store = model.store.with_target(y)
            return replace(model, store=store, others=tuple(replace(each, store=store) for each in model.others))

        return cls(tuple(with_target(y) for y in targets), targets)

    def predict(
        self, Z: Array, engine: Engine, with_variance: bool = True, held_out: Array | None = None
    ) -> list[LatentPrediction]:
        """Mean, variance of f and misfit at scaled queries, one prediction per target; as `neighbourhood.predict`."""
        first = self.models[0]
        if any(each.kernel.profile(each.theta[:-1], Z.shape[1]) is None for each in first.members) or len(Z) == 0:
            return [predict(model, Z, engine, with_variance, held_out) for model in self.models]
        if not first.others:
            return self._predict(first, Z, engine, with_variance, held_out)
        parts = [self._predict(each, Z, engine, True, held_out) for each in first.members]
        combined = [averaged(model, [part[t] for part in parts]) for t, model in enumerate(self.models)]
        return combined if with_variance else [LatentPrediction(each.mean, None, None) for each in combined]

    def _predict(
        self, member: Neighbourhood, Z: Array, engine: Engine, with_variance: bool, held_out: Array | None
    ) -> list[LatentPrediction]:
        """The predictions of one of the averaged kernels."""
        rows = np.full(len(Z), NO_ROW) if held_out is None else np.asarray(held_out, np.int64)
        chunks, here = chunks_of(member, Z, member.work)
        predict_chunk = _PredictChunk(member, self.targets, with_variance)
        results = np.empty((len(Z), len(self.targets), neighbourhood.RESULTS))
        if here:
            results[:] = predict_chunk((Z, rows), own_workspace())
        else:
            parts = engine.map(predict_chunk, ((Z[chunk], rows[chunk]) for chunk in chunks))
            for chunk, part in zip(chunks, parts, strict=True):
                results[chunk] = part
        return [_latent_prediction(results[:, t], with_variance) for t in range(len(self.targets))]


def _latent_prediction(results: Array, with_variance: bool) -> LatentPrediction:
    mean, variance, misfit = np.ascontiguousarray(results.T)
    return LatentPrediction(mean, variance if with_variance else None, misfit if with_variance else None)


@dataclass(frozen=True, eq=False)
class _PredictChunk:
    """Predictions of some queries: one row per query and target, with the columns of `linalg.neighbourhood`."""

    model: Neighbourhood
    targets: Array
    with_variance: bool

    name = "neighbourhood"

    @tiny_is_zero
    def __call__(self, task: tuple[Array, Array], work: Workspace) -> Array:
        (Z, held_out), model, p = task, self.model, self.model.count
        profile = model.kernel.profile(model.theta[:-1], Z.shape[1])
        assert profile is not None
        results = np.empty((len(Z), len(self.targets), neighbourhood.RESULTS))
        _predict_all(  # type: ignore[call-arg]
            *profile[:5], model.common_noise, model.noise, self.with_variance, *search_arguments(model),
            read_only(self.targets), row_noise_of(model), read_only(Z), read_only(held_out), model.limit,
            *operations(p), model.inner_count, *operations(model.inner_count or p),
            *leaf.buffers(p, np.dtype(float), work), results,
        )  # fmt: skip
        positive_definite(model, results[:, :, neighbourhood.MEAN])
        model.store.touched(len(Z) * model.limit)
        return results


@compiled
def _predict_all(
    kind: int, variance: float, scales: Array, shape: float, limits: Array, common: float, noise: float,
    with_variance: bool, X: Array, tree: tuple[Array, ...], metric: Array, Y: Array, row_noise: Array,
    Z: Array, held_out: Array, limit: int, factoring: Array, inverting: Array,
    inner: int, inner_factoring: Array, inner_inverting: Array,
    K: Array, A: Array, T: Array, D: Array, results: Array,
) -> None:  # fmt: skip
    p, columns = len(K), X.shape[1]
    scratch = search_scratch(X.shape[1], len(tree[0]) + len(tree[1]))
    squares, rows = np.empty(p + 1), np.empty(p + 1, np.int64)
    point, x, targets = np.empty(columns), np.empty((columns, p)), np.empty((len(Y), p))
    weights, k, alpha, precision, noises = np.ones(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p)
    first, solved = np.empty(p), np.empty(p)
    inner_weights, few = np.ones(inner), np.empty((len(Y), neighbourhood.RESULTS))
    prior = variance + common
    for q in range(len(Z)):
        for d in range(columns):
            point[d] = Z[q, d] * metric[0, d]
        size = nearest(
            X, tree, metric, point, held_out[q], limit, scratch, squares, rows,
        )  # fmt: skip
        count = min(size, p)
        neighbourhood.taper(squares, size, count, weights)
        neighbourhood.gather(X, Y[0], rows, count, scales, x, first)
        neighbourhood.gather_targets(Y, rows, count, targets)
        typical = neighbourhood.gather_noise(noise, row_noise, rows, count, noises)
        neighbourhood.covariances(kind, variance, shape, limits, x, squares, count, K, k)
        if common > 0:
            neighbourhood.add_common_noise(common, X, rows, Z[q], squares, count, K, k)
        if with_variance or inner > 0:  # the variance decides how much the few nearest rows count
            good = neighbourhood.posteriors(
                K, k, targets, noises, weights, count, prior, factoring, inverting, A, T, D, alpha, precision,
                solved, results[q],
            )  # fmt: skip
            nearer = neighbourhood.few_rows(squares, inner, count)
            if good and nearer > 0:
                usual = nearer == inner
                if not usual:
                    for t in range(len(Y)):
                        neighbourhood.keep_first(nearer, K, k, targets[t])
                own_weights = inner_weights if usual else weights
                neighbourhood.taper(squares, count, nearer, own_weights)
                good = neighbourhood.posteriors(
                    K, k, targets, noises, own_weights, nearer, prior, inner_factoring if usual else factoring,
                    inner_inverting if usual else inverting, A, T, D, alpha, precision, solved, few,
                )  # fmt: skip
                for t in range(len(Y)):
                    neighbourhood.joined(few[t], typical, results[q, t])
        else:
            good = neighbourhood.means_only(
                K, k, targets, noises, weights, count, factoring, A, T, D, results[q]
            )  # fmt: skip
        if not good:
            results[q, :, 0] = np.nan

"""Held-out predictions of a committee, in closed form.

A training row is predicted like a query, by its nearest experts; those whose data contain the row predict it without
it. Theta stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert, sparse
from gigagp.arrays import Array
from gigagp.combine import CombinationRule, Opinion, Rule
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.linalg.row_noise import variances
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee import Committee, mean_scale
from gigagp.model.committee_prediction import bounded
from gigagp.model.latent import LatentPrediction
from gigagp.model.routing import QueriesByExpert, first_expert


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the store that one expert predicts."""

    leaf: int
    rows: Array


@dataclass(frozen=True, eq=False)
class _PredictHeldOut:
    """Mean and variance of f and scale for some rows by one expert, each predicted without itself."""

    committee: Committee

    name = "leave one out"

    def __call__(self, task: Rows, work: Workspace) -> tuple[Array, Array, Array]:
        c = self.committee
        own_rows = c.experts[task.leaf]
        order = np.argsort(own_rows)
        at = np.minimum(np.searchsorted(own_rows, task.rows, sorter=order), len(own_rows) - 1)
        position = np.where(own_rows[order[at]] == task.rows, order[at], -1)
        rows = c.experts.rows(task.leaf)
        X, y = c.store.gather(rows)
        Z, _ = c.store.gather(task.rows)
        row_noise = c.store.noise_of(rows)
        if c.inducing is not None:
            mean, variance, scale = sparse.held_out(
                c.kernel, c.theta, X, y, Z, position, c.inducing, work, task.leaf, row_noise
            )
        else:
            mean, variance, scale = expert.held_out(c.kernel, c.theta, X, y, Z, position, work, task.leaf, row_noise)
        return mean.astype(float), variance.astype(float), scale if c.student else np.ones(len(scale))


def with_row_noise(prediction: LatentPrediction, noise: float, store: ExpertStore, rows: Array) -> LatentPrediction:
    """Predictions of rows of the store, with their own noise where rows differ in it; `noise` is what was learnt."""
    row_noise = store.noise_of(rows)
    return prediction if row_noise is None else replace(prediction, noise=variances(noise, row_noise))


def by_own_expert(committee: Committee, tasks: list[Rows], engine: Engine) -> list[LatentPrediction]:
    """Each expert's held-out predictions of the rows of its task."""
    replies = engine.map(_PredictHeldOut(committee), tasks)
    return [LatentPrediction(mean, variance, np.sqrt(scale)) for mean, variance, scale in replies]


def by_committee(committee: Committee, rows: Array, rule: CombinationRule, k: int, engine: Engine) -> LatentPrediction:
    """Held-out predictions of rows by their k nearest experts, combined by a rule."""
    assert isinstance(rule, Rule), "a joint rule has no held-out predictions in closed form"
    Z, _ = committee.store.gather(rows)
    route = committee.router.nearest(Z, k)
    by_expert = QueriesByExpert.of(route)
    parts = [by_expert[i] for i in range(len(by_expert))]
    mean, variance, scale = (np.empty(route.experts.shape) for _ in range(3))
    replies = engine.map(_PredictHeldOut(committee), [Rows(leaf, rows[at]) for leaf, at, _ in parts])
    for (_, at, slots), reply in zip(parts, replies, strict=True):
        mean[at, slots], variance[at, slots], scale[at, slots] = reply
    prior = committee.kernel.diagonal(committee.theta[:-1], Z).astype(float)
    first = first_expert(route)
    messages = [
        rule.message(
            Opinion(
                mean[:, j], variance[:, j], prior, committee.noise, route.closeness[:, j], None, first[:, j]
            )
        )
        for j in range(route.experts.shape[1])
    ]  # fmt: skip
    total = messages[0]
    for message in messages[1:]:
        total = total + message
    combined = bounded(rule.finish(total, prior, None), prior)
    assert combined.variance is not None
    of_f = combined.variance if rule.target == "f" else np.maximum(combined.variance - committee.noise, 0.0)
    return LatentPrediction(combined.mean, of_f, np.sqrt(mean_scale(np.log(scale), route.closeness)))

"""Held-out predictions of a committee: its own rows, predicted by experts that leave them out in closed form.

A row is asked as a query is, of its nearest experts, and those that hold it leave it out; theta stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.combine import Opinion, Rule
from gigagp.engines import Engine
from gigagp.linalg.workspace import Workspace
from gigagp.model.answers import Answers
from gigagp.model.committee import Committee, Visits, bounded, first_asked, mean_scale


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the store for one expert."""

    leaf: int
    rows: Array


@dataclass(frozen=True, eq=False)
class _LeaveOut:
    """Mean, variance of f and scale, by one expert, of rows that it leaves out where it holds them."""

    committee: Committee

    name = "leave one out"

    def __call__(self, task: Rows, work: Workspace) -> tuple[Array, Array, Array]:
        c = self.committee
        held = c.experts[task.leaf]
        order = np.argsort(held)
        at = np.minimum(np.searchsorted(held, task.rows, sorter=order), len(held) - 1)
        own = np.where(held[order[at]] == task.rows, order[at], -1)
        X, y = c.store.read(c.experts, task.leaf)
        Z, _ = c.store.gather(task.rows)
        mean, variance, scale = expert.left_out(c.kernel, c.theta, X, y, Z, own, work, task.leaf)
        return mean.astype(float), variance.astype(float), scale if c.student else np.ones(len(scale))


def by_own_expert(committee: Committee, tasks: list[Rows], engine: Engine) -> list[Answers]:
    """Each expert's held-out predictions of the rows it is given."""
    replies = engine.map(_LeaveOut(committee), tasks)
    return [Answers(mean, variance, np.sqrt(scale)) for mean, variance, scale in replies]


def by_committee(committee: Committee, rows: Array, rule: Rule, k: int, engine: Engine) -> Answers:
    """Held-out predictions of rows by their k nearest experts, combined by a rule."""
    Z, _ = committee.store.gather(rows)
    route = committee.router.nearest(Z, k)
    visits = Visits.of(route)
    places = [visits[i] for i in range(len(visits))]
    mean, variance, scale = (np.empty(route.experts.shape) for _ in range(3))
    replies = engine.map(_LeaveOut(committee), [Rows(leaf, rows[at]) for leaf, at, _ in places])
    for (_, at, slots), reply in zip(places, replies, strict=True):
        mean[at, slots], variance[at, slots], scale[at, slots] = reply
    prior = committee.kernel.diagonal(committee.theta[:-1], Z).astype(float)
    first = first_asked(route)
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
    return Answers(combined.mean, of_f, np.sqrt(mean_scale(np.log(scale), route.closeness)))

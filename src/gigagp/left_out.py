"""What experts would say of their own rows, had they never seen them: closed-form leave-one-out, theta held.

So the model can be judged, and its variances scaled, without holding rows back. Of one expert, or of the committee:
a row is then asked as a query is, of its nearest experts, and those that hold it leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.calibration import best_floor
from gigagp.combine import Opinion, Rule
from gigagp.engines import Engine
from gigagp.inference import Committee, Visits, bounded, first_asked, mean_scale
from gigagp.linalg.workspace import Workspace


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows of the store, asked of one expert."""

    leaf: int
    rows: Array


@dataclass(frozen=True, eq=False)
class Said:
    """What is said of rows left out: their targets, and mean and variance of y."""

    y: Array
    mean: Array
    variance: Array

    @property
    def z(self) -> Array:
        """The errors, in the deviations that were foretold."""
        return np.asarray((self.y - self.mean) / np.sqrt(self.variance))

    @property
    def losses(self) -> Array:
        """Negative log density of each row at the floor and factor of all variances that fit best, up to a constant."""
        squares = (self.y - self.mean) ** 2
        variance = self.variance + best_floor(self.y - self.mean, self.variance)
        variance = variance * np.mean(squares / variance)
        return np.asarray(0.5 * np.log(variance) + 0.5 * (squares / variance - 1))

    @property
    def score(self) -> float:
        """The mean of the losses."""
        return float(self.losses.mean())

    def at(self, which: slice | Array) -> Said:
        return Said(self.y[which], self.mean[which], self.variance[which])

    @classmethod
    def joined(cls, parts: Iterable[Said]) -> Said:
        said = list(parts)
        return cls(*(np.concatenate([getattr(each, name) for each in said]) for name in ("y", "mean", "variance")))


@dataclass(frozen=True, eq=False)
class _LeaveOut:
    """Mean, variance of f and scale, by one expert, of rows that it leaves out where it holds them."""

    committee: Committee

    name = "leave one out"

    def __call__(self, asked: Asked, work: Workspace) -> tuple[Array, Array, Array]:
        c = self.committee
        held = c.experts[asked.leaf]
        order = np.argsort(held)
        at = np.minimum(np.searchsorted(held, asked.rows, sorter=order), len(held) - 1)
        own = np.where(held[order[at]] == asked.rows, order[at], -1)
        X, y = c.store.read(c.experts, asked.leaf)
        Z, _ = c.store.gather(asked.rows)
        mean, variance, scale = expert.left_out(c.kernel, c.theta, X, y, Z, own, work, asked.leaf)
        return mean.astype(float), variance.astype(float), scale if c.student else np.ones(len(scale))


def ask_one(committee: Committee, asked: list[Asked], engine: Engine) -> list[Said]:
    """What each expert says of the rows asked of it."""
    said = engine.map(_LeaveOut(committee), asked)
    return [
        Said(committee.store.gather(each.rows)[1].astype(float), mean, (variance + committee.noise) * scale)
        for each, (mean, variance, scale) in zip(asked, said, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Opinions:
    """What each row's nearest experts say of it without it; rules then combine that at no further cost."""

    committee: Committee
    Z: Array
    y: Array
    experts: Array  # (rows, experts asked), as the following
    mean: Array
    variance: Array
    scale: Array

    def combined(self, rule: Rule, k: int) -> Said:
        """What a rule makes of the k nearest."""
        c = self.committee
        route = c.router.nearest(self.Z, k)
        prior = c.kernel.diagonal(c.theta[:-1], self.Z).astype(float)
        first = first_asked(route)
        at = (self.experts[:, None, :] == route.experts[:, :, None]).argmax(axis=2)
        mean, variance, scale = (np.take_along_axis(each, at, 1) for each in (self.mean, self.variance, self.scale))
        messages = [
            rule.message(
                Opinion(
                    mean[:, j], variance[:, j], prior, c.noise, route.closeness[:, j], None, first[:, j]
                )
            )
            for j in range(route.experts.shape[1])
        ]  # fmt: skip
        total = messages[0]
        for message in messages[1:]:
            total = total + message
        said = bounded(rule.finish(total, prior, None), prior)
        assert said.variance is not None
        of_y = said.variance + c.noise if rule.target == "f" else said.variance
        return Said(self.y, said.mean, of_y * mean_scale(np.log(scale), route.closeness))


def ask_nearest(committee: Committee, rows: Array, k: int, engine: Engine) -> Opinions:
    """The opinions of each row's k nearest experts, without that row."""
    Z, y = committee.store.gather(rows)
    route = committee.router.nearest(Z, k)
    visits = Visits.of(route)
    asked = [(leaf, at, slots) for leaf, at, slots in map(visits.__getitem__, range(len(visits)))]
    mean, variance, scale = (np.empty(route.experts.shape) for _ in range(3))
    replies = engine.map(_LeaveOut(committee), [Asked(leaf, rows[at]) for leaf, at, _ in asked])
    for (_, at, slots), reply in zip(asked, replies, strict=True):
        mean[at, slots], variance[at, slots], scale[at, slots] = reply
    return Opinions(committee, Z, y.astype(float), route.experts, mean, variance, scale)

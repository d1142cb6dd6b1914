"""The paper's prediction: every expert predicts every query (section 3.3), for several rules at once.

An expert's prediction is the expensive part and does not depend on the rule, so the messages of all rules are computed
from it together and summed up the tree. Queries are processed in blocks, which bounds the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gigagp import HGPRegressor, expert
from gigagp.arrays import Array
from gigagp.combine import Message, Opinion, Prediction, Rule
from gigagp.errors import tell_expert
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee import Committee
from gigagp.model.committee_prediction import bounded
from gigagp.progress import Counter, Listener, silent

BLOCK = 25_000  # queries that are processed together: two numbers per rule, query and unit of work


@dataclass(frozen=True, eq=False)
class Messages:
    """One message for each rule."""

    each: tuple[Message, ...]

    def __add__(self, other: Messages) -> Messages:
        return Messages(tuple(a + b for a, b in zip(self.each, other.each, strict=True)))


def predict_with_all_experts(
    model: HGPRegressor, X: Array, rules: Mapping[str, Rule], tell: Listener = silent, theta: Array | None = None
) -> dict[str, tuple[Array, Array]]:
    """Mean and deviation of y at each row of X under each rule, in the user's units.

    theta : to use instead of the trained one
    """
    committee, scale = model.model_.committee, model.model_.target
    theta = committee.theta if theta is None else theta
    count = Counter("prediction", len(X), tell)
    parts_of: dict[str, list[Prediction]] = {name: [] for name in rules}
    with model.predictor_.engine() as engine:
        for start in range(0, len(X), BLOCK):
            Z = model.model_.inputs.apply(X[start : start + BLOCK], committee.store.X.dtype)
            block = _Block(committee, theta, Z, tuple(rules.values()), _share_of(count, start, len(Z), committee))
            total = engine.sum(committee.tree, block)
            prior = block.prior
            for (name, rule), message in zip(rules.items(), total.each, strict=True):
                parts_of[name].append(_of_y(bounded(rule.finish(message, prior, None), prior), rule, theta))
    return {name: (_joined([p.mean for p in parts]) * scale.scale[0] + scale.centre[0],
                   _joined([_std(p) for p in parts]) * scale.scale[0]) for name, parts in parts_of.items()}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Block:
    """What each leaf computes for a block of queries."""

    committee: Committee
    theta: Array
    Z: Array
    rules: tuple[Rule, ...]
    answered: Callable[[], None]

    @property
    def prior(self) -> Array:
        return self.committee.kernel.diagonal(self.theta[:-1], self.Z).astype(float)

    def __call__(self, leaf: int, work: Workspace) -> Messages:
        c, noise = self.committee, float(np.exp(self.theta[-1]))
        X, y = c.store.read(c.experts, leaf)
        try:
            factor = expert.factor(c.kernel, self.theta, X, y, work, leaf)
            mean, variance = expert.posterior(c.kernel, self.theta, factor, self.Z, work)
        except Exception as error:
            tell_expert(error, leaf)
            raise
        opinion = Opinion(mean.astype(float), variance.astype(float), self.prior, noise, np.ones(len(self.Z)))
        self.answered()
        return Messages(tuple(rule.message(opinion) for rule in self.rules))


def _share_of(count: Counter, start: int, queries: int, committee: Committee) -> Callable[[], None]:
    """Progress within a block: the share of experts that are done, as a number of rows."""
    done, experts, lock = [0], len(committee.experts), threading.Lock()

    def answered() -> None:
        with lock:
            done[0] += 1
            count(start + queries * done[0] // experts)

    return answered


def _of_y(latent: Prediction, rule: Rule, theta: Array) -> Prediction:
    """The prediction of y: adds the noise variance where the rule has combined predictions of f."""
    assert latent.variance is not None
    return Prediction(latent.mean, latent.variance + (0.0 if rule.target == "y" else float(np.exp(theta[-1]))))


def _std(prediction: Prediction) -> Array:
    assert prediction.variance is not None
    return np.sqrt(prediction.variance)


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty(0)

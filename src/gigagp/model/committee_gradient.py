"""Gradients of the predictions of a committee with respect to the queries.

The rule's own code combines duals, so that the gradient is that of whatever the rule computes. The weights of the
nearest experts depend on the query too, through its distances to their cells. The gradient is that of the prediction
wherever the set of experts that answer does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.combine import CombinationRule, Message, Opinion, Prediction, Rule
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model import expert_gradient
from gigagp.model.boxes import BY_CENTRE
from gigagp.model.committee import Committee
from gigagp.model.committee_prediction import bounded
from gigagp.model.duals import Dual, value_of
from gigagp.model.routing import QueriesByExpert, Route, Router, first_expert


def predict(
    committee: Committee, Z: Array, rule: CombinationRule, experts_per_query: int | None, engine: Engine
) -> Prediction:
    """Mean, variance and scale at scaled queries as duals: with their derivatives by the scaled query."""
    if not isinstance(rule, Rule):
        raise InvalidParameter(
            f"{rule!r} has no gradients, because it needs covariances between experts; use another combine, such as "
            '"healed_blend"'
        )
    n = len(committee.experts)
    k = n if experts_per_query is None else min(experts_per_query, n)
    prior: Any = committee.kernel.diagonal(committee.theta[:-1], Z)
    if not committee.kernel.stationary:
        prior = Dual(prior, committee.kernel.diagonal_gradient(committee.theta[:-1], Z))
    communication: Any = None
    if rule.needs_communication:
        assert committee.communication is not None
        communication = Prediction(*_by_communication_expert(committee, Z, engine))
    route, closeness = _route(committee.router, Z, k)
    by_expert, first = QueriesByExpert.of(route), first_expert(route)
    tasks = []
    for leaf, rows, slots in map(by_expert.__getitem__, range(len(by_expert))):
        of_communication = None
        if communication is not None:
            of_communication = Prediction(communication.mean[rows], communication.variance[rows])
        tasks.append(_Queries(leaf, Z[rows], prior[rows], closeness[rows, slots], first[rows, slots], of_communication))
    replies = list(engine.map(_ByExpert(committee, rule), tasks))
    total, scale = _sum_of_replies(by_expert, route, closeness, replies)
    finished = bounded(rule.finish(total, prior, communication), prior)
    return Prediction(finished.mean, finished.variance, scale if committee.student else None)


@dataclass(frozen=True, eq=False)
class _Queries:
    """The queries of one expert, with the values per query that its message needs; some of them are duals."""

    leaf: int
    Z: Array
    prior: Any
    closeness: Any
    first: Array
    communication: Prediction | None


@dataclass(frozen=True, eq=False)
class _ByExpert:
    """The message of one expert, whose terms are duals, and its scale."""

    committee: Committee
    rule: Rule

    name = "gradient"

    @tiny_is_zero
    def __call__(self, queries: _Queries, work: Workspace) -> tuple[Message, float]:
        c = self.committee
        factor = c.factor(queries.leaf, work, self.rule, True)
        Z = np.ascontiguousarray(queries.Z)
        prediction: Any = expert_gradient.posterior(c.kernel, c.theta, factor, Z, work)
        mean, variance = prediction
        opinion = Opinion(
            mean, variance, queries.prior, c.noise, queries.closeness, queries.communication, queries.first
        )
        return self.rule.message(opinion), factor.scale


def _by_communication_expert(committee: Committee, Z: Array, engine: Engine) -> Any:
    return next(iter(engine.map(_ByCommunicationExpert(committee), [Z])))


@dataclass(frozen=True, eq=False)
class _ByCommunicationExpert:
    committee: Committee
    name = "communication"

    @tiny_is_zero
    def __call__(self, Z: Array, work: Workspace) -> tuple[Dual, Dual]:
        c = self.committee
        assert c.communication is not None
        return expert_gradient.posterior(c.kernel, c.theta, c.factor_of(c.communication, work), Z, work)


def _sum_of_replies(
    by_expert: QueriesByExpert, route: Route, closeness: Dual, replies: list[tuple[Message, float]]
) -> tuple[Message, Any]:
    """The sum of each query's messages, and the mean of its experts' scales."""
    n, k = route.experts.shape
    own = np.empty(n * k)
    for i, (_, scale) in enumerate(replies):
        own[by_expert.span(i)] = np.log(scale)
    weighted = (closeness * own[by_expert.positions(k)].reshape(n, k)).sum(axis=1)
    total = sum_of_messages([message for message, _ in replies], by_expert, n, k)
    return total, np.exp(weighted / closeness.sum(axis=1))


def sum_of_messages(messages: list[Message], by_expert: QueriesByExpert, n: int, k: int) -> Message:
    """The sum of the messages of each of n queries, from the nearest of its k experts to the farthest; of duals too."""
    terms = _spread([message.terms for message in messages], by_expert, n * k)
    scaled = messages[0].log_scale is not None
    log_scales = _spread([message.log_scale for message in messages], by_expert, n * k) if scaled else None
    positions = by_expert.positions(k)

    def by_slot(slot: int) -> Message:
        rows = positions[slot::k]
        return Message(terms[:, rows], None if log_scales is None else log_scales[rows])

    total = by_slot(0)
    for slot in range(1, k):
        total = total + by_slot(slot)
    return total


def _spread(parts: list[Any], by_expert: QueriesByExpert, size: int) -> Any:
    """Values of the experts' queries as one array of all pairs of a query and an expert, along the last axis."""
    value = np.empty((*parts[0].shape[:-1], size))
    for i, part in enumerate(parts):
        value[..., by_expert.span(i)] = value_of(part)
    if not isinstance(parts[0], Dual):
        return value
    tangent = np.empty((*value.shape, parts[0].tangent.shape[-1]))
    for i, part in enumerate(parts):
        tangent[..., by_expert.span(i), :] = part.tangent
    return Dual(value, tangent)


def _route(router: Router, Z: Array, k: int) -> tuple[Route, Dual]:
    """The experts of each query, and their closeness 1 - (d_j / d_{k+1})^2 as a dual."""
    route, columns = router.nearest(Z, k), Z.shape[1]
    if k == len(router.centres):
        return route, Dual(route.closeness, np.zeros((*route.closeness.shape, columns)))
    squares = _squares(router, Z, k + 1)
    limit = squares[:, -1:]
    closeness = 1 - squares[:, :k] / np.maximum(limit, np.finfo(float).tiny)
    tied = closeness.value.sum(axis=1) <= 1e-12
    tangent = np.where(tied[:, None, None], 0.0, np.nan_to_num(closeness.tangent))
    return route, Dual(route.closeness, tangent)


def _squares(router: Router, Z: Array, count: int) -> Any:
    """Squared distances of each query to the nearest experts, with their derivatives by the scaled query."""
    points = Z.astype(float) * router.metric
    if router.by_cells:
        distances, experts = router.boxes.nearest(points, count)
        low, high, centre = router.boxes.lows[experts], router.boxes.highs[experts], router.centres[experts]
        step = points[:, None, :] - np.clip(points[:, None, :], low, high)
        if len(router.limits):
            step = np.where(step**2 < router.limits, step, 0.0)
        width = np.where(high > low, high - low, np.inf)
        step = step + BY_CENTRE * (points[:, None, :] - centre) / width**2
    else:
        points[:, list(router.categories)] = 0.0
        distances, experts = router.index.query(points, count)
        step = points[:, None, :] - router.index.data[experts]
    return Dual(distances**2, 2 * step * router.metric)

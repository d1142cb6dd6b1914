"""Committee prediction: queries are routed to experts, the experts' messages are added, and the rule combines them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.combine import CombinationRule, JointRule, Message, Opinion, Prediction, Rule
from gigagp.engines import Engine
from gigagp.errors import tell_expert
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee import Committee, mean_scale
from gigagp.model.joint_prediction import predict_jointly
from gigagp.model.routing import QueriesByExpert, Route, first_expert

QUERIES_AT_ONCE = 1 << 19  # queries for which each factor is formed once
_NUMBERS_AT_ONCE = 1 << 25  # numbers in memory for these queries: bounds the memory of a prediction
_MOST_TASKS_TOGETHER = 64  # tasks that are sent to a worker in one bundle
_FEWEST_BUNDLES = 64  # bundles, so that all workers have something to do


def predict(
    committee: Committee,
    Z: Array,
    rule: CombinationRule,
    experts_per_query: int | None,
    engine: Engine,
    with_variance: bool = True,
) -> Prediction:
    """Mean and variance (of f, or of y where the rule's target is y) at scaled queries Z.

    With experts_per_query=None all experts answer, as in the paper; with an integer, only the nearest so many.
    """
    n = len(committee.experts)
    k = n if experts_per_query is None else min(experts_per_query, n)
    numbers_per_query = Z.shape[1] + 8 * (k if k < n or isinstance(rule, JointRule) else 1)
    at_once = max(1, min(QUERIES_AT_ONCE, _NUMBERS_AT_ONCE // numbers_per_query))
    committee.cache.begin()
    parts = [
        _predict_chunk(committee, Z[start : start + at_once], rule, k, engine, with_variance)
        for start in range(0, len(Z), at_once)
    ]

    def joined(arrays: list[Array | None]) -> Array | None:
        present = [each for each in arrays if each is not None]
        return np.concatenate(present) if present else None

    mean = joined([p.mean for p in parts])
    if mean is None:
        return Prediction(np.empty(0, Z.dtype), np.empty(0, Z.dtype) if with_variance else None)
    if not with_variance:
        return Prediction(mean, None)
    return Prediction(mean, joined([p.variance for p in parts]), joined([p.scale for p in parts]))


def _predict_chunk(
    committee: Committee, Z: Array, rule: CombinationRule, k: int, engine: Engine, with_variance: bool
) -> Prediction:
    prior = committee.kernel.diagonal(committee.theta[:-1], Z)
    if isinstance(rule, JointRule):
        return bounded(predict_jointly(committee, Z, prior, rule, k, engine), prior)
    assert isinstance(rule, Rule)
    exact = "exact_with_one_leaf" in rule.laws
    only_means = not with_variance and exact and (k == 1 or not rule.mean_needs_variance)
    communication = None
    if rule.needs_communication:  # a single expert has weight one: its mean does not depend on the communication expert
        communication = Prediction(prior, prior) if only_means else _communication(committee, Z, engine)
    chunk = _Chunk(committee, Z, prior, rule, communication, only_means)
    scale = None
    if k == len(committee.experts) and not committee.student:
        total = _sum_over_all(chunk, engine)
    else:
        total, scale = _sum_over_nearest(chunk, k, engine)
    return replace(bounded(rule.finish(total, prior, communication), prior), scale=scale)


def bounded(prediction: Prediction, prior: Array) -> Prediction:
    """The prediction with a variance that is positive and finite, whatever rounding did to a difference of precisions.

    Rules that subtract the prior (BCM, rBCM, GRBCM, NPAE) may lose positivity where the experts' variances exceed the
    prior's; the prior is then the prediction.
    """
    if prediction.variance is None:
        return prediction
    floor = np.finfo(prediction.variance.dtype).eps * prior
    lost = ~np.isfinite(prediction.variance) | (prediction.variance < -floor) | ~np.isfinite(prediction.mean)
    variance = np.where(lost, prior, np.maximum(prediction.variance, floor))
    return replace(prediction, mean=np.where(lost, 0.0, prediction.mean), variance=variance)


@dataclass(frozen=True, eq=False)
class ExpertQueries:
    """The queries of one expert, with the values per query that its message needs."""

    leaf: int
    Z: Array
    prior: Array
    closeness: Array
    first: Array
    communication: Prediction | None  # by the communication expert


@dataclass(frozen=True, eq=False)
class ExpertReply:
    """The message of one expert, and its scale (one number, or one per query)."""

    message: Message
    scale: Array | float


@dataclass(frozen=True, eq=False)
class PredictByExpert:
    """The prediction of one expert at its queries, as the rule's message. With `keep` the expert's factor is cached."""

    committee: Committee
    rule: Rule
    only_means: bool
    keep: bool

    name = "predict"

    def __call__(self, queries: ExpertQueries, work: Workspace) -> ExpertReply:
        try:
            return self._reply(queries, work)
        except Exception as error:
            tell_expert(error, queries.leaf)
            raise

    def _reply(self, queries: ExpertQueries, work: Workspace) -> ExpertReply:
        c = self.committee
        factor = c.factor(queries.leaf, work, self.rule, self.keep)
        if self.only_means:  # no variances are computed: the combined mean is the same for any variance
            mean = expert.posterior_mean(c.kernel, c.theta, factor, queries.Z, work)
            variance = queries.prior
        else:
            mean, variance = expert.posterior(c.kernel, c.theta, factor, queries.Z, work)
        opinion = Opinion(
            mean, variance, queries.prior, c.noise, queries.closeness, queries.communication, queries.first
        )
        return ExpertReply(self.rule.message(opinion), factor.scale)


@dataclass(frozen=True, eq=False)
class _MessageOfLeaf:
    """The message of each leaf's expert at the same queries."""

    predict: PredictByExpert
    Z: Array
    prior: Array
    communication: Prediction | None

    def __call__(self, leaf: int, work: Workspace) -> Message:
        ones = np.ones(len(self.Z), self.Z.dtype)
        first = np.full(len(self.Z), leaf == 0)
        queries = ExpertQueries(leaf, self.Z, self.prior, ones, first, self.communication)
        return self.predict(queries, work).message


@dataclass(frozen=True, eq=False)
class _Chunk:
    """Queries that are predicted together, and how."""

    committee: Committee
    Z: Array
    prior: Array
    rule: Rule
    communication: Prediction | None
    only_means: bool

    def predict_by_expert(self) -> PredictByExpert:
        return PredictByExpert(self.committee, self.rule, self.only_means, True)

    def of_expert(self, leaf: int, rows: Array, closeness: Array, first: Array) -> ExpertQueries:
        """The part of the chunk that one expert predicts."""
        communication = self.communication
        if communication is not None and communication.variance is not None:
            communication = Prediction(communication.mean[rows], communication.variance[rows])
        return ExpertQueries(leaf, self.Z[rows], self.prior[rows], closeness, first, communication)


def _sum_over_all(chunk: _Chunk, engine: Engine) -> Message:
    """Every expert predicts at every query; messages are added up the tree (section 3.3)."""
    predict = chunk.predict_by_expert()
    return engine.sum(chunk.committee.tree, _MessageOfLeaf(predict, chunk.Z, chunk.prior, chunk.communication))


def _sum_over_nearest(chunk: _Chunk, k: int, engine: Engine) -> tuple[Message, Array | None]:
    """The k nearest experts predict at each query; each expert is factored once, for all its queries."""
    route = chunk.committee.router.nearest(chunk.Z, k)
    by_expert = QueriesByExpert.of(route)
    closeness = route.closeness.astype(chunk.Z.dtype)
    first = first_expert(route)
    tasks = (
        chunk.of_expert(leaf, rows, closeness[rows, slots], first[rows, slots])
        for leaf, rows, slots in map(by_expert.__getitem__, range(len(by_expert)))
    )
    together = max(1, min(_MOST_TASKS_TOGETHER, len(by_expert) // _FEWEST_BUNDLES))
    total, scale = _sum_of_replies(by_expert, route, engine.map(chunk.predict_by_expert(), tasks, together))
    return total, scale if chunk.committee.student and not chunk.only_means else None


def _sum_of_replies(by_expert: QueriesByExpert, route: Route, replies: Iterable[ExpertReply]) -> tuple[Message, Array]:
    """The sum of each query's messages, and the mean of its experts' scales."""
    n, k = route.experts.shape
    terms, log_scales = np.empty((0, 0)), None
    own = np.empty(n * k)  # logarithms of the experts' scales
    for i, reply in enumerate(replies):
        message, here = reply.message, by_expert.span(i)
        if i == 0:
            terms = np.empty((len(message.terms), n * k), message.terms.dtype)
            log_scales = None if message.log_scale is None else np.empty(n * k)
        terms[:, here] = message.terms
        own[here] = np.log(reply.scale)
        if log_scales is not None and message.log_scale is not None:
            log_scales[here] = message.log_scale
    positions = by_expert.positions(k)

    def by_slot(slot: int) -> Message:
        rows = positions[slot::k]
        return Message(terms[:, rows], None if log_scales is None else log_scales[rows])

    total = by_slot(0)
    for slot in range(1, k):  # always from the nearest expert to the farthest, whichever worker replied first
        total = total + by_slot(slot)
    own = own[positions].reshape(n, k)
    return total, mean_scale(own, route.closeness)


def _communication(committee: Committee, Z: Array, engine: Engine) -> Prediction:
    """The prediction of the communication expert at every query."""
    mean, variance = next(iter(engine.map(_PredictByCommunicationExpert(committee), [Z])))
    return Prediction(mean, variance)


@dataclass(frozen=True, eq=False)
class _PredictByCommunicationExpert:
    committee: Committee
    name = "communication"

    def __call__(self, Z: Array, work: Workspace) -> tuple[Array, Array]:
        c = self.committee
        assert c.communication is not None, "the committee was built without a communication expert"
        factor = c.factor_of(c.communication, work)
        return expert.posterior(c.kernel, c.theta, factor, Z, work)

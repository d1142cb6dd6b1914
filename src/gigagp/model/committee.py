"""Prediction: queries are routed to experts, experts answer, messages add up, the rule has the last word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.combine import NPAE, Message, Opinion, Prediction, Rule
from gigagp.data.row_lists import RowLists
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.errors import tell_expert
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky
from gigagp.linalg.gemm import multiply
from gigagp.linalg.workspace import Workspace
from gigagp.model.factor_cache import FactorCache
from gigagp.model.routing import Route, Router
from gigagp.tree import Tree

QUERIES_AT_ONCE = 1 << 19  # factors are formed once for so many queries
_NUMBERS_AT_ONCE = 1 << 25  # numbers held for them at a time: bounds the memory of a prediction
_JOINT_ENTRIES = 1 << 24  # entries of the joint rule's working arrays
_TOGETHER, _LEAST_BUNDLES = 64, 64  # questions that travel to a worker together, if there are so many bundles of them


@dataclass(frozen=True, eq=False)
class Committee:
    """Everything prediction needs of a trained model: the experts, the shared theta, the tree and the router."""

    travels_once = True  # to each worker

    kernel: Kernel
    theta: Array
    store: ExpertStore
    experts: RowLists
    tree: Tree
    router: Router
    communication: Array | None = None  # storage rows of the communication expert (GRBCM)
    student: bool = False  # whether each expert has a scale of its own
    cache: FactorCache = field(default_factory=FactorCache)

    @property
    def noise(self) -> float:
        return float(np.exp(self.theta[-1]))

    @property
    def dof(self) -> float:
        """Degrees of freedom of an expert's own scale; infinite where all experts have one scale."""
        return expert.STUDENT_DOF if self.student else np.inf

    def factor(self, leaf: int, work: Workspace, rule: Rule, keep: bool) -> expert.Factor:
        """The factor of one leaf, with the communication expert's rows added where the rule wants them.

        It is taken from the cache; with `keep` it is put there if there is room.
        """
        if rule.needs_communication and self.communication is not None:
            rows = np.union1d(self.experts[leaf], self.communication)
            return expert.factor(self.kernel, self.theta, *self.store.gather(rows), work, leaf)
        known = self.cache.get(leaf)
        if known is not None:
            return known
        X, y = self.store.read(self.experts, leaf)
        keep = keep and self.cache.has_room(len(y) * (len(y) + 64) * self.store.X.itemsize)
        made = expert.factor(self.kernel, self.theta, X, y, work, leaf, keep)
        if keep:
            self.cache.put(leaf, made)
        return made


def predict(
    committee: Committee,
    Z: Array,
    rule: Rule,
    experts_per_query: int | None,
    engine: Engine,
    with_variance: bool = True,
) -> Prediction:
    """Mean and variance (of f, or of y where the rule's target is y) at scaled queries Z.

    experts_per_query=None asks all experts, as the paper does; an integer asks the nearest so many.
    """
    n = len(committee.experts)
    k = n if experts_per_query is None else min(experts_per_query, n)
    held = Z.shape[1] + 8 * (k if k < n or isinstance(rule, NPAE) else 1)
    at_once = max(1, min(QUERIES_AT_ONCE, _NUMBERS_AT_ONCE // held))
    committee.cache.begin()
    parts = [
        _predict_chunk(committee, Z[start : start + at_once], rule, k, engine, with_variance)
        for start in range(0, len(Z), at_once)
    ]

    def joined(arrays: list[Array | None]) -> Array | None:
        given = [each for each in arrays if each is not None]
        return np.concatenate(given) if given else None

    mean = joined([p.mean for p in parts])
    if mean is None:
        return Prediction(np.empty(0, Z.dtype), np.empty(0, Z.dtype) if with_variance else None)
    if not with_variance:
        return Prediction(mean, None)
    return Prediction(mean, joined([p.variance for p in parts]), joined([p.scale for p in parts]))


def _predict_chunk(
    committee: Committee, Z: Array, rule: Rule, k: int, engine: Engine, with_variance: bool
) -> Prediction:
    prior = committee.kernel.diagonal(committee.theta[:-1], Z)
    if isinstance(rule, NPAE):
        return bounded(_ask_jointly(committee, Z, prior, rule, k, engine), prior)
    exact = "exact_with_one_leaf" in rule.laws
    only_means = not with_variance and exact and (k == 1 or not rule.mean_needs_variance)
    communication = None
    if rule.needs_communication:  # with one expert, of weight one, any would give the same mean
        communication = Prediction(prior, prior) if only_means else _communication(committee, Z, engine)
    ask = _Ask(committee, Z, prior, rule, communication, only_means)
    scale = None
    if k == len(committee.experts) and not committee.student:
        total = _ask_all(ask, engine)
    else:
        total, scale = _ask_nearest(ask, k, engine)
    return replace(bounded(rule.finish(total, prior, communication), prior), scale=scale)


def bounded(said: Prediction, prior: Array) -> Prediction:
    """A variance is never negative, NaN or infinite, whatever rounding did to a difference of precisions.

    Rules that subtract the prior (BCM, rBCM, GRBCM, NPAE) may lose positivity where experts say less than it; the
    prior is then the honest answer.
    """
    if said.variance is None:
        return said
    floor = np.finfo(said.variance.dtype).eps * prior
    lost = ~np.isfinite(said.variance) | (said.variance < -floor) | ~np.isfinite(said.mean)
    variance = np.where(lost, prior, np.maximum(said.variance, floor))
    return replace(said, mean=np.where(lost, 0.0, said.mean), variance=variance)


@dataclass(frozen=True, eq=False)
class Question:
    """Queries for one expert, and what its message must know of them."""

    leaf: int
    Z: Array
    prior: Array
    closeness: Array
    first: Array
    common: Prediction | None  # what the communication expert said


@dataclass(frozen=True, eq=False)
class Reply:
    """The message of one expert, and its scale (one, or one a query)."""

    message: Message
    scale: Array | float


@dataclass(frozen=True, eq=False)
class Answer:
    """An expert's reply to whoever asks. With `keep` its factor stays for the next call."""

    committee: Committee
    rule: Rule
    only_means: bool
    keep: bool

    name = "answer"

    def __call__(self, asked: Question, work: Workspace) -> Reply:
        try:
            return self._reply(asked, work)
        except Exception as error:
            tell_expert(error, asked.leaf)
            raise

    def _reply(self, asked: Question, work: Workspace) -> Reply:
        c = self.committee
        factor = c.factor(asked.leaf, work, self.rule, self.keep)
        if self.only_means:  # no variance work: any variance gives the same mean
            mean = expert.posterior_mean(c.kernel, c.theta, factor, asked.Z, work)
            variance = asked.prior
        else:
            mean, variance = expert.posterior(c.kernel, c.theta, factor, asked.Z, work)
        opinion = Opinion(mean, variance, asked.prior, c.noise, asked.closeness, asked.common, asked.first)
        return Reply(self.rule.message(opinion), factor.scale)


@dataclass(frozen=True, eq=False)
class _AnswerAll:
    """The message of each leaf to the same queries."""

    answer: Answer
    Z: Array
    prior: Array
    common: Prediction | None

    def __call__(self, leaf: int, work: Workspace) -> Message:
        ones = np.ones(len(self.Z), self.Z.dtype)
        first = np.full(len(self.Z), leaf == 0)
        return self.answer(Question(leaf, self.Z, self.prior, ones, first, self.common), work).message


@dataclass(frozen=True, eq=False)
class _Ask:
    """One chunk of queries and how they are to be answered."""

    committee: Committee
    Z: Array
    prior: Array
    rule: Rule
    communication: Prediction | None
    only_means: bool

    def answer(self) -> Answer:
        return Answer(self.committee, self.rule, self.only_means, True)

    def question(self, leaf: int, rows: Array, closeness: Array, first: Array) -> Question:
        common = self.communication
        if common is not None and common.variance is not None:
            common = Prediction(common.mean[rows], common.variance[rows])
        return Question(leaf, self.Z[rows], self.prior[rows], closeness, first, common)


def _ask_all(ask: _Ask, engine: Engine) -> Message:
    """Every expert answers every query; messages add up the tree (section 3.3)."""
    answer = ask.answer()
    return engine.sum(ask.committee.tree, _AnswerAll(answer, ask.Z, ask.prior, ask.communication))


def _ask_nearest(ask: _Ask, k: int, engine: Engine) -> tuple[Message, Array | None]:
    """Each query asks its k nearest experts; each expert is factored once and answers all who ask it."""
    route = ask.committee.router.nearest(ask.Z, k)
    visits = Visits.of(route)
    closeness = route.closeness.astype(ask.Z.dtype)
    first = first_asked(route)
    questions = (
        ask.question(leaf, rows, closeness[rows, slots], first[rows, slots])
        for leaf, rows, slots in map(visits.__getitem__, range(len(visits)))
    )
    together = max(1, min(_TOGETHER, len(visits) // _LEAST_BUNDLES))
    total, scale = gather(visits, route, engine.map(ask.answer(), questions, together))
    return total, scale if ask.committee.student and not ask.only_means else None


def first_asked(route: Route) -> Array:
    """Of each query's experts, which counts as the first (GRBCM): whoever asked, the same."""
    return np.asarray(route.experts == route.experts.min(axis=1, keepdims=True))


def gather(visits: Visits, route: Route, replies: Iterable[Reply]) -> tuple[Message, Array]:
    """The sum of each query's messages, and the mean of its experts' scales: geometric, the near weighing more."""
    n, k = route.experts.shape
    terms, log_scales = np.empty((0, 0)), None
    own = np.empty(n * k)  # log of the experts' own scales
    for visit, reply in enumerate(replies):
        message, here = reply.message, visits.span(visit)
        if visit == 0:
            terms = np.empty((len(message.terms), n * k), message.terms.dtype)
            log_scales = None if message.log_scale is None else np.empty(n * k)
        terms[:, here] = message.terms
        own[here] = np.log(reply.scale)
        if log_scales is not None and message.log_scale is not None:
            log_scales[here] = message.log_scale
    place = visits.places(k)

    def by_slot(slot: int) -> Message:
        asked = place[slot::k]
        return Message(terms[:, asked], None if log_scales is None else log_scales[asked])

    total = by_slot(0)
    for slot in range(1, k):  # the nearest first, whichever worker answered
        total = total + by_slot(slot)
    own = own[place].reshape(n, k)
    return total, mean_scale(own, route.closeness)


def mean_scale(log_scales: Array, closeness: Array) -> Array:
    """exp of the logs' mean, weighted by closeness."""
    return np.asarray(np.exp((closeness * log_scales).sum(axis=1) / closeness.sum(axis=1)))


class Visits:
    """The experts that are asked anything, and who asks each of them: query rows and their slots."""

    def __init__(self, leaves: Array, starts: Array, rows: Array, slots: Array) -> None:
        self.leaves, self._starts, self._rows, self._slots = leaves, starts, rows, slots

    @classmethod
    def of(cls, route: Route) -> Visits:
        q, k = route.experts.shape
        flat = route.experts.ravel()
        order = np.argsort(flat, kind="stable")
        leaves, first = np.unique(flat[order], return_index=True)
        rows, slots = np.divmod(order, k)
        return cls(leaves, np.append(first, q * k), rows, slots)

    def __len__(self) -> int:
        return len(self.leaves)

    def span(self, visit: int) -> slice:
        """Where the questions of one visit stand among all."""
        return slice(self._starts[visit], self._starts[visit + 1])

    def places(self, k: int) -> Array:
        """Where each question of each query stands among all: slot j of query i is number i k + j."""
        found = np.empty(len(self._rows), np.int64)
        found[self._rows * k + self._slots] = np.arange(len(self._rows))
        return found

    def __getitem__(self, visit: int) -> tuple[int, Array, Array]:
        here = self.span(visit)
        return int(self.leaves[visit]), self._rows[here], self._slots[here]


def _communication(committee: Committee, Z: Array, engine: Engine) -> Prediction:
    """What the communication expert says at every query."""
    mean, variance = next(iter(engine.map(_AnswerInCommon(committee), [Z])))
    return Prediction(mean, variance)


@dataclass(frozen=True, eq=False)
class _AnswerInCommon:
    committee: Committee
    name = "communication"

    def __call__(self, Z: Array, work: Workspace) -> tuple[Array, Array]:
        c = self.committee
        assert c.communication is not None, "the committee was built without a communication expert"
        factor = expert.factor(c.kernel, c.theta, *c.store.gather(c.communication), work)
        return expert.posterior(c.kernel, c.theta, factor, Z, work)


def _ask_jointly(committee: Committee, Z: Array, prior: Array, rule: NPAE, k: int, engine: Engine) -> Prediction:
    """Queries that ask the same experts are answered together, with the covariances between those experts."""
    route = committee.router.nearest(Z, k)
    sets, member = np.unique(np.sort(route.experts, axis=1), axis=0, return_inverse=True)
    order = np.argsort(member.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(member.ravel(), minlength=len(sets)))
    points = int(committee.experts.sizes.max())
    at_once = max(1, _JOINT_ENTRIES // (k * points))
    groups = [
        (leaves, order[a : min(a + at_once, end)])
        for leaves, start, end in zip(sets, [0, *ends[:-1]], ends, strict=True)
        for a in range(start, end, at_once)
    ]
    tasks = ((leaves, Z[rows], prior[rows].astype(float)) for leaves, rows in groups)
    mean, variance, scale = np.empty(len(Z)), np.empty(len(Z)), np.empty(len(Z))
    answers = engine.map(_AnswerJointly(committee, rule), tasks)
    for (leaves, rows), (said, log_scales) in zip(groups, answers, strict=True):
        mean[rows], variance[rows] = said.mean, said.variance
        asked = np.searchsorted(leaves, route.experts[rows])
        scale[rows] = mean_scale(log_scales[asked], route.closeness[rows])
    return Prediction(mean.astype(Z.dtype), variance.astype(Z.dtype), scale if committee.student else None)


@dataclass(frozen=True, eq=False)
class _AnswerJointly:
    committee: Committee
    rule: NPAE
    name = "joint answer"

    def __call__(self, asked: tuple[Array, Array, Array], work: Workspace) -> tuple[Prediction, Array]:
        leaves, Z, prior = asked
        means, covariances, scales = _joint(self.committee, leaves, Z, work)
        return self.rule.combine(means, covariances, prior), np.log(scales)


def _joint(committee: Committee, leaves: Array, Z: Array, work: Workspace) -> tuple[Array, Array, Array]:
    """Means (q, k) of the experts, the covariances (q, k, k) of those means under the prior, the experts' own scales.

    In double precision whatever the experts' own: experts that share data make the covariances nearly singular.
    """
    kernel, theta, q = committee.kernel, committee.theta, len(Z)
    Z = Z.astype(float)
    data, weights, scales = [], [], []  # per expert: its rows and inputs, V_i = C_i k_i, its scale
    means, mean, dots = np.empty((q, len(leaves))), np.empty(q), np.empty(q)
    for i, leaf in enumerate(leaves):
        X, y = (part.astype(float) for part in committee.store.read(committee.experts, int(leaf)))
        factor = expert.factor(kernel, theta, X, y, work, int(leaf))
        V = np.ascontiguousarray(kernel.cross(theta[:-1], X, Z)[: len(X), :q])
        expert.weighted_sum(factor.alpha, V, len(X), q, mean)
        means[:, i] = mean
        cholesky.solve_lower(factor.U, factor.D, V, len(X), q)
        cholesky.solve_lower_transposed(factor.U, factor.D, V, len(X), q)
        data.append((committee.experts[int(leaf)], X))
        weights.append(V)
        scales.append(factor.scale)
    covariances = np.empty((q, len(leaves), len(leaves)))
    for i, (rows_i, X_i) in enumerate(data):
        for j, (rows_j, X_j) in enumerate(data[: i + 1]):
            K = np.ascontiguousarray(kernel.cross(theta[:-1], X_i, X_j)[: len(X_i), : len(X_j)])
            _, a, b = np.intersect1d(rows_i, rows_j, assume_unique=True, return_indices=True)
            K[a, b] += committee.noise  # the same observation has the same noise in both
            product = np.empty((len(X_i), q))
            multiply(1.0, K, 0, 0, False, weights[j], 0, 0, 0.0, product, 0, 0, len(X_i), q, len(X_j))
            expert.column_dots(weights[i], product, len(X_i), q, dots)
            covariances[:, i, j] = covariances[:, j, i] = dots
    return means, covariances, np.array(scales)

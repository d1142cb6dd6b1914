"""The stages of a fit, from scaled rows to a committee of experts with a shared theta."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.boxes import extents
from gigagp.data.scaled import ScaledRows
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.fit_report import Candidate, FitReport, Stage
from gigagp.inference import Committee
from gigagp.kernels.base import Kernel
from gigagp.partition.base import RowLists, Runs, run_means
from gigagp.placing import Placed, Room, place
from gigagp.plan import Log, Plan, Seeds
from gigagp.progress import Event, Listener
from gigagp.rough_theta import MORE_ITERATIONS, ROUGH, TRIAL_POINTS, rough_theta
from gigagp.routing import Router
from gigagp.selection import (
    AUTO_NEAREST,
    AUTO_RULE,
    SHARING,
    Jury,
    Verdict,
    choose_sharing,
    chosen_among,
    judge,
    score_family,
)
from gigagp.sharing import share_nearest
from gigagp.training import (
    Objective,
    Optimum,
    Trace,
    Trained,
    bound_warnings,
    maximise,
    summed_evidence,
    train_full,
    train_progressive,
)

_FULL_WORK = 5e9  # flops of one evaluation up to which "auto" trains on every expert every time
_RESTART_EXPERTS = 16
_ENOUGH_TO_CHOOSE = 100  # rows from which a family of kernels is chosen
_TRIAL_ITERATIONS = 20  # of the first family; others start where it ended
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the start, in log-parameters


@dataclass
class _Clock:
    """Seconds per stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, tell: Listener) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        tell(Event(name, 0, None, self.seconds[name], finished=True))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The committee, what happened, the cells its evidence is of, and what was learnt by leaving rows out."""

    committee: Committee
    report: FitReport
    cells: RowLists
    verdict: Verdict


def fit(
    data: ScaledRows, sample: Sample, plan: Plan, engine: Engine, seeds: Seeds, room: Room, log: Log,
    tell: Listener,
) -> Fitted:  # fmt: skip
    """Rough theta, partition, store, training, choice of experts: a committee ready to answer."""
    clock, trace = _Clock(), Trace(tell=tell)
    theta = plan.start
    stages: list[Stage] = []
    if plan.partitioner.local and plan.train and data.rows > (plan.shape.leaf_size or 0):
        with clock.stage("rough theta", tell):
            trace.begin("rough theta")
            climbs = rough_theta(plan, sample, engine.local, log, trace, seeds.choice)
            theta = climbs[-1].theta
            stages.extend(climb.stage for climb in climbs)
    rows, columns = data.rows, data.columns
    with clock.stage("partition and store", tell):
        metric = plan.metric(theta, columns)
        here = engine.local
        placed = place(plan.partitioner, data, plan.shape, metric, sample, seeds.keys, seeds.partition, room, here)

        del data, sample  # from here on the store is all there is
    store, cells = placed.store, placed.cells
    sides = _Extents.of(store, placed.experts)
    plan = replace(plan, student=plan.student and len(cells) > 1)
    dof = expert.STUDENT_DOF if plan.student else np.inf
    choices: list[Candidate] = []
    if plan.train and plan.families and rows >= _ENOUGH_TO_CHOOSE:
        with clock.stage("choice of kernel", tell):
            trace.begin("choice of kernel")
            tried = _try_kernels(plan, placed, sides, theta, engine, log, trace, seeds.choice)
            stages.extend(found.stage for _, found, _ in tried)
            choices = chosen_among([candidate for *_, candidate in tried])
            kernel, found, _ = tried[[c.chosen for c in choices].index(True)]
            plan, theta = replace(plan, kernel=kernel), found.theta
    if plan.train:
        with clock.stage("training", tell):
            trace.begin("training")
            evidence = log.recorded(summed_evidence(plan.kernel, store, cells, placed.tree, engine, dof))
            plan = replace(plan, training=_training(plan.training, cells.sizes))
            climbed = _restart(plan, evidence, theta, cells.sizes, trace, seeds.restarts)
            stages.extend(climbed.stages)
            trained = _train(plan, evidence, climbed.theta, cells.sizes, trace, seeds.batches)
            theta = trained.theta
            stages.extend(trained.stages)
    with clock.stage("choice of experts", tell):
        shared = _committees(plan, placed, sides, theta)
        sharing, verdict = _choose_experts(plan, shared, cells, rows, engine, seeds.choice)
        choices += verdict.choices
        committee = shared(sharing)
        experts = committee.experts
        if plan.rule is not None and plan.rule.needs_communication:
            committee = replace(committee, communication=_communication_rows(experts, rows, seeds.batches))
    warnings = bound_warnings(theta, plan.bounds, plan.names) if plan.train else []
    report = FitReport(
        rows=rows,
        leaves=len(cells),
        points_per_leaf=(int(cells.sizes.min()), int(cells.sizes.max())),
        points_per_expert=(int(experts.sizes.min()), int(experts.sizes.max())),
        stages=tuple(stages),
        seconds=clock.seconds,
        evidence_trace=tuple(trace.evidence),
        theta_trace=np.array(trace.theta).reshape(len(trace.theta), len(theta)),
        names=plan.names,
        theta=theta,
        jitter=trace.jitter,
        jittered_experts=trace.jittered,
        warnings=tuple(warnings),
        choices=tuple(choices),
    )
    return Fitted(committee, report, cells, verdict)


def _committees(plan: Plan, placed: Placed, sides: _Extents, theta: Array) -> Callable[[float], Committee]:
    """The committee at theta, for any sharing among local experts."""
    store, cells = placed.store, placed.cells
    local = plan.partitioner.local and isinstance(cells, Runs)
    router = sides.router(plan.metric(theta, store.X.shape[1]), local)
    whole = Committee(plan.kernel, theta, store, placed.experts, placed.tree, router, student=plan.student)
    if not (local and isinstance(cells, Runs)):
        return lambda sharing: whole
    return cache(lambda sharing: replace(whole, experts=share_nearest(store, cells, router, sharing)))


def _choose_experts(
    plan: Plan, shared: Callable[[float], Committee], cells: RowLists, rows: int, engine: Engine,
    rng: np.random.Generator,
) -> tuple[float, Verdict]:  # fmt: skip
    """Sharing, rule and how many experts answer, where these are left open; how errors are distributed."""
    sharing = plan.shape.sharing or SHARING[1]
    candidates: list[Candidate] = []
    k = None if plan.nearest == "auto" else len(cells) if plan.nearest is None else int(plan.nearest)
    usual = Verdict(AUTO_RULE, k or AUTO_NEAREST)
    if not (plan.partitioner.local and plan.train and rows >= _ENOUGH_TO_CHOOSE and len(cells) > 1):
        return sharing, usual
    jury = Jury.drawn(shared, cells, engine, rng)
    if plan.shape.sharing is None:
        sharing, candidates = choose_sharing(jury, rows)
    if plan.calibrate or plan.rule is None or k is None:
        usual = judge(jury, sharing, plan.rule, k, plan.calibrate)
    return sharing, replace(usual, choices=(*candidates, *usual.choices))


def _try_kernels(
    plan: Plan, placed: Placed, sides: _Extents, theta: Array, engine: Engine, log: Log, trace: Trace,
    rng: np.random.Generator,
) -> list[tuple[Kernel, Optimum, Candidate]]:  # fmt: skip
    """Each family trained on the same few experts, and how well experts predict with it what they have not seen."""
    store, cells = placed.store, placed.cells
    few = max(1, int(TRIAL_POINTS / cells.sizes.mean()))
    batch = np.sort(rng.permutation(len(cells))[:few]) if few < len(cells) else None
    dof = expert.STUDENT_DOF if plan.student else np.inf
    seed = int(rng.integers(2**32))
    tried: list[tuple[Kernel, Optimum, Candidate]] = []
    for kernel in plan.families:
        evidence = log.recorded(summed_evidence(kernel, store, cells, placed.tree, engine, dof))
        name = type(kernel).__name__
        start = tried[0][1].theta if tried else theta
        iterations = MORE_ITERATIONS if tried else _TRIAL_ITERATIONS
        found = maximise(name, evidence, batch, start, plan.bounds, trace, ROUGH, iterations)
        shared = _committees(replace(plan, kernel=kernel), placed, sides, found.theta)
        jury = Jury.drawn(shared, cells, engine, np.random.default_rng(seed))
        score = score_family(jury, plan.shape.sharing)
        tried.append((kernel, found, Candidate("kernel", name, score)))
    return tried


def _training(asked: str, sizes: Array) -> str:
    """What "auto" means: all experts every time, as long as that is little work."""
    if asked != "auto":
        return asked
    return "full" if float((sizes.astype(float) ** 3).sum()) <= _FULL_WORK else "progressive"


def _train(
    plan: Plan, evidence: Objective, theta: Array, sizes: Array, trace: Trace, rng: np.random.Generator
) -> Trained:
    if plan.training == "full":
        return train_full(evidence, theta, plan.bounds, trace, plan.precision)
    return train_progressive(evidence, theta, plan.bounds, trace, plan.precision, sizes, rng)


def _restart(
    plan: Plan, evidence: Objective, theta: Array, sizes: Array, trace: Trace, rng: np.random.Generator
) -> Trained:
    """Where training begins: `theta`, or the best end of climbs from it and from as many other starts as asked for.

    Full training climbs on all experts, progressive training on a few.
    """
    if plan.restarts == 0:
        return Trained(theta, ())
    whole = plan.training == "full" or len(sizes) <= _RESTART_EXPERTS
    few = None if whole else np.sort(rng.permutation(len(sizes))[:_RESTART_EXPERTS])
    starts = [theta, *(theta + _RESTART_SPREAD * rng.standard_normal((plan.restarts, len(theta))))]
    climbs = [maximise("restart", evidence, few, s, plan.bounds, trace, plan.precision) for s in starts]
    best = max(climbs, key=lambda c: c.stage.evidence_per_point)
    return Trained(best.theta, tuple(c.stage for c in climbs))


@dataclass(frozen=True, eq=False)
class _Extents:
    """Of each leaf the mean, the least and the greatest of every column."""

    means: Array
    lows: Array
    highs: Array

    @classmethod
    def of(cls, store: ExpertStore, lists: RowLists) -> _Extents:
        if isinstance(lists, Runs) and not store.mapped:
            return cls(run_means(store.X, lists.starts), *extents(store.X, lists.starts))
        shape = (len(lists), store.X.shape[1])
        found = cls(np.empty(shape), np.empty(shape), np.empty(shape))
        for leaf in range(len(lists)):
            X, _ = store.read(lists, leaf)
            whole = np.array([0, len(X)])
            found.means[leaf] = run_means(X, whole)[0]
            found.lows[leaf], found.highs[leaf] = (side[0] for side in extents(X, whole))
        return found

    def router(self, metric: Array, local: bool) -> Router:
        """By cells where experts have them."""
        return Router(self.means * metric, metric, (self.lows * metric, self.highs * metric) if local else None)


def _communication_rows(experts: RowLists, n: int, rng: np.random.Generator) -> Array:
    """A random sample of all rows, as large as an expert: the communication expert of GRBCM."""
    return np.sort(rng.choice(n, int(experts.sizes.mean()), replace=False, shuffle=False))

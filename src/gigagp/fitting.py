"""The stages of a fit, from scaled rows to a committee of experts with a shared theta."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.committees import Extents, committees
from gigagp.data.scaled import ScaledRows
from gigagp.data.scan import Sample
from gigagp.engines import Engine
from gigagp.fit_report import Candidate, FitReport, Stage
from gigagp.inference import Committee
from gigagp.partition.base import RowLists
from gigagp.placing import Placed, Room, place
from gigagp.plan import Log, Plan, Seeds
from gigagp.progress import Event, Listener
from gigagp.rough_theta import rough_theta
from gigagp.selection import AUTO_NEAREST, AUTO_RULE, FEW_ROWS, SHARING, Jury, Verdict, choose_sharing, judge
from gigagp.training import (
    NEAR,
    Objective,
    Trace,
    Trained,
    bound_warnings,
    maximise,
    summed_evidence,
    train_full,
    train_progressive,
)
from gigagp.trials import Bench, merged

_FULL_WORK = 5e9  # flops of one evaluation up to which "auto" trains on every expert every time
_RESTART_EXPERTS = 16
_ENOUGH_TO_CHOOSE = 100  # rows from which a family of kernels is chosen
_LEAST_TO_CHOOSE = 12_000  # from which the size of leaves is: fits of fewer rows are too short for the trial
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the start, in log-parameters


@dataclass
class _Record:
    """What happens during a fit: seconds per stage, optimisations, evaluations, choices."""

    tell: Listener
    trace: Trace
    seconds: dict[str, float] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    choices: list[Candidate] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        self.trace.begin(name)
        yield
        self.seconds[name] = time.perf_counter() - start
        self.tell(Event(name, 0, None, self.seconds[name], finished=True))


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
    """Rough theta, partition, store, trials, training, choice of sharing, calibration: a committee ready to answer."""
    record = _Record(tell, Trace(tell=tell))
    theta = plan.start
    if plan.partitioner.local and plan.train and data.rows > (plan.shape.leaf_size or 0):
        with record.stage("rough theta"):
            climbs = rough_theta(plan, sample, engine.local, log, record.trace, seeds.choice)
            theta = climbs[-1].theta
            record.stages.extend(climb.stage for climb in climbs)
    rows, columns = data.rows, data.columns
    with record.stage("partition and store"):
        metric = plan.metric(theta, columns)
        here = engine.local
        placed = place(plan.partitioner, data, plan.shape, metric, sample, seeds.keys, seeds.partition, room, here)

        del data, sample  # from here on the store is all there is
    plan = replace(plan, student=plan.student and len(placed.cells) > 1)
    usual_leaves = len(placed.cells)
    if plan.train and plan.families and rows >= _ENOUGH_TO_CHOOSE:
        plan, placed, theta = _try(plan, placed, theta, rows, engine, log, record, seeds.choice)
    if plan.train:
        with record.stage("training"):
            theta = _trained(plan, placed, theta, engine, log, record, seeds)
    shared = committees(plan, placed, Extents.of(placed.store, placed.experts), theta)
    unit = round(2 * len(placed.cells) / usual_leaves) / 2  # of sharing: less where leaves have become larger
    sharing, verdict = _judged(plan, shared, placed.cells, rows, unit, engine, record, seeds.choice)
    committee, cells = shared(sharing), placed.cells
    experts = committee.experts
    if plan.rule is not None and plan.rule.needs_communication:
        committee = replace(committee, communication=_communication_rows(experts, rows, seeds.batches))
    trace = record.trace
    report = FitReport(
        rows=rows,
        leaves=len(cells),
        points_per_leaf=(int(cells.sizes.min()), int(cells.sizes.max())),
        points_per_expert=(int(experts.sizes.min()), int(experts.sizes.max())),
        stages=tuple(record.stages),
        seconds=record.seconds,
        evidence_trace=tuple(trace.evidence),
        theta_trace=np.array(trace.theta).reshape(len(trace.theta), len(theta)),
        names=plan.names,
        theta=theta,
        jitter=trace.jitter,
        jittered_experts=trace.jittered,
        warnings=tuple(bound_warnings(theta, plan.bounds, plan.names) if plan.train else []),
        choices=tuple(record.choices),
    )
    return Fitted(committee, report, cells, verdict)


def _try(
    plan: Plan, placed: Placed, theta: Array, rows: int, engine: Engine, log: Log, record: _Record,
    rng: np.random.Generator,
) -> tuple[Plan, Placed, Array]:  # fmt: skip
    """The family of kernels and the size of leaves that predict best, and the theta found on the way."""
    bench = Bench.drawn(plan, placed, engine, log, record.trace, rng)
    with record.stage("choice of kernel"):
        kernels = bench.try_kernels(theta)
        best = next(each for each in kernels if each.candidate.chosen)
        record.stages.extend(each.found.stage for each in kernels)
        record.choices.extend(each.candidate for each in kernels)
    plan = replace(plan, kernel=best.kernel)
    if not plan.shape.free or not _LEAST_TO_CHOOSE <= rows <= FEW_ROWS:
        return plan, placed, best.found.theta
    with record.stage("choice of leaf size"):
        usual, twice = bench.try_leaves(best)
        record.stages.append(twice.found.stage)
        record.choices.extend((usual.candidate, twice.candidate))
    if twice.candidate.chosen:
        return plan, merged(placed), twice.found.theta
    return plan, placed, best.found.theta


def _trained(
    plan: Plan, placed: Placed, theta: Array, engine: Engine, log: Log, record: _Record, seeds: Seeds
) -> Array:
    cells, trace = placed.cells, record.trace
    evidence = log.recorded(summed_evidence(plan.kernel, placed.store, cells, placed.tree, engine, plan.dof))
    if plan.training == "auto":
        plan = _economical(plan, cells.sizes)
    climbed = _restart(plan, evidence, theta, cells.sizes, trace, seeds.restarts)
    trained = _train(plan, evidence, climbed.theta, cells.sizes, trace, seeds.batches)
    record.stages.extend((*climbed.stages, *trained.stages))
    return trained.theta


def _judged(
    plan: Plan, shared: Callable[[float], Committee], cells: RowLists, rows: int, unit: float, engine: Engine,
    record: _Record, rng: np.random.Generator,
) -> tuple[float, Verdict]:  # fmt: skip
    """Sharing, rule and how many experts answer, where these are left open; how errors are distributed."""
    sharing, k = plan.shape.sharing or SHARING[1], _nearest(plan, cells)
    usual = Verdict(AUTO_RULE, k or AUTO_NEAREST)
    if not (plan.partitioner.local and plan.train and rows >= _ENOUGH_TO_CHOOSE and len(cells) > 1):
        return sharing, usual
    jury = Jury.drawn(shared, cells, engine, rng)
    if plan.shape.sharing is None:
        with record.stage("choice of sharing"):
            sharing, candidates = choose_sharing(jury, rows, unit)
            record.choices.extend(candidates)
    if not (plan.calibrate or plan.rule is None or k is None):
        return sharing, usual
    with record.stage("calibration"):
        verdict = judge(jury, sharing, plan.rule, k, plan.calibrate)
        record.choices.extend(verdict.choices)
    return sharing, verdict


def _nearest(plan: Plan, cells: RowLists) -> int | None:
    """How many experts answer; None where that is open."""
    return None if plan.nearest == "auto" else len(cells) if plan.nearest is None else int(plan.nearest)


def _economical(plan: Plan, sizes: Array) -> Plan:
    """What "auto" means: all experts every time as long as that is little work; one alone as exactly as can be."""
    little = float((sizes.astype(float) ** 3).sum()) <= _FULL_WORK
    precision = plan.precision if len(sizes) == 1 else plan.precision.no_finer(NEAR)
    return replace(plan, training="full" if little else "progressive", precision=precision)


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


def _communication_rows(experts: RowLists, n: int, rng: np.random.Generator) -> Array:
    """A random sample of all rows, as large as an expert: the communication expert of GRBCM."""
    return np.sort(rng.choice(n, int(experts.sizes.mean()), replace=False, shuffle=False))

"""The stages of a fit, from scaled rows to a committee of experts with a shared theta."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.scaled import ScaledRows
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore, frozen
from gigagp.engines import Engine, OverLeaves
from gigagp.expert import Evidence
from gigagp.fit_report import Candidate, FitReport
from gigagp.inference import Committee
from gigagp.kernels.base import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.partition import Partitioner, Shape
from gigagp.partition.base import RowLists, Runs, run_means
from gigagp.placing import Placed, Room, place
from gigagp.progress import Event, Listener
from gigagp.routing import Router
from gigagp.selection import chosen_among, score_left_out
from gigagp.sharing import share_nearest
from gigagp.training import (
    Objective,
    Optimum,
    Precision,
    Trace,
    Trained,
    bound_warnings,
    maximise,
    train_full,
    train_progressive,
)
from gigagp.tree import Tree

_ROUGH_ROWS = 1000  # rows of the sample that the first rough theta is learnt from
_ROUGH = Precision(change=1e-5, slope=1e-3)
_ROUGH_ITERATIONS = 30
_FULL_WORK = 5e9  # flops of one evaluation up to which "auto" trains on every expert every time
_RESTART_EXPERTS = 16
_ENOUGH_TO_CHOOSE = 100  # rows from which a family of kernels is chosen
_TRIAL_POINTS = 6144  # points that each family is trained on
_SCORED_EXPERTS = 32
_SCORED_SHARING = 4.0  # of the experts that are scored, at most
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the start, in log-parameters


@dataclass(frozen=True, eq=False)
class Plan:
    """What a fit is asked to do, all names resolved."""

    kernel: Kernel  # bound to the number of columns; its values are where training starts
    noise_start: float
    noise_bounds: tuple[float, float]
    partitioner: Partitioner
    shape: Shape
    training: str
    precision: Precision
    restarts: int = 0
    needs_communication: bool = False
    families: tuple[Kernel, ...] = ()  # kernels to choose from, of the same parameters; () where the user chose
    train: bool = True  # False where the target is constant: there is nothing to learn

    @property
    def start(self) -> Array:
        return np.append(self.kernel.theta, np.log(self.noise_start))

    @property
    def bounds(self) -> Array:
        return np.vstack([self.kernel.bounds, np.log(self.noise_bounds)])

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.kernel.names, "noise_variance")


@dataclass(frozen=True, eq=False)
class Seeds:
    """The random numbers of a fit: one stream for each use, so that no part disturbs another."""

    keys: int
    partition: np.random.Generator
    batches: np.random.Generator
    restarts: np.random.Generator
    choice: np.random.Generator

    @classmethod
    def of(cls, seed: np.random.SeedSequence) -> Seeds:
        keys, *others = seed.spawn(5)
        return cls(int(keys.generate_state(1, np.uint64)[0]), *(np.random.default_rng(s) for s in others))


class Log(Protocol):
    """Remembers evaluations, so that a fit can go on where it was stopped."""

    def recorded(self, evidence: Objective) -> Objective: ...


class NoLog:
    def recorded(self, evidence: Objective) -> Objective:
        return evidence


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
class LeafEvidence:
    """Eq. 6 at theta, for any leaf's rows."""

    kernel: Kernel
    theta: Array

    name = "evidence"

    def __call__(self, leaf: int, X: Array, y: Array, work: Workspace) -> Evidence:
        return expert.evidence(self.kernel, self.theta, X, y, work, leaf)


def summed_evidence(kernel: Kernel, store: ExpertStore, cells: RowLists, tree: Tree, engine: Engine) -> Objective:
    """Eq. 5 as a function of theta, over all leaves or over some (which then hang from a tree of their own)."""

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        over = OverLeaves(store, cells, leaves, LeafEvidence(kernel, theta))
        return engine.sum(tree if leaves is None else Tree.balanced(len(leaves)), over)

    return evidence


def fit(
    data: ScaledRows, sample: Sample, plan: Plan, engine: Engine, seeds: Seeds, room: Room, log: Log,
    tell: Listener,
) -> tuple[Committee, FitReport, RowLists]:  # fmt: skip
    """Rough theta, partition, store, training, sharing: a committee ready to answer."""
    clock, trace = _Clock(), Trace(tell=tell)
    theta, stages = plan.start, []
    if plan.partitioner.local and plan.train and data.rows > (plan.shape.leaf_size or 0):
        with clock.stage("rough theta", tell):
            trace.begin("rough theta")
            X, y = sample.first(_ROUGH_ROWS)
            rough = log.recorded(_one_expert(plan.kernel, frozen(X), frozen(y), engine.local))
            found = maximise("rough theta", rough, None, theta, plan.bounds, trace, _ROUGH, _ROUGH_ITERATIONS)
            theta = found.theta
            stages.append(found.stage)
    rows, columns = data.rows, data.columns
    with clock.stage("partition and store", tell):
        metric = _metric(plan.kernel, theta, columns)
        here = engine.local
        placed = place(plan.partitioner, data, plan.shape, metric, sample, seeds.keys, seeds.partition, room, here)

        del data, sample  # from here on the store is all there is
    store, cells = placed.store, placed.cells
    choices: list[Candidate] = []
    if plan.train and plan.families and rows >= _ENOUGH_TO_CHOOSE:
        with clock.stage("choice of kernel", tell):
            trace.begin("choice of kernel")
            tried = _try_kernels(plan, placed, theta, engine, log, trace, seeds.choice)
            stages.extend(found.stage for _, found, _ in tried)
            choices = chosen_among([candidate for *_, candidate in tried])
            kernel, found, _ = tried[[c.chosen for c in choices].index(True)]
            plan, theta = replace(plan, kernel=kernel), found.theta
    if plan.train:
        with clock.stage("training", tell):
            trace.begin("training")
            evidence = log.recorded(summed_evidence(plan.kernel, store, cells, placed.tree, engine))
            plan = replace(plan, training=_training(plan.training, cells.sizes))
            climbed = _restart(plan, evidence, theta, cells.sizes, trace, seeds.restarts)
            stages.extend(climbed.stages)
            trained = _train(plan, evidence, climbed.theta, cells.sizes, trace, seeds.batches)
            theta = trained.theta
            stages.extend(trained.stages)
    with clock.stage("sharing", tell):
        metric = _metric(plan.kernel, theta, columns)
        experts = placed.experts
        router = Router(_means(store, experts) * metric, metric)
        if plan.partitioner.local and isinstance(cells, Runs):
            experts = share_nearest(store, cells, router, plan.shape.sharing or 1.0)
        common = _communication_rows(experts, rows, seeds.batches) if plan.needs_communication else None
    committee = Committee(plan.kernel, theta, store, experts, placed.tree, router, common)
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
    return committee, report, cells


def _try_kernels(
    plan: Plan, placed: Placed, theta: Array, engine: Engine, log: Log, trace: Trace, rng: np.random.Generator
) -> list[tuple[Kernel, Optimum, Candidate]]:
    """Each family trained on the same few experts, and how well experts predict with it what they have not seen."""
    store, cells = placed.store, placed.cells
    shuffled = rng.permutation(len(cells))
    few = max(1, int(_TRIAL_POINTS / cells.sizes.mean()))
    batch = np.sort(shuffled[:few]) if few < len(cells) else None
    scored = shuffled[:_SCORED_EXPERTS]
    tried: list[tuple[Kernel, Optimum, Candidate]] = []
    for kernel in plan.families:
        evidence = log.recorded(summed_evidence(kernel, store, cells, placed.tree, engine))
        name = type(kernel).__name__
        start = tried[0][1].theta if tried else theta
        found = maximise(name, evidence, batch, start, plan.bounds, trace, _ROUGH, _ROUGH_ITERATIONS)
        metric = _metric(kernel, found.theta, store.X.shape[1])
        experts = placed.experts
        if isinstance(cells, Runs):
            router = Router(_means(store, cells) * metric, metric)
            experts = share_nearest(store, cells, router, min(plan.shape.sharing or 1.0, _SCORED_SHARING))
        score = score_left_out(kernel, found.theta, store, cells, experts, scored, engine)
        tried.append((kernel, found, Candidate("kernel", name, score)))
    return tried


def _one_expert(kernel: Kernel, X: Array, y: Array, engine: Engine) -> Objective:
    tree = Tree.regular(1, 1)

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        return engine.sum(tree, lambda _, work: expert.evidence(kernel, theta, X, y, work))

    return evidence


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


def _metric(kernel: Kernel, theta: Array, n_features: int) -> Array:
    """The kernel's metric, or the plain one where it has none."""
    metric = kernel.metric(theta[:-1])
    return (
        np.ones(n_features)
        if metric is None or not metric.any()
        else np.broadcast_to(metric, (n_features,)).astype(float)
    )


def _means(store: ExpertStore, lists: RowLists) -> Array:
    """The mean input of each leaf."""
    if isinstance(lists, Runs) and not store.mapped:
        return run_means(store.X, lists.starts)
    means = np.empty((len(lists), store.X.shape[1]))
    for leaf in range(len(lists)):
        X, _ = store.read(lists, leaf)
        means[leaf] = run_means(X, np.array([0, len(X)]))[0]
    return means


def _communication_rows(experts: RowLists, n: int, rng: np.random.Generator) -> Array:
    """A random sample of all rows, as large as an expert: the communication expert of GRBCM."""
    return np.sort(rng.choice(n, int(experts.sizes.mean()), replace=False, shuffle=False))

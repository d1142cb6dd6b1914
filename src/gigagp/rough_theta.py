"""A first theta, from a sample of the rows: good enough to cut cells by."""

from __future__ import annotations

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.scan import Sample
from gigagp.data.store import ExpertStore, frozen
from gigagp.engines import Engine
from gigagp.expert import Evidence
from gigagp.kernels.base import Kernel
from gigagp.partition.base import Runs, count_leaves
from gigagp.partition.kdtree import cell_starts, kd_order
from gigagp.partition.local import DEFAULT_LEAF
from gigagp.plan import Log, Plan
from gigagp.training import Objective, Optimum, Precision, Trace, maximise, summed_evidence
from gigagp.tree import Tree

ROUGH = Precision(change=1e-5, slope=1e-3)
TRIAL_POINTS, MORE_ITERATIONS = 4096, 12  # of some cells, from a theta that is not far
_ROWS, _ITERATIONS = 1000, 30  # of the sample, for the very first
_CLOSER_ROWS, _ROUNDS = 1 << 16, 4  # of the sample, divided into cells again and again
_WILD = 20.0  # kurtosis of a target with heavy tails
_NOTHING = 0.01  # nats a row by which a model must beat plain noise to have found anything
_SHORTER = (0.3, 0.1, 0.03, 0.01)  # times the length-scales that training starts from, for another look
_STEADY = 0.3  # change of log-parameters at which that ends


def rough_theta(
    plan: Plan, sample: Sample, engine: Engine, log: Log, trace: Trace, rng: np.random.Generator
) -> list[Optimum]:
    """From a few rows, with more starts where all seems noise; where the target has wild values, then from cells of the
    sample, cut anew until theta stays.

    Of scattered rows with heavy tails one sees little but noise; without them a theta of few rows cuts better cells
    (measured on all development sets: docs/decisions/better-experts.md).
    """
    X, y = sample.first(_ROWS)
    evidence = log.recorded(_one_expert(plan.kernel, frozen(X), frozen(y), engine))
    climbs = [maximise("rough theta", evidence, None, plan.start, plan.bounds, trace, ROUGH, _ITERATIONS)]
    if _nothing(climbs[-1], y):
        starts = [plan.start + np.log(s) * np.array(["lengthscale" in name for name in plan.names]) for s in _SHORTER]
        climbs += (maximise("rough theta", evidence, None, s, plan.bounds, trace, ROUGH, _ITERATIONS) for s in starts)
        climbs.sort(key=lambda climb: climb.stage.evidence_per_point)
    for _ in range(_ROUNDS if _kurtosis(sample.y) > _WILD else 0):
        climbs.append(_look_closer(plan, climbs[-1].theta, sample, engine, log, trace, rng))
        if np.abs(climbs[-1].theta - climbs[-2].theta).max() < _STEADY:
            break
    return climbs


def _nothing(found: Optimum, y: Array) -> bool:
    """Whether the evidence is no better than that of noise alone, of the best variance."""
    variance = max(float(np.mean(np.square(y.astype(float)))), float(np.finfo(float).tiny))
    return bool(found.stage.evidence_per_point < -0.5 * np.log(2 * np.pi * np.e * variance) + _NOTHING)


def _kurtosis(y: Array) -> float:
    """Three of a Gaussian; a few wild values make it large."""
    squares = np.square(y.astype(float) - y.mean())
    return float(np.mean(squares**2) / np.mean(squares) ** 2)


def _look_closer(
    plan: Plan, theta: Array, sample: Sample, engine: Engine, log: Log, trace: Trace, rng: np.random.Generator
) -> Optimum:
    """A better rough theta, from some cells of the sample in the metric of the last.

    A few scattered rows show long length-scales only, and cells cut by these hide the short ones.
    """
    X, y = sample.first(_CLOSER_ROWS)
    starts = cell_starts(len(X), count_leaves(len(X), len(X), int(plan.shape.leaf_size or DEFAULT_LEAF)))
    order = kd_order(X * plan.metric(theta, X.shape[1]).astype(X.dtype), starts)
    cells = Runs(starts)
    store = ExpertStore(frozen(X[order]), frozen(y[order]))
    some = np.sort(rng.permutation(len(cells))[: max(1, int(TRIAL_POINTS / cells.sizes.mean()))])
    evidence = log.recorded(summed_evidence(plan.kernel, store, cells, Tree.balanced(len(cells)), engine, plan.dof))
    return maximise("rough theta", evidence, some, theta, plan.bounds, trace, ROUGH, MORE_ITERATIONS)


def _one_expert(kernel: Kernel, X: Array, y: Array, engine: Engine) -> Objective:
    tree = Tree.regular(1, 1)

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        return engine.sum(tree, lambda _, work: expert.evidence(kernel, theta, X, y, work))

    return evidence

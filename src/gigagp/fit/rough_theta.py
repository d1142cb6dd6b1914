"""A first estimate of theta from a sample of the rows, in whose metric the rows are divided into cells."""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scan import Sample
from gigagp.data.store import frozen, split_targets
from gigagp.engines import Engine
from gigagp.expert import Evidence
from gigagp.fit.plan import Log, Plan
from gigagp.fit.training import Objective, Optimum, Precision, Trace, leaf_evidence, maximise
from gigagp.likelihoods import Latents
from gigagp.linalg.row_noise import ADDED
from gigagp.tree import Tree

ROUGH = Precision(change=1e-5, slope=1e-3)
_ROWS = 1000  # of the sample
_LAPLACE_ROWS = 512  # of the sample, for one latent function by Laplace's approximation: several factorisations
_ITERATIONS = 30  # of L-BFGS
_LEAST_GAIN = 0.01  # nats per row by which a model must exceed the evidence of plain noise
_SHORTER = (0.3, 0.1, 0.03, 0.01)  # factors of the length-scales at further starts


def rough_theta(plan: Plan, sample: Sample, engine: Engine, log: Log, trace: Trace) -> list[Optimum]:
    """Optimisations on a few rows, the best one last; with more starts where the first finds only noise."""
    rows = _ROWS if plan.latents is None else int(_LAPLACE_ROWS * plan.latents.scale)
    X, targets = sample.first(rows)
    y, row_noise = split_targets(targets)
    evidence = log.recorded(_one_expert(plan, frozen(X), frozen(y), row_noise, engine))
    climbs = [maximise("rough theta", evidence, None, plan.start, plan.bounds, trace, ROUGH, _ITERATIONS)]
    usual = y if row_noise is None else y[row_noise[:, ADDED] <= plan.target_variance]
    if _is_noise(climbs[-1], usual, plan.latents):
        starts = [plan.start + np.log(s) * np.array(["lengthscale" in name for name in plan.names]) for s in _SHORTER]
        climbs += (maximise("rough theta", evidence, None, s, plan.bounds, trace, ROUGH, _ITERATIONS) for s in starts)
        climbs.sort(key=lambda climb: climb.stage.evidence_per_point)
    return climbs


def _is_noise(optimum: Optimum, y: Array, latents: Latents | None) -> bool:
    """Whether the evidence is no better than that of noise alone (its variance, or a constant f, fitted)."""
    if latents is not None:
        return bool(optimum.stage.evidence_per_point < -latents.constant_loss(y) + _LEAST_GAIN)
    variance = max(float(np.mean(np.square(y.astype(float)))), float(np.finfo(float).tiny))
    return bool(optimum.stage.evidence_per_point < -0.5 * np.log(2 * np.pi * np.e * variance) + _LEAST_GAIN)


def _one_expert(plan: Plan, X: Array, y: Array, row_noise: Array | None, engine: Engine) -> Objective:
    tree = Tree.regular(1, 1)

    def evidence(theta: Array, leaves: Array | None) -> Evidence:
        value = leaf_evidence(plan.kernel, theta, np.inf, None, plan.latents)
        return engine.sum(tree, lambda leaf, work: value(leaf, X, y, work, row_noise))

    return evidence

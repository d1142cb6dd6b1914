"""Trains theta, on groups of neighbouring rows or on the cells of the partition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Scorer
from gigagp.fit.plan import Log, Plan, Seeds
from gigagp.fit.record import Record
from gigagp.fit.training import (
    FIRST_GROUPS,
    NEAR,
    Objective,
    Trace,
    TrainingResult,
    groups_for,
    maximise,
    summed_evidence,
    train_full,
    train_on_groups,
    train_progressive,
)

_FULL_WORK = 5e9  # flops of one evaluation up to which "auto" trains on every expert every time
_RESTART_EXPERTS = 16  # experts or groups that restarts are compared on
_JUDGING_NEIGHBOURS = 32  # neighbours of the held-out predictions that judge theta
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the start, in log-parameters


def trained_theta(
    plan: Plan, groups: Groups, theta: Array, scorer: Scorer, log: Log, record: Record, seeds: Seeds
) -> Array:
    """Theta, trained on groups of neighbouring rows; on cells where the user chose so or groups are impossible."""
    stored, trace = groups.stored, record.trace
    sizes = stored.cells.sizes
    if plan.training == "auto" and groups.possible:
        start = theta
        if plan.restarts:
            evidence = groups.evidence(plan.kernel, theta, _RESTART_EXPERTS, log)
            few = np.full(_RESTART_EXPERTS, groups.size)
            best = _restart(plan, evidence, theta, few, trace, seeds.restarts)
            record.stages.extend(best.stages)
            start = best.theta
        result = train_on_groups(
            lambda theta, count: groups.evidence(plan.kernel, theta, count, log),
            lambda theta: scorer.score(groups.model(plan.kernel, theta, _JUDGING_NEIGHBOURS)).score,
            start, plan.bounds, trace, plan.precision, first_groups(plan, len(start)),
        )  # fmt: skip
        record.stages.extend(result.stages)
        return result.theta
    evidence = log.recorded(
        summed_evidence(
            plan.kernel, stored.store, stored.cells, stored.tree, groups.engine, plan.dof, plan.inducing, plan.latents
        )
    )
    evidence = plan.with_prior(evidence)
    if plan.training == "auto":
        plan = _economical(plan, sizes)
    best = _restart(plan, evidence, theta, sizes, trace, seeds.restarts)
    result = _train(plan, evidence, best.theta, sizes, trace, seeds.batches)
    record.stages.extend((*best.stages, *result.stages))
    return result.theta


def first_groups(plan: Plan, parameters: int) -> int:
    """Groups in the first round: more for many parameters, unless a prior of theta takes the place of more rows."""
    return FIRST_GROUPS if plan.latents is not None else groups_for(parameters, FIRST_GROUPS)


def _economical(plan: Plan, sizes: Array) -> Plan:
    """What training="auto" means on cells: all experts as long as that is little work; one expert to full precision."""
    little = float((sizes.astype(float) ** 3).sum()) <= _FULL_WORK
    precision = plan.precision if len(sizes) == 1 else plan.precision.no_finer(NEAR)
    return replace(plan, training="full" if little else "progressive", precision=precision)


def _train(
    plan: Plan, evidence: Objective, theta: Array, sizes: Array, trace: Trace, rng: np.random.Generator
) -> TrainingResult:
    if plan.training == "full":
        return train_full(evidence, theta, plan.bounds, trace, plan.precision)
    return train_progressive(evidence, theta, plan.bounds, trace, plan.precision, sizes, rng)


def _restart(
    plan: Plan, evidence: Objective, theta: Array, sizes: Array, trace: Trace, rng: np.random.Generator
) -> TrainingResult:
    """Where training begins: `theta`, or the best optimum reached from it and from `plan.restarts` other starts.

    Full training uses all experts here, progressive training a few.
    """
    if plan.restarts == 0:
        return TrainingResult(theta, ())
    whole = plan.training == "full" or len(sizes) <= _RESTART_EXPERTS
    few = None if whole else np.sort(rng.permutation(len(sizes))[:_RESTART_EXPERTS])
    starts = [theta, *(theta + _RESTART_SPREAD * rng.standard_normal((plan.restarts, len(theta))))]
    climbs = [maximise("restart", evidence, few, s, plan.bounds, trace, plan.precision) for s in starts]
    best = max(climbs, key=lambda c: c.stage.evidence_per_point)
    return TrainingResult(best.theta, tuple(c.stage for c in climbs))

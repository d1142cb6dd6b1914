"""The family of kernels, chosen before training: each is trained on a few groups and judged by held-out predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit_report import Candidate
from gigagp.groups import Groups
from gigagp.kernels.base import Kernel
from gigagp.plan import Log, Plan
from gigagp.rough_theta import ROUGH
from gigagp.selection import DEFAULT_NEIGHBOURS, Scorer
from gigagp.training import Optimum, Trace, maximise

_GROUPS = 16  # of neighbouring rows, to train candidates on
_ITERATIONS = 12
_INDISTINGUISHABLE = 0.003  # nats per row by which a rougher kernel must be better than a smoother one


@dataclass(frozen=True, eq=False)
class Trial:
    """A family, the theta it was trained to, and its score."""

    kernel: Kernel
    optimum: Optimum
    candidate: Candidate


def try_kernels(
    plan: Plan, theta: Array, groups: Groups, scorer: Scorer, log: Log, trace: Trace,
) -> list[Trial]:  # fmt: skip
    """Every family trained on the same groups and judged by the same rows; the chosen one is marked."""
    store, cells = groups.around(plan.metric(theta, groups.columns), _GROUPS)
    trials: list[Trial] = []
    for family in plan.families:
        evidence = groups.evidence_of(family.kernel, store, cells, log)
        bounds = replace(plan, kernel=family.kernel).bounds
        start = np.clip(family.start(theta), *bounds.T)
        name = type(family.kernel).__name__
        optimum = maximise(name, evidence, None, start, bounds, trace, ROUGH, _ITERATIONS)
        scored = scorer.score(groups.model(family.kernel, optimum.theta, plan.neighbours or DEFAULT_NEIGHBOURS))
        trials.append(Trial(family.kernel, optimum, Candidate("kernel", name, scored.score)))
    least = min(trial.candidate.score for trial in trials)
    best = next(trial for trial in trials if trial.candidate.score <= least + _INDISTINGUISHABLE)
    return [replace(trial, candidate=replace(trial.candidate, chosen=trial is best)) for trial in trials]

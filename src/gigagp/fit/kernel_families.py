"""Chooses the family of kernels before training: each is trained on a few groups and scored on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Gain, HeldOutScore, Scorer
from gigagp.fit.plan import Log, Plan
from gigagp.fit.rough_theta import ROUGH
from gigagp.fit.selection import DEFAULT_NEIGHBOURS
from gigagp.fit.training import Objective, Trace, maximise
from gigagp.kernels.base import Kernel
from gigagp.model.fit_report import Candidate, Stage

_GROUPS = 16  # of neighbouring rows, to train candidates on
_ITERATIONS = 12  # of L-BFGS
_FIRST_ROWS = 2048  # held-out rows that judge every family
_ROWS = 4096  # held-out rows that judge the families of the second round
_NEARLY_AS_GOOD = (
    0.03  # relative difference of scores, apart from its error, up to which a family enters a second round
)
_INDISTINGUISHABLE = 0.003  # relative difference by which a rougher kernel must be better than a smoother one


@dataclass(frozen=True, eq=False)
class Trial:
    """A kernel family, its theta after a short training, and its score."""

    kernel: Kernel
    theta: Array
    score: HeldOutScore
    candidate: Candidate
    stages: tuple[Stage, ...]


def try_kernels(
    plan: Plan, theta: Array, groups: Groups, scorer: Scorer, log: Log, trace: Trace,
) -> list[Trial]:  # fmt: skip
    """Train every family on the same groups and score it on the same rows; the chosen one is marked.

    Those that are nearly as good as the best are trained once more, on groups in their own metric, and judged by more
    rows. They are compared by the differences of their losses row by row, for which few rows suffice.
    """
    store, cells = groups.around(plan.metric(theta, groups.columns), _GROUPS)

    def train(family: Kernel, start: Array, evidence: Objective, rows: int) -> Trial:
        bounds = replace(plan, kernel=family).bounds
        name = type(family).__name__ + (
            "" if len(family.theta) > 2 or groups.columns == 1 else " with one length-scale"
        )
        optimum = maximise(name, evidence, None, np.clip(start, *bounds.T), bounds, trace, ROUGH, _ITERATIONS)
        score = scorer.score(groups.model(family, optimum.theta, plan.neighbours or DEFAULT_NEIGHBOURS), rows)
        return Trial(family, optimum.theta, score, Candidate("kernel", name, score.score), (optimum.stage,))

    trials = [
        train(each.kernel, each.start(theta), groups.evidence_of(each.kernel, store, cells, log), _FIRST_ROWS)
        for each in plan.families
    ]
    leader = min(trials, key=lambda trial: trial.candidate.score)
    close = [trial for trial in trials if Gain.of(trial.score, leader.score).may_exceed(-_NEARLY_AS_GOOD)]
    if len(close) > 1:
        second_round = []
        for trial in close:
            evidence = groups.evidence(trial.kernel, trial.theta, 2 * _GROUPS, log)
            second = train(trial.kernel, trial.theta, evidence, _ROWS)
            second_round.append(replace(second, stages=trial.stages + second.stages))
        trials = [second_round[close.index(trial)] if trial in close else trial for trial in trials]
        close = second_round
    least = min(trial.candidate.score for trial in close)
    best = next(trial for trial in close if trial.candidate.score <= least * (1 + _INDISTINGUISHABLE))
    return [replace(trial, candidate=replace(trial.candidate, chosen=trial is best)) for trial in trials]

"""Chooses the family of kernels before training: each is trained on a few groups and scored on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import Gain, HeldOutScore, Scorer
from gigagp.fit.plan import Family, Log, Plan
from gigagp.fit.rough_theta import ROUGH
from gigagp.fit.selection import DEFAULT_NEIGHBOURS
from gigagp.fit.training import Trace, maximise
from gigagp.kernels.base import Kernel
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.neighbourhood import Neighbourhood

_GROUPS = 16  # of neighbouring rows, to train candidates on
_ITERATIONS = 6  # of L-BFGS: the order of the families hardly changes after that
_FIRST_ROWS = 512  # held-out rows that judge every family
_ROWS = 1024  # held-out rows that judge those that are nearly as good as the best
_NEARLY_AS_GOOD = 0.01  # relative difference of scores, apart from its error
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
    """Train the families briefly on the same groups and score them on the same rows; the chosen one is marked.

    They are compared by the differences of their losses row by row, for which few rows suffice; those that are nearly
    as good as the best predict more rows. A kernel that is rougher than one that is already too rough is not tried.
    """
    store, cells = groups.around(plan.metric(theta, groups.columns), _GROUPS)

    def model(family: Kernel, theta: Array) -> Neighbourhood:
        return groups.model(family, theta, plan.neighbours or DEFAULT_NEIGHBOURS)

    def train(family: Family) -> Trial:
        kernel, name = family.kernel, family.name
        bounds = replace(plan, kernel=kernel).bounds
        evidence = groups.evidence_of(kernel, store, cells, log)
        start = np.clip(family.start(theta), *bounds.T)
        optimum = maximise(name, evidence, None, start, bounds, trace, ROUGH, _ITERATIONS)
        score = scorer.score(model(kernel, optimum.theta), _FIRST_ROWS)
        return Trial(kernel, optimum.theta, score, Candidate("kernel", name, score.score), (optimum.stage,))

    def with_more_rows(trial: Trial) -> Trial:
        score = scorer.extend(model(trial.kernel, trial.theta), trial.score, _ROWS)
        return replace(trial, score=score, candidate=replace(trial.candidate, score=score.score))

    trials: list[Trial] = []
    roughest = np.inf
    for family in plan.families:
        if family.stretch <= roughest:
            trials.append(train(family))
            best = min(trials, key=lambda trial: trial.candidate.score)
            if not _is_close(trials[-1], best):
                roughest = family.stretch
    close = [trial for trial in trials if _is_close(trial, best)]
    if len(close) > 1:
        extended = [with_more_rows(trial) for trial in close]
        trials = [extended[close.index(trial)] if trial in close else trial for trial in trials]
        close = extended
    least = min(trial.candidate.score for trial in close)
    unit = trials[0].score.unit or least
    chosen = next(trial for trial in close if trial.candidate.score <= least + _INDISTINGUISHABLE * unit)
    return [replace(trial, candidate=replace(trial.candidate, chosen=trial is chosen)) for trial in trials]


def _is_close(trial: Trial, best: Trial) -> bool:
    """Whether a family may be nearly as good as the best one."""
    return Gain.of(trial.score, best.score).may_exceed(-_NEARLY_AS_GOOD)

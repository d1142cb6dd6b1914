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
from gigagp.fit.training import Trace, groups_for, maximise
from gigagp.kernels.base import Kernel
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.neighbourhood import Neighbourhood

_GROUPS = 16  # of neighbouring rows, at least, to train candidates on
_ITERATIONS = 20  # of L-BFGS
_FEW_ITERATIONS = 6  # of L-BFGS in large tables: the order of the families rarely changes after that
_FIRST_ROWS = 512  # held-out rows that judge every family
_ROWS = 2048  # held-out rows, at most, that judge those that are nearly as good as the best
_MORE_NEIGHBOURS = 256  # that are compared with few
_MUCH_BETTER = 0.1  # relative gain of more neighbours from which families are judged again
_MANY_NEIGHBOURS = 512  # by which they are then judged
_ROWS_WITH_MANY = 256  # held-out rows that are predicted by so many neighbours
_POSSIBLE_LOSS = 0.1  # relative difference of scores from few neighbours that many neighbours may reverse
LARGE_TABLE = 1 << 18  # rows: many rows are near each query, and choosing is to stay a small share of the fit
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
    neighbours: int  # of the held-out predictions

    @property
    def smooth(self) -> bool:
        """Whether many neighbours predict much better than few."""
        return self.neighbours == _MANY_NEIGHBOURS


def try_kernels(
    plan: Plan, theta: Array, groups: Groups, scorer: Scorer, log: Log, trace: Trace,
) -> list[Trial]:  # fmt: skip
    """Train the families briefly on the same groups and score them on the same rows; the chosen one is marked.

    They are compared by the differences of their losses row by row, for which few rows suffice; those that are nearly
    as good as the best predict twice as many, and so on. A kernel that is rougher than one that is already too rough is
    not tried. Where many neighbours predict much better than few, families are judged by many.
    """
    neighbours = plan.neighbours or DEFAULT_NEIGHBOURS
    brief = groups.rows > LARGE_TABLE or plan.latents is not None  # Laplace's approximation takes several times longer
    iterations = _FEW_ITERATIONS if brief else _ITERATIONS
    count = _GROUPS if brief else groups_for(len(theta), _GROUPS)
    store, cells = groups.around(plan.metric(theta, groups.columns), count)

    models: dict[Kernel, Neighbourhood] = {}  # the boxes of a large table take a while to scale

    def model(family: Kernel, theta: Array) -> Neighbourhood:
        if family not in models:
            models[family] = groups.model(family, theta, neighbours)
        return models[family]

    def train(family: Family) -> Trial:
        kernel, name = family.kernel, family.name
        bounds = replace(plan, kernel=kernel).bounds
        evidence = groups.evidence_of(kernel, store, cells, log)
        start = np.clip(family.start(theta), *bounds.T)
        optimum = maximise(name, evidence, None, start, bounds, trace, ROUGH, iterations)
        score = scorer.score(model(kernel, optimum.theta), _FIRST_ROWS)
        return Trial(kernel, optimum.theta, score, Candidate("kernel", name, score.score), (optimum.stage,), neighbours)

    def with_more_rows(trial: Trial, count: int) -> Trial:
        score = scorer.extend(model(trial.kernel, trial.theta), trial.score, count)
        return replace(trial, score=score, candidate=replace(trial.candidate, score=score.score))

    trials: list[Trial] = []
    roughness: dict[Kernel, float] = {}
    roughest = np.inf
    for family in plan.families:
        if family.stretch <= roughest:
            trials.append(train(family))
            roughness[family.kernel] = family.stretch
            best = min(trials, key=lambda trial: trial.candidate.score)
            if family.stretch > roughness[best.kernel] and not _is_close(trials[-1], best):
                roughest = family.stretch
    if plan.neighbours is None and not brief:
        trials = _with_more_neighbours(trials, best, groups, scorer)
        best = min(trials, key=lambda trial: trial.candidate.score)
    close, count = [trial for trial in trials if _is_close(trial, best)], 2 * _FIRST_ROWS
    while len(close) > 1 and best.neighbours == neighbours and count <= _ROWS:
        extended = [with_more_rows(trial, count) for trial in close]
        trials = [extended[close.index(trial)] if trial in close else trial for trial in trials]
        best = min(extended, key=lambda trial: trial.candidate.score)
        close, count = [trial for trial in extended if _is_close(trial, best)], 2 * count
    least = min(trial.candidate.score for trial in close)
    unit = trials[0].score.unit or least
    chosen = next(trial for trial in close if trial.candidate.score <= least + _INDISTINGUISHABLE * unit)
    return [
        replace(trial, candidate=replace(trial.candidate, score=_on_all_rows(trial, best), chosen=trial is chosen))
        for trial in trials
    ]


def _on_all_rows(trial: Trial, best: Trial) -> float:
    """The score of a trial that has predicted fewer rows than the best one, from what it loses on these rows."""
    if trial.neighbours != best.neighbours or len(trial.score.rows) == len(best.score.rows):
        return trial.candidate.score
    unit = best.score.unit or best.score.score
    return best.candidate.score - Gain.of(trial.score, best.score).value * unit


def _with_more_neighbours(trials: list[Trial], best: Trial, groups: Groups, scorer: Scorer) -> list[Trial]:
    """The trials, those near the best one judged by many neighbours if more of them predict much better than few.

    Where a function is smooth, the best family depends on the number of rows that predict: on kin40k (split 4, a trial)
    the RMSE of the squared exponential and of Matérn 5/2 was .123 and .125 with 64 neighbours, .082 and .077 with 512.
    """

    def with_neighbours(trial: Trial, count: int) -> Trial:
        score = scorer.score(groups.model(trial.kernel, trial.theta, count), _ROWS_WITH_MANY)
        return replace(trial, score=score, candidate=replace(trial.candidate, score=score.score), neighbours=count)

    if groups.rows <= 2 * _MANY_NEIGHBOURS:
        return trials
    if not Gain.of(with_neighbours(best, _MORE_NEIGHBOURS).score, best.score).exceeds(_MUCH_BETTER):
        return trials
    first = with_neighbours(best, _MANY_NEIGHBOURS)
    possible = [trial for trial in trials if Gain.of(trial.score, best.score).may_exceed(-_POSSIBLE_LOSS)]
    judged = {id(trial): first if trial is best else with_neighbours(trial, _MANY_NEIGHBOURS) for trial in possible}
    worst = max(trial.candidate.score for trial in judged.values())

    def out(trial: Trial) -> Trial:  # its score from few neighbours cannot be compared with the others'
        ratio = trial.candidate.score / best.candidate.score
        return replace(trial, candidate=replace(trial.candidate, score=max(worst, ratio * first.candidate.score)))

    return [judged.get(id(trial)) or out(trial) for trial in trials]


def _is_close(trial: Trial, best: Trial) -> bool:
    """Whether a family may be nearly as good as the best one, judged by as many neighbours."""
    return trial.neighbours == best.neighbours and Gain.of(trial.score, best.score).may_exceed(-_NEARLY_AS_GOOD)

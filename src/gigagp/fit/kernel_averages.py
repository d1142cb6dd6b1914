"""Averages neighbourhoods with kernels of different families, where held-out rows are then predicted clearly better.

Kernels of different smoothness, each with a theta of its own, make errors that are partly independent. The short trials
that have chosen the family (`kernel_families`) have all predicted the same rows, so that they show at no cost which
other family may gain most; this one is trained, and its average judged by held-out rows. Short trials often do not show
how much is to be gained, so that only in large tables, where choosing is to stay a small share of the fit, a family is
trained only if they do. A query then costs as much as the averaged models together, so that there are only as many
as predict the queries that a table may have in some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import DOUBLING_GAIN, Gain, HeldOutScore, NumberScoring, Scorer, is_quick
from gigagp.fit.kernel_families import LARGE_TABLE, Trial
from gigagp.fit.selection import DEFAULT_NEIGHBOURS, Choice
from gigagp.kernels.base import Kernel
from gigagp.model.fit_report import Candidate
from gigagp.model.held_out import with_row_noise
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbourhood import Neighbourhood, averaged, predict

_MOST_MEMBERS = 3  # models that are averaged
_LEAST_GAIN = DOUBLING_GAIN  # relative gain of the score for which a query may cost as much as another model
_COMPARED_ROWS = 4096  # held-out rows, at most, that decide

Train = Callable[[Kernel, Array], Array]  # kernel, theta where training starts -> trained theta


@dataclass(frozen=True, eq=False)
class _Average:
    """A neighbourhood, the held-out predictions of each of its members, and their score together."""

    model: Neighbourhood
    parts: list[LatentPrediction]
    score: HeldOutScore

    @classmethod
    def of(
        cls, members: Sequence[Neighbourhood], parts: list[LatentPrediction], like: HeldOutScore, scorer: Scorer
    ) -> _Average:
        """From predictions of the first rows of another score; all have as many as the last one."""
        count = len(parts[-1].mean)
        model, parts = replace(members[0], others=tuple(members[1:])), [each.at(slice(count)) for each in parts]
        noises = [each.noise for each in parts if each.noise is not None]  # cells may have been cut since the trials
        prediction = replace(averaged(model, parts), noise=np.mean(noises, axis=0) if noises else None)
        scoring = scorer.scoring
        assert isinstance(scoring, NumberScoring)
        return cls(model, parts, scoring.score_with_noise(like.rows[:count], like.y[:count], prediction, model))


def average_kernels(
    choice: Choice, trials: Sequence[Trial], groups: Groups, scorer: Scorer, train: Train
) -> tuple[Choice, list[Candidate]]:
    """The choice with other kernels averaged, as long as each of them gains; and the candidates with their scores."""
    near, score = choice.neighbourhood, choice.held_out
    if near is None or score is None or not score.calibration.rows or near.prior is None:
        return choice, []
    best, candidates = _Average(near, [score.prediction], score), []
    chosen = [trial for trial in trials if trial.candidate.chosen]
    most = next((members for members in range(_MOST_MEMBERS, 1, -1) if is_quick(near, members)), 1)
    while len(chosen) < most and (rival := promising(chosen, trials, groups, scorer)) is not None:
        theta = train(rival.kernel, rival.theta)
        metric = groups.model(rival.kernel, theta, near.neighbours).router.metric
        other = replace(near, kernel=rival.kernel, theta=theta, router=near.router.in_metric(metric))
        part = _held_out(other, scorer, score.rows[:_COMPARED_ROWS])
        members = [*best.model.members, other]
        larger = _Average.of(members, [*best.parts, part], score, scorer)
        count = len(part.mean)
        smaller = _Average.of(members[:-1], [each.at(slice(count)) for each in best.parts], score, scorer)
        better = Gain.of(larger.score, smaller.score).exceeds(_LEAST_GAIN)
        candidates.append(Candidate("average", " and ".join(larger.model.families), larger.score.score, better))
        if not better:
            break
        if count < len(score.rows):
            part = LatentPrediction.joined([part, _held_out(other, scorer, score.rows[count:])])
        best = _Average.of(members, [*best.parts, part], score, scorer)
        chosen.append(rival)
    if not best.model.others:
        return choice, candidates
    return replace(
        choice, neighbourhood=best.model, calibration=best.score.calibration, held_out=best.score
    ), candidates


def _held_out(model: Neighbourhood, scorer: Scorer, rows: Array) -> LatentPrediction:
    prediction = predict(model, model.store.gather(rows)[0], scorer.engine, held_out=rows)
    return with_row_noise(prediction, model.noise, model.store, rows)


def promising(chosen: list[Trial], trials: Sequence[Trial], groups: Groups, scorer: Scorer) -> Trial | None:
    """The trial that gains most if its predictions are averaged with those of the chosen models; None for no trial."""

    def together(some: list[Trial]) -> HeldOutScore:
        count = min(len(trial.score.rows) for trial in trials)
        members = [groups.model(trial.kernel, trial.theta, DEFAULT_NEIGHBOURS) for trial in some]
        parts = [trial.score.prediction.at(slice(count)) for trial in some]
        return _Average.of(members, parts, trials[0].score, scorer).score

    before = together(chosen)
    gains = {i: Gain.of(together([*chosen, each]), before) for i, each in enumerate(trials) if each not in chosen}
    best = max(gains, key=lambda i: gains[i].value, default=None)
    if best is None or (groups.rows > LARGE_TABLE and not gains[best].exceeds(_LEAST_GAIN)):
        return None
    return trials[best]

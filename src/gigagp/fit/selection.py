"""Chooses how queries are answered: the number of neighbours, and neighbourhoods or a committee.

What the user leaves open is chosen by held-out predictions (`held_out_scores`). The calibration of the chosen model
becomes that of the fitted model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp.combine import RULES, CombinationRule
from gigagp.fit.committee_scores import SHARING, CommitteeScorer, choose_sharing
from gigagp.fit.common_noise import choose_common_noise
from gigagp.fit.held_out_scores import DOUBLING_GAIN, NEGLIGIBLE_GAIN, Gain, HeldOutScore, Scorer, is_quick
from gigagp.model.calibration import Calibration
from gigagp.model.fit_report import Candidate
from gigagp.model.model import CommitteeDefaults
from gigagp.model.neighbourhood import Neighbourhood

DEFAULT_NEIGHBOURS = 64
NEIGHBOURS = (32, 64, 128, 256)  # candidates, in the order in which they are tried
_FEWEST_OUTER = 128  # neighbours, at least, together with which the nearest of them are tried on their own
_INNER_SHARE = 8  # one over the share of the neighbours that also predict on their own
_LARGE_GAIN = 0.02  # relative gain of the last doubling from which still more rows would help
_ROWS_PER_NEIGHBOUR = 3  # of an expert: they surround its cell, not the query, so that only more may predict better


def choose_neighbours(
    scorer: Scorer, model: Neighbourhood
) -> tuple[Neighbourhood, HeldOutScore, list[Candidate], bool]:
    """Double the number of neighbours as long as that gains.

    Returns the chosen model, its score, all candidates, and whether the last doubling still gained much.
    """
    trials: list[tuple[Neighbourhood, HeldOutScore]] = []
    gain, large_gain = Gain(0.0, np.inf), False
    for count in NEIGHBOURS:
        if trials and count >= 2 * len(model.store.y):
            break
        candidate = replace(model, neighbours=count)
        if trials and not scorer.scoring.is_affordable(candidate):
            break
        if not trials:
            trials.append((candidate, scorer.score_few(candidate)))
        else:
            reference, reference_score = trials[-1]
            score, reference_score = scorer.compare(candidate, reference, reference_score)
            trials[-1:] = [(reference, reference_score), (candidate, score)]
            expected, gain = gain.of_next_doubling, Gain.of(score, reference_score)
            if scorer.scoring.regular_gains and expected.error < np.inf:
                gain = gain.combined(expected)
            large_gain = gain.exceeds(_LARGE_GAIN)
            if not gain.exceeds(scorer.scoring.doubling_gain):
                break
    best = len(trials) - 1
    if best > 0 and not gain.exceeds(scorer.scoring.doubling_gain):
        best -= 1
    # Costly candidates predict fewer rows, so that their mean losses cannot be compared. What each gains on the rows
    # that it has in common with the one before is applied to the score of the first.
    candidates, crps = [], trials[0][1].score
    for i, (trial, score) in enumerate(trials):
        if i > 0:
            crps -= Gain.of(score, trials[i - 1][1]).value * (score.unit or crps)
        candidates.append(Candidate("neighbours", str(trial.neighbours), crps, i == best))
    return *trials[best], candidates, large_gain


def choose_inner(
    scorer: Scorer, model: Neighbourhood, near: HeldOutScore, candidates: list[Candidate]
) -> tuple[Neighbourhood, HeldOutScore, list[Candidate]]:
    """Whether predictions gain if the few nearest of the neighbours also predict on their own.

    Few neighbours are best where targets repeat or vary abruptly; elsewhere the same data may need many.
    `linalg.neighbourhood.joined` weights both for each query. They need at least 128 neighbours. Where fewer have been
    chosen, this is not tried in large tables: some percent would not be worth predictions that take many times as long.
    """
    outer = max(model.neighbours, _FEWEST_OUTER)
    both = replace(model, neighbours=outer, inner=outer // _INNER_SHARE)
    if outer > len(model.store.y) or (outer > model.neighbours and not is_quick(both)):
        return model, near, candidates
    score, near = scorer.compare(both, model, near)
    gain = Gain.of(score, near)
    better = gain.exceeds(DOUBLING_GAIN)
    crps = next(each.score for each in candidates if each.chosen) * (1 - gain.value)
    candidate = Candidate("neighbours", f"{both.inner} and {both.neighbours}", crps, better)
    if not better:
        return model, near, [*candidates, candidate]
    return both, score, [*(replace(each, chosen=False) for each in candidates), candidate]


@dataclass(frozen=True, eq=False)
class Choice:
    """How queries are answered: from neighbours or by a committee of a certain sharing."""

    neighbourhood: Neighbourhood | None
    sharing: float
    calibration: Calibration
    candidates: tuple[Candidate, ...] = ()
    held_out: HeldOutScore | None = None  # the predictions that the calibration was learnt from
    more_rows_help: bool = False  # whether the last doubling of the number of neighbours still gained much
    link: Any = None  # where targets are classes or have a likelihood that is not Gaussian, how f leads to y


def can_be_held_out(rule: CombinationRule | None) -> bool:
    """Whether rows can be held out of a committee under this rule in closed form."""
    return rule is None or rule.closed_form_held_out


def choose_answer(
    scorer: Scorer, model: Neighbourhood | None, committees: CommitteeScorer, sharing: float | None,
    rule: CombinationRule | None, k: int | None, neighbours: int | None, committee_allowed: bool,
) -> Choice:  # fmt: skip
    """Choose neighbourhood or committee, whichever predicts held-out rows better.

    model : None where the committee must answer
    sharing, rule, k, neighbours : what the user has chosen; None where it is to be chosen here
    """
    candidates: list[Candidate] = []
    near: HeldOutScore | None = None
    # A committee is tried only where still more neighbours would help, since its experts see more rows.
    more_rows_help = True
    if model is not None:
        model, trials = choose_common_noise(scorer, model)
        candidates += trials
        if neighbours is None:
            model, near, trials, more_rows_help = choose_neighbours(scorer, model)
            if not more_rows_help:
                model, near, trials = choose_inner(scorer, model, near, trials)
            candidates += trials
        else:
            near = scorer.calibrate(model)
        if not (committee_allowed and more_rows_help):
            by_neighbours = _by_neighbours(scorer, model, near, sharing or 1.0, candidates)
            return replace(by_neighbours, more_rows_help=more_rows_help)
    defaults = CommitteeDefaults.of(local=True)
    rule = rule or RULES[defaults.rule]()
    k = k or defaults.experts_per_query or len(committees.cells)
    first = min(sharing or SHARING[0], SHARING[0])
    chosen, trials = choose_sharing(committees) if sharing is None else (sharing, [])
    candidates += trials
    if (
        model is not None
        and near is not None
        and not (
            committees.rows(chosen) > _ROWS_PER_NEIGHBOUR * model.neighbours
            and committees.may_gain(model, chosen, rule, k)
        )
    ):
        return _by_neighbours(scorer, model, near, chosen, candidates)
    committee = committees.score(first, rule, k)
    if committee is None:
        near = None if model is None else scorer.calibrate(model, near)
        calibration = Calibration.none() if near is None else near.calibration
        return Choice(model, sharing or SHARING[1], calibration, tuple(candidates), near)
    if chosen > 2 * first:
        first *= 2
        committee = committees.score(first, rule, k) or committee
    if chosen > first:
        committee = committees.at_more_sharing(committee, first, chosen, rule, k)
    if model is not None and near is not None:
        better = scorer.gain_over(committee, model).exceeds(NEGLIGIBLE_GAIN)
        candidates += [
            Candidate("prediction", model.description, near.score, not better),
            Candidate("prediction", "committee", committee.score, better),
        ]
        if not better:
            near = scorer.calibrate(model, near)
            return Choice(model, chosen, near.calibration, tuple(candidates), near)
    return Choice(None, chosen, committee.calibration, tuple(candidates), committee)


def _by_neighbours(
    scorer: Scorer, model: Neighbourhood, near: HeldOutScore, sharing: float, candidates: list[Candidate]
) -> Choice:
    """The choice of the neighbourhood, where no committee is compared with it."""
    near = scorer.calibrate(model, near)
    candidate = Candidate("prediction", model.description, near.score, True)
    return Choice(model, sharing, near.calibration, (*candidates, candidate), near)

"""Looks for a theta that predicts held-out rows much better than the trained one.

The evidence is that of groups of neighbouring rows, which are formed in the metric of theta. Several thetas may agree
with their groups: on a grid, rows may be neighbours along some columns or along others. Training cannot leave the one
that it has reached, nor can the evidence compare them, since each has other groups. Held-out predictions can. Theta is
therefore changed along its length-scales and its noise. The search goes on only while a round gains much, more than a
theta that is nearly right can gain, and other held-out rows must confirm it: a wrong theta is replaced, but a right one
is not tuned, since held-out rows would be fitted by chance (elevators and protein, split 1, a trial).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import DOUBLING_GAIN, Gain, HeldOutScore, Scorer
from gigagp.fit.plan import Plan
from gigagp.fit.selection import DEFAULT_NEIGHBOURS
from gigagp.model.fit_report import Candidate

_NEIGHBOURS = 32  # of the predictions that are compared along the way
_ROWS = 512  # held-out rows that are predicted at each step
_FEW_ROWS = 256  # the same in large tables, where scattered rows take longer
_LARGE_TABLE = (
    1 << 18
)  # rows; up to this number the search for nearest rows is exact, although metrics may be far from that of the cells
_CHECK_ROWS = 1024  # other held-out rows that decide in the end
_MOST_STEPS = 128  # thetas that are compared, at most
_FACTOR = 1.5  # by which a parameter is multiplied or divided
_LARGE_GAIN = 0.05  # relative gain of a round that a theta which is nearly right does not have
_STANDARD_ERRORS = 2.0  # by which such a gain must exceed zero


def search_theta(plan: Plan, groups: Groups, scorer: Scorer, theta: Array) -> tuple[Array, list[Candidate]]:
    """The trained theta, or one that predicts much better; where one seems to, both with their scores.

    The rows that decide in the end are others than those of the search.
    """
    if plan.training != "auto" or not groups.possible or plan.latents is not None:
        return theta, []  # trained on the cells; or Laplace's approximation, whose scores take several times longer
    large = groups.rows > _LARGE_TABLE
    count = _FEW_ROWS if large else _ROWS
    rows, check = scorer.order[:count], scorer.order[count : count + _CHECK_ROWS]
    if len(check) < count:
        return theta, []
    model = groups.model(plan.kernel, theta, _NEIGHBOURS)

    def score(theta: Array, rows: Array, neighbours: int) -> HeldOutScore:
        router = model.router.in_metric(plan.metric(theta, groups.columns))
        model_there = replace(model, theta=theta, router=router, neighbours=neighbours, exact=model.exact or not large)
        return scorer.score_rows(model_there, rows)

    other = _climb(theta, _directions(plan, groups.columns), plan.bounds, lambda each: score(each, rows, _NEIGHBOURS))
    if other is theta:
        return theta, []
    before, after = (score(each, check, DEFAULT_NEIGHBOURS) for each in (theta, other))
    better = _is_large(Gain.of(after, before))
    candidates = [
        Candidate("theta", "trained", before.score, not better),
        Candidate("theta", "held-out search", after.score, better),
    ]
    return other if better else theta, candidates


def _directions(plan: Plan, columns: int) -> list[Array]:
    """Parameters that are changed together: all length-scales, each of them, and the noise; bounds may fix some."""
    free = plan.bounds[:, 0] < plan.bounds[:, 1]
    places = [place for place, _ in plan.kernel.lengthscales(columns) if free[place]]
    together = [np.array(places)] if len(places) > 1 else []
    return [*together, *(np.array([place]) for place in (*places, len(free) - 1) if free[place])]


def _climb(theta: Array, directions: list[Array], bounds: Array, score: Callable[[Array], HeldOutScore]) -> Array:
    """Change the parameters of each direction as long as that gains, round by round, while a round gains much.

    Returns `theta` itself where the first round does not.
    """
    best, best_score, steps = theta, score(theta), 1
    start, start_score = best, best_score  # of the round
    while True:
        for places in directions:
            for sign in (1, -1):
                better = True
                while better and steps < _MOST_STEPS:
                    other = best.copy()
                    other[places] += sign * np.log(_FACTOR)
                    other = np.clip(other, *bounds.T)
                    other_score, steps = score(other), steps + 1
                    better = Gain.of(other_score, best_score).exceeds(DOUBLING_GAIN)
                    if better:
                        best, best_score = other, other_score
        if not _is_large(Gain.of(best_score, start_score)):
            return theta if start is theta else best
        if steps >= _MOST_STEPS:
            return best
        start, start_score = best, best_score


def _is_large(gain: Gain) -> bool:
    return gain.value > max(_LARGE_GAIN, _STANDARD_ERRORS * gain.error)

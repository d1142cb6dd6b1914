"""Scores of committees of experts on held-out rows, and the choice of sharing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.combine import CombinationRule
from gigagp.data.row_lists import RowLists
from gigagp.fit.held_out_scores import DOUBLING_GAIN, NEGLIGIBLE_GAIN, Gain, HeldOutScore, Scorer
from gigagp.model.calibration import LEAST_ROWS
from gigagp.model.committee import Committee
from gigagp.model.fit_report import Candidate
from gigagp.model.held_out import Rows, by_committee, by_own_expert
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbourhood import Neighbourhood

SHARING = (2.0, 4.0, 8.0)  # candidates: points of an expert per point of its cell
_COMMITTEE_WORK = 2e10  # multiplications that held-out rows of a committee may cost
_COMMITTEE_ROWS = 2048  # held-out rows of a committee, at a few places
_SCATTERED_ROWS = 8192  # held-out rows where these would need all experts anyway: coverage is then known to .6 points
_MOST_PLACES = 64  # at which these rows lie
_FEWEST_PLACES = 16
_FIRST_PLACES = 8  # at which a few rows show whether a committee is worth judging by more
_FIRST_ROWS_PER_PLACE = 16
_MOST_ROWS_PER_PLACE = 128
_FEWEST_ROWS_PER_PLACE = 32
_SHARING_CELLS = 4  # number of cells whose own experts show how much sharing gains
_ROWS_PER_CELL = 128
_ALL_WORK = 1e12  # multiplications of all experts of a committee, each factored once: about ten seconds


@dataclass(frozen=True, eq=False)
class CommitteeScorer:
    """Held-out predictions of a committee at a few places: rows that are near each other share the same few experts.

    committee_with : the committee of a given sharing: an expert has that many times the points of its cell
    """

    committee_with: Callable[[float], Committee]
    cells: RowLists
    scorer: Scorer
    order: Array  # all cells, shuffled
    seed: int

    @classmethod
    def drawn(
        cls, committee_with: Callable[[float], Committee], cells: RowLists, scorer: Scorer, rng: np.random.Generator
    ) -> CommitteeScorer:
        return cls(committee_with, cells, scorer, rng.permutation(len(cells)), int(rng.integers(2**32)))

    def rows(self, sharing: float) -> float:
        """Rows of an expert, on average."""
        return sharing * float(self.cells.sizes.mean())

    def score(self, sharing: float, rule: CombinationRule, k: int, rows: Array | None = None) -> HeldOutScore | None:
        """Held-out predictions of these rows, by default at random places; None where there are too few."""
        committee = self.committee_with(sharing)
        k = min(k, len(committee.experts))
        rows = self._rows(committee, k) if rows is None else rows
        if len(rows) < LEAST_ROWS:
            return None
        prediction = by_committee(committee, rows, rule, k, self.scorer.engine)
        return self.scorer.with_calibration(rows, committee.store.gather(rows)[1], prediction, committee)

    def may_gain(self, model: Neighbourhood, sharing: float, rule: CombinationRule, k: int) -> bool:
        """Whether a few rows do not rule out that the committee predicts better than these neighbours.

        Where cells are few, these rows would need most of the experts, and all rows are hardly more work.
        """
        if len(self.order) < k * _FIRST_PLACES * _FIRST_ROWS_PER_PLACE:
            return True
        committee = self.committee_with(sharing)
        places = self.order[:_FIRST_PLACES].tolist()
        rows = np.concatenate([self._rows_together(cell, committee, _FIRST_ROWS_PER_PLACE) for cell in places])
        score = self.score(sharing, rule, k, rows)
        return score is None or self.scorer.gain_over(score, model).may_exceed(NEGLIGIBLE_GAIN)

    def _rows(self, committee: Committee, k: int) -> Array:
        """Rows at as many places as the work allows; anywhere, if these places would need as many experts as there are.

        Rows that are near each other in the middle of a cell are predicted better than others: on kin40k (split 4, a
        trial, 50 cells) their errors were 15% smaller in predicted deviations than those of random rows and of queries.
        """
        points, experts = float(committee.experts.sizes.mean()), k + 2  # that the rows of a place need, about
        affordable = int(_COMMITTEE_WORK / (experts * (points**3 / 3 + points**2 * _MOST_ROWS_PER_PLACE)))
        places = min(len(self.order), max(_FEWEST_PLACES, min(_MOST_PLACES, affordable)))
        if places * experts >= len(self.order):
            total = len(committee.store.y)
            return np.random.default_rng(self.seed).permutation(total)[:_SCATTERED_ROWS]
        together = int(np.clip(_COMMITTEE_ROWS // places, _FEWEST_ROWS_PER_PLACE, _MOST_ROWS_PER_PLACE))
        rows = np.concatenate([self._rows_together(cell, committee, together) for cell in self.order[:places].tolist()])
        return np.random.default_rng(self.seed).permutation(rows)

    def at_more_sharing(
        self, cheap: HeldOutScore, first: float, chosen: float, rule: CombinationRule, k: int
    ) -> HeldOutScore:
        """Held-out predictions at more sharing, of fewer rows, with a calibration learnt from the cheap committee.

        The distribution of errors is learnt from the many rows of the cheap committee. More sharing changes their size
        by a common factor, which is learnt from rows that both committees have predicted.
        """
        after = self.score(chosen, rule, k)
        if after is None or len(after.y) >= len(cheap.y):
            return after or cheap
        before = self.score(first, rule, k, after.rows)
        assert before is not None
        calibration = cheap.calibration
        sizes = [
            np.abs(each.y - each.prediction.mean) / np.sqrt(calibration.variance(each.prediction))
            for each in (after, before)
        ]
        shift = 2 * np.log(sizes[0].mean() / sizes[1].mean())
        calibration = replace(calibration, coefficients=calibration.coefficients + np.array([shift, 0.0, 0.0]))
        score = float(calibration.losses(after.prediction, after.y).mean())
        return replace(after, calibration=replace(calibration, score=score))

    def by_own_experts(self, sharing: float) -> HeldOutScore:
        """Rows of a few cells, predicted by the experts of these cells alone."""
        committee = self.committee_with(sharing)
        tasks = [Rows(cell, self._rows_of(cell)) for cell in self.order[:_SHARING_CELLS].tolist()]
        prediction = LatentPrediction.joined(by_own_expert(committee, tasks, self.scorer.engine))
        rows = np.concatenate([task.rows for task in tasks])
        return self.scorer.with_calibration(rows, committee.store.gather(rows)[1], prediction, committee)

    def _rows_of(self, cell: int) -> Array:
        """A random sample of the rows of a cell."""
        rows = self.cells[cell]
        rng = np.random.default_rng([self.seed, cell])
        return np.sort(rng.choice(rows, min(_ROWS_PER_CELL, len(rows)), replace=False))

    def _rows_together(self, cell: int, committee: Committee, count: int) -> Array:
        """The rows of a cell that are nearest to a random one of them."""
        rows = self.cells[cell]
        points = committee.store.gather(rows)[0] * committee.router.metric
        middle = points[np.random.default_rng([self.seed, cell]).integers(len(rows))]
        nearest = np.argsort(((points - middle) ** 2).sum(axis=1), kind="stable")[:count]
        return np.sort(rows[nearest])


def choose_sharing(scorer: CommitteeScorer) -> tuple[float, list[Candidate]]:
    """Double sharing as long as held-out predictions gain and the work of all experts together stays bounded."""
    work = float((scorer.cells.sizes.astype(float) ** 3).sum()) / 3
    steps = tuple(s for s in SHARING if work * s**3 <= _ALL_WORK) or (1.0,)
    trials: list[HeldOutScore] = []
    for sharing in steps:
        trials.append(scorer.by_own_experts(sharing))
        if len(trials) > 1 and not Gain.of(trials[-1], trials[-2]).exceeds(DOUBLING_GAIN):
            trials.pop()
            break
    best = len(trials) - 1
    return steps[best], [
        Candidate("sharing", f"{s:g}", trial.score, i == best)
        for i, (s, trial) in enumerate(zip(steps, trials, strict=False))
    ]

"""What the user leaves open is chosen by held-out predictions: kernel, number of neighbours, the way to answer.

A training row predicted from its neighbours without itself is what a query would get, so every candidate is judged by
one score: the mean CRPS of held-out rows under its own calibrated distribution. (The log density would reward models
that know repeated targets to many digits, whatever their other errors.) All candidates see the same rows. The
calibration of the one that is chosen becomes the model's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gigagp.arrays import Array
from gigagp.combine import RULES, CombinationRule
from gigagp.data.row_lists import RowLists
from gigagp.engines import Engine
from gigagp.model import neighbourhood
from gigagp.model.calibration import LEAST_ROWS, Calibration, Setting
from gigagp.model.committee import Committee
from gigagp.model.fit_report import Candidate
from gigagp.model.held_out import Rows, by_committee, by_own_expert
from gigagp.model.latent import LatentPrediction
from gigagp.model.neighbourhood import Neighbourhood

AUTO_RULE = "healed_blend"
AUTO_NEAREST = 4  # experts that answer a query of a local committee
DEFAULT_NEIGHBOURS = 64
NEIGHBOURS = (32, 64, 128, 256)
SHARING = (2.0, 4.0, 8.0)
_MOST_ROWS = 8192  # held-out rows that the model is calibrated by
_LEAST_CALIBRATION_ROWS = 2048  # however costly: 50% intervals are then known to within about one point
_TRIAL_ROWS = 2048  # held-out rows of one candidate
_FEWEST_ROWS = 512  # held-out rows that candidates are first compared by
_WORK = 1.2e10  # multiplications that held-out rows may cost, of one candidate or for calibration
_NEGLIGIBLE = 0.003  # relative gain below which the neighbours answer
_STANDARD_ERRORS = 1.0  # by which a gain must exceed zero
_CLEAR_ERRORS = 2.0  # standard errors from a threshold at which more rows would not change the decision
_DOUBLING_GAIN = 0.005  # relative gain for which neighbours, or sharing, are doubled
_FEWEST_OUTER = 128  # neighbours, at least, together with which the nearest of them are tried on their own
_INNER_SHARE = 8  # as one over a share of the neighbours: those that also answer on their own
_LARGE_GAIN = 0.02  # relative gain: where the last doubling gained so much, still more rows would help
_COMMITTEE_WORK = 2e10  # multiplications that held-out rows of a committee may cost
_COMMITTEE_ROWS = 2048  # held-out rows of a committee
_MOST_PLACES = 64  # at which these rows lie
_FEWEST_PLACES = 16
_FIRST_PLACES = 8  # at which a few rows show whether a committee is worth judging by more
_FIRST_ROWS_PER_PLACE = 16
_MOST_ROWS_PER_PLACE = 128
_FEWEST_ROWS_PER_PLACE = 32
_SHARING_CELLS = 4  # whose own experts tell how much sharing pays
_ROWS_PER_CELL = 128
_ALL_WORK = 1e12  # multiplications of all experts of a committee, each factored once: about ten seconds


@dataclass(frozen=True, eq=False)
class Scored:
    """Held-out predictions of some rows and the calibration learnt from them."""

    rows: Array
    y: Array
    prediction: LatentPrediction
    calibration: Calibration

    @cached_property
    def losses(self) -> Array:
        """The CRPS of each row."""
        return self.calibration.crps(self.prediction, self.y)

    @property
    def score(self) -> float:
        """The mean CRPS; infinite where there were too few rows, or no errors, to learn from."""
        return float(self.losses.mean()) if self.calibration.rows else np.inf


@dataclass(frozen=True)
class Gain:
    """By how much, relatively, one candidate predicts the same rows better than another, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, better: Scored, usual: Scored) -> Gain:
        if not (better.calibration.rows and usual.calibration.rows):
            return cls(0.0, np.inf)
        count = min(len(better.y), len(usual.y))
        losses, usual_losses = better.losses[:count], usual.losses[:count]
        mean = max(float(usual_losses.mean()), float(np.finfo(float).tiny))
        difference = (usual_losses - losses) / mean
        return cls(float(difference.mean()), float(difference.std() / np.sqrt(count)))

    def exceeds(self, least: float) -> bool:
        """Whether the gain is worth while and not likely to be chance."""
        return self.value > max(least, _STANDARD_ERRORS * self.error)

    def may_exceed(self, least: float) -> bool:
        """Whether the gain may be worth while, for all that these rows tell."""
        return self.value + _STANDARD_ERRORS * self.error > least

    def is_clear(self, threshold: float) -> bool:
        """Whether more rows would hardly move the gain to the other side of a threshold."""
        return abs(self.value - threshold) > _CLEAR_ERRORS * self.error


@dataclass(frozen=True, eq=False)
class Scorer:
    """Rows drawn at random from the store, in a fixed order: cheap candidates predict more of them than costly ones."""

    order: Array
    engine: Engine
    target: float  # variance of the target, in the model's units

    @classmethod
    def drawn(cls, rows: int, target: float, engine: Engine, rng: np.random.Generator) -> Scorer:
        few = min(rows, _MOST_ROWS)
        order = rng.permutation(rows) if rows <= 4 * few else np.unique(rng.integers(rows, size=2 * few))
        return cls(rng.permutation(order)[:few], engine, target)

    def calibrate(self, model: Neighbourhood, known: Scored | None = None) -> Scored:
        """Held-out predictions of many rows, for the model that was chosen; the known ones are not made again."""
        count = int(max(_LEAST_CALIBRATION_ROWS, min(_WORK / model.work, _MOST_ROWS)))
        return self.scored_by(model, self.order[:count]) if known is None else self.extended(model, known, count)

    def score(self, model: Neighbourhood, rows: int = _TRIAL_ROWS) -> Scored:
        """Held-out predictions of so many rows, or of as many as can be afforded."""
        return self.scored_by(model, self.order[: min(rows, self._affordable(model))])

    def _affordable(self, model: Neighbourhood) -> int:
        return int(max(_FEWEST_ROWS, min(_WORK / model.work, _TRIAL_ROWS)))

    def extended(self, model: Neighbourhood, known: Scored, count: int) -> Scored:
        """Held-out predictions of the first `count` rows, of which some are known already."""
        rows = self.order[len(known.rows) : count]
        if len(rows) == 0:
            return known
        X, y = model.store.gather(rows)
        prediction = neighbourhood.predict(model, np.ascontiguousarray(X), self.engine, held_out=rows)
        joined = LatentPrediction.joined([known.prediction, prediction])
        return self.calibrated(np.append(known.rows, rows), np.append(known.y, y), joined, model)

    def compared(self, model: Neighbourhood, usual: Neighbourhood, known: Scored) -> tuple[Scored, Scored]:
        """Held-out predictions of two models, of as many rows as it takes to tell whether the first gains.

        known : predictions of the usual model
        """
        count, most = min(_FEWEST_ROWS, len(self.order)), min(self._affordable(model), len(self.order))
        scored = self.score(model, count)
        while True:
            known = self.extended(usual, known, count)
            if count >= most or Gain.of(scored, known).is_clear(_DOUBLING_GAIN):
                return scored, known
            count = min(2 * count, most)
            scored = self.extended(model, scored, count)

    def scored_by(self, model: Neighbourhood, rows: Array) -> Scored:
        """Held-out predictions of these rows from their neighbours."""
        X, y = model.store.gather(rows)
        prediction = neighbourhood.predict(model, np.ascontiguousarray(X), self.engine, held_out=rows)
        return self.calibrated(rows, y, prediction, model)

    def gain_over(self, committee: Scored, model: Neighbourhood) -> Gain:
        """By how much a committee predicts its held-out rows better than their neighbours do."""
        return Gain.of(committee, self.scored_by(model, committee.rows[: self._affordable(model)]))

    def calibrated(
        self, rows: Array, y: Array, prediction: LatentPrediction, model: Neighbourhood | Committee
    ) -> Scored:
        """With the calibration that these held-out predictions give."""
        y = y.astype(float)
        return Scored(rows, y, prediction, Calibration.learnt(prediction, y, setting(model, self.target)))


def setting(model: Neighbourhood | Committee, target: float) -> Setting:
    """Variances of noise, prior and target; a kernel that is not stationary has no one prior variance."""
    theta = model.theta[:-1]
    stationary = model.kernel.metric(theta) is not None
    prior = float(model.kernel.diagonal(theta, model.store.X[:1])[0]) if stationary else None
    return Setting(model.noise, prior, target)


def choose_neighbours(scorer: Scorer, model: Neighbourhood) -> tuple[Neighbourhood, Scored, list[Candidate], bool]:
    """Neighbours are doubled as long as that gains; says also whether the last doubling still gained much."""
    tried: list[tuple[Neighbourhood, Scored]] = []
    much = False
    for count in NEIGHBOURS:
        if tried and count >= 2 * len(model.store.y):
            break
        candidate = replace(model, neighbours=count)
        if not tried:
            tried.append((candidate, scorer.score(candidate, _FEWEST_ROWS)))
        else:
            usual, known = tried[-1]
            scored, known = scorer.compared(candidate, usual, known)
            tried[-1:] = [(usual, known), (candidate, scored)]
            gain = Gain.of(scored, known)
            much = gain.exceeds(_LARGE_GAIN)
            if not gain.exceeds(_DOUBLING_GAIN):
                break
    best = len(tried) - 1
    if len(tried) > 1 and not Gain.of(tried[-1][1], tried[-2][1]).exceeds(_DOUBLING_GAIN):
        best -= 1
    candidates, score = [], tried[0][1].score
    for i, (each, scored) in enumerate(tried):
        if i > 0:  # costly candidates predict fewer rows: what they gain on these is told from the first one's score
            score *= 1 - Gain.of(scored, tried[i - 1][1]).value
        candidates.append(Candidate("neighbours", str(each.neighbours), score, i == best))
    return *tried[best], candidates, much


def choose_inner(
    scorer: Scorer, model: Neighbourhood, near: Scored, candidates: list[Candidate]
) -> tuple[Neighbourhood, Scored, list[Candidate]]:
    """Whether neighbours predict better together with the few nearest of them, which also answer on their own.

    Few neighbours are best where targets repeat, or vary abruptly; the same data may want many elsewhere.
    `linalg.neighbourhood.joined` weights both for each query.
    """
    outer = max(model.neighbours, _FEWEST_OUTER)
    both = replace(model, neighbours=outer, inner=outer // _INNER_SHARE)
    if outer > len(model.store.y):
        return model, near, candidates
    scored, near = scorer.compared(both, model, near)
    gain = Gain.of(scored, near)
    better = gain.exceeds(_DOUBLING_GAIN)
    score = next(each.score for each in candidates if each.chosen) * (1 - gain.value)
    candidate = Candidate("neighbours", f"{both.inner} and {both.neighbours}", score, better)
    if not better:
        return model, near, [*candidates, candidate]
    return both, scored, [*(replace(each, chosen=False) for each in candidates), candidate]


@dataclass(frozen=True, eq=False)
class CommitteeScorer:
    """Held-out predictions of a committee at a few places, where rows that lie together ask the same few experts.

    shared : the committee in which experts have so many times the points of their cells
    """

    shared: Callable[[float], Committee]
    cells: RowLists
    scorer: Scorer
    order: Array  # all cells, shuffled
    seed: int

    @classmethod
    def drawn(
        cls, shared: Callable[[float], Committee], cells: RowLists, scorer: Scorer, rng: np.random.Generator
    ) -> CommitteeScorer:
        return cls(shared, cells, scorer, rng.permutation(len(cells)), int(rng.integers(2**32)))

    def score(self, sharing: float, rule: CombinationRule, k: int, rows: Array | None = None) -> Scored | None:
        """Held-out predictions of these rows, by default at random places; None where there are too few."""
        committee = self.shared(sharing)
        k = min(k, len(committee.experts))
        rows = self._rows(committee, k) if rows is None else rows
        if len(rows) < LEAST_ROWS:
            return None
        prediction = by_committee(committee, rows, rule, k, self.scorer.engine)
        return self.scorer.calibrated(rows, committee.store.gather(rows)[1], prediction, committee)

    def may_gain(self, model: Neighbourhood, sharing: float, rule: CombinationRule, k: int) -> bool:
        """Whether a few rows leave it open that the committee predicts better than these neighbours.

        Where cells are few, these rows would ask most of the experts, and all rows are hardly more work.
        """
        if len(self.order) < k * _FIRST_PLACES * _FIRST_ROWS_PER_PLACE:
            return True
        committee = self.shared(sharing)
        places = self.order[:_FIRST_PLACES].tolist()
        rows = np.concatenate([self._near_one(cell, committee, _FIRST_ROWS_PER_PLACE) for cell in places])
        scored = self.score(sharing, rule, k, rows)
        return scored is None or self.scorer.gain_over(scored, model).may_exceed(_NEGLIGIBLE)

    def _rows(self, committee: Committee, k: int) -> Array:
        """Rows at as many places as can be afforded."""
        points = float(committee.experts.sizes.mean())
        affordable = int(_COMMITTEE_WORK / ((k + 2) * (points**3 / 3 + points**2 * _MOST_ROWS_PER_PLACE)))
        places = min(len(self.order), max(_FEWEST_PLACES, min(_MOST_PLACES, affordable)))
        together = int(np.clip(_COMMITTEE_ROWS // places, _FEWEST_ROWS_PER_PLACE, _MOST_ROWS_PER_PLACE))
        rows = np.concatenate([self._near_one(cell, committee, together) for cell in self.order[:places].tolist()])
        return np.random.default_rng(self.seed).permutation(rows)

    def at_more_sharing(self, cheap: Scored, first: float, chosen: float, rule: CombinationRule, k: int) -> Scored:
        """Held-out predictions at more sharing, of as few rows as it allows.

        How errors are distributed is learnt from the many rows of the cheap committee; what more sharing does to them
        is a common factor, read from rows that both have predicted.
        """
        after = self.score(chosen, rule, k)
        if after is None or len(after.y) >= len(cheap.y):
            return after or cheap
        before = self.score(first, rule, k, after.rows)
        assert before is not None
        known = cheap.calibration
        sizes = [
            np.abs(each.y - each.prediction.mean) / np.sqrt(known.variance(each.prediction)) for each in (after, before)
        ]
        shift = 2 * np.log(sizes[0].mean() / sizes[1].mean())
        known = replace(known, coefficients=known.coefficients + np.array([shift, 0.0, 0.0]))
        known = replace(known, score=float(known.losses(after.prediction, after.y).mean()))
        return replace(after, calibration=known)

    def by_own_experts(self, sharing: float) -> Scored:
        """Rows of a few cells, predicted by the experts of these cells alone."""
        committee = self.shared(sharing)
        tasks = [Rows(cell, self._some(cell)) for cell in self.order[:_SHARING_CELLS].tolist()]
        prediction = LatentPrediction.joined(by_own_expert(committee, tasks, self.scorer.engine))
        rows = np.concatenate([task.rows for task in tasks])
        return self.scorer.calibrated(rows, committee.store.gather(rows)[1], prediction, committee)

    def _some(self, cell: int) -> Array:
        rows = self.cells[cell]
        rng = np.random.default_rng([self.seed, cell])
        return np.sort(rng.choice(rows, min(_ROWS_PER_CELL, len(rows)), replace=False))

    def _near_one(self, cell: int, committee: Committee, count: int) -> Array:
        """Rows of a cell around one of them."""
        rows = self.cells[cell]
        points = committee.store.gather(rows)[0] * committee.router.metric
        middle = points[np.random.default_rng([self.seed, cell]).integers(len(rows))]
        nearest = np.argsort(((points - middle) ** 2).sum(axis=1), kind="stable")[:count]
        return np.sort(rows[nearest])


def choose_sharing(scorer: CommitteeScorer) -> tuple[float, list[Candidate]]:
    """Sharing is doubled as long as that pays, and all experts together do not become too much work."""
    work = float((scorer.cells.sizes.astype(float) ** 3).sum()) / 3
    steps = tuple(s for s in SHARING if work * s**3 <= _ALL_WORK) or (1.0,)
    tried: list[Scored] = []
    for sharing in steps:
        tried.append(scorer.by_own_experts(sharing))
        if len(tried) > 1 and not Gain.of(tried[-1], tried[-2]).exceeds(_DOUBLING_GAIN):
            tried.pop()
            break
    best = len(tried) - 1
    return steps[best], [
        Candidate("sharing", f"{s:g}", each.score, i == best)
        for i, (s, each) in enumerate(zip(steps, tried, strict=False))
    ]


@dataclass(frozen=True, eq=False)
class Choice:
    """How queries are answered: from neighbours or by a committee of a certain sharing."""

    neighbourhood: Neighbourhood | None
    sharing: float
    calibration: Calibration
    candidates: tuple[Candidate, ...] = ()


def can_be_held_out(rule: CombinationRule | None) -> bool:
    """Whether rows can be held out of a committee under this rule in closed form."""
    return rule is None or rule.closed_form_held_out


def choose_answer(
    scorer: Scorer, model: Neighbourhood | None, committees: CommitteeScorer, sharing: float | None,
    rule: CombinationRule | None, k: int | None, neighbours: int | None, committee_allowed: bool,
) -> Choice:  # fmt: skip
    """Neighbourhood or committee, whichever predicts held-out rows better.

    model : None where the committee must answer
    sharing, rule, k, neighbours : what the user has fixed; None where it is open
    """
    candidates: list[Candidate] = []
    near: Scored | None = None
    # A committee is asked only where still more neighbours would help: its experts see more rows than these.
    unfinished = True
    if model is not None:
        if neighbours is None:
            model, near, tried, unfinished = choose_neighbours(scorer, model)
            if not unfinished:
                model, near, tried = choose_inner(scorer, model, near, tried)
            candidates += tried
        else:
            near = scorer.calibrate(model)
        if not (committee_allowed and unfinished):
            return _by_neighbours(scorer, model, near, sharing or 1.0, candidates)
    rule, k = rule or RULES[AUTO_RULE](), k or AUTO_NEAREST
    first = min(sharing or SHARING[0], SHARING[0])
    chosen, tried = choose_sharing(committees) if sharing is None else (sharing, [])
    candidates += tried
    if model is not None and near is not None and not committees.may_gain(model, chosen, rule, k):
        return _by_neighbours(scorer, model, near, chosen, candidates)
    committee = committees.score(first, rule, k)
    if committee is None:
        known = Calibration.none() if model is None else scorer.calibrate(model, near).calibration
        return Choice(model, sharing or SHARING[1], known, tuple(candidates))
    if chosen > 2 * first:
        first *= 2
        committee = committees.score(first, rule, k) or committee
    if chosen > first:
        committee = committees.at_more_sharing(committee, first, chosen, rule, k)
    if model is not None and near is not None:
        better = scorer.gain_over(committee, model).exceeds(_NEGLIGIBLE)
        candidates += [
            Candidate("prediction", model.description, near.score, not better),
            Candidate("prediction", "committee", committee.score, better),
        ]
        if not better:
            return Choice(model, chosen, scorer.calibrate(model, near).calibration, tuple(candidates))
    return Choice(None, chosen, committee.calibration, tuple(candidates))


def _by_neighbours(
    scorer: Scorer, model: Neighbourhood, near: Scored, sharing: float, candidates: list[Candidate]
) -> Choice:
    """Neighbours answer, and no committee is judged."""
    near = scorer.calibrate(model, near)
    answer = Candidate("prediction", model.description, near.score, True)
    return Choice(model, sharing, near.calibration, (*candidates, answer))

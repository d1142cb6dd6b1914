"""Scores of candidate models on held-out rows.

A training row predicted from its neighbours without itself is what a query would get, so every candidate is judged by
one score: the mean CRPS of held-out rows under its own calibrated distribution. (The log density would reward models
that know repeated targets to many digits, whatever their other errors.) All candidates predict the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.model import neighbourhood
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.committee import Committee
from gigagp.model.held_out import with_row_noise
from gigagp.model.latent import LatentPrediction
from gigagp.model.mixture import Mixture
from gigagp.model.neighbourhood import Neighbourhood

NEGLIGIBLE_GAIN = 0.003  # relative gain of a committee below which neighbourhoods predict
DOUBLING_GAIN = 0.005  # relative gain for which the number of neighbours, or sharing, is doubled
CALIBRATION_ROWS = 8192  # held-out rows, at most, that calibrate a model
# The same, of targets that are numbers: the share of rows inside an interval is then known to within .4 points.
_NUMBER_CALIBRATION_ROWS = 16384
_LEAST_CALIBRATION_ROWS = 1024  # held-out rows, whatever they cost: deviations are then known to some 3%
_TRIAL_ROWS = 2048  # held-out rows of one candidate
_FEWEST_ROWS = 512  # held-out rows that candidates are first compared by
_WORK = 1.2e10  # multiplications that held-out rows of one candidate may cost
# Multiplications that held-out rows of the calibration may cost, some seconds on two cores: 4,000 rows with 256
# neighbours. The share of rows inside an interval is then known to within .8 points; with 1,024 rows it was 1.6 points.
_CALIBRATION_WORK = 6e10
_QUERIES = 0.1  # of the number of rows: queries that a table may have
_MOST_QUERIES = 1_000_000  # that a table may have, however large it is
_PREDICTION_WORK = 3e11  # multiplications that these may take: some 15 seconds on two cores
_STANDARD_ERRORS = 1.0  # number of standard errors by which a gain must exceed zero
_CLEAR_ERRORS = 2.0  # number of standard errors from a threshold at which more rows would not change the decision


@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """Held-out predictions of some rows, the calibration learnt from them, and the loss of each row."""

    rows: Array
    y: Array
    prediction: Any
    calibration: Any
    losses: Array
    unit: float | None = None  # what gains are relative to; None for the mean loss, which must then be positive

    @property
    def score(self) -> float:
        """The mean loss; infinite where there were too few rows, or no errors, to learn from."""
        return float(self.losses.mean()) if self.calibration.rows else np.inf


class Scoring(Protocol):
    """How a neighbourhood predicts held-out rows, and what these predictions are worth."""

    @property
    def doubling_gain(self) -> float:
        """Relative gain for which the number of neighbours is doubled."""

    @property
    def regular_gains(self) -> bool:
        """Whether the gain of one doubling predicts the gain of the next."""

    @property
    def effort(self) -> float:
        """How many times as many rows as for numbers compare numbers of neighbours."""

    @property
    def calibration_rows(self) -> int:
        """Held-out rows, at most, that calibrate the chosen model."""

    def work(self, model: Neighbourhood) -> float:
        """About how many multiplications one prediction takes."""

    def is_affordable(self, model: Neighbourhood) -> bool:
        """Whether as many queries as such a table may have take a reasonable time."""

    def predict(self, model: Neighbourhood, X: Array, engine: Engine, rows: Array) -> Any:
        """Predictions of rows of the store, each without itself."""

    def joined(self, first: Any, second: Any) -> Any:
        """The predictions of two sets of rows as one."""

    def score(self, rows: Array, y: Array, prediction: Any, model: Any) -> HeldOutScore:
        """The predictions with the calibration that is learnt from them, and their losses."""


def expected_queries(rows: int) -> float:
    """How many queries a table of so many rows may have."""
    return min(_QUERIES * rows, _MOST_QUERIES)


def rows_predicted_quickly(members: int) -> float:
    """Rows up to which exact GPs on all of them answer the expected queries in some seconds: one query of one model
    takes as many multiplications as there are pairs of rows."""
    return float((_PREDICTION_WORK / (_QUERIES * members)) ** (1 / 3))


def is_quick(model: Neighbourhood, members: int = 1) -> bool:
    """Whether the expected queries take some seconds; `members` models that cost as much are averaged."""
    return expected_queries(len(model.store.y)) * members * model.work <= _PREDICTION_WORK


@dataclass(frozen=True)
class NumberScoring:
    """Targets that are numbers: the loss is the CRPS."""

    target: float  # variance of the target, in the model's units
    doubling_gain: float = DOUBLING_GAIN
    regular_gains: bool = False
    effort: float = 1.0
    gaussian: bool = False  # whether errors must be Gaussian

    @property
    def calibration_rows(self) -> int:
        return _NUMBER_CALIBRATION_ROWS

    def work(self, model: Neighbourhood) -> float:
        return model.work

    def is_affordable(self, model: Neighbourhood) -> bool:
        return True

    def predict(self, model: Neighbourhood, X: Array, engine: Engine, rows: Array) -> LatentPrediction:
        return neighbourhood.predict(model, X, engine, held_out=rows)

    def joined(self, first: LatentPrediction, second: LatentPrediction) -> LatentPrediction:
        return LatentPrediction.joined([replace(first, noise=None), second])

    def score(
        self, rows: Array, y: Array, prediction: LatentPrediction, model: Neighbourhood | Committee
    ) -> HeldOutScore:
        return self.score_with_noise(rows, y, with_row_noise(prediction, model.noise, model.store, rows), model)

    def score_with_noise(
        self, rows: Array, y: Array, prediction: LatentPrediction, model: Neighbourhood | Committee | Mixture
    ) -> HeldOutScore:
        """The score of predictions that have the noise of their rows, where rows differ in it."""
        y = y.astype(float)
        variances = setting(model, self.target).at_rows(prediction.noise)
        calibration = Calibration.learnt(prediction, y, variances, self.gaussian)
        return HeldOutScore(rows, y, prediction, calibration, crps_losses(calibration, prediction, y))


def crps_losses(calibration: Calibration, prediction: LatentPrediction, y: Array) -> Array:
    """The CRPS of each row; a row of much noise, whose CRPS says little about the model, counts less."""
    if calibration.setting is None:
        return np.full(len(y), np.nan)
    losses, reliability = calibration.crps(prediction, y), prediction.reliability(calibration.setting.typical)
    return losses if reliability is None else losses * reliability


@dataclass(frozen=True)
class Gain:
    """The reduction of the score from one model to another on the same rows, in units of the score, and its error."""

    value: float
    error: float

    @classmethod
    def of(cls, candidate: HeldOutScore, reference: HeldOutScore) -> Gain:
        """The gain of a candidate over a reference, from the rows that both have predicted."""
        if not (candidate.calibration.rows and reference.calibration.rows):
            return cls(0.0, np.inf)
        count = min(len(candidate.y), len(reference.y))
        return cls.of_losses(candidate.losses[:count], reference.losses[:count], reference.unit)

    @classmethod
    def of_losses(cls, losses: Array, reference: Array, unit: float | None = None) -> Gain:
        """The gain from losses of the same rows; in units of the mean loss of the reference where none are given."""
        unit = unit or max(float(reference.mean()), float(np.finfo(float).tiny))
        difference = (reference - losses) / unit
        return cls(float(difference.mean()), float(difference.std() / np.sqrt(len(losses))))

    def combined(self, expected: Gain) -> Gain:
        """This gain and an independent estimate of it, weighted by their precisions."""
        own, other = (max(each.error, float(np.finfo(float).tiny)) ** -2 for each in (self, expected))
        value = (own * self.value + other * expected.value) / (own + other)
        return Gain(value, (own + other) ** -0.5)

    @property
    def of_next_doubling(self) -> Gain:
        """What the next doubling of the number of neighbours may gain: half as much, to within as much again."""
        return Gain(self.value / 2, float(np.hypot(self.error, self.value) / 2))

    def exceeds(self, least: float) -> bool:
        """Whether the gain is large enough and significant."""
        return self.value > max(least, _STANDARD_ERRORS * self.error)

    def may_exceed(self, least: float) -> bool:
        """Whether these rows do not rule out that the gain is large enough."""
        return self.value + _STANDARD_ERRORS * self.error > least

    def is_clear(self, threshold: float) -> bool:
        """Whether the gain is so far from a threshold that more rows would hardly change the side."""
        return abs(self.value - threshold) > _CLEAR_ERRORS * self.error


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores neighbourhoods on random rows in a fixed order; cheap models predict more of them than costly ones."""

    order: Array
    engine: Engine
    scoring: Scoring

    @classmethod
    def drawn(cls, rows: int, scoring: Scoring, engine: Engine, rng: np.random.Generator) -> Scorer:
        """With a random order of the rows, or of some of them where they are many."""
        few = min(rows, scoring.calibration_rows)
        order = rng.permutation(rows) if rows <= 4 * few else np.unique(rng.integers(rows, size=2 * few))
        return cls(rng.permutation(order)[:few], engine, scoring)

    def calibrate(self, model: Neighbourhood, previous: HeldOutScore | None = None) -> HeldOutScore:
        """Held-out predictions of many rows, for the chosen model; previous predictions are not repeated."""
        rows = self.for_calibration(model)
        if previous is not None:
            return self.extend(model, previous, len(rows))
        return self.score_rows(model, rows)

    def for_calibration(self, model: Neighbourhood) -> Array:
        """The rows whose held-out predictions calibrate a model."""
        most = min(_CALIBRATION_WORK / self.scoring.work(model), self.scoring.calibration_rows)
        count = int(max(_LEAST_CALIBRATION_ROWS, most))
        return self.order[:count]

    def score(self, model: Neighbourhood, rows: int = _TRIAL_ROWS) -> HeldOutScore:
        """Held-out predictions of this number of rows, or of as many as the work allows."""
        return self.score_rows(model, self.order[: min(rows, self._affordable(model))])

    def score_few(self, model: Neighbourhood) -> HeldOutScore:
        """Held-out predictions of the rows that candidates are first compared by."""
        return self.score_rows(model, self.order[: self._fewest])

    @property
    def _fewest(self) -> int:
        return int(self.scoring.effort * _FEWEST_ROWS)

    def _affordable(self, model: Neighbourhood) -> int:
        return int(max(_FEWEST_ROWS, min(_WORK / self.scoring.work(model), _TRIAL_ROWS)))

    def extend(self, model: Neighbourhood, previous: HeldOutScore, count: int) -> HeldOutScore:
        """Held-out predictions of the first `count` rows, of which some have been predicted before."""
        rows = self.order[len(previous.rows) : count]
        if len(rows) == 0:
            return previous
        X, y = model.store.gather(rows)
        prediction = self.scoring.predict(model, np.ascontiguousarray(X), self.engine, rows)
        joined = self.scoring.joined(previous.prediction, prediction)
        return self.with_calibration(np.append(previous.rows, rows), np.append(previous.y, y), joined, model)

    def compare(
        self, model: Neighbourhood, reference: Neighbourhood, previous: HeldOutScore
    ) -> tuple[HeldOutScore, HeldOutScore]:
        """Held-out predictions of two models, of as many rows as are needed to decide whether the first is better.

        previous : predictions of the reference
        """
        most = min(int(self.scoring.effort * self._affordable(model)), len(self.order))
        count = min(self._fewest, most)
        score = self.score_rows(model, self.order[:count])
        while True:
            previous = self.extend(reference, previous, count)
            if count >= most or Gain.of(score, previous).is_clear(self.scoring.doubling_gain):
                return score, previous
            count = min(2 * count, most)
            score = self.extend(model, score, count)

    def score_rows(self, model: Neighbourhood, rows: Array) -> HeldOutScore:
        """Held-out predictions of these rows from their neighbours."""
        X, y = model.store.gather(rows)
        prediction = self.scoring.predict(model, np.ascontiguousarray(X), self.engine, rows)
        return self.with_calibration(rows, y, prediction, model)

    def gain_over(self, committee: HeldOutScore, model: Neighbourhood) -> Gain:
        """By how much a committee predicts its held-out rows better than their neighbours do."""
        return Gain.of(committee, self.score_rows(model, committee.rows[: self._affordable(model)]))

    def with_calibration(
        self, rows: Array, y: Array, prediction: Any, model: Neighbourhood | Committee
    ) -> HeldOutScore:
        """Held-out predictions with the calibration that is learnt from them."""
        return self.scoring.score(rows, y, prediction, model)


def setting(model: Neighbourhood | Committee | Mixture, target: float) -> Setting:
    """Variances of noise, prior and target; a kernel that is not stationary has no one prior variance."""
    return Setting(model.noise, model.prior, target)

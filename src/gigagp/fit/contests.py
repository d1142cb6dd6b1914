"""Whether a model that was trained again predicts the rows that arrived last better than the model as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.linalg.row_noise import variances
from gigagp.model import recent_rows
from gigagp.model.calibration import LEAST_ROWS, Calibration
from gigagp.model.latent import LatentPrediction
from gigagp.model.model import Model
from gigagp.model.online import all_rows, online, without
from gigagp.model.predictor import Predictor
from gigagp.model.recent_rows import ARRIVAL
from gigagp.model.row_segments import ArrivingRows, is_among

_COMPARED_ROWS = 1024  # rows that arrived last, at most
_MOST_WITHHELD = 0.5  # share of all rows that the models may be without when they are compared
_PARTS = 4  # of these rows, each predicted from the rows that arrived before it


@dataclass(frozen=True, eq=False)
class Contest:
    """Losses of the same rows under both models, and the candidate's predictions of them (`model.recent_rows`)."""

    present: float  # NLPD in the user's units
    candidate: float
    recent: Array

    @property
    def better(self) -> bool:
        return self.candidate < self.present


def compare(
    present: Model, candidate: Model, predictor_of: Callable[[Model], Predictor], engine: Engine, gaussian: bool
) -> Contest | None:
    """Compare two models of the same rows; None where too few rows have been scored.

    Both predict the rows that arrived last in a few parts, each from all rows that arrived before its first row, under
    the calibration that these predictions teach.
    """
    rows = _last_rows(present)
    if len(rows) < 2 * LEAST_ROWS:
        return None
    X = present.inputs.restore(np.asarray(rows.X, float))
    y = present.target.restore(np.asarray(rows.y, float)[:, None])[:, 0]
    y = y if present.trend is None else y + present.trend.values(X)
    factors = None if rows.row_noise is None else np.asarray(rows.row_noise, float)
    scales = [float(each.target.scale[0]) for each in (present, candidate)]
    noises = [None if factors is None else factors * [1.0, (scales[0] / scale) ** 2] for scale in scales]
    losses = []
    for model, noise, scale in zip((present, candidate), noises, scales, strict=True):
        prediction, targets = _predicted(model, rows.arrivals, X, y, noise, predictor_of, engine)
        setting = model.report.calibration.setting
        if setting is None:
            return None
        calibration = Calibration.learnt(prediction, targets, setting, gaussian)
        losses.append(calibration.score + np.log(scale) if calibration.rows else np.inf)
    return Contest(losses[0], losses[1], recent_rows.scored(rows.arrivals, targets, prediction))


def _last_rows(model: Model) -> ArrivingRows:
    """The rows that arrived last and were scored, in the order of arrival."""
    rows, numbers = all_rows(model), np.sort(online(model).numbers)
    recent = model.recent
    known = np.empty(0, np.int64) if recent is None else np.unique(recent[-_COMPARED_ROWS:, ARRIVAL].astype(np.int64))
    oldest = numbers[int((1 - _MOST_WITHHELD) * (len(numbers) - 1))]
    known = known[known > oldest]
    here = np.flatnonzero(is_among(rows.arrivals, known))
    return rows.at(here[np.argsort(rows.arrivals[here])])


def _predicted(
    model: Model, arrivals: Array, X: Array, y: Array, row_noise: Array | None,
    predictor_of: Callable[[Model], Predictor], engine: Engine,
) -> tuple[LatentPrediction, Array]:  # fmt: skip
    """Predictions of rows by a model that does not know later ones, and their targets, in the model's units."""
    numbers, parts = np.sort(online(model).numbers), []
    borders = np.linspace(0, len(arrivals), _PARTS + 1).astype(int)
    for here in map(slice, borders[:-1], borders[1:]):
        predictor = predictor_of(without(model, numbers[numbers >= arrivals[here][0]], engine))
        part = predictor.latent_prediction(predictor.scaled(X[here]), engine)
        if row_noise is not None and model.input_noise is None:
            part = replace(part, noise=variances(predictor.noise, row_noise[here]))
        parts.append(part)
    rest = y if model.trend is None else y - model.trend.values(X)
    return LatentPrediction.joined(parts), model.target.apply(rest[:, None], np.dtype(float))[:, 0]

"""Fits a model again to the rows that it has now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources import Rows
from gigagp.data.sources.encoded import EncodedRows
from gigagp.fit.fitting import fit_model
from gigagp.fit.settings import FitSettings
from gigagp.fit.trends import fit_with_mean
from gigagp.linalg.row_noise import ADDED, FACTOR
from gigagp.model.class_model import ClassModel, Label
from gigagp.model.model import Model
from gigagp.model.online import all_rows, following
from gigagp.model.predictor import Predictor
from gigagp.model.row_segments import ArrivingRows
from gigagp.model.trend import RegressorTrend, Trend
from gigagp.progress import Listener


def refitted(
    model: Model, options: FitSettings, seed: np.random.SeedSequence, predictor_of: Callable[[Model], Predictor],
    class_model: Callable[[Rows, tuple[Label, ...]], ClassModel], tell: Listener,
) -> Model:  # fmt: skip
    """A model of the same rows whose scalings, theta, choices and calibration are learnt anew.

    A regressor that is the mean function stays as it is.
    """
    rows = all_rows(model)
    X = model.inputs.restore(np.asarray(rows.X, float))
    y = model.target.restore(np.asarray(rows.y, float)[:, None])[:, 0]
    kept = model.trend if isinstance(model.trend, RegressorTrend) else None
    if kept is not None:
        # Each row of the fit was left by a copy of the regressor that had not seen it, which is not known any more.
        options = replace(options, mean="constant")
    elif model.trend is not None:
        y = y + model.trend.values(X)
    weights, deviations = _weights_and_deviations(model, rows)
    source = EncodedRows(X, y, model.reading, weights, deviations)
    classes = None if model.classes is None else class_model(source, model.classes.labels)

    def fit_rows(some: Rows, trend: Trend | None = None, last: bool = True) -> Model:
        fitted = fit_model(
            some, options, seed, store=None, checkpoint=None, encoding=model.encoding,
            feature_names=model.feature_names, tell=tell, classes=classes,
        )  # fmt: skip
        return replace(fitted, trend=trend or kept)

    new = fit_with_mean(source, options, fit_rows, predictor_of, int(seed.generate_state(1)[0]))
    arrivals = _matched(new, X, rows.arrivals)
    return replace(new, arrivals=arrivals, next_arrival=following(model), target_name=model.target_name)


def _weights_and_deviations(model: Model, rows: ArrivingRows) -> tuple[Array | None, Array | None]:
    """Weight and known deviation of each row, in the user's units; None where rows do not differ in noise.

    Where the noise depends on the inputs, factors are the model's own and are learnt anew.
    """
    if rows.row_noise is None or model.input_noise is not None:
        return None, None
    factor, added = (rows.row_noise[:, column].astype(float) for column in (FACTOR, ADDED))
    weights, deviations = 1 / factor, np.sqrt(added / factor) * float(model.target.scale[0])
    return weights, deviations if deviations.any() else None


def _matched(model: Model, X: Array, arrivals: Array) -> Array:
    """The number of arrival of each row of a new store, by the inputs that the rows have in it."""
    old, new = (_keys(each) for each in (model.inputs.apply(X, model.store.X.dtype), np.asarray(model.store.X)))
    order, newer = np.argsort(old, kind="stable"), np.argsort(new, kind="stable")
    result = np.empty(len(new), np.int64)
    places = np.searchsorted(old[order], new[newer])
    # Rows with the same inputs follow each other: each takes the next number, as far as there are any.
    run = np.arange(len(newer)) - np.searchsorted(new[newer], new[newer])
    result[newer] = arrivals[order[np.minimum(places + run, len(order) - 1)]]
    return result


def _keys(X: Array) -> Array:
    X = np.ascontiguousarray(X)
    return X.view(np.dtype((np.void, X.itemsize * X.shape[1]))).ravel()

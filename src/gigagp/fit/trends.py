"""Learns the mean function of a model (`mean=`): linear, or any regressor of scikit-learn's interface.

A linear mean is that of universal kriging. Its coefficients are solved by least squares over all rows, in one pass of
QR factorisations, which add up like everything else. Up to `MOST_GENERALISED` rows they are then solved again by
generalised least squares, at the kernel and theta of a first fit: b = (H^T C^-1 H)^-1 H^T C^-1 y, where C is the
covariance of y.

A regressor is cross-fitted: each row is predicted by a copy that was fitted without the row's part of the data, and
the GP learns what these predictions leave. Residuals of rows that the regressor has seen would be too small. A query
gets the mean of all copies. The regressor is used only if it improves the predictions of held-out rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import clone, is_regressor

from gigagp import memory
from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Scaling
from gigagp.data.sources import Rows, Share
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit.settings import FitSettings
from gigagp.model.distribution import PredictiveDistribution
from gigagp.model.fit_report import Candidate
from gigagp.model.model import Model
from gigagp.model.predictor import Predictor
from gigagp.model.trend import LinearTrend, RegressorTrend, Trend

MOST_GENERALISED = 2048  # rows up to which coefficients are solved by generalised least squares
_FOLDS = 5  # parts of the rows; one copy of a regressor is fitted without each
_MOST_COMPARED = 100_000  # rows that models with and without a regressor are fitted to, to compare them
_COMPARED_SHARE = 0.9  # of the rows, likewise
_JUDGES = 4096  # held-out rows that compare them
_FEWEST_ROWS = 100  # that a regressor can be judged by
_RANK = 1e-10  # relative size of a singular value that counts as zero

# Fits a model to rows from which a trend has been subtracted; True for the model that is kept.
FitRows = Callable[[Rows, Trend | None, bool], Model]
PredictorOf = Callable[[Model], Predictor]


def check_mean(mean: Any) -> None:
    """Raise InvalidParameter unless `mean` is "constant", "linear" or a regressor."""
    named = isinstance(mean, str) and mean in ("constant", "linear")
    fits = hasattr(mean, "fit") and hasattr(mean, "predict") and not isinstance(mean, type)
    if not named and not (fits and is_regressor(mean)):
        raise InvalidParameter(
            f'mean must be "constant", "linear" or a regressor of scikit-learn\'s interface (an object); got {mean!r}'
        )


def fit_with_mean(rows: Rows, options: FitSettings, fit: FitRows, predictor_of: PredictorOf, seed: int) -> Model:
    """Fit a model with the mean function of the settings.

    predictor_of : a model with its settings of prediction
    """
    if isinstance(options.mean, str):
        return fit(rows, None, True) if options.mean == "constant" else _with_linear_mean(rows, fit)
    return _with_regressor(rows, options.mean, fit, predictor_of, seed, memory.budget(options.memory))


def _with_linear_mean(rows: Rows, fit: FitRows) -> Model:
    kinds = [feature.kind for feature in rows.encoding.features for _ in feature.names]
    trend = _least_squares(rows, np.flatnonzero([kind != "category" for kind in kinds]))
    if rows.n_rows is not None and rows.n_rows <= MOST_GENERALISED:
        trend = _generalised(trend, fit(rows.minus(_by_row(trend)), trend, False))
    return fit(rows.minus(_by_row(trend)), trend, True)


def _with_regressor(
    rows: Rows, regressor: Any, fit: FitRows, predictor_of: PredictorOf, seed: int, budget: int
) -> Model:
    """A model whose mean is a regressor, or a constant where the regressor does not improve held-out predictions.

    budget : bytes of memory that the rows may take
    """
    count = rows.n_rows if rows.n_rows is not None else sum(len(block.X) for block in rows.blocks())
    if rows.share is not None:
        raise InvalidParameter("mean= with a regressor cannot be combined with share=; slice the rows beforehand")
    if count < _FEWEST_ROWS:
        raise InvalidInput(f"mean= with a regressor needs at least {_FEWEST_ROWS} rows; the data have {count}")
    train = Share(min(_COMPARED_SHARE, _MOST_COMPARED / count), seed)
    compared, others = rows.part(train), rows.part(train.others)
    held_out = _read(others, budget, min(1.0, _JUDGES / ((1 - train.fraction) * count)), seed)
    scores = {"constant": _crps(predictor_of(fit(compared, None, False)), held_out)}
    trend, rest = _cross_fitted(compared, regressor, seed, budget)
    scores[trend.description] = _crps(predictor_of(fit(rest, trend, False)), held_out)
    gain = scores["constant"] - scores[trend.description]
    better = float(gain.mean()) > float(gain.std(ddof=1)) / len(gain) ** 0.5
    if better:
        trend, rest = _cross_fitted(rows, regressor, seed, budget)
        model = fit(rest, trend, True)
    else:
        model = fit(rows, None, True)
    height = max(float(held_out.y.std()), 1e-300)
    candidates = tuple(
        Candidate("mean", name, float(score.mean()) / height, (name != "constant") == better)
        for name, score in scores.items()
    )
    return replace(model, report=replace(model.report, choices=(*candidates, *model.report.choices)))


@dataclass(frozen=True, eq=False)
class _InMemory:
    X: Array
    y: Array
    row_noise: Array | None
    weights: Array | None


def _read(rows: Rows, budget: int, fraction: float = 1.0, seed: int = 0) -> _InMemory:
    """All rows, or about a fraction of them, in memory."""
    blocks, size = [], 0
    for whole in rows.blocks():
        block = whole
        if fraction < 1:
            block = whole.at(np.flatnonzero(Share(fraction, seed + 1).mask(whole.first_row, len(whole.X))))
        size += block.X.nbytes
        if 4 * size > budget:  # the regressor makes copies
            raise InvalidParameter(
                f"mean= with a regressor needs all rows in memory, and they exceed a quarter of the budget of "
                f'{budget / 1e9:.2f} GB; raise memory=, take fewer rows, or use mean="linear"'
            )
        blocks.append(block)
    X, y = np.concatenate([b.X for b in blocks]), np.concatenate([b.y for b in blocks if b.y is not None])
    noisy = blocks[0].weights_and_noise is not None
    noise, weights = (
        np.concatenate([getattr(b, name) for b in blocks]) if noisy else None for name in ("row_noise", "weights")
    )
    return _InMemory(X, y, noise, weights)


def _by_row(trend: Trend) -> Callable[[int, Array], Array]:
    return lambda first_row, X: trend.values(X)


def _least_squares(rows: Rows, columns: Array) -> LinearTrend:
    """Coefficients by least squares over all rows."""
    triangle: Array = np.empty((0, len(columns) + 2))
    scaling, count = None, 0
    for block in rows.blocks():
        assert block.y is not None
        z = np.asarray(block.X, float)[:, columns]
        if scaling is None:
            deviation = z.std(axis=0)
            scaling = Scaling(z.mean(axis=0), np.where(deviation > 0, deviation, 1.0))
        trend = LinearTrend(columns, scaling, np.zeros(len(columns) + 1), np.zeros((len(columns) + 1,) * 2))
        system = np.column_stack([trend.basis(block.X), block.y])
        if block.weights is not None:
            system = system * np.sqrt(block.weights)[:, None]
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, system]), mode="r"))
        count += len(z)
    assert scaling is not None
    R, c = triangle[:, :-1], triangle[:, -1]
    inverse = np.linalg.pinv(R, rcond=_RANK)
    coefficients = inverse @ c
    variance = float(np.sum((c - R @ coefficients) ** 2)) / max(count - len(coefficients), 1)
    return LinearTrend(columns, scaling, coefficients, variance * inverse @ inverse.T)


def _generalised(trend: LinearTrend, model: Model) -> LinearTrend:
    """Coefficients by generalised least squares at the kernel and theta of a model, which has few rows.

    The model's targets are what `trend` leaves, so that the solution is a correction of its coefficients.
    """
    store, scale = model.store, float(model.target.scale[0])
    X = model.inputs.restore(np.asarray(store.X, float))
    H = trend.basis(X)
    residual = model.target.restore(np.asarray(store.y, float)[:, None])[:, 0]
    C = np.asarray(model.kernel.gram(model.theta[:-1], np.asarray(store.X, float)), float)
    C = np.tril(C) + np.tril(C, -1).T
    noise = np.full(len(C), np.exp(model.theta[-1]))
    if store.row_noise is not None:
        noise = noise * store.row_noise[:, 0] + store.row_noise[:, 1]
    C[np.diag_indices(len(C))] += noise
    factor = cho_factor(C, lower=True)
    solved = cho_solve(factor, H)
    information = H.T @ solved
    covariance = np.linalg.pinv(information, rcond=_RANK, hermitian=True)
    correction = covariance @ (solved.T @ residual)
    return replace(trend, coefficients=trend.coefficients + correction, covariance=scale**2 * covariance)


def _cross_fitted(rows: Rows, regressor: Any, seed: int, budget: int) -> tuple[RegressorTrend, Rows]:
    """Copies of the regressor, each fitted without one part of the rows, and the rows minus their predictions."""
    data = _read(rows, budget)
    part = np.asarray(row_keys(0, len(data.y), seed + 1) % np.uint64(_FOLDS), int)
    out_of_fold, models = np.empty(len(data.y)), []
    for fold in range(_FOLDS):
        own = part == fold
        model = _fitted(clone(regressor), data, ~own)
        out_of_fold[own] = np.asarray(model.predict(data.X[own]), float).reshape(int(own.sum()))
        models.append(model)
    if not np.isfinite(out_of_fold).all():
        raise InvalidInput(f"mean={regressor!r} predicts values that are not finite")
    trend = RegressorTrend(copy.deepcopy(regressor), tuple(models))
    return trend, rows.minus(lambda first_row, X: out_of_fold[first_row : first_row + len(X)])


def _fitted(regressor: Any, data: _InMemory, chosen: Array) -> Any:
    weights = {} if data.weights is None else {"sample_weight": data.weights[chosen]}
    try:
        return regressor.fit(data.X[chosen], data.y[chosen], **weights)
    except Exception as error:
        raise InvalidInput(f"mean={regressor!r} could not be fitted to the rows: {error}") from error


def _crps(predictor: Predictor, held_out: _InMemory) -> Array:
    """The CRPS of each held-out row."""
    with predictor.engine() as engine:
        mean, deviation = predictor.predict(held_out.X, engine, row_noise=held_out.row_noise)
    assert deviation is not None
    distribution: PredictiveDistribution = predictor.distribution(mean, deviation)
    return np.asarray(distribution.crps(held_out.y))

"""Boosted trees as peers: scikit-learn's histogram gradient boosting, LightGBM and CatBoost.

Each is first fitted without the held-out rows, which decide how many trees are enough (early stopping) and by which its
distribution is recalibrated. The model of the mean is then fitted again to all rows with that number of trees.

scikit-learn and LightGBM have no distribution of their own: it is made from models of seven quantiles. CatBoost's
RMSEWithUncertainty is one model of mean and variance. Caps are in seconds of CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingRegressor

from deadline import CPU, Deadline
from gigagp.arrays import Array
from peers import CORES, Answer, Prediction, available
from scores import LEVELS, QuantileDistribution

MOST_TREES = 10_000
JITTER = 1e-3  # added to targets of quantile models, in their deviations: scikit-learn's find no split among ties
LEAST_STD = 1e-3  # in deviations of the target
MEAN_SHARE = 0.25  # of the cap that finds the number of trees of the mean; fitting all rows takes as long again
QUANTILE_SHARE = 0.5  # of the cap for all quantiles together

Predict = Callable[[Array], Array]


@dataclass(frozen=True)
class Rows:
    """Training rows, and which of them are held out."""

    X: Array
    y: Array
    held_out: Array

    def parts(self, y: Array) -> tuple[Array, Array, Array, Array]:
        """Inputs and targets without the held-out rows, then those of the held-out rows."""
        X = np.delete(self.X, self.held_out, axis=0)
        return X, np.delete(y, self.held_out), self.X[self.held_out], y[self.held_out]


@dataclass(frozen=True)
class Grown:
    """A model fitted without the held-out rows, and whether time ran out before these rows ended it."""

    predict: Predict
    trees: int
    capped: bool
    leaves: int = 31


def from_quantiles(
    rows: Rows, Z: Array, cap: float, grow: Callable[..., Grown], again: Callable[[Rows, Grown], Predict]
) -> Prediction:
    """A model of the mean, refitted to all rows, and a model of each quantile.

    The deviation is that of a Gaussian with the same outermost interval.
    """
    start = time.perf_counter()
    first = grow(rows, rows.y, MEAN_SHARE * cap)
    whole = again(rows, first)
    untied = rows.y + JITTER * np.random.default_rng(0).standard_normal(len(rows.y))
    seconds = QUANTILE_SHARE * cap / len(LEVELS)
    others = [grow(rows, untied, seconds, level=level, leaves=first.leaves) for level in LEVELS]
    fit_seconds = time.perf_counter() - start
    start = time.perf_counter()

    def quantiles(inputs: Array) -> Array:
        return np.sort(np.stack([model.predict(inputs) for model in others], axis=1), axis=1)  # they may cross

    def std(values: Array) -> Array:
        return np.maximum((values[:, -1] - values[:, 0]) / (ndtri(LEVELS[-1]) - ndtri(LEVELS[0])), LEAST_STD)

    values = quantiles(Z)
    answer = Answer(whole(Z), std(values))
    predict_seconds = time.perf_counter() - start
    inputs = rows.X[rows.held_out]
    held_out = Answer(first.predict(inputs), std(quantiles(inputs)))
    capped = any(model.capped for model in (first, *others))
    return Prediction(
        answer, fit_seconds, predict_seconds, QuantileDistribution(answer, values), held_out, capped=capped
    )


class ScikitLearnTrees:
    """scikit-learn's histogram gradient boosting, defaults, with as many trees as held-out rows advise."""

    name = "scikit-learn boosting"
    first_trees = 50

    @staticmethod
    def available() -> bool:
        return True

    def run(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array) -> Prediction:
        return from_quantiles(Rows(X, y, held_out), Z, cap, self._grow, self._again)

    def _grow(self, rows: Rows, y: Array, seconds: float, level: float | None = None, leaves: int = 31) -> Grown:
        """Trees are doubled until early stopping, or until as many again would take too long."""
        half = Deadline.after(seconds / 2, CPU)
        loss: dict[str, Any] = {} if level is None else {"loss": "quantile", "quantile": level}
        model = HistGradientBoostingRegressor(
            **loss, warm_start=True, early_stopping=True, max_leaf_nodes=leaves, random_state=0
        )
        inputs, targets, others, truth = rows.parts(y)
        trees = self.first_trees
        while True:
            model.set_params(max_iter=trees).fit(inputs, targets, X_val=others, y_val=truth)
            ended = model.n_iter_ < trees
            late = half.passed
            if ended or late or trees >= MOST_TREES:
                return Grown(model.predict, model.n_iter_, capped=late and not ended, leaves=leaves)
            trees *= 2

    @staticmethod
    def _again(rows: Rows, first: Grown) -> Predict:
        model = HistGradientBoostingRegressor(max_iter=first.trees, early_stopping=False, random_state=0)
        predict: Predict = model.fit(rows.X, rows.y).predict
        return predict


class LightGBM:
    """LightGBM at the rate 0.05, with 31 or 255 leaves per tree, as held-out rows advise."""

    name = "LightGBM"
    leaves = (31, 255)
    patience = 50  # trees that may bring no gain

    @staticmethod
    def available() -> bool:
        return available("LightGBM", "lightgbm")

    def run(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array) -> Prediction:
        return from_quantiles(Rows(X, y, held_out), Z, cap, self._grow, self._again)

    def _grow(self, rows: Rows, y: Array, seconds: float, level: float | None = None, leaves: int = 0) -> Grown:
        if leaves:
            return self._grown(rows, y, seconds, leaves, level)[0]
        several = [self._grown(rows, y, seconds / len(self.leaves), count, level) for count in self.leaves]
        return min(several, key=lambda pair: pair[1])[0]

    def _grown(self, rows: Rows, y: Array, seconds: float, leaves: int, level: float | None) -> tuple[Grown, float]:
        """A model and its loss on the held-out rows."""
        lightgbm = import_module("lightgbm")
        deadline = Deadline.after(seconds, CPU)
        inputs, targets, others, truth = rows.parts(y)
        capped = False

        def clock(state: Any) -> None:
            nonlocal capped
            capped = deadline.passed
            if capped:
                raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

        data = lightgbm.Dataset(inputs, targets, free_raw_data=True)
        model = lightgbm.train(
            self._settings(leaves, level), data, MOST_TREES,
            valid_sets=[lightgbm.Dataset(others, truth, reference=data)],
            callbacks=[lightgbm.early_stopping(self.patience, verbose=False), clock],
        )  # fmt: skip
        trees = model.best_iteration or model.current_iteration()
        ((loss,),) = (scores.values() for scores in model.best_score.values())
        return Grown(lambda Z: np.asarray(model.predict(Z, num_iteration=trees)), trees, capped, leaves), loss

    def _again(self, rows: Rows, first: Grown) -> Predict:
        lightgbm = import_module("lightgbm")
        model = lightgbm.train(self._settings(first.leaves, None), lightgbm.Dataset(rows.X, rows.y), first.trees)
        predict: Predict = model.predict
        return predict

    @staticmethod
    def _settings(leaves: int, level: float | None) -> dict[str, Any]:
        loss = {"objective": "l2"} if level is None else {"objective": "quantile", "alpha": level}
        return {
            **loss, "learning_rate": 0.05, "num_leaves": leaves, "num_threads": CORES, "seed": 0, "verbosity": -1,
            "deterministic": True, "force_col_wise": True,
        }  # fmt: skip


class CatBoost:
    """CatBoost's RMSEWithUncertainty at the rate 0.1: one model of mean and variance, otherwise its defaults."""

    name = "CatBoost"
    rate, patience = 0.1, 50

    @staticmethod
    def available() -> bool:
        return available("CatBoost", "catboost")

    def run(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array) -> Prediction:
        start = time.perf_counter()
        inputs, targets, others, truth = Rows(X, y, held_out).parts(y)
        clock = _Clock(Deadline.after(cap / 2, CPU))
        first = self._model(MOST_TREES)
        first.fit(
            inputs, targets, eval_set=(others, truth), early_stopping_rounds=self.patience, use_best_model=True,
            callbacks=[clock],
        )  # fmt: skip
        whole = self._model(first.tree_count_).fit(X, y)
        fit_seconds = time.perf_counter() - start
        start = time.perf_counter()
        answer = self._answer(whole, Z)
        predict_seconds = time.perf_counter() - start
        return Prediction(answer, fit_seconds, predict_seconds, held_out=self._answer(first, others), capped=clock.late)

    def _model(self, trees: int) -> Any:
        return import_module("catboost").CatBoostRegressor(
            loss_function="RMSEWithUncertainty", iterations=trees, learning_rate=self.rate, thread_count=CORES,
            random_seed=0, verbose=False, allow_writing_files=False,
        )  # fmt: skip

    @staticmethod
    def _answer(model: Any, Z: Array) -> Answer:
        mean, variance = np.asarray(model.predict(Z, prediction_type="RMSEWithUncertainty")).T
        return Answer(mean, np.maximum(np.sqrt(variance), LEAST_STD))


class _Clock:
    """Ends CatBoost's training at the deadline."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline, self.late = deadline, False

    def after_iteration(self, info: Any) -> bool:
        self.late = self.deadline.passed
        return not self.late

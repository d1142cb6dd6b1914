"""Learning curves: accuracy by the number of training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.base import clone

from gigagp import metrics
from gigagp.arrays import Array
from gigagp.errors import InvalidParameter, choose
from gigagp.estimators.regressor import HGPRegressor
from gigagp.plotting import style

_SIZES = 5  # points of a curve
_MIN_ROWS = 100  # smallest default size
_HELD_OUT_SHARE = 0.2  # share of the rows that is scored
_MAX_HELD_OUT = 10_000  # rows
_LABELS = {"rmse": "RMSE", "nlpd": "NLPD", "seconds": "seconds to fit"}


@dataclass(frozen=True)
class LearningPoint:
    """Scores of a model that was fitted to `rows` rows, on held-out rows."""

    rows: int
    rmse: float
    nlpd: float
    seconds: float


def learning_points(
    model: HGPRegressor, X: Array, y: Array, sizes: Sequence[int] | None = None, seed: int = 0
) -> list[LearningPoint]:
    """Fit copies of the model to random subsets of increasing size, and score each on the same held-out rows.

    sizes : numbers of rows; default five, doubling, up to four fifths of the rows
    """
    X, y = np.asarray(X), np.asarray(y)
    order = np.random.default_rng(seed).permutation(len(y))
    held_out = min(int(_HELD_OUT_SHARE * len(y)), _MAX_HELD_OUT)
    test, train = order[:held_out], order[held_out:]
    if sizes is None:
        sizes = [n for s in reversed(range(_SIZES)) if (n := len(train) >> s) >= _MIN_ROWS] or [len(train)]
    if not all(2 <= n <= len(train) for n in sizes):
        raise InvalidParameter(
            f"sizes must be between 2 and {len(train)}, the number of rows that are not held out; got {list(sizes)}"
        )
    return [_fit_and_score(clone(model), X[train[:n]], y[train[:n]], X[test], y[test]) for n in sizes]


def _fit_and_score(model: HGPRegressor, X: Array, y: Array, Z: Array, truth: Array) -> LearningPoint:
    mean, std = model.fit(X, y).predict(Z, return_std=True)
    spent = sum(model.report_.seconds.values())
    return LearningPoint(len(y), metrics.rmse(truth, mean), metrics.nlpd(truth, mean, std), spent)


def learning_curve(points: Sequence[LearningPoint], score: str = "rmse", ax: Axes | None = None) -> Axes:
    """A score (rmse, nlpd or seconds) against the number of training rows; more rows help while it still falls."""
    label: Any = choose("score", score, _LABELS)
    ax = style.axes(ax)
    rows, values = [p.rows for p in points], [getattr(p, score) for p in points]
    ax.plot(rows, values, "o-", color=style.BLUE, linewidth=1.8, markersize=5)
    ax.set_xscale("log")
    ax.set_xticks(rows, [f"{n:,}" for n in rows])
    ax.minorticks_off()
    ax.set_xlabel("training rows")
    ax.set_ylabel(label)
    ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    return ax

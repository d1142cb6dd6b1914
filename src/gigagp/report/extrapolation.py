"""Which of the scored rows lie beyond the training rows, and by how much."""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.estimators.regressor import HGPRegressor
from gigagp.report.advice import Advice

_LEAST_SHARE = 0.01  # of the rows that must lie beyond the range of a column
_LEAST_DISTANCE = 0.05  # how far beyond, as a share of the range of the training rows


def training_range(model: HGPRegressor) -> tuple[Array, Array]:
    """Smallest and largest value of each input column, in the user's units."""
    low, high = np.full(model.n_features_in_, np.inf), np.full(model.n_features_in_, -np.inf)
    for Z, _ in model.model_.store.blocks():
        X = model.model_.inputs.restore(np.asarray(Z, float))
        low, high = np.minimum(low, X.min(axis=0)), np.maximum(high, X.max(axis=0))
    return low, high


def advice_on_extrapolation(model: HGPRegressor, X: Array) -> list[Advice]:
    """One piece of advice for each column in which rows lie clearly beyond all training rows.

    X : the inputs of scored rows
    """
    low, high = training_range(model)
    units, advice = model.units_, []
    for d in range(X.shape[1]):
        span = float(high[d] - low[d])
        beyond = np.maximum(low[d] - X[:, d], X[:, d] - high[d])
        share = float(np.mean(beyond > _LEAST_DISTANCE * span))
        if units.kind(d) == "category" or span <= 0 or share < _LEAST_SHARE:
            continue
        farthest = float(beyond.max()) / span
        advice.append(
            Advice(
                f"{share:.1%} of the rows lie beyond the training rows in column {units.columns[d]}, by up to "
                f"{farthest:.0%} of their range. There predictions follow from the kernel and the mean function, not "
                "from rows, and intervals have not been checked by held-out rows.",
                "Trust intervals near the range, and less the farther away a row is. If the trend or a season should "
                "continue, say so in the model: mean='linear', or a periodic kernel (docs/time-series.md).",
            )
        )
    return advice

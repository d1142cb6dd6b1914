"""Training rows and columns of a fitted model in the user's units, for pictures."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from matplotlib.axis import Axis

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.plotting import style

TYPICAL = 2_000  # sampled training rows from which ranges and typical rows are computed


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Some of the rows a model was fitted to, and the leaf of each."""

    X: Array
    y: Array
    leaf: Array


def training_rows(model: HGPEstimator, most: int, seed: int = 0) -> TrainingRows:
    """A random sample of at most `most` training rows. A row in several leaves counts several times."""
    cells, store = model.model_.cells, model.model_.store
    ends = np.cumsum(cells.sizes)
    places = style.sample(int(ends[-1]), most, seed)
    leaf = np.searchsorted(ends, places, side="right")
    within = places - (ends - cells.sizes)[leaf]
    first = np.flatnonzero(np.diff(leaf, prepend=-1))
    rows = np.concatenate(
        [cells[int(leaf[a])][within[a:b]] for a, b in zip(first, [*first[1:], len(leaf)], strict=True)]
    )
    order = np.argsort(rows, kind="stable")  # mapped files are read from front to back
    X, y = store.gather(rows[order])
    return TrainingRows(unscaled_inputs(model, X), unscaled_target(model, y), leaf[order])


def unscaled_inputs(model: HGPEstimator, X: Array) -> Array:
    return model.model_.inputs.restore(X)


def unscaled_target(model: HGPEstimator, y: Array) -> Array:
    return model.model_.target.restore(y[:, None])[:, 0]


def leaf_centre(model: HGPEstimator, leaf: int) -> Array:
    """The mean input of a leaf's rows."""
    X, _ = model.model_.store.read(model.model_.cells, leaf)
    return unscaled_inputs(model, X.mean(axis=0, dtype=float))


@contextmanager
def in_order() -> Iterator[None]:
    """Suppress scikit-learn's warning about missing column names: queries here have the model's column order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield


def typical_row(model: HGPEstimator) -> Array:
    """The training row nearest to the median of all columns."""
    X = training_rows(model, TYPICAL).X
    inputs = model.model_.inputs
    distance = np.abs(X - np.median(X, axis=0)) / inputs.widths[: inputs.columns]
    return np.asarray(X[np.argmin(distance.sum(axis=1))])


def span(model: HGPEstimator, column: int) -> tuple[float, float]:
    """The range of nearly all training rows in one column."""
    low, high = np.quantile(training_rows(model, TYPICAL).X[:, column], [0.005, 0.995])
    return (float(low), float(high)) if low < high else (float(low) - 0.5, float(high) + 0.5)


def weights(model: HGPEstimator) -> Array | None:
    """1 / length-scale per column, in standard deviations of the column; None if the kernel has no metric."""
    kernel = model.units_.along_columns(model.kernel_)
    metric = kernel.metric(kernel.theta)
    if metric is None or not np.any(metric):
        return None
    every = np.broadcast_to(np.asarray(metric, float), model.model_.inputs.scaling.scale.shape)
    return every[: model.n_features_in_]  # a further one, of places on a sphere, equals those of longitude and latitude


def column_number(model: HGPEstimator, column: int | str) -> int:
    """The number of a column that is given by name or number."""
    names = model.units_.columns
    if isinstance(column, str):
        if column in names:
            return names.index(column)
    elif 0 <= column < len(names):
        return int(column)
    raise InvalidParameter(f"column must be one of {', '.join(names)}, or its number; got {column!r}")


def label_axis(model: HGPEstimator, axis: Axis, column: int) -> None:
    """The name of a column beside its axis, and dates at its ticks if it has dates."""
    axis.set_label_text(style.short(model.units_.columns[column]))
    style.date_axis(axis, model.units_.kind(column))

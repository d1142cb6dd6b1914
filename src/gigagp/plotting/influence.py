"""What the columns do to predictions: how much the predicted mean changes with each of them, and with each category."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.data.sources import open_rows
from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.classifier import HGPClassifier
from gigagp.estimators.input_rows import EncodedQueries
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.grids import PLACEHOLDERS
from gigagp.model.model import Model
from gigagp.plotting import style
from gigagp.plotting.rows import column_number, in_order, training_rows, typical_row

_ROWS = 512  # training rows whose predictions are compared
_MAX_COLUMNS = 20  # columns that are drawn
_MAX_LEVELS = 16  # levels of a category that are drawn
_known: WeakKeyDictionary[Model, Array] = WeakKeyDictionary()  # influences of models that are drawn repeatedly


@dataclass(frozen=True)
class UserColumn:
    """A column of the user's data, or a place on a sphere, and the numbers of its columns in the model's inputs."""

    name: str
    places: tuple[int, ...]
    categories: tuple[str, ...] = ()  # of a category, its levels


def user_columns(model: HGPEstimator) -> list[UserColumn]:
    """The columns as the user knows them: a category is one column, and so are longitude and latitude."""
    columns, at = [], 0
    names = model.units_.columns
    for feature in model.model_.reading.features:
        places = tuple(range(at, at + len(feature.names)))
        name = feature.column if feature.categories else names[at]
        columns.append(UserColumn(name, places, feature.categories or ()))
        at += len(places)
    sphere = model.model_.inputs.sphere
    if sphere is None:
        return columns
    pair = [sphere.longitude, sphere.latitude]
    place = UserColumn(", ".join(names[each] for each in pair), tuple(pair))
    return [place, *(column for column in columns if not set(column.places) & set(pair))]


def influences(model: HGPEstimator) -> Array:
    """For each of `user_columns`, the share of the target's variance that changes with the column.

    Classes have the variance of their 0/1 columns, and their probabilities change.

    E (f(x) - f(x'))^2 / 2 var(y), where x' has the values of another training row in this column: Jansen's estimator of
    Sobol's total effect. Columns that change together with others may add up to more than one.
    """
    if model.model_ in _known:
        return _known[model.model_]
    rows = training_rows(model, _ROWS)
    X = rows.X
    order = np.random.default_rng(0).permutation(len(X))
    with in_order():
        mean = _outputs(model, X)
        effects = []
        for column in user_columns(model):
            changed, places = X.copy(), list(column.places)
            changed[:, places] = X[order][:, places]
            effects.append(float(np.mean(np.sum((_outputs(model, changed) - mean) ** 2, axis=1))) / 2)
    if isinstance(model, HGPClassifier):
        shares = mean.mean(axis=0)
        variance = float(np.sum(shares * (1 - shares)))
    else:
        variance = float(rows.y.var())
    _known[model.model_] = np.array(effects) / max(variance, 1e-300)
    return _known[model.model_]


def _outputs(model: HGPEstimator, X: Array) -> Array:
    """Predicted means, or the probabilities of classes: one column, or one per class."""
    queries = X.view(EncodedQueries)
    return np.asarray(
        model.predict_proba(queries) if isinstance(model, HGPClassifier) else model.predict(queries)[:, None]
    )


def influential_columns(model: HGPEstimator, count: int, least: int = 1) -> list[int]:
    """Columns with numbers that can be drawn along an axis, those that change predictions most first.

    Categories and constant columns follow only if there are fewer than `least` others.
    """
    X, values, columns = training_rows(model, _ROWS).X, influences(model), user_columns(model)
    ranked: list[int] = []
    last: list[int] = []
    for number in np.argsort(-values, kind="stable").tolist():
        for place in columns[number].places:
            varies = not columns[number].categories and np.ptp(X[:, place]) > 0
            (ranked if varies else last).append(place)
    return [*ranked[:count], *last[: max(0, least - len(ranked))]]


def two_columns(model: HGPEstimator, columns: tuple[int | str, int | str] | None) -> list[int]:
    """The two columns of a map: the given ones, or those that change predictions most."""
    if model.n_features_in_ < 2:
        raise InvalidParameter("a map needs two columns, but the model has one; use predictive_band instead")
    if columns is None:
        return sorted(influential_columns(model, 2, least=2))
    first, second = (column_number(model, column) for column in columns)
    return [first, second]


def influence(model: HGPEstimator, ax: Axes | None = None) -> Axes:
    """How much of the target's variance changes with each column, the most influential first."""
    values, columns = influences(model), user_columns(model)
    order = np.argsort(-values, kind="stable")[:_MAX_COLUMNS]
    ax = style.axes(ax, 5.6, influence_height(model))
    places = np.arange(len(order))
    ax.barh(places, 100 * values[order], height=0.68, color=style.BLUE, alpha=0.85)
    for place, number in zip(places, order.tolist(), strict=True):
        ax.annotate(
            f"{values[number]:.1%}", (100 * values[number], place), (4, 0), textcoords="offset points", va="center",
            fontsize="small", color=style.MUTED,
        )  # fmt: skip
    ax.set_yticks(places, [style.short(columns[number].name) for number in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.set_xlim(0, 118 * max(float(values.max()), 1e-9))
    ax.set_xlabel(f"% of the variance of {style.short(model.units_.target)} that changes with the column")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    style.note(ax, style.count_note(len(order), len(columns), "columns") if len(order) < len(columns) else "")
    return ax


def influence_height(model: HGPEstimator) -> float:
    """Height of the figure in inches."""
    return 0.9 + 0.27 * min(_MAX_COLUMNS, len(user_columns(model)))


def levels(model: HGPEstimator, column: str, ax: Axes | None = None) -> Axes:
    """Predicted mean and one standard deviation for each level of a category, other columns as in a typical row.

    column : the name of a category; its most frequent levels are drawn
    """
    mine = next((each for each in user_columns(model) if each.name == column and each.categories), None)
    if mine is None:
        names = [each.name for each in user_columns(model) if each.categories]
        raise InvalidParameter(
            f"column must be a category ({', '.join(names) or 'the model has none'}); got {column!r}"
        )
    codes, places = _codes(model, mine), list(mine.places)
    rows = training_rows(model, _ROWS).X[:, places]
    counts = (rows[:, None, :] == codes[None]).all(axis=2).sum(axis=0)
    drawn = np.sort(np.argsort(-counts, kind="stable")[:_MAX_LEVELS])
    queries = np.tile(typical_row(model), (len(drawn), 1))
    queries[:, places] = codes[drawn]
    if not isinstance(model, HGPRegressor):
        raise InvalidParameter("levels are drawn for models of numbers; this model predicts classes")
    with in_order():
        mean, std = model.predict(queries.view(EncodedQueries), return_std=True)
    ax = style.axes(ax, 5.2, 4.2)
    at = np.arange(len(drawn))
    ax.errorbar(mean, at, xerr=std, fmt="o", color=style.BLUE, ecolor=style.SKY, elinewidth=5, capsize=0, markersize=5)
    ax.set_yticks(at, [style.short(mine.categories[number]) for number in drawn])
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    ax.set_xlabel(f"{style.short(model.units_.target)}, ± 1 standard deviation")
    ax.set_ylabel(style.short(column))
    more = style.count_note(len(drawn), len(codes), "levels") if len(drawn) < len(codes) else ""
    style.note(ax, more, "other columns as in a typical row")
    return ax


def _codes(model: HGPEstimator, column: UserColumn) -> Array:
    """The numbers of the model's inputs for each level of a category."""
    import pyarrow as pa  # noqa: PLC0415 takes time to load

    reading, count = model.model_.reading, len(column.categories)
    cells = {}
    for feature in reading.features:
        fixed = feature.categories[0] if feature.categories else PLACEHOLDERS[feature.kind]
        mine = feature.column == column.name
        cells[feature.column] = pa.array(np.array(list(column.categories) if mine else [fixed] * count))
    block = next(open_rows(pa.table(cells), encoding=reading).blocks(count))
    return np.asarray(block.X[:, list(column.places)], float)

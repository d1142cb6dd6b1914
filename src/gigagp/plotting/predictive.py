"""Predictions along one column, or over two columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.errors import choose
from gigagp.estimators.input_rows import EncodedQueries
from gigagp.estimators.regressor import HGPRegressor
from gigagp.plotting import style
from gigagp.plotting.influence import influential_columns
from gigagp.plotting.plane import Plane
from gigagp.plotting.rows import column_number, in_order, label_axis, span, training_rows, typical_row

_LINE_QUERIES = 160  # queries along a line


def band(x: Array, mean: Array, low: Array, high: Array, label: str, ax: Axes | None = None) -> Axes:
    """A predicted mean and the interval around it."""
    ax = style.axes(ax)
    ax.fill_between(x, low, high, color=style.BLUE, alpha=0.2, linewidth=0, label=label)
    ax.plot(x, mean, color=style.BLUE, linewidth=1.6, label="predicted mean")
    return ax


def predictive_band(
    model: HGPRegressor, column: int | str | None = None, *, at: Any = None, level: float = 0.95,
    between: tuple[float, float] | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Predicted mean and intervals as one column varies and the others stay as they are in the row `at`.

    column : name or number; default the one that changes predictions most
    at : default a typical training row
    level : of the interval of y; the darker band is one standard deviation of the latent function
    between : range of the column; default where the training rows lie
    With a model of one column some training rows are drawn too.
    """
    d = influential_columns(model, 1)[0] if column is None else column_number(model, column)
    x = np.linspace(*(span(model, d) if between is None else between), _LINE_QUERIES)
    queries = np.tile(typical_row(model) if at is None else np.asarray(at, float), (_LINE_QUERIES, 1))
    queries[:, d] = x
    queries = queries.view(EncodedQueries)
    with in_order():
        mean, deviation = model.predict(queries, return_std=True, latent=True)
        low, high = model.predict_quantiles(queries, [0.5 - level / 2, 0.5 + level / 2]).T
    ax = style.axes(ax)
    notes = ["" if at is not None or model.n_features_in_ == 1 else "other columns as in a typical row"]
    if model.n_features_in_ == 1:
        rows = training_rows(model, style.POINTS)
        ax.plot(rows.X[:, 0], rows.y, ".", color=style.MUTED, alpha=0.35, markersize=4, markeredgewidth=0, zorder=1)
        notes.append(f"dots: {style.count_note(len(rows.y), model.report_.rows)}")
    band(x, mean, low, high, f"{level:.0%} interval of {style.short(model.units_.target)}", ax)
    ax.fill_between(
        x, mean - deviation, mean + deviation, color=style.BLUE, alpha=0.35, linewidth=0,
        label="function, ± 1 standard deviation",
    )  # fmt: skip
    ax.set_xlim(x[0], x[-1])
    label_axis(model, ax.xaxis, d)
    ax.set_ylabel(style.short(model.units_.target))
    style.legend_below(ax, 0.5)
    style.note(ax, *notes)
    return ax


def predictive_map(
    model: HGPRegressor, columns: tuple[int | str, int | str] | None = None, *, at: Any = None, show: str = "mean",
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Predicted mean (or with show="std" the standard deviation of y) over two columns, the others as in `at`.

    columns : names or numbers; default the two that change predictions most
    at : default a typical training row
    """
    choose("show", show, {"mean": None, "std": None})
    plane = Plane.of(model, columns, at)
    with in_order():
        queries = plane.queries.view(EncodedQueries)
        values = model.predict(queries) if show == "mean" else model.predict(queries, return_std=True)[1]
    ax = style.axes(ax, 5.2, 4.2)
    target = style.short(model.units_.target)
    plane.draw(values, target if show == "mean" else f"standard deviation of {target}", ax)
    return ax

"""Relevance of the columns."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.plotting import style
from gigagp.plotting.rows import weights

_MAX_COLUMNS = 20


def relevance(model: HGPEstimator, ax: Axes | None = None) -> Axes:
    """How fast the function varies with each column: 1 / length-scale, per standard deviation of the column.

    The number beside each bar is the length-scale in the units of the column.
    """
    values = weights(model)
    if values is None:
        raise InvalidParameter(
            f"{model.kernel_!r} has no length-scale per column, so the relevance of columns is not defined"
        )
    columns = np.argsort(-values, kind="stable")[:_MAX_COLUMNS]
    ax = style.axes(ax, 5.6, height(model))
    places = np.arange(len(columns))
    ax.barh(places, values[columns], height=0.68, color=style.BLUE, alpha=0.85)
    for place, d in zip(places, columns, strict=True):
        scale = model.units_.widths[d] / values[d] if values[d] > 0 else np.inf
        ax.annotate(
            f"{scale:.3g}", (values[d], place), (4, 0), textcoords="offset points", va="center", fontsize="small",
            color=style.MUTED,
        )  # fmt: skip
    ax.set_yticks(places, [style.short(model.units_.columns[d]) for d in columns])
    ax.set_ylim(len(columns) - 0.4, -0.6)
    ax.set_xlim(0, 1.15 * float(values.max()))
    ax.set_xlabel("1 / length-scale, per standard deviation of the column")
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    style.note(
        ax, "numbers: length-scale in the column's units", style.count_note(len(columns), len(values), "columns")
    )
    return ax


def height(model: HGPEstimator) -> float:
    """Height of the figure in inches."""
    return 0.9 + 0.27 * min(_MAX_COLUMNS, model.n_features_in_)

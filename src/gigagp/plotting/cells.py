"""The training rows of the experts, and the rows or experts that predict one query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.estimators.base import HGPEstimator
from gigagp.model.neighbourhood import nearest_rows
from gigagp.plotting import style
from gigagp.plotting.influence import two_columns
from gigagp.plotting.rows import label_axis, leaf_centre, training_rows, unscaled_inputs

_MAX_ROWS = 3_000
_ROWS_OF_EXPERTS = 1_000  # rows of the experts that predict a query
_MAX_COLOURED_EXPERTS = 2_000  # up to so many experts, neighbours get different colours
_COLOUR_NEIGHBOURS = 10  # neighbours that an expert's colour should differ from
_SURROUNDINGS = 4  # rows drawn around a query, as a multiple of the rows that predict it
_MAX_EXPERTS = 6  # experts of a query that are drawn


def partition_map(
    model: HGPEstimator, query: Any = None, columns: tuple[int | str, int | str] | None = None, ax: Axes | None = None
) -> Axes:
    """Training rows in the colours of their experts; with a query, the rows or experts that predict it.

    query : one row; the picture then shows its surroundings
    columns : names or numbers of two columns; default the two that change predictions most. With more than two columns
        the picture is a projection, in which experts overlap.
    """
    i, j = two_columns(model, columns)
    ax = style.axes(ax, 5.2, 4.6)
    if query is None:
        rows = training_rows(model, _MAX_ROWS)
        colours = _colours(model)[rows.leaf]
        for number, colour in enumerate(style.CYCLE):
            x, y = rows.X[np.ix_(colours == number, [i, j])].T
            ax.plot(x, y, ".", color=colour, markersize=4, markeredgewidth=0, alpha=0.8)
        others = model.n_features_in_ - 2
        projection = f"projected along {others:,} other columns" if others else ""
        style.note(ax, f"{model.n_leaves_:,} experts", style.count_note(len(rows.y), model.report_.rows), projection)
    elif model.predictor_.neighbourhood is not None:
        _draw_neighbours(ax, model, np.asarray(query, float).reshape(1, -1), i, j)
    else:
        _draw_experts(ax, model, np.asarray(query, float).reshape(1, -1), i, j)
    label_axis(model, ax.xaxis, i)
    label_axis(model, ax.yaxis, j)
    return ax


def _colours(model: HGPEstimator) -> Array:
    """The index of each expert's colour: neighbours get different colours as far as possible."""
    router, many = model.model_.committee.router, len(style.CYCLE)
    colours = np.arange(model.n_leaves_) % many
    if model.n_leaves_ <= _MAX_COLOURED_EXPERTS:
        near = router.index.query(router.centres, min(_COLOUR_NEIGHBOURS, model.n_leaves_))[1].reshape(
            model.n_leaves_, -1
        )
        for expert, others in enumerate(near):
            uses = np.bincount(colours[others[others < expert]], minlength=many)
            colours[expert] = np.argmin(uses)
    return np.asarray(colours)


def _draw_neighbours(ax: Axes, model: HGPEstimator, query: Array, i: int, j: int) -> None:
    """The training rows from which a query is predicted, among other rows near them."""
    near = model.predictor_.neighbourhood
    assert near is not None
    z = model.model_.inputs.apply(query, near.store.X.dtype)[0]
    few, more = (replace(near, neighbours=count) for count in (near.count, _SURROUNDINGS * near.count))
    around = unscaled_inputs(model, near.store.gather(nearest_rows(more, z))[0])
    neighbours = unscaled_inputs(model, near.store.gather(nearest_rows(few, z))[0])
    ax.plot(
        around[:, i],
        around[:, j],
        ".",
        color=style.MUTED,
        alpha=0.5,
        markersize=3,
        markeredgewidth=0,
        label="other rows",
    )
    ax.plot(
        neighbours[:, i],
        neighbours[:, j],
        ".",
        color=style.CYCLE[0],
        markersize=6,
        markeredgewidth=0,
        label="neighbours",
    )
    ax.plot(query[0, i], query[0, j], "*", color=style.INK, markersize=13, zorder=5, label="query")
    style.legend_below(ax, 0.5)
    style.note(ax, f"predicted from {near.count:,} of {model.report_.rows:,} rows")


def _draw_experts(ax: Axes, model: HGPEstimator, query: Array, i: int, j: int) -> None:
    """The experts that predict one query."""
    committee, nearest = model.model_.committee, model.predictor_.experts_per_query
    k = len(committee.experts) if nearest is None else nearest
    route = committee.router.nearest(model.model_.inputs.apply(query, np.dtype(float)), k)
    experts, share = route.experts[0], route.closeness[0] / route.closeness[0].sum()
    places = np.argsort(-share, kind="stable")[:_MAX_EXPERTS]
    inputs = []
    for place, number in enumerate(places):
        rows = model.model_.cells[int(experts[number])]
        some = rows[style.sample(len(rows), _ROWS_OF_EXPERTS // len(places))]
        X = unscaled_inputs(model, committee.store.gather(some)[0])
        inputs.append(X)
        colour = style.CYCLE[place % len(style.CYCLE)]
        ax.plot(X[:, i], X[:, j], ".", color=colour, markersize=4, markeredgewidth=0, alpha=0.75, zorder=2)
        c = leaf_centre(model, int(experts[number]))
        ax.plot([query[0, i], c[i]], [query[0, j], c[j]], color=style.INK, linewidth=0.5 + 3 * share[number], zorder=3)
        ax.plot(
            c[i], c[j], "o", color=colour, markeredgecolor=style.INK, markersize=8, zorder=4,
            label=f"expert {int(experts[number]):,}: weight {share[number]:.0%}",
        )  # fmt: skip
    around = np.concatenate([*inputs, query])
    for d, limit in ((i, ax.set_xlim), (j, ax.set_ylim)):
        low, high = float(around[:, d].min()), float(around[:, d].max())
        edge = 0.06 * (high - low) or 0.5
        limit(low - edge, high + edge)
    ax.plot(query[0, i], query[0, j], "*", color=style.INK, markersize=13, zorder=5, label="query")
    style.legend_below(ax, 0.5)
    style.note(ax, f"the {len(places):,} nearest of {model.n_leaves_:,} experts")

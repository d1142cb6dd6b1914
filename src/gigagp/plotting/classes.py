"""Predicted probabilities of classes: their calibration, their distribution, and maps."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.estimators.classifier import HGPClassifier
from gigagp.estimators.input_rows import EncodedQueries
from gigagp.plotting import style
from gigagp.plotting.plane import Plane
from gigagp.plotting.rows import in_order

_BINS = 15  # of equal width
_HISTOGRAM_BINS = 40
_CHANCE_DEVIATIONS = 1.96  # standard deviations of a binomial share: 95% of the variation by chance


def class_calibration(p: Array, happened: Array, ax: Axes | None = None) -> Axes:
    """How often a class occurs among the rows for which it was predicted with a certain probability.

    p : predicted probability of the class, one per row
    happened : whether the row is of the class
    """
    p, happened = np.asarray(p, float), np.asarray(happened, bool)
    places = np.minimum((p * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(places, minlength=_BINS)
    used = counts > 0
    predicted, observed = (np.bincount(places, each, minlength=_BINS)[used] / counts[used] for each in (p, happened))
    chance = _CHANCE_DEVIATIONS * np.sqrt(predicted * (1 - predicted) / counts[used])
    ax = style.axes(ax, 4.2, 4.2)
    ax.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1, linestyle="--", label="calibrated")
    ax.errorbar(predicted, predicted, chance, color=style.MUTED, alpha=0.5, fmt="none", label="chance (95%)")
    ax.plot(predicted, observed, "o-", color=style.BLUE, linewidth=1.4, markersize=4, label="this model")
    ax.set(
        xlim=(0, 1), ylim=(0, 1), xlabel="predicted probability", ylabel="share of rows of the class", aspect="equal"
    )
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    style.note(ax, style.count_note(len(p), len(p)))
    return ax


def class_confidence(p: Array, right: Array, ax: Axes | None = None) -> Axes:
    """Histograms of predicted probabilities of a class: of rows of the class, and of others.

    p : predicted probability of a class, one per row; with many classes that of the most probable one
    right : whether the row is of that class
    """
    p, right = np.asarray(p, float), np.asarray(right, bool)
    ax = style.axes(ax)
    edges = np.linspace(0, 1, _HISTOGRAM_BINS + 1)
    for rows, colour, label in ((right, style.BLUE, "rows of the class"), (~right, style.ORANGE, "other rows")):
        ax.stairs(np.histogram(p[rows], edges)[0], edges, color=colour, fill=True, alpha=0.25)
        ax.stairs(np.histogram(p[rows], edges)[0], edges, color=colour, linewidth=1.4, label=label)
    ax.set(xlim=(0, 1), xlabel="predicted probability", ylabel="rows")
    ax.legend(frameon=False, fontsize="small")
    style.note(ax, style.count_note(len(p), len(p)))
    return ax


def class_map(
    model: HGPClassifier, columns: tuple[int | str, int | str] | None = None, *, label: Any = None, at: Any = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Predicted probability of a class over two columns, the others as in the row `at`; lines where classes meet.

    columns : names or numbers; default the two most relevant
    label : of the class; default the second of two classes, and for more classes the most probable one everywhere
    at : default a typical training row
    """
    labels = model.classes_.tolist()
    if label is not None and label not in labels:
        raise InvalidParameter(f"label must be one of {', '.join(map(str, labels))}; got {label!r}")
    plane = Plane.of(model, columns, at)
    with in_order():
        p = model.predict_proba(plane.queries.view(EncodedQueries))
    place = labels.index(label) if label is not None else 1
    most_probable = label is None and len(labels) > 2
    values = p.max(axis=1) if most_probable else p[:, place]
    name = "the most probable class" if most_probable else style.short(str(labels[place]))
    ax = style.axes(ax, 5.2, 4.2)
    plane.draw(values, f"probability of {name}", ax, (0.0, 1.0))
    x, y = plane.sides
    if len(labels) == 2 or not most_probable:
        lines: list[Array] = [p[:, place] - 0.5]
    else:
        lines = [p[:, k] - np.delete(p, k, axis=1).max(axis=1) for k in range(len(labels))]
    for line in lines:
        if line.min() < 0 < line.max():
            ax.contour(x, y, line.reshape(x.shape), [0.0], colors=style.INK, linewidths=0.8)
    return ax

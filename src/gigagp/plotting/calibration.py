"""Calibration of predictive distributions, from probability integral transforms: the predicted P(y' <= y) per row.

`gigagp.metrics.pit` computes them; for a calibrated model they are uniform between 0 and 1.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.plotting import style

_BINS = 20
_CHANCE_DEVIATIONS = 1.96  # standard deviations of a binomial share: 95% of the variation by chance


def calibration_curve(pit: Array, counts: Array | None = None, ax: Axes | None = None) -> Axes:
    """The share of targets inside central intervals of each level: the diagonal for a calibrated model.

    counts : number of rows with each value of `pit`, for binned values; default one row per value
    """
    pit, weight, rows = _weighted(pit, counts)
    distance = 2 * np.abs(pit - 0.5)
    order = np.argsort(distance)
    levels = np.linspace(0, 1, 101)
    inside = np.append(0.0, np.cumsum(weight[order]))[np.searchsorted(distance[order], levels, side="right")] / rows
    inside[-1] = 1.0
    chance = _CHANCE_DEVIATIONS * np.sqrt(levels * (1 - levels) / rows)
    ax = style.axes(ax, 4.2, 4.2)
    ax.plot([0, 1], [0, 1], color=style.MUTED, linewidth=1, linestyle="--", label="calibrated")
    ax.fill_between(
        levels, levels - chance, levels + chance, color=style.MUTED, alpha=0.25, linewidth=0, label="chance (95%)"
    )
    ax.plot(levels, inside, color=style.BLUE, linewidth=1.8, label="this model")
    ax.text(0.97, 0.06, "below: intervals too narrow", ha="right", color=style.MUTED, fontsize="small")
    ax.text(0.03, 0.74, "above: intervals too wide", color=style.MUTED, fontsize="small")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="level of the interval", ylabel="share of targets inside", aspect="equal")
    ax.legend(frameon=False, fontsize="small", loc="upper left")
    style.note(ax, style.count_note(rows, rows))
    return ax


def pit_histogram(pit: Array, counts: Array | None = None, ax: Axes | None = None) -> Axes:
    """Histogram of PIT values: flat for a calibrated model.

    A hump means that intervals are too wide, a valley that they are too narrow, a slope that means are biased.

    counts : number of rows with each value of `pit`, for binned values; default one row per value
    """
    pit, weight, rows = _weighted(pit, counts)
    heights, edges = np.histogram(pit, bins=_BINS, range=(0, 1), weights=weight)
    share = heights / rows * _BINS
    chance = _CHANCE_DEVIATIONS * np.sqrt((_BINS - 1) / rows)
    ax = style.axes(ax, 4.8, 3.6)
    ax.bar(edges[:-1], share, width=np.diff(edges) * 0.92, align="edge", color=style.BLUE, alpha=0.8)
    ax.axhspan(max(0.0, 1 - chance), 1 + chance, color=style.MUTED, alpha=0.25, linewidth=0, label="chance (95%)")
    ax.axhline(1, color=style.MUTED, linewidth=1, linestyle="--", label="calibrated")
    ax.set(xlim=(0, 1), xlabel="predicted probability of a smaller target", ylabel="density of rows")
    ax.set_ylim(0, 1.3 * max(float(share.max()), 1 + chance))
    ax.legend(frameon=False, fontsize="small", loc="upper right", ncols=2)
    style.note(ax, style.count_note(rows, rows))
    return ax


def _weighted(pit: Array, counts: Array | None) -> tuple[Array, Array, int]:
    pit = np.asarray(pit, float)
    weight = np.ones(len(pit)) if counts is None else np.asarray(counts, float)
    return pit, weight, int(weight.sum())

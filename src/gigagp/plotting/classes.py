"""Calibration of predicted probabilities of classes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.plotting import style

_BINS = 15  # of equal width
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

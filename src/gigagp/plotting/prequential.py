"""Scores of arriving rows, each predicted before it was learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.plotting import style


def prequential_curve(model: Any, ax: Axes | None = None) -> Axes:
    """The mean NLPD of the rows that have arrived, against their number; it rises where the data drift.

    Broken lines are trainings.

    model : a regressor that has taken updates
    """
    record, ax = model.prequential_, style.axes(ax)
    arrived, losses = record.curve()
    ax.plot(arrived, losses, "o-", color=style.BLUE, linewidth=1.8, markersize=4)
    if record.scored:
        ax.axhline(record.nlpd, color=style.GRID, linewidth=1.2)
        ax.set_xlim(0, float(np.max(arrived)) * 1.02)
    for place in record.trainings[record.trainings > 0]:
        ax.axvline(place, color=style.GRID, linestyle="--", linewidth=1.2, zorder=0)
    ax.set_xlabel("rows that have arrived")
    ax.set_ylabel("NLPD before learning")
    ax.grid(axis="y", color=style.GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    return ax

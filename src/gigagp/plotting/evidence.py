"""The evidence during training."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.errors import InvalidParameter
from gigagp.model.fit_report import FitReport
from gigagp.plotting import style

_HIDDEN_SHARE = 0.1  # share of the evaluations that may lie below the axes: first steps of line searches


def evidence_trace(report: FitReport, ax: Axes | None = None) -> Axes:
    """The log marginal likelihood per point at each evaluation, stage by stage.

    Stages use different experts, so values are comparable only within a stage.
    """
    trace = np.asarray(report.evidence_trace, float)
    if not len(trace):
        raise InvalidParameter("there is no evidence to show: the target is constant, so nothing was trained")
    ax = style.axes(ax, 5.6, 4.0)
    finite = trace[np.isfinite(trace)]
    top, low = float(finite.max()), float(np.quantile(finite, _HIDDEN_SHARE))
    bottom = low - 0.15 * (top - low or 1.0)
    start = 0
    for number, stage in enumerate(report.stages):
        end = start + stage.evaluations
        experts = "1 expert" if stage.experts == 1 else f"{stage.experts:,} experts"
        colour = style.CYCLE[number % len(style.CYCLE)]
        ax.plot(
            np.arange(start, end) + 1, trace[start:end], ".-", color=colour, linewidth=1.3, markersize=4,
            label=f"{stage.name}, {experts}",
        )  # fmt: skip
        start = end
    ax.set_ylim(bottom, top + 0.08 * (top - bottom))
    ax.set_xlabel("evaluation")
    ax.set_ylabel("evidence per point")
    style.whole_numbers(ax)
    style.legend_below(ax, 0.5)
    below = int((trace < bottom).sum())
    style.note(ax, f"{below:,} of {len(trace):,} evaluations below the edge" if below else "")
    return ax

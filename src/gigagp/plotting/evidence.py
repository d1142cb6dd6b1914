"""The evidence during training."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from gigagp.errors import InvalidParameter
from gigagp.model.fit_report import FitReport
from gigagp.plotting import style

_HIDDEN_SHARE = 0.1  # share of the evaluations that may lie below the axes: first steps of line searches
_LINES = (".-", "s--", "^:")  # of the first names, and of those for which the colours are used again


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
    experts_by_name: dict[str, list[int]] = {}
    for stage in report.stages:
        experts_by_name.setdefault(stage.name, []).append(stage.experts)
    names = list(experts_by_name)
    for stage in report.stages:
        end, number = start + stage.evaluations, names.index(stage.name)
        line = ax.plot(
            np.arange(start, end) + 1, trace[start:end], _LINES[number // len(style.CYCLE) % len(_LINES)],
            color=style.CYCLE[number % len(style.CYCLE)], linewidth=1.3, markersize=4,
        )[0]  # fmt: skip
        if stage.name in experts_by_name:  # the first line of its name; the others are not in the legend
            line.set_label(_label(stage.name, experts_by_name.pop(stage.name)))
        start = end
    ax.set_ylim(bottom, top + 0.08 * (top - bottom))
    ax.set_xlabel("evaluation")
    ax.set_ylabel("evidence per point")
    style.whole_numbers(ax)
    style.legend_below(ax, 0.5)
    below = int((trace < bottom).sum())
    style.note(ax, f"{below:,} of {len(trace):,} evaluations below the edge" if below else "")
    return ax


def _label(name: str, experts: list[int]) -> str:
    """The name of a stage and its number of experts, or of groups of rows, in each of its rounds."""
    return f"{name}: {', '.join(f'{count:,}' for count in experts)} {'expert' if experts == [1] else 'experts'}"

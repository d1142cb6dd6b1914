"""Colours that all eyes can tell apart, axes without clutter, and how many rows a picture shows."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from gigagp.arrays import Array

# Okabe & Ito's colours. A page that shows pictures in the dark exchanges them one by one, so nothing else is used
# but these, shades of them (by transparency) and MAP.
BLUE, ORANGE, GREEN, AMBER, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"
CYCLE = (BLUE, AMBER, GREEN, PURPLE, SKY, ORANGE)
INK, MUTED, GRID = "#1f2933", "#66727f", "#dce1e6"
MAP = "viridis"

COUNTS = LinearSegmentedColormap.from_list("counts", [(*to_rgba(BLUE)[:3], 0.12), to_rgba(BLUE)])
SIGNS = LinearSegmentedColormap.from_list(
    "signs", [to_rgba(BLUE), (*to_rgba(BLUE)[:3], 0.04), (*to_rgba(ORANGE)[:3], 0.04), to_rgba(ORANGE)]
)

POINTS = 1_000  # up to so many rows are drawn as points, more are binned
ROWS = 1_000_000  # up to so many rows are binned, of more a sample
_LONG_NAME = 24


def axes(ax: Axes | None, width: float = 5.6, height: float = 3.8) -> Axes:
    """The axes to draw into: those given, or those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 chooses how figures are shown, which is the caller's to begin

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3)
    return ax


def whole_numbers(ax: Axes) -> None:
    """The x axis counts."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def note(ax: Axes, *parts: str) -> None:
    """Small print above the axes."""
    text = "; ".join(part for part in parts if part)
    if text:
        ax.set_title(text, loc="right", fontsize="small", color=MUTED)


def shown(drawn: int, there: int, what: str = "rows") -> str:
    """Small print: how much of it is drawn."""
    return f"{there:,} {what}" if drawn >= there else f"{drawn:,} of {there:,} {what}"


def sample(there: int, most: int, seed: int = 0) -> Array:
    """Which rows to draw, in order: all, or `most` of them at random."""
    if there <= most:
        return np.arange(there)
    return np.sort(np.random.default_rng(seed).choice(there, most, replace=False, shuffle=False))


def shortened(name: str) -> str:
    """At most so much of a name as fits above a column or beside an axis."""
    return name if len(name) <= _LONG_NAME else name[: _LONG_NAME - 1] + "…"


def short(name: str) -> str:
    """The same for matplotlib: a dollar sign is one, not mathematics."""
    return shortened(name).replace("$", r"\$")


def legend_below(ax: Axes, inches: float) -> None:
    """A legend so far below the axes, where it hides nothing."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    below = ax.transAxes + ScaledTranslation(0, -inches, figure.dpi_scale_trans)
    ax.legend(
        frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=2,
        borderaxespad=0, borderpad=0,
    )  # fmt: skip


def cloud(ax: Axes, x: Array, y: Array) -> str:
    """Points, or where they are many the counts of hexagons; returns what the small print says of it."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    there = len(x)
    if there <= POINTS:
        ax.plot(x, y, ".", color=BLUE, alpha=0.55, markersize=5.5, markeredgewidth=0)
        return shown(there, there)
    rows = sample(there, ROWS)
    ax.hexbin(x[rows], y[rows], gridsize=44, mincnt=1, bins="log", cmap=COUNTS, linewidths=0)
    return f"{shown(len(rows), there)}, stronger is more"

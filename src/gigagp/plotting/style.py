"""Colours that are distinguishable for colour-blind readers, plain axes, and notes on the number of rows shown."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.dates import AutoDateLocator, num2date
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from gigagp.arrays import Array
from gigagp.data.sources.times import MOST_DAYS, date_text, is_date, per_day

# The colours of Okabe & Ito. A report replaces them one by one in its dark theme, so pictures use only these colours,
# transparent shades of them, and MAP.
BLUE = "#0072b2"
ORANGE = "#d55e00"
GREEN = "#009e73"
AMBER = "#e69f00"
PURPLE = "#cc79a7"
SKY = "#56b4e9"
CYCLE = (BLUE, AMBER, GREEN, PURPLE, SKY, ORANGE)
INK = "#1f2933"
MUTED = "#66727f"
GRID = "#dce1e6"
MAP = "viridis"

COUNTS = LinearSegmentedColormap.from_list("counts", [(*to_rgba(BLUE)[:3], 0.12), to_rgba(BLUE)])
SIGNS = LinearSegmentedColormap.from_list(
    "signs", [to_rgba(BLUE), (*to_rgba(BLUE)[:3], 0.04), (*to_rgba(ORANGE)[:3], 0.04), to_rgba(ORANGE)]
)

POINTS = 1_000  # up to so many rows are drawn as points; more are binned
ROWS = 1_000_000  # up to so many rows are binned; more are sampled
_MAX_NAME = 24  # characters of a column name


def axes(ax: Axes | None, width: float = 5.6, height: float = 3.8) -> Axes:
    """The axes to draw into: the given ones, or those of a new figure."""
    if ax is None:
        import matplotlib.pyplot as plt  # noqa: PLC0415 selects the backend, which is left to the caller where possible

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(length=3)
    return ax


def whole_numbers(ax: Axes) -> None:
    """Ticks of the x axis at whole numbers only."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def date_axis(axis: Axis, kind: str) -> None:
    """Dates at the ticks of an axis whose numbers are of this kind; other kinds stay numbers."""
    if not is_date(kind):
        return
    low, high = axis.get_view_interval()
    if -MOST_DAYS < low / per_day(kind) < high / per_day(kind) < MOST_DAYS:
        start, end = (num2date(side / per_day(kind)) for side in (low, high))  # type: ignore[no-untyped-call]
        days = AutoDateLocator(minticks=3, maxticks=6).tick_values(start, end)  # type: ignore[no-untyped-call]
        ticks = [float(day) * per_day(kind) for day in days]
        axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: date_text(kind, value, high - low)))


def note(ax: Axes, *parts: str) -> None:
    """Small print above the axes."""
    text = "; ".join(part for part in parts if part)
    if text:
        ax.set_title(text, loc="right", fontsize="small", color=MUTED)


def count_note(count: int, total: int, what: str = "rows") -> str:
    """A note on how many of all rows, or of other things, are drawn."""
    return f"{total:,} {what}" if count >= total else f"{count:,} of {total:,} {what}"


def sample(there: int, most: int, seed: int = 0) -> Array:
    """Which rows to draw, in order: all, or `most` of them at random."""
    if there <= most:
        return np.arange(there)
    return np.sort(np.random.default_rng(seed).choice(there, most, replace=False, shuffle=False))


def shortened(name: str) -> str:
    """The name, cut to the length that fits above a column or beside an axis."""
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def short(name: str) -> str:
    """The shortened name for matplotlib, with dollar signs escaped."""
    return shortened(name).replace("$", r"\$")


def legend_below(ax: Axes, inches: float) -> None:
    """A legend below the axes, where it hides nothing."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    below = ax.transAxes + ScaledTranslation(0, -inches, figure.dpi_scale_trans)
    ax.legend(
        frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0, 0), bbox_transform=below, ncols=2,
        borderaxespad=0, borderpad=0,
    )  # fmt: skip


def cloud(ax: Axes, x: Array, y: Array) -> str:
    """Draw points, or counts in hexagons if there are many points; returns a note on the number of rows."""
    x, y = np.asarray(x, float), np.asarray(y, float)
    there = len(x)
    if there <= POINTS:
        ax.plot(x, y, ".", color=BLUE, alpha=0.55, markersize=5.5, markeredgewidth=0)
        return count_note(there, there)
    rows = sample(there, ROWS)
    ax.hexbin(x[rows], y[rows], gridsize=44, mincnt=1, bins="log", cmap=COUNTS, linewidths=0)
    return f"{count_note(len(rows), there)}, darker means more rows"

"""Predictions against targets, and residuals along one or two columns."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm

from gigagp.arrays import Array
from gigagp.plotting import style

_MAX_BINS_2D = 24  # bins along each side of a map
_MAX_BINS_1D = 16  # bins along a column
_MIN_ROWS_OF_BIN = 3  # rows of a bin that is drawn
_TYPICAL_ROWS_OF_BIN = 10  # mean number of rows per bin where rows are few
_COLOUR_LIMITS = np.array([-2.0, -1.5, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 1.5, 2.0])
_SHOWN_SHARE = 0.999  # share of the rows within the limits of the axes


def predicted_against_true(y: Array, mean: Array, name: str = "y", ax: Axes | None = None) -> Axes:
    """Predicted means against the targets; good predictions lie near the diagonal."""
    y, mean = np.asarray(y, float), np.asarray(mean, float)
    ax = style.axes(ax, 4.2, 4.2)
    low, high = min(y.min(), mean.min()), max(y.max(), mean.max())
    edge = 0.03 * (high - low) or 0.5
    note = style.cloud(ax, y, mean)
    ax.axline((low, low), slope=1, color=style.INK, linewidth=1, linestyle="--")
    ax.set(xlim=(low - edge, high + edge), ylim=(low - edge, high + edge), aspect="equal")
    ax.set_xlabel(f"true {style.short(name)}")
    ax.set_ylabel(f"predicted {style.short(name)}")
    style.note(ax, note)
    return ax


def residuals_along(x: Array, z: Array, name: str = "x", ax: Axes | None = None) -> Axes:
    """Residuals in predicted standard deviations along one column, with their median and central 95%.

    Calibrated predictions have a median of 0 and 95% of the residuals between -2 and 2 everywhere.
    """
    x, z = np.asarray(x, float), np.asarray(z, float)
    ax = style.axes(ax)
    note = style.cloud(ax, x, z)
    edges = np.unique(np.quantile(x, np.linspace(0, 1, min(_MAX_BINS_1D, max(1, len(x) // 40)) + 1)))
    if len(edges) > 1:
        bins = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
        parts = [z[bins == b] for b in range(len(edges) - 1)]
        low, middle, high = np.array([np.quantile(part, [0.025, 0.5, 0.975]) for part in parts]).T
        centres = (edges[1:] + edges[:-1]) / 2
        ax.plot(centres, middle, color=style.ORANGE, linewidth=1.8, label="median of the residuals")
        for edge, label in ((low, "central 95%"), (high, None)):
            ax.plot(centres, edge, color=style.ORANGE, linewidth=1.2, linestyle=":", label=label)
        ax.legend(frameon=False, fontsize="small", loc="upper left", ncols=2)
    for level in (-1.96, 0, 1.96):
        ax.axhline(level, color=style.INK, linewidth=0.8, linestyle="--", alpha=0.7)
    top = max(4.0, float(np.quantile(np.abs(z), _SHOWN_SHARE)))
    ax.set_ylim(-top, 1.2 * top)
    ax.set_xlabel(style.short(name))
    ax.set_ylabel("residual / predicted std")
    out = int((np.abs(z) > top).sum())
    style.note(ax, note, f"{out:,} outside the axes" if out else "")
    return ax


def residual_map(X: Array, z: Array, names: tuple[str, str] = ("x0", "x1"), ax: Axes | None = None) -> Axes:
    """Mean residual, in predicted standard deviations, over two columns: without a pattern if the model is right.

    X : two columns
    """
    X, z = np.asarray(X, float), np.asarray(z, float)
    rows = style.sample(len(z), style.ROWS)
    x, v = X[rows].T
    bins = int(np.clip((len(rows) / _TYPICAL_ROWS_OF_BIN) ** 0.5, 4, _MAX_BINS_2D))
    edges = [_edges(side, bins) for side in (x, v)]
    counts, *_ = np.histogram2d(x, v, bins=edges)
    sums, *_ = np.histogram2d(x, v, bins=edges, weights=z[rows])
    mean = np.where(counts >= _MIN_ROWS_OF_BIN, sums / np.maximum(counts, 1), np.nan)
    ax = style.axes(ax, 5.2, 4.2)
    mesh = ax.pcolormesh(
        *edges,
        np.ma.masked_invalid(mean.T),
        cmap=style.SIGNS,
        norm=BoundaryNorm(_COLOUR_LIMITS, style.SIGNS.N, extend="both"),
    )
    ax.set_xlabel(style.short(names[0]))
    ax.set_ylabel(style.short(names[1]))
    bar = ax.figure.colorbar(
        mesh, ax=ax, label="mean residual / predicted std", ticks=_COLOUR_LIMITS[[0, 2, 4, 5, 7, 9]]
    )
    bar.outline.set_visible(False)  # type: ignore[operator]
    style.note(ax, style.count_note(len(rows), len(z)), f"cells with {_MIN_ROWS_OF_BIN} rows or more")
    return ax


def _edges(x: Array, bins: int) -> Array:
    """Edges of equal bins over the range of nearly all rows."""
    low, high = (float(end) for end in np.quantile(x, [1 - _SHOWN_SHARE, _SHOWN_SHARE]))
    return np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 0.5, low + 0.5, bins + 1)

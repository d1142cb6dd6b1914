"""Common parts of the figures: colours, axes and saving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

EXACT = "#c03a2b"
OURS = "#1f5fa8"
GREY = "#7d7d7d"
FAMILY = ("#1f5fa8", "#d1602a", "#3a8f4c", "#8450a0", "#b8912b", "#4aa0a8", "#a8475f", "#6b7a2f")


def grid(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    """A figure and its axes, always as an array of two dimensions."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def bare(axes: Axes) -> None:
    """Without ticks and without a box."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Save the figure without metadata, so that the same picture gives the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})

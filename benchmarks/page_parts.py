"""What the pages of measurements share: tables, figures, times in words, and the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from measure import HERE

DOCS = HERE.parent / "docs"
FIGURES = DOCS / "benchmarks"
COLOURS = ("#1f5fa8", "#d1602a", "#3a8f4c", "#8450a0", "#7d7d7d")
Result = dict[str, Any]  # what a benchmark has saved


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(
    name: str, draw: Callable[[Axes], None], title: str, size: tuple[float, float] = (6.4, 4.2), folder: Path = FIGURES
) -> str:
    """Draw a figure into a folder of docs; return the line that shows it on a page.

    size : width and height in inches
    """
    with plt.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
        picture, axes = plt.subplots(figsize=size, layout="constrained")
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        draw(axes)
        axes.set_title(title, fontsize=11, loc="left")
        folder.mkdir(parents=True, exist_ok=True)
        picture.savefig(folder / f"{name}.png", dpi=140)
        plt.close(picture)
    return f"![{title}]({folder.name}/{name}.png)"


def powers_of_two(axes: Axes, sizes: Iterable[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(sizes)), minor=False)
    axes.minorticks_off()


def time_of(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} us"
    if seconds < 1:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def origin(result: Result) -> str:
    m = result["machine"]
    cores = "1 core" if m["cores"] == 1 else f"{m['cores']} cores"
    return f"{m['cpu']}, {cores}, {m['memory_gb']:g} GB; Python {m['python']}, NumPy {m['numpy']}"

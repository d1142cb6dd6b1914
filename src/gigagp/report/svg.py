"""Figures as inline SVG that takes its colours from the page, so that it follows the light, dark and print themes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gigagp.markup import Html, markup, tag
from gigagp.plotting import style

_COLOUR_NAMES = ("BLUE", "ORANGE", "GREEN", "AMBER", "PURPLE", "SKY", "INK", "MUTED", "GRID")
_COLOURS = {getattr(style, name): f"var(--{name.lower()})" for name in _COLOUR_NAMES}
_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "svg.fonttype": "path",
    "text.color": style.INK,
    "axes.labelcolor": style.INK,
    "axes.edgecolor": style.MUTED,
    "xtick.color": style.MUTED,
    "ytick.color": style.MUTED,
    "xtick.labelcolor": style.INK,
    "ytick.labelcolor": style.INK,
}


def figure(name: str, draw: Callable[[Axes], Any], width: float, height: float, caption: str) -> Html:
    """A figure with its caption. `name` is the prefix of all ids in its SVG, so that ids are unique in the page."""
    with mpl.rc_context():
        mpl.rcdefaults()
        for setting, value in {**_SETTINGS, "svg.hashsalt": name}.items():
            mpl.rcParams[setting] = value  # type: ignore[index]
        canvas = Figure(figsize=(width, height), layout="constrained")
        draw(canvas.add_subplot())
        output = io.StringIO()
        canvas.savefig(output, format="svg", transparent=True, metadata={"Date": None})
    return tag("figure", _inline(output.getvalue(), name, caption), tag("figcaption", caption), id=f"figure-{name}")


def _inline(svg: str, name: str, caption: str) -> Html:
    """The SVG as part of a page: without prolog, with its own ids and the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.S)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    for colour, variable in _COLOURS.items():
        svg = re.sub(f"(?<=[: ]){colour}\\b", variable, svg)
    return Html(svg.replace("<svg", f'<svg role="img" aria-label="{markup(caption)}"', 1))

"""HTML from Python: whatever is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def markup(value: Any) -> Html:
    """The value as it may stand in a page."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def tag(name: str, *content: Any, **attributes: Any) -> Html:
    """An element; an attribute `class_` is `class`, `aria_label` is `aria-label`."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{markup(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{said}>{join(content)}</{name}>")


def join(parts: Iterable[Any], between: str = "") -> Html:
    return Html(between.join(markup(part) for part in parts))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], **attributes: Any) -> Html:
    """The first column names the rows."""
    titles = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    return tag("table", tag("thead", titles), tag("tbody", *body), **attributes)

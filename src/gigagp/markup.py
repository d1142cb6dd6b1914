"""Functions that build HTML; every text that is not of type Html is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def markup(value: Any) -> Html:
    """The value as HTML: escaped, unless it is Html already."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def tag(name: str, *content: Any, **attributes: Any) -> Html:
    """An HTML element. The attribute `class_` stands for `class`, `aria_label` for `aria-label`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{markup(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def join(parts: Iterable[Any], between: str = "") -> Html:
    return Html(between.join(markup(part) for part in parts))


def notebook(*content: Any) -> Html:
    """The representation of an object in a notebook; works with light and dark themes."""
    return tag("div", tag("style", _NOTEBOOK), *content, class_="gigagp-view")


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], **attributes: Any) -> Html:
    """A table whose first column contains row headers."""
    titles = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows)
    return tag("table", tag("thead", titles), tag("tbody", *body), **attributes)


_NOTEBOOK = Html(
    ".gigagp-view{overflow-x:auto}"
    ".gigagp-view table{border-collapse:collapse;margin:.6em 0}"
    ".gigagp-view th,.gigagp-view td{font-weight:normal;text-align:right;padding:.15em 1em .15em 0;"
    "border-bottom:1px solid rgba(128,128,128,.3)}"
    ".gigagp-view th:first-child{text-align:left}"
    ".gigagp-view thead th{opacity:.7}"
)

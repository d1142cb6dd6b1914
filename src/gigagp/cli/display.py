"""Progress on stderr: one updating line on a terminal, otherwise one line at the end of each stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gigagp.progress import Listener, Pace

_REFRESHES = 2  # per second; drawing a line takes a few milliseconds of one core
_MAX_BAR = 24  # characters
_MIN_BAR = 6  # characters


@contextmanager
def display() -> Iterator[Listener]:
    """A listener that shows progress within the context."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _updating_line() as listener:
            yield listener
        return
    pace = Pace.plain(lambda facts: print(", ".join(facts), file=sys.stderr, flush=True))
    yield pace
    pace.close()


def joined(facts: list[str], width: int) -> str:
    """The facts, separated by commas; those that do not fit into the width are left out."""
    line = facts[0]
    for fact in facts[1:]:
        if len(line) + 2 + len(fact) <= width:
            line += f", {fact}"
    return line[:width]


@contextmanager
def _updating_line() -> Iterator[Listener]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, highlight=False)

    def print_line(facts: list[str]) -> None:
        live.refresh()  # otherwise the printed text appears above the old state of the line
        console.print(joined(facts, console.width - 1), markup=False, no_wrap=True)

    def render() -> Any:
        if pace.stage is None:
            return Text("")
        width = console.width - 1
        facts = joined(pace.facts(), width - len(pace.stage) - 1)
        line, share = Text(f"{pace.stage} "), pace.share
        room = min(_MAX_BAR, width - len(pace.stage) - len(facts) - 2)
        if share is not None and room >= _MIN_BAR:
            full = round(room * min(1.0, share))
            line.append("━" * full, "green").append("━" * (room - full), "bright_black").append(" ")
        return line.append(facts)

    pace = Pace(print_line)
    live = Live(
        console=console, get_renderable=render, transient=True, refresh_per_second=_REFRESHES, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip

    with live:
        yield pace
        pace.close()

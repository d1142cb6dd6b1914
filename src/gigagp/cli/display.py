"""Progress on stderr: a line that moves where it is a terminal, else plain lines at the end of each stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gigagp.progress import Listener, Pace

_REFRESHES = 2  # a second; drawing a line takes a few milliseconds of one core
_BAR, _LEAST_BAR = 24, 6  # characters


@contextmanager
def display() -> Iterator[Listener]:
    """A listener for as long as something is shown."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        with _moving() as listener:
            yield listener
        return
    pace = Pace.plain(lambda facts: print(", ".join(facts), file=sys.stderr, flush=True))
    yield pace
    pace.close()


def fitted(facts: list[str], room: int) -> str:
    """As many of the facts, from the first on, as there is room for."""
    line = facts[0]
    for fact in facts[1:]:
        if len(line) + 2 + len(fact) <= room:
            line += f", {fact}"
    return line[:room]


@contextmanager
def _moving() -> Iterator[Listener]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(stderr=True, highlight=False)

    def say(facts: list[str]) -> None:
        live.refresh()  # else what is printed comes above the line as it was
        console.print(fitted(facts, console.width - 1), markup=False, no_wrap=True)

    def drawn() -> Any:
        if pace.stage is None:
            return Text("")
        width = console.width - 1
        facts = fitted(pace.facts(), width - len(pace.stage) - 1)
        line, share = Text(f"{pace.stage} "), pace.share
        room = min(_BAR, width - len(pace.stage) - len(facts) - 2)
        if share is not None and room >= _LEAST_BAR:
            full = round(room * min(1.0, share))
            line.append("━" * full, "green").append("━" * (room - full), "bright_black").append(" ")
        return line.append(facts)

    pace = Pace(say)
    live = Live(
        console=console, get_renderable=drawn, transient=True, refresh_per_second=_REFRESHES, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip

    with live:
        yield pace
        pace.close()

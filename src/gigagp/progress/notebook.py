"""Progress in a notebook: the output of a cell that is written anew, instead of a line an evaluation."""

from __future__ import annotations

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from gigagp.progress.events import Event
from gigagp.progress.pace import Pace

_EVERY = 0.25  # seconds between two drawings: each is a message to the browser


def is_here() -> bool:
    """Whether this is a kernel that a notebook talks to."""
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class Cell:
    """A line for each stage that has ended, and one for the stage under way."""

    def __init__(self) -> None:
        self._ended: list[str] = []
        self._pace = Pace(lambda facts: self._ended.append(", ".join(facts)))
        self._shown: Any = None
        self._when = 0.0

    def __call__(self, event: Event) -> None:
        known = len(self._ended)
        self._pace(event)
        last_block = event.total is not None and event.done >= event.total
        if last_block and event.stage in ("prediction", "evaluation"):
            self._pace.close()  # nothing follows that would end them
        if len(self._ended) > known or time.perf_counter() - self._when > _EVERY:
            self._draw()

    def _draw(self) -> None:
        under_way = [] if self._pace.stage is None else [f"{self._pace.stage}: {', '.join(self._pace.facts())}"]
        text = "\n".join([*self._ended, *under_way])
        bundle = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        if self._shown is None:
            display: Any = import_module("IPython.display")  # only where it runs already
            self._shown = display.display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)
        self._when = time.perf_counter()

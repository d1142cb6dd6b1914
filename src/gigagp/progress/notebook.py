"""Progress in a notebook: one cell output that is updated, instead of one line per evaluation."""

from __future__ import annotations

import sys
import time
from html import escape
from importlib import import_module
from typing import Any

from gigagp.progress.events import Event
from gigagp.progress.pace import Pace

_UPDATE_INTERVAL = 0.25  # seconds; each update is a message to the browser


def is_here() -> bool:
    """Whether this process is the kernel of a notebook."""
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class Cell:
    """One line per finished stage, and one for the current stage."""

    def __init__(self) -> None:
        self._ended: list[str] = []
        self._pace = Pace(lambda facts: self._ended.append(", ".join(facts)))
        self._shown: Any = None
        self._updated = 0.0

    def __call__(self, event: Event) -> None:
        ended_before = len(self._ended)
        self._pace(event)
        last_block = event.total is not None and event.done >= event.total
        if last_block and event.stage in ("prediction", "evaluation"):
            self._pace.close()  # no later event would end these stages
        if len(self._ended) > ended_before or time.perf_counter() - self._updated > _UPDATE_INTERVAL:
            self._draw()

    def _draw(self) -> None:
        current = [] if self._pace.stage is None else [f"{self._pace.stage}: {', '.join(self._pace.facts())}"]
        text = "\n".join([*self._ended, *current])
        bundle = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        if self._shown is None:
            display: Any = import_module("IPython.display")  # imported only where IPython runs already
            self._shown = display.display(bundle, raw=True, display_id=True)
        else:
            self._shown.update(bundle, raw=True)
        self._updated = time.perf_counter()

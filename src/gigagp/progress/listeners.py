"""The listener of a fit or prediction: passes events to the user's listener, to the logger and to the terminal."""

from __future__ import annotations

import logging

from gigagp.progress import notebook
from gigagp.progress.events import Event, Listener

LOGGER = logging.getLogger("gigagp")
LOGGER.addHandler(logging.NullHandler())


def make_listener(verbose: int, listener: Listener | None = None) -> Listener:
    """A listener that passes events to `listener` and to the logger, and prints those that `verbose` selects.

    With verbose=2 a notebook shows one updating line instead of one line per evaluation.
    """
    cell = notebook.Cell() if verbose >= 2 and notebook.is_here() else None

    def pass_on(event: Event) -> None:
        if listener is not None:
            listener(event)
        severity = logging.INFO if event.level == 1 else logging.DEBUG
        if LOGGER.isEnabledFor(severity):
            LOGGER.log(severity, event.line)
        if cell is not None:
            cell(event)
        elif verbose >= event.level:
            print(f"[gigagp] {event.line}", flush=True)

    return pass_on

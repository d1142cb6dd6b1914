"""Who hears of an event: a listener, the logger "gigagp", and whoever looks at what is printed."""

from __future__ import annotations

import logging

from gigagp.progress import notebook
from gigagp.progress.events import Event, Listener

LOGGER = logging.getLogger("gigagp")
LOGGER.addHandler(logging.NullHandler())


def teller(verbose: int, listener: Listener | None = None) -> Listener:
    """Hands events to the listener, to the logger, and as lines to the terminal where `verbose` asks for them.

    With verbose=2 a notebook shows one line that moves instead of one an evaluation.
    """
    cell = notebook.Cell() if verbose >= 2 and notebook.is_here() else None

    def tell(event: Event) -> None:
        if listener is not None:
            listener(event)
        severity = logging.INFO if event.level == 1 else logging.DEBUG
        if LOGGER.isEnabledFor(severity):
            LOGGER.log(severity, event.line)
        if cell is not None:
            cell(event)
        elif verbose >= event.level:
            print(f"[gigagp] {event.line}", flush=True)

    return tell

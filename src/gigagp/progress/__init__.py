"""Progress of long computations: events that are passed to listeners and to the logger "gigagp".

A listener that raises an exception stops the computation, which cleans up as after any error.
"""

from gigagp.progress.events import Counter, Event, Listener, silent
from gigagp.progress.listeners import make_listener
from gigagp.progress.pace import Pace

__all__ = ["Counter", "Event", "Listener", "Pace", "make_listener", "silent"]

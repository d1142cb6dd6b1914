"""What happens while it happens: small events, to whoever asked for them, and lines to the logger "gigagp".

A listener that raises stops the work, and what was begun is tidied up as after any error.
"""

from gigagp.progress.events import Counter, Event, Listener, silent
from gigagp.progress.pace import Pace
from gigagp.progress.telling import teller

__all__ = ["Counter", "Event", "Listener", "Pace", "silent", "teller"]

"""How fast a stage goes, how long it will take, and in how much memory; and how it ended, in one line."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gigagp.progress.events import Event

_FLAT = 1e-5  # the slope at which training ends at the latest
_FALLEN = 10.0  # times the slope must have fallen before its fall says anything
_EVERY = 30.0  # seconds between lines of a long stage where nothing moves


class Pace:
    """Follows the stages of a fit or a prediction. When one has ended `say` hears of it, the most important first."""

    def __init__(self, say: Callable[[list[str]], None], every: float = math.inf) -> None:
        self._say, self._every = say, every
        self._first: Event | None = None
        self._last: Event | None = None
        self._least = math.inf  # slope
        self._said = 0.0

    @classmethod
    def plain(cls, say: Callable[[list[str]], None]) -> Pace:
        """For logs: a stage that lasts is heard of meanwhile."""
        return cls(say, _EVERY)

    @property
    def stage(self) -> str | None:
        """The stage under way."""
        return None if self._last is None else self._last.stage

    @property
    def share(self) -> float | None:
        """How much of the stage is done, where that is known."""
        last = self._last
        return last.done / last.total if last is not None and last.total else None

    @property
    def left(self) -> float | None:
        """Seconds until the stage ends: from the rows left, or from how fast the slope has fallen.

        The latter is a guess, and none is made for batches of experts that grow.
        """
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        if last.total and last.done:
            return last.seconds * (last.total - last.done) / last.done
        if first.slope and first.experts == last.experts and self._least * _FALLEN < first.slope:
            done = math.log(first.slope / max(self._least, _FLAT)) / math.log(first.slope / _FLAT)
            return last.seconds * (1 - done) / done
        return None

    def facts(self) -> list[str]:
        """What is to be said of the stage under way, the most important first."""
        assert self._last is not None
        return _facts(self._last, None if self.left is None else f"{_time(self.left)} left")

    def __call__(self, event: Event) -> None:
        last = self._last
        if last is not None and (last.stage != event.stage or event.finished):
            self.close()
        if event.finished:
            if last is None or last.stage != event.stage:
                self._say([f"{event.stage}: {event.seconds:.1f} s"])
            return
        if self._last is None:
            self._first, self._least, self._said = event, math.inf, 0.0
        self._last = event
        self._least = min(self._least, event.slope or math.inf)
        if event.seconds - self._said > self._every:
            self._said = event.seconds
            self._say(_headed(event, self.facts()))

    def close(self) -> None:
        """The stage under way has ended."""
        if self._last is not None:
            last, self._last = self._last, None
            self._say(_headed(last, _facts(last, f"{last.seconds:.1f} s")))


def _headed(event: Event, facts: list[str]) -> list[str]:
    return [f"{event.stage}: {facts[0]}", *facts[1:]]


def _facts(event: Event, time: str | None) -> list[str]:
    experts = [] if event.experts is None else [_count(event.experts, "expert")]
    return [*_reached(event), *([] if time is None else [time]), _rate(event), f"{resident() / 1e9:.2f} GB", *experts]


def _reached(event: Event) -> list[str]:
    if event.evidence is not None:
        return [_count(event.done, "step"), f"evidence {event.evidence:.4f}", f"slope {event.slope:.1e}"]
    if event.total is not None and event.done < event.total:
        return [f"{event.done:,} of {_count(event.total, 'row')}"]
    return [_count(event.done, "row")]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def _rate(event: Event) -> str:
    each = event.done / max(event.seconds, 1e-3)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if each >= size:
            return f"{each / size:.3g}{letter}/s"
    return f"{each:.3g}/s"


def _time(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.0f} h"


def resident() -> int:
    """Bytes of memory that this process has now; where the system does not say, the most it has had."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource  # noqa: PLC0415 not on every platform

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

"""Rate, remaining time and memory of a stage while it runs, and one line of text when it has ended."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gigagp.progress.events import Event

_FINAL_SLOPE = 1e-5  # slope at which training ends at the latest
_MIN_DECREASE = 10.0  # factor by which the slope must have decreased before the remaining time is estimated
_LOG_INTERVAL = 30.0  # seconds between the lines of a long stage in a log


class Pace:
    """Follows the stages of a fit or a prediction, and calls `write` with the facts of each stage that has ended.

    Facts are short texts, the most important first.
    """

    def __init__(self, write: Callable[[list[str]], None], every: float = math.inf) -> None:
        self._write, self._every = write, every
        self._first: Event | None = None
        self._last: Event | None = None
        self._least = math.inf  # slope
        self._written = 0.0

    @classmethod
    def plain(cls, write: Callable[[list[str]], None]) -> Pace:
        """For logs: writes also at intervals during a long stage."""
        return cls(write, _LOG_INTERVAL)

    @property
    def stage(self) -> str | None:
        """The current stage."""
        return None if self._last is None else self._last.stage

    @property
    def share(self) -> float | None:
        """The share of the stage that is done, if known."""
        last = self._last
        return last.done / last.total if last is not None and last.total else None

    @property
    def left(self) -> float | None:
        """Estimated seconds until the stage ends, from the remaining rows or from the decrease of the slope.

        The latter is a rough guess, and is not made where the batches of experts grow.
        """
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        if last.total and last.done:
            return last.seconds * (last.total - last.done) / last.done
        if first.slope and first.experts == last.experts and self._least * _MIN_DECREASE < first.slope:
            done = math.log(first.slope / max(self._least, _FINAL_SLOPE)) / math.log(first.slope / _FINAL_SLOPE)
            return last.seconds * (1 - done) / done
        return None

    def facts(self) -> list[str]:
        """The facts about the current stage, the most important first."""
        assert self._last is not None
        return _facts(self._last, None if self.left is None else f"{_time(self.left)} left")

    def __call__(self, event: Event) -> None:
        last = self._last
        if last is not None and (last.stage != event.stage or event.finished):
            self.close()
        if event.finished:
            if last is None or last.stage != event.stage:
                self._write([f"{event.stage}: {event.seconds:.1f} s"])
            return
        if self._last is None:
            self._first, self._least, self._written = event, math.inf, 0.0
        self._last = event
        self._least = min(self._least, event.slope or math.inf)
        if event.seconds - self._written > self._every:
            self._written = event.seconds
            self._write(_headed(event, self.facts()))

    def close(self) -> None:
        """End the current stage."""
        if self._last is not None:
            last, self._last = self._last, None
            self._write(_headed(last, _facts(last, f"{last.seconds:.1f} s")))


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
    """Resident memory of this process in bytes; its peak where the system does not report the current value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource  # noqa: PLC0415 not on every platform

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

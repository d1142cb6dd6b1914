"""Progress on stderr: a line that moves where it is a terminal, else one plain line at the end of each stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gigagp.progress import Event, Listener

_REFRESHES = 2  # a second; drawing a line takes a few milliseconds of one core


@contextmanager
def display() -> Iterator[Listener]:
    """A listener for as long as something is shown."""
    moving = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if moving:
        with _moving() as listener:
            yield listener
        return
    stages = Stages(lambda line: print(line, file=sys.stderr, flush=True))
    yield stages
    stages.close()


class Stages:
    """Says how each stage ended, when it has."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: Event | None = None

    def __call__(self, event: Event) -> None:
        last = self._last
        if event.finished and (last is None or last.stage != event.stage):
            self.close()
            self._say(f"{event.stage}: {event.seconds:.1f} s")
            return
        if last is not None and last.stage != event.stage:
            self.close()
        if event.finished:
            self.close()
        else:
            self._last = event

    def close(self) -> None:
        if self._last is not None:
            self._say(f"{self._last.stage}: {detail(self._last)}, {self._last.seconds:.1f} s")
            self._last = None


def detail(event: Event) -> str:
    """How far a stage has come, in few words."""
    if event.evidence is not None:
        experts = "1 expert" if event.experts == 1 else f"{event.experts:,} experts"
        return f"{event.done} evaluations, evidence {event.evidence:.4f}, slope {event.slope:.2g}, {experts}"
    done = event.total is not None and event.done < event.total
    return f"{event.done:,} of {event.total:,} rows" if done else f"{event.done:,} rows"


@contextmanager
def _moving() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Bar(BarColumn):
        """A bar where the end is known."""

        def render(self, task: Any) -> Any:
            return super().render(task) if task.total else Text("")

    columns = (TextColumn("{task.description}"), Bar(24), TextColumn("{task.fields[detail]}"), TimeElapsedColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=_REFRESHES, redirect_stdout=False,
        redirect_stderr=False,
    ) as shown:  # fmt: skip

        def say(line: str) -> None:
            for task in list(shown.task_ids):
                shown.remove_task(task)
            shown.refresh()  # else what is printed comes above the line as it was
            console.print(line, markup=False, overflow="ellipsis", no_wrap=True)

        stages = Stages(say)

        def listener(event: Event) -> None:
            stages(event)
            if event.finished:
                return
            if shown.task_ids:
                shown.update(shown.task_ids[0], completed=event.done, detail=detail(event))
            else:
                shown.add_task(event.stage, total=event.total, completed=event.done, detail=detail(event))

        yield listener
        stages.close()

"""Progress events: one per block of rows or per evaluation of the evidence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """The progress of one stage of a fit or a prediction.

    Stages of a fit: "scan", "store" and "sort" count rows (read, put into memory or distributed to buckets, sorted on
    disk); "rough theta", "start of training", "choice of kernel" and "training" count evaluations of the evidence;
    "partition and store", "choice of prediction", "average of kernels" and "noise of the inputs" only report their end.
    Other calls have the stages "prediction", "sort of queries", "grid", "evaluation" and "making", which count rows.
    """

    stage: str
    done: int  # rows, or evaluations
    total: int | None  # None where it is not known in advance
    seconds: float  # since the stage began
    evidence: float | None = None  # log marginal likelihood per point
    slope: float | None = None  # norm of its gradient
    experts: int | None = None  # number of experts in the evaluation
    finished: bool = False

    @property
    def line(self) -> str:
        """The event as a line of text."""
        if self.finished:
            return f"{self.stage}: {self.seconds:.2f} s"
        if self.evidence is not None:
            return (
                f"{self.stage}, evaluation {self.done}: evidence/point {self.evidence:.6f}, slope {self.slope:.2g}, "
                f"{self.experts:,} experts, {self.seconds:.2f} s"
            )
        word = "predicted" if self.stage == "prediction" else f"{self.stage}:"
        return f"{word} {self.done} rows" + ("" if self.total is None else f" of {self.total}")

    @property
    def level(self) -> int:
        """The smallest `verbose` that prints the event: 1 for ends of stages and predictions, otherwise 2."""
        return 1 if self.finished or self.stage == "prediction" else 2


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """A listener that ignores all events."""


class Counter:
    """Reports the number of rows that a stage has processed."""

    def __init__(self, stage: str, total: int | None, tell: Listener) -> None:
        self._stage, self._total, self._tell, self._start = stage, total, tell, time.perf_counter()
        self._done = 0

    def add(self, rows: int) -> None:
        self(self._done + rows)

    def __call__(self, done: int) -> None:
        self._done = done
        self._tell(Event(self._stage, done, self._total, time.perf_counter() - self._start))

"""What happens while it happens, in small events: one a block of rows or an evaluation of the evidence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """How far a stage has come.

    Stages of a fit: "scan", "store" and "sort" count rows (read, put into memory or dealt into buckets, sorted on
    disk); "rough theta", "choice of kernel", "choice of leaf size" and "training" count evaluations of the evidence;
    "partition and store", "choice of sharing" and "calibration" only end. Stages of others: "prediction", "evaluation"
    and "making", which count rows.
    """

    stage: str
    done: int  # rows, or evaluations
    total: int | None  # None where only the end tells
    seconds: float  # since the stage began
    evidence: float | None = None  # log marginal likelihood per point
    slope: float | None = None  # norm of its gradient
    experts: int | None = None  # that took part in the evaluation
    finished: bool = False

    @property
    def line(self) -> str:
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
        """From which `verbose` on the event is printed: ends of stages and predictions 1, all else 2."""
        return 1 if self.finished or self.stage == "prediction" else 2


Listener = Callable[[Event], None]


def silent(event: Event) -> None:
    """Nobody listens."""


class Counter:
    """Counts the rows of one stage."""

    def __init__(self, stage: str, total: int | None, tell: Listener) -> None:
        self._stage, self._total, self._tell, self._begun = stage, total, tell, time.perf_counter()
        self._done = 0

    def add(self, rows: int) -> None:
        self(self._done + rows)

    def __call__(self, done: int) -> None:
        self._done = done
        self._tell(Event(self._stage, done, self._total, time.perf_counter() - self._begun))

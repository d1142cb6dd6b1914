"""Times at which a peer must stop, by wall time or by the CPU time of the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
WALL: Clock = time.perf_counter
CPU: Clock = time.process_time  # of all threads together: it does not depend on what else the machine does


@dataclass(frozen=True)
class Deadline:
    """A time by a clock."""

    clock: Clock
    end: float

    @classmethod
    def after(cls, seconds: float, clock: Clock) -> Deadline:
        return cls(clock, clock() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.end - self.clock()

    @property
    def passed(self) -> bool:
        return self.left <= 0

    def sooner(self, share: float) -> Deadline:
        """The time after this share of the seconds that are left."""
        return Deadline.after(share * self.left, self.clock)

"""What happens during a fit, as its report shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from gigagp.fit.kernel_families import Trial
from gigagp.fit.starts import Start
from gigagp.fit.training import Trace
from gigagp.model.fit_report import Candidate, Stage
from gigagp.progress import Event, Listener


@dataclass
class Record:
    """What happens during a fit: seconds per stage, optimisations, evaluations, choices."""

    tell: Listener
    trace: Trace
    inside: bool = False  # whether it all is part of one stage of another record
    seconds: dict[str, float] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    choices: list[Candidate] = field(default_factory=list)

    def add(self, trials: Sequence[Start] | Sequence[Trial]) -> None:
        """Record the optimisations and scores of candidates."""
        self.stages.extend(stage for trial in trials for stage in trial.stages)
        self.choices.extend(trial.candidate for trial in trials)

    def add_from(self, other: Record) -> None:
        """Record what another record contains."""
        self.seconds |= other.seconds
        self.stages += other.stages
        self.choices += other.choices

    def reject(self, what: str, name: str) -> None:
        """Mark a candidate as not chosen, because a later one has taken its place."""
        self.choices = [
            replace(each, chosen=False) if (each.what, each.name) == (what, name) else each for each in self.choices
        ]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        if not self.inside:
            self.trace.begin(name)
        yield
        self.seconds[name] = time.perf_counter() - start
        if not self.inside:
            self.tell(Event(name, 0, None, self.seconds[name], finished=True))

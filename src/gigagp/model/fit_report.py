"""What happened during a fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import fill

import numpy as np

from gigagp.arrays import Array
from gigagp.markup import Html, notebook, table, tag
from gigagp.model.calibration import Calibration
from gigagp.model.fit_warnings import FitWarning, sentences
from gigagp.model.units import Units

_SHOWN = 5  # warnings in a notebook


@dataclass(frozen=True)
class Stage:
    """One optimisation: the experts and points of its evidence, and how it ended."""

    name: str
    experts: int
    points: int
    iterations: int
    evaluations: int
    evidence_per_point: float
    message: str
    converged: bool


@dataclass(frozen=True)
class Candidate:
    """One candidate of a choice; its score is the mean CRPS of held-out rows in the model's units."""

    what: str
    name: str
    score: float
    chosen: bool = False


# What to do where targets look like something that a Gaussian does not describe.
SUGGESTIONS = {
    "counts": 'the targets look like counts; likelihood="negative_binomial" or "poisson" predicts whole numbers, none '
    "of them negative",
    "labels": 'all targets are 0 or 1; likelihood="bernoulli" predicts the probability of 1, HGPClassifier the class',
    "shares": 'all targets lie between 0 and 1; where they are shares of successes, likelihood="bernoulli" with '
    "sample_weight= the number of trials keeps predictions between 0 and 1",
}


@dataclass(frozen=True)
class FitReport:
    """Iterations, evaluations, seconds per stage, traces, jitter and the optimiser's own words."""

    rows: int
    leaves: int
    points_per_leaf: tuple[int, int]  # smallest and largest, for the evidence
    points_per_expert: tuple[int, int]  # smallest and largest, for prediction
    stages: tuple[Stage, ...]
    seconds: dict[str, float]
    evidence_trace: tuple[float, ...]  # log marginal likelihood per point at each evaluation
    theta_trace: Array  # (evaluations, len(theta))
    names: tuple[str, ...]
    theta: Array
    jitter: float
    jittered_experts: int
    warnings: tuple[FitWarning, ...] = ()
    dropped: int = 0  # rows with missing values, which were not used
    copies: int = 0  # rows that were not used because they are exact copies of others
    looks_like: str = ""  # "counts", "labels" or "shares" where a likelihood of their own would suit the targets
    choices: tuple[Candidate, ...] = ()  # the candidates of every choice that the user left open
    calibration: Calibration = field(default_factory=Calibration.none)  # the distribution of errors
    outliers: tuple[int, ...] = ()  # rows of the data, from 0, that look like outliers; of many, the most unusual
    outlier_count: int = 0  # how many there are in all, among the rows that were held out
    units: Units | None = None  # of the user's columns; None: parameters are shown in standardised units

    @property
    def iterations(self) -> int:
        return sum(s.iterations for s in self.stages)

    @property
    def evaluations(self) -> int:
        return sum(s.evaluations for s in self.stages)

    @property
    def converged(self) -> bool:
        return not self.stages or self.stages[-1].converged

    @property
    def choosing(self) -> float:
        """The share of the time of the fit that was spent on choices."""
        spent = sum(
            seconds for stage, seconds in self.seconds.items() if stage.startswith(("choice of ", "average of "))
        )
        return spent / max(sum(self.seconds.values()), 1e-9)

    @property
    def message(self) -> str:
        return self.stages[-1].message if self.stages else "the target is constant: nothing to learn"

    @property
    def size(self) -> str:
        """Rows, leaves and their points, in words."""
        return (
            f"{self.rows:,} rows, {self.leaves:,} leaves of {span(self.points_per_leaf)} points"
            f" (experts predict from {span(self.points_per_expert)})"
        )

    @property
    def suggestion(self) -> str:
        """What to do where targets look like counts, labels or shares; empty where they do not."""
        return SUGGESTIONS.get(self.looks_like, "")

    @property
    def outlying_rows(self) -> str:
        """The rows that look like outliers, in words; empty where there are none."""
        if not self.outliers:
            return ""
        more = (
            f" and {self.outlier_count - len(self.outliers):,} more" if self.outlier_count > len(self.outliers) else ""
        )
        rows = ", ".join(str(row) for row in self.outliers)
        return f"rows that look like outliers, since their targets are unlike all predictions: {rows}{more}"

    def __repr__(self) -> str:
        lines = [
            f"FitReport: {self.size}",
            f"  {'stage':<20}{'experts':>9}{'points':>12}{'iterations':>12}{'evaluations':>13}{'evidence/point':>16}",
        ]
        lines += [
            f"  {s.name:<20}{s.experts:>9,}{s.points:>12,}{s.iterations:>12}{s.evaluations:>13}"
            f"{s.evidence_per_point:>16.4f}"
            for s in self.stages
        ]
        spent = [f"{name} {value:.2f}" for name, value in self.seconds.items()]
        spent += [f"{self.choosing:.0%} of them to choose"] if self.choosing else []
        lines += wrapped("seconds: ", ", ".join(spent))
        lines += wrapped("parameters: ", self._parameters())
        jitter = f"{self.jitter:.1g} in {self.jittered_experts} experts" if self.jitter else "none"
        lines.append(f"  jitter: {jitter}; {'converged' if self.converged else 'not converged'}: {self.message}")
        if self.units is not None and self.units.geography:
            lines += wrapped("", self.units.geography)
        if self.dropped:
            lines.append(f"  dropped: {self.dropped:,} rows with missing values")
        if self.copies:
            lines.append(f"  copies: {self.copies:,} rows are exact copies of others, and were counted once")
        if self.looks_like:
            lines += wrapped("target: ", self.suggestion)
        for what in dict.fromkeys(c.what for c in self.choices):
            scores = (
                f"{c.name} {c.score:.4f}{' (chosen)' if c.chosen else ''}" for c in self.choices if c.what == what
            )
            lines += wrapped(f"choice of {what}, by held-out rows: ", ", ".join(scores))
        if self.calibration.rows:
            lines += wrapped("calibration: ", str(self.calibration))
        if self.outlying_rows:
            lines += wrapped("", self.outlying_rows)
        lines += [f"  warning: {sentence}" for sentence in sentences(self.warnings, self.units)]
        return "\n".join(lines)

    def _parameters(self) -> str:
        """Names and values of all parameters: in the user's units if these are known, otherwise standardised."""
        if self.units is None:
            named = zip(self.names, np.exp(self.theta).tolist(), strict=True)
            return ", ".join(f"{name} = {value:.3g}" for name, value in named)
        names, theta = self.units.theta_along_columns(self.names, self.theta)
        named = zip(names, np.exp(theta).tolist(), strict=True)
        return ", ".join(f"{self.units.named(name)} = {self.units.in_units(name, value)}" for name, value in named)

    def _repr_html_(self) -> str:
        return notebook(
            tag("p", tag("strong", "FitReport"), f": {self.size}"),
            self.stages_html(),
            self.timing_html(),
            self.choices_html(),
            tag("p", f"{self.units.geography}.") if self.units is not None and self.units.geography else "",
            tag("p", f"{'Converged' if self.converged else 'Not converged'}: {self.message}"),
            tag("p", f"{self.outlying_rows[0].upper()}{self.outlying_rows[1:]}") if self.outlying_rows else "",
            *(
                tag("p", tag("strong", "Warning"), f": {sentence}")
                for sentence in sentences(self.warnings, self.units)[:_SHOWN]
            ),
            tag("p", f"and {more} more in .warnings")
            if (more := len(sentences(self.warnings, self.units)) - _SHOWN) > 0
            else "",
        )

    def stages_html(self) -> Html:
        head = ["stage", "experts", "points", "iterations", "evaluations", "evidence per point"]
        rows = [
            [
                s.name, f"{s.experts:,}", f"{s.points:,}", f"{s.iterations:,}", f"{s.evaluations:,}",
                f"{s.evidence_per_point:.4f}",
            ]
            for s in self.stages
        ]  # fmt: skip
        return table(head, rows) if rows else tag("p", "Nothing was trained.")

    def timing_html(self) -> Html:
        rows = [[name, f"{spent:.2f}"] for name, spent in self.seconds.items()]
        return table(["stage of the fit", "seconds"], [*rows, ["all", f"{sum(self.seconds.values()):.2f}"]])

    def choices_html(self) -> Html:
        """The candidates of all choices as a table; empty where there was no choice."""
        rows = [[f"{c.what}: {c.name}", f"{c.score:.4f}", "chosen" if c.chosen else ""] for c in self.choices]
        return table(["choice", "score (lower is better)", ""], rows) if rows else Html()


def wrapped(name: str, text: str) -> list[str]:
    """Lines of a report, indented."""
    return fill(text, 110, initial_indent=f"  {name}", subsequent_indent=" " * 11).splitlines()


def span(pair: tuple[int, int]) -> str:
    """Two numbers, or one where they are equal."""
    low, high = pair
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

"""Warnings of a fit as typed values. Each can state to the user what was observed and what to do about it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gigagp.model.units import Units

_IGNORED_COLUMN_LENGTHSCALE = 100.0  # standard deviations of the column: the function does not vary with it
_IDENTIFIER_LENGTHSCALE = 0.01  # standard deviations of the column: different values share no information
_TOGETHER = 3  # ignored columns from which on they are named in one sentence
_COLUMN_OF_PARAMETER = re.compile(r"\[(\d+)\]$")


class FitWarning(ABC):
    """Something about a fitted model that the user should know."""

    @abstractmethod
    def observation(self, units: Units | None = None) -> str:
        """What was observed; with units, columns are called by their names instead of their numbers."""

    @abstractmethod
    def advice(self, units: Units | None = None) -> str:
        """What it means, or what to do about it."""

    def sentence(self, units: Units | None = None) -> str:
        """Observation and advice in one sentence."""
        return f"{self.observation(units)}; {self.advice(units)}"

    def __str__(self) -> str:
        return self.sentence()


@dataclass(frozen=True)
class ParameterAtBound(FitWarning):
    """A parameter whose trained value is one of its bounds although it was free to move. Not in log units."""

    parameter: str  # as in `FitReport.names`, such as lengthscale[3]
    side: str  # of the bound: "lower" or "upper"
    value: float
    bound: float

    def __post_init__(self) -> None:
        if self.side not in ("lower", "upper"):
            raise ValueError(f"the side of a bound is lower or upper; got {self.side!r}")

    @property
    def ignored_column(self) -> int | None:
        """The number of the column that the model ignores because its length-scale is so long."""
        long = self.side == "upper" and self.bound >= _IGNORED_COLUMN_LENGTHSCALE
        return self._lengthscale_column if long else None

    @property
    def identifier_column(self) -> int | None:
        """The number of the column whose length-scale is so short that it behaves like an identifier."""
        short = self.side == "lower" and self.bound <= _IDENTIFIER_LENGTHSCALE
        return self._lengthscale_column if short else None

    @property
    def _lengthscale_column(self) -> int | None:
        match = _COLUMN_OF_PARAMETER.search(self.parameter)
        return int(match[1]) if match and "lengthscale" in self.parameter else None

    def observation(self, units: Units | None = None) -> str:
        """Which parameter ended at which of its bounds."""
        if units is None:
            return f"{self.parameter} ended at its {self.side} bound {self.bound:.3g}"
        bound = units.in_units(self.parameter, self.bound)
        return f"{units.named(self.parameter)} ended at its {self.side} bound {bound}"

    def advice(self, units: Units | None = None) -> str:
        """What the value says about the data."""
        if self.ignored_column is not None:
            return "the model ignores that column"
        if self.identifier_column is not None:
            column = self.identifier_column if units is None else repr(units.columns[self.identifier_column])
            return f"column {column} behaves like an identifier; consider categorical="
        if self.side == "lower" and self.parameter == "noise_variance":
            return (
                "the target looks free of noise: look for duplicated rows or a column that determines the target, or "
                "lower noise_bounds"
            )
        if self.side == "lower" and "lengthscale" in self.parameter:
            return "the function looks rougher than the bound allows: try Matern12 or a smaller lower bound"
        return "widen the bound if that value is plausible"


@dataclass(frozen=True)
class MissedStructure(FitWarning):
    """Held-out errors exceed what neighbouring rows differ by, so the model treats structure as noise."""

    ratio: float  # mean held-out error over mean difference of nearest rows, corrected for the noise of both

    def observation(self, units: Units | None = None) -> str:
        """How much larger the errors are than the differences between neighbours."""
        return (
            f"held-out errors are {self.ratio:.2g} times as large as the differences between neighbouring rows: the "
            "model treats as noise what neighbouring rows have in common"
        )

    def advice(self, units: Units | None = None) -> str:
        """What may reveal the structure."""
        return "try n_restarts=2, a kernel with shorter length-scales, or more columns"


@dataclass(frozen=True)
class OutlyingRows(FitWarning):
    """Rows whose target lies far outside those of all others (`gigagp.data.outliers`)."""

    count: int
    rows: tuple[int, ...]  # their numbers in the data, from 0; of many rows the first ones

    def observation(self, units: Units | None = None) -> str:
        """How many rows, and which."""
        target = "the target" if units is None else units.target
        more = f" and {self.count - len(self.rows):,} more" if self.count > len(self.rows) else ""
        what = "row looks like an outlier" if self.count == 1 else "rows look like outliers"
        where = ", ".join(str(row) for row in self.rows)
        return f"{self.count:,} {what}, since {target} there is far outside all other values (row {where}{more})"

    def advice(self, units: Units | None = None) -> str:
        """What the fit has done, and what to do."""
        return "the fit gives these rows almost no influence: correct them or leave them out"


def sentences(warnings: Sequence[FitWarning], units: Units | None = None) -> list[str]:
    """Warnings as sentences; several columns that the model ignores are one sentence, in the place of the first."""
    ignored = [w for w in warnings if isinstance(w, ParameterAtBound) and w.ignored_column is not None]
    if len(ignored) < _TOGETHER or units is None:
        return [warning.sentence(units) for warning in warnings]
    names = list(dict.fromkeys(units.columns[w.ignored_column] for w in ignored if w.ignored_column is not None))
    together = (
        f"the length-scale of each of the columns {', '.join(names)} ended at its upper bound; the model ignores these "
        "columns, because others predict the target"
    )
    kept = [w for w in warnings if w is ignored[0] or w not in ignored]
    return [together if w is ignored[0] else w.sentence(units) for w in kept]


WARNINGS: dict[str, type[ParameterAtBound] | type[MissedStructure] | type[OutlyingRows]] = {
    kind.__name__: kind for kind in (ParameterAtBound, MissedStructure, OutlyingRows)
}

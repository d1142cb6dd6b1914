"""Trained parameters in the units of the user's columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.times import UNITS, date_text, is_date
from gigagp.kernels import Kernel, OnColumns, Parameter, Product, Sum
from gigagp.kernels.inputs import InputColumns
from gigagp.kernels.parameters import LENGTH, NUMBER, PERIOD, SLOPE, VARIANCE
from gigagp.linalg.categories import LEVEL_WIDTH

_COLUMNS_OF_PARAMETER = re.compile(r"(?<=[a-z])\[(\d+(?:,\d+)*)\]")
_STANDARDISED = "standardised"
_CATEGORY = "category"  # kind of columns whose values are numbers of levels
_LEVEL_DISTANCES = "level distances"
_UNSEEN = "(other)"  # level that the training data did not have


@dataclass(frozen=True)
class Quantity:
    """A parameter: its name, with that of the column, its value, and the unit of the value."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Unit:
    """The unit in which a parameter is reported, and the factor that brings its standardised value there."""

    name: str
    factor: float = 1.0


@dataclass(frozen=True)
class Units:
    """Names of columns and target, and the size of one standardised unit of each."""

    columns: tuple[str, ...]
    target: str
    widths: tuple[float, ...]
    height: float
    kernel: Kernel | None = None  # whose parameters are to be reported
    kinds: tuple[str, ...] = ()  # of the columns, as in `Feature`; (): all are numbers
    levels: tuple[tuple[str, ...], ...] = ()  # of the columns that are categories, () for others; (): all are numbers

    @classmethod
    def of(
        cls, names: Sequence[str], target: str, kinds: Sequence[str], scales: Array, height: float, kernel: Kernel,
        levels: Sequence[tuple[str, ...]] = (),
    ) -> Units:  # fmt: skip
        """scales : size of one standardised unit of each column, as the model reads it."""
        sizes = [UNITS[kind][1] if kind in UNITS else 1.0 for kind in kinds]
        widths = np.where([kind == _CATEGORY for kind in kinds], LEVEL_WIDTH, scales / np.array(sizes)).tolist()
        return cls(tuple(names), target, tuple(widths), height, kernel, tuple(kinds), tuple(levels))

    def kind(self, column: int) -> str:
        """What the numbers of a column mean."""
        return self.kinds[column] if self.kinds else "number"

    def text(self, column: int, value: float, span: float = 0.0) -> str:
        """A value of a column as the user writes it: dates as dates.

        span : range of the values that are shown together
        """
        kind = self.kind(column)
        if kind == _CATEGORY:
            known = self.levels[column] if self.levels else ()
            return known[int(value)] if 0 <= value < len(known) else _UNSEEN
        return date_text(kind, value, span) if is_date(kind) else f"{value:.4g}"

    def length(self, column: int) -> str:
        """The unit of lengths along a column; for categories the distance of two different levels."""
        if self.kind(column) == _CATEGORY:
            return _LEVEL_DISTANCES
        return UNITS[self.kind(column)][0] if self.kind(column) in UNITS else self.columns[column]

    def named(self, text: str) -> str:
        """The text with names of columns instead of their numbers: lengthscale[joint7], not lengthscale[7]."""

        def names(match: re.Match[str]) -> str:
            return f"[{', '.join(self.columns[int(number)] for number in match[1].split(','))}]"

        return _COLUMNS_OF_PARAMETER.sub(names, text)

    def description(self, kernel: Kernel) -> str:
        """The kernel without its values, such as Periodic(year) + Matern32(lon, lat)."""
        if isinstance(kernel, Sum | Product):
            parts = [self.description(part) for part in (kernel.left, kernel.right)]
            if isinstance(kernel, Product):
                parts = [f"({part})" if " + " in part else part for part in parts]
            return f" {kernel.sign} ".join(parts)
        if isinstance(kernel, OnColumns):
            columns = ", ".join(self.columns[place] for place in kernel.places)
            return f"{type(kernel.kernel).__name__}({columns})"
        return type(kernel).__name__

    def parameters(self, kernel: Kernel, noise_variance: float) -> list[Quantity]:
        """Each trained parameter. The noise variance is in the user's units already.

        Parameters without a meaning in the user's units (one length-scale for all columns) stay in standardised units,
        and their unit says so. The variance of a product is that of its first factor; those of the others are numbers.
        """
        values = [value for p in kernel.parameters for value in p.values]
        quantities = [
            Quantity(self.named(name), value * unit.factor, unit.name)
            for name, value, unit in zip(kernel.names, values, self._units(kernel, is_factor=False), strict=True)
        ]
        return [*quantities, Quantity("noise_variance", noise_variance, f"{self.target}^2")]

    def in_units(self, parameter: str, value: float) -> str:
        """A standardised value of a parameter of `kernel` in the user's units, with the unit."""
        unit = Unit("")
        if parameter == "noise_variance":
            unit = Unit(f"{self.target}^2", self.height**2)
        elif self.kernel is not None and parameter in self.kernel.names:
            unit = list(self._units(self.kernel, is_factor=False))[self.kernel.names.index(parameter)]
        return f"{value * unit.factor:.3g} {unit.name}".rstrip()

    def _units(self, kernel: Kernel, is_factor: bool) -> Iterator[Unit]:
        """The unit of each parameter value, in the order of theta."""
        if isinstance(kernel, Sum | Product):
            yield from self._units(kernel.left, is_factor)
            yield from self._units(kernel.right, is_factor or isinstance(kernel, Product))
            return
        for p in kernel.parameters:
            if p.per_feature:
                yield from (self._unit(p, [d], is_factor) for d in p.columns or range(len(p.values)))
                continue
            scaled = isinstance(kernel, OnColumns) and kernel.scales is not None
            places = list(p.columns) or list(range(len(self.columns)))
            one_unit = p.quantity in (NUMBER, VARIANCE) or len(places) == 1 or scaled
            unit = self._unit(p, places, is_factor) if one_unit else Unit(_STANDARDISED)
            yield from [unit] * len(p.values)

    def _unit(self, p: Parameter, places: list[int], is_factor: bool) -> Unit:
        if p.quantity is None:
            return Unit(_STANDARDISED)
        column = self.length(places[0])
        height = "" if is_factor else f"{self.target}^2"
        slope = f"{height or 1}/{column}^2"
        name = {NUMBER: "", LENGTH: column, PERIOD: column, VARIANCE: height, SLOPE: slope}[p.quantity]
        return Unit(name, p.unit(InputColumns((), (), self.widths, self.height), places, is_factor))

"""Trained parameters in the units of the user's columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.sources.times import UNITS, date_text, is_date
from gigagp.data.sphere import KM_PER_DEGREE
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
    sphere: tuple[int, int] | None = None  # longitude and latitude; the kernel then sees one column more than there are
    noise_name: str | None = "noise_variance"  # of the last entry of theta; None where it has no meaning
    directions: Directions | None = None  # what takes the places of the kernel's columns
    latent: bool = False  # whether the kernel is that of a latent f which is not in the target's units

    @classmethod
    def of(
        cls, names: Sequence[str], target: str, kinds: Sequence[str], scales: Array, height: float, kernel: Kernel,
        levels: Sequence[tuple[str, ...]] = (), sphere: tuple[int, int] | None = None,
    ) -> Units:  # fmt: skip
        """scales : size of one standardised unit of each of the kernel's columns, as the model reads them."""
        sizes = np.ones(len(scales))
        sizes[: len(kinds)] = [UNITS[kind][1] if kind in UNITS else 1.0 for kind in kinds]
        widths = scales / sizes
        widths[[number for number, kind in enumerate(kinds) if kind == _CATEGORY]] = LEVEL_WIDTH
        own = tuple(widths.tolist())
        return cls(tuple(names), target, own, height, kernel, tuple(kinds), tuple(levels), sphere)

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
        if self.on_sphere(column):
            return "degrees"
        if self.kind(column) == _CATEGORY:
            return _LEVEL_DISTANCES
        return UNITS[self.kind(column)][0] if self.kind(column) in UNITS else self.columns[column]

    def named(self, text: str) -> str:
        """The text with names of columns instead of their numbers: lengthscale[joint7], not lengthscale[7]."""

        def names(match: re.Match[str]) -> str:
            return f"[{', '.join(self.names([int(number) for number in match[1].split(',')]))}]"

        return _COLUMNS_OF_PARAMETER.sub(names, text)

    def names(self, places: Sequence[int]) -> list[str]:
        """Names of the user's columns that columns of the kernel come from."""
        own = [self.sphere if self.sphere is not None and self.on_sphere(place) else (place,) for place in places]
        return list(dict.fromkeys(self.columns[column] for columns in own for column in columns))

    def on_sphere(self, place: int) -> bool:
        """Whether a column of the kernel is a coordinate of a place on the sphere."""
        return self.sphere is not None and place in (*self.sphere, len(self.columns))

    @property
    def geography(self) -> str:
        """Which columns are places on a sphere, in words; empty where there are none."""
        if self.sphere is None:
            return ""
        first, second = self.names(self.sphere)
        return (
            f"{first} and {second} are places on a sphere (great-circle distances; one degree is "
            f"{KM_PER_DEGREE:.1f} km on the earth); sphere=None switches this off"
        )

    def description(self, kernel: Kernel) -> str:
        """The kernel without its values, such as Periodic(year) + Matern32(lon, lat)."""
        if isinstance(kernel, Sum | Product):
            parts = [self.description(part) for part in (kernel.left, kernel.right)]
            if isinstance(kernel, Product):
                parts = [f"({part})" if " + " in part else part for part in parts]
            return f" {kernel.sign} ".join(parts)
        if isinstance(kernel, OnColumns):
            columns = ", ".join(self.names(kernel.places))
            return f"{type(kernel.kernel).__name__}({columns})"
        return type(kernel).__name__

    def parameters(self, kernel: Kernel, noise_variance: float) -> list[Quantity]:
        """Each trained parameter. The noise variance is in the user's units already.

        Where the kernel sees directions, length-scales are those along the columns, the other columns being fixed.

        Parameters without a meaning in the user's units (one length-scale for all columns) stay in standardised units,
        and their unit says so. The variance of a product is that of its first factor; those of the others are numbers.
        """
        kernel = self.along_columns(kernel)
        values = [value for p in kernel.parameters for value in p.values]
        quantities = [
            Quantity(self.named(name), value * unit.factor, unit.name)
            for name, value, unit in zip(kernel.names, values, self._units(kernel, is_factor=False), strict=True)
        ]
        return [*quantities, *self.noise_quantity(noise_variance)]

    def along_columns(self, kernel: Kernel) -> Kernel:
        """The kernel with length-scales along the columns, where its own are those along directions."""
        metric = kernel.metric(kernel.theta)
        if self.directions is None or metric is None:
            return kernel
        return kernel.with_theta(kernel.with_lengthscales(kernel.theta, 1 / self.directions.along_columns(metric)))

    def theta_along_columns(self, names: Sequence[str], theta: Array) -> tuple[Sequence[str], Array]:
        """Names and values of theta, with length-scales along columns where its own are those along directions."""
        if self.directions is None or self.kernel is None:
            return names, theta
        kernel = self.along_columns(self.kernel.with_theta(theta[:-1]))
        return (*kernel.names, names[-1]), np.append(kernel.theta, theta[-1])

    def noise_quantity(self, value: float) -> list[Quantity]:
        """The last entry of theta: the noise variance, the dispersion of a likelihood, or nothing where it has none."""
        if self.noise_name is None:
            return []
        return [Quantity(self.noise_name, value, f"{self.target}^2" if self.noise_name == "noise_variance" else "")]

    def in_units(self, parameter: str, value: float) -> str:
        """A standardised value of a parameter of `kernel` in the user's units, with the unit."""
        unit = Unit("")
        if parameter == "noise_variance" and self.noise_name == parameter:
            unit = Unit(f"{self.target}^2", self.height * self.height)
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
                yield from (self._unit(p, places, is_factor) for places in p.columns_of_values)
                continue
            scaled = isinstance(kernel, OnColumns) and kernel.scales is not None
            places = list(p.columns) or list(range(len(self.widths)))
            one_unit = (
                p.quantity in (NUMBER, VARIANCE) or len(places) == 1 or scaled or all(map(self.on_sphere, places))
            )
            unit = self._unit(p, places, is_factor) if one_unit else Unit(_STANDARDISED)
            yield from [unit] * len(p.values)

    def _unit(self, p: Parameter, places: list[int], is_factor: bool) -> Unit:
        if p.quantity is None:
            return Unit(_STANDARDISED)
        column = self.length(places[0])
        height = "" if is_factor else "f^2" if self.latent else f"{self.target}^2"
        slope = f"{height or 1}/{column}^2"
        name = {NUMBER: "", LENGTH: column, PERIOD: column, VARIANCE: height, SLOPE: slope}[p.quantity]
        return Unit(name, p.unit(InputColumns((), (), self.widths, self.height), places, is_factor))

"""Parameters of kernels: values, bounds, and the units in which users give them and reports show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter
from gigagp.kernels.inputs import InputColumns

NUMBER = "number"  # a pure number
LENGTH = "length"  # in units of its column
PERIOD = "period"  # in units of its column
VARIANCE = "variance"  # in units of the target, squared; of a further factor of a product: a pure number
SLOPE = "slope"  # variance per squared unit of the column
_ROOM = 10.0  # factor around a given value that bounds allow at least where none are given

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Parameter:
    """A positive parameter: its values (one, or one per input dimension) and the bounds training keeps them in.

    Equal bounds fix it. `per_feature` parameters given as one value are repeated for each column on `bind`.
    """

    name: str
    values: tuple[float, ...]
    bounds: Bounds = (1e-5, 1e5)
    per_feature: bool = False
    quantity: str | None = None  # NUMBER, LENGTH, PERIOD, VARIANCE or SLOPE; None: always in standardised units
    in_data_units: tuple[bool, bool] = (False, False)  # whether values and bounds are, rather than standardised
    limits: tuple[Bounds, ...] = ()  # bounds of each value, where they differ
    columns: tuple[int, ...] = ()  # numbers of the columns that the values belong to; (): 0, 1, ...
    groups: tuple[tuple[int, ...], ...] = ()  # of a parameter per feature: columns of each value; (): one per column

    def __post_init__(self) -> None:
        if not self.values or not all(np.isfinite(v) and v > 0 for v in self.values):
            raise InvalidParameter(f"{self.name} must be positive and finite; got {self.values}")
        for low, high in (self.bounds, *self.limits):
            if not 0 < low <= high < np.inf:
                raise InvalidParameter(f"the bounds of {self.name} must be 0 < low <= high; got {(low, high)}")
        if self.limits and len(self.limits) != len(self.values):
            raise InvalidParameter(f"{self.name} has {len(self.values)} values and {len(self.limits)} pairs of bounds")
        if self.groups and len(self.groups) != len(self.values):
            raise InvalidParameter(
                f"{self.name} has {len(self.values)} values for {len(self.groups)} groups of columns"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each value, with the numbers of its columns."""
        if self.per_feature:
            return tuple(f"{self.name}[{','.join(map(str, own))}]" for own in self.columns_of_values)
        if len(self.values) == 1:
            return (f"{self.name}[{','.join(map(str, self.columns))}]" if self.columns else self.name,)
        return tuple(f"{self.name}[{i}]" for i in range(len(self.values)))

    @property
    def columns_of_values(self) -> list[list[int]]:
        """The columns of X that each value of a parameter per feature belongs to."""
        own = self.groups or tuple((i,) for i in range(len(self.values)))
        return [[self.columns[i] if self.columns else i for i in group] for group in own]

    @property
    def owners(self) -> Array:
        """For each column that the kernel sees: the number of its value, of a parameter per feature."""
        if not self.groups:
            return np.arange(len(self.values))
        owners = np.empty(sum(map(len, self.groups)), np.int64)
        for number, group in enumerate(self.groups):
            owners[list(group)] = number
        return owners

    @property
    def each_bounds(self) -> tuple[Bounds, ...]:
        """The bounds of each value."""
        return self.limits or (self.bounds,) * len(self.values)

    def spread(self, groups: Sequence[tuple[int, ...]], owner: str) -> Parameter:
        """With one value per column, if it is a parameter per feature; one length-scale per group of columns.

        groups : numbers of the columns that have a common length-scale, among those that the kernel sees
        """
        if not self.per_feature:
            return self
        columns, together = sum(map(len, groups)), self.quantity == LENGTH
        count = len(groups) if together else columns
        grouped = tuple(groups) if together and count < columns else ()
        if len(self.values) == 1:
            return replace(self, values=self.values * count, limits=self.limits * count, groups=grouped)
        if len(self.values) != count:
            common = ", where longitude and latitude count as one" if grouped else ""
            raise InvalidParameter(
                f"{owner} has {len(self.values)} values of {self.name} for {count} columns{common}; "
                "give one value, or one per column"
            )
        return replace(self, groups=grouped)

    def standardised(self, inputs: InputColumns, places: Sequence[int], is_factor: bool) -> Parameter:
        """With values and bounds in standardised units.

        places : the columns of X that the values belong to
        is_factor : whether the kernel is a further factor of a product, whose variance is a pure number
        """
        if not any(self.in_data_units):
            return self
        own = replace(self, columns=tuple(places)).columns_of_values if self.per_feature else [list(places)]
        units = [self.unit(inputs, each, is_factor) for each in own]
        given, bounded = self.in_data_units
        values = [v / unit if given else v for v, unit in zip(self.values, units, strict=True)]
        low, high = self.bounds
        limits = [(low / unit, high / unit) if bounded else (low, high) for unit in units]
        for i, (value, (low, high)) in enumerate(zip(values, limits, strict=True)):
            if not bounded:
                wide = (min(low, value / _ROOM), max(high, value * _ROOM))
                limits[i] = (value, value) if self.quantity == PERIOD else wide  # a period that is known is kept
            elif not given:
                values[i] = float(np.clip(value, low, high))
        same = len(set(limits)) == 1
        return replace(
            self, values=tuple(values), bounds=limits[0], limits=() if same else tuple(limits),
            in_data_units=(False, False),
        )  # fmt: skip

    def unit(self, inputs: InputColumns, places: Sequence[int], is_factor: bool) -> float:
        """The size of one standardised unit of a value, in the units of the data."""
        height = 1.0 if is_factor else inputs.height * inputs.height  # infinite rather than an error
        if self.quantity in (LENGTH, PERIOD):
            return inputs.width(places)
        if self.quantity == SLOPE:
            return height / inputs.width(places) / inputs.width(places)
        return height if self.quantity == VARIANCE else 1.0


def parameter(
    name: str,
    value: float | Sequence[float] | None,
    bounds: Bounds | None,
    per_feature: bool = False,
    *,
    quantity: str | None = None,
    default: float = 1.0,
    default_bounds: Bounds = (1e-5, 1e5),
    data_units: bool = False,
) -> Parameter:
    """A Parameter from what a user writes: a number, or one number per column; None for the default.

    data_units : whether what the user writes is in the units of the data; defaults are in standardised units
    """
    in_data_units = (data_units and value is not None, data_units and bounds is not None)
    value, bounds = default if value is None else value, default_bounds if bounds is None else bounds
    values = tuple(float(v) for v in np.atleast_1d(np.asarray(value, dtype=float)))
    if len(values) != 1 and not per_feature:
        raise InvalidParameter(f"{name} takes one value here; got {len(values)}")
    low, high = bounds
    checked = Parameter(name, values, (float(low), float(high)), per_feature, quantity, in_data_units)
    comparable = in_data_units[0] == in_data_units[1]
    if comparable and not all(checked.bounds[0] <= v <= checked.bounds[1] for v in values):
        raise InvalidParameter(f"{name}={value} starts outside its bounds {checked.bounds}; widen them too")
    return checked

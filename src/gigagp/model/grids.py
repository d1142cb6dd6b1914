"""Regular grids of queries, predicted block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from itertools import product
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources import open_rows
from gigagp.data.sources.times import is_date, per_day
from gigagp.errors import InvalidParameter
from gigagp.model.model import Model

_BLOCK = 65_536  # stored rows that are read together
_SLACK = 1e-6  # of a step, by which a range may miss its end
_MOST_STEPS = 1 << 31  # along one axis
PLACEHOLDERS = {
    "number": 0.0, "date": np.datetime64(0, "D"), "timestamp": np.datetime64(0, "s"), "time": time(), "category": "",
    "duration": np.timedelta64(0, "s"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Axis:
    """One dimension of a grid: a column, its values as the user gave them, and as the model reads them."""

    name: str
    place: int  # among the columns that the model reads
    values: Array
    numbers: Array
    degrees: str = ""  # "east" or "north" where the column is a longitude or a latitude

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the coordinate after the climate and forecast conventions."""
        if not self.degrees:
            return {"long_name": self.name}
        standard = "longitude" if self.degrees == "east" else "latitude"
        return {"standard_name": standard, "long_name": standard, "units": f"degrees_{self.degrees}"}


@dataclass(frozen=True, eq=False)
class Block:
    """A part of a grid: its place in an array of the grid's shape, and its queries in C order."""

    index: tuple[Any, ...]
    shape: tuple[int, ...]
    X: Array


@dataclass(frozen=True, eq=False)
class Grid:
    """The queries of a grid: all combinations of the values of the axes, and one value of each other column."""

    axes: tuple[Axis, ...]  # the last one varies fastest
    row: Array  # the values of all columns; those of the axes are replaced

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def size(self) -> int:
        """The number of queries."""
        return int(np.prod(self.shape, dtype=np.int64))

    def blocks(self, queries: int) -> Iterator[Block]:
        """Parts of at most about so many queries: runs of lines along the last axis."""
        *outer, lines = self.axes[:-1] if len(self.axes) > 1 else self.axes
        width = self.shape[-1] if len(self.axes) > 1 else 1
        at_once = max(1, queries // width)
        for lead in product(*(range(len(axis.values)) for axis in outer)):
            for start in range(0, len(lines.values), at_once):
                part = slice(start, min(start + at_once, len(lines.values)))
                yield self._block((*lead, part), lines.numbers[part])

    def _block(self, index: tuple[Any, ...], lines: Array) -> Block:
        lead = index[:-1]
        last = self.axes[-1].numbers if len(self.axes) > 1 else np.zeros(1)
        X = np.tile(self.row, (len(lines) * len(last), 1))
        for axis, place in zip(self.axes, lead, strict=False):
            X[:, axis.place] = axis.numbers[place]
        if len(self.axes) > 1:
            X[:, self.axes[-2].place] = np.repeat(lines, len(last))
            X[:, self.axes[-1].place] = np.tile(last, len(lines))
            return Block(index, (len(lines), len(last)), X)
        X[:, self.axes[0].place] = lines
        return Block(index, (len(lines),), X)


def make_grid(model: Model, columns: Mapping[str, Any], step: Any) -> Grid:
    """The grid that a user describes.

    columns : by the name of each column: a pair (low, high), values, or one value; "lon" and "lat" also name the
        columns that are places on a sphere
    step : distance of the values of a range: a number, or one per column
    """
    given = _with_ranges(model, {_full_name(model, name): value for name, value in columns.items()}, step)
    axes, fixed = [], {}
    for name, value in given.items():
        if isinstance(value, tuple):
            axes.append(_axis(model, name, _range(name, value, _step_of(model, step, name))))
        elif np.ndim(value) == 1:
            axes.append(_axis(model, name, np.asarray(value)))
        else:
            fixed[name] = value
    known = {feature.column for feature in model.reading.features}
    unknown, absent = set(given) - known, known - set(given)
    if unknown:
        raise InvalidParameter(f"grid: the model has no column {min(unknown)!r}; it has {', '.join(sorted(known))}")
    if absent:
        raise InvalidParameter(f"grid: give a value, values or a range of {', '.join(sorted(absent))}")
    if not axes:
        raise InvalidParameter("grid: give a range or values of at least one column")
    return Grid(tuple(reversed(axes)), _row(model, fixed))


def _full_name(model: Model, name: str) -> str:
    """The name of a column; "lon" and "lat" for longitude and latitude whatever these are called."""
    sphere, columns = model.inputs.sphere, model.units.columns
    if sphere is not None and name not in columns:
        return {"lon": columns[sphere.longitude], "lat": columns[sphere.latitude]}.get(name, name)
    return name


def _with_ranges(model: Model, given: dict[str, Any], step: Any) -> dict[str, Any]:
    """With the range of the training rows for longitude and latitude, or for one or two columns, if not given.

    Longitude and latitude come first, so that they are the last dimensions.
    """
    sphere, columns = model.inputs.sphere, model.units.columns
    places = [sphere.longitude, sphere.latitude] if sphere is not None else list(range(len(columns)))
    if len(places) > 2:
        return given
    covered = {columns[place]: given.get(columns[place]) for place in places}
    open_places = [place for place in places if covered[columns[place]] is None]
    for place, (low, high) in zip(open_places, _training_ranges(model, open_places), strict=True):
        size = _step_of(model, step, columns[place])
        covered[columns[place]] = (float(np.floor(low / size + _SLACK) * size), high)
    return (covered | given) if sphere is not None or open_places else given


def _training_ranges(model: Model, places: Sequence[int]) -> list[tuple[float, float]]:
    """The smallest and the largest value of columns among the training rows."""
    if not places:
        return []
    low, high = np.full(len(places), np.inf), np.full(len(places), -np.inf)
    store = model.store
    for start in range(0, len(store.y), _BLOCK):
        X = model.inputs.restore(store.gather(slice(start, start + _BLOCK))[0])[:, list(places)]
        low, high = np.minimum(low, X.min(axis=0)), np.maximum(high, X.max(axis=0))
    store.release()
    digits = 9  # to which coordinates on the sphere are restored, in degrees
    return [(round(float(a), digits), round(float(b), digits)) for a, b in zip(low, high, strict=True)]


def _step_of(model: Model, step: Any, name: str) -> float:
    own = {_full_name(model, key): each for key, each in step.items()}.get(name) if isinstance(step, Mapping) else step
    try:
        size = float(own)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        size = np.nan
    if not 0 < size < np.inf:
        raise InvalidParameter(f"grid: the range of {name!r} needs a positive step=; got {own!r}")
    return size


def _range(name: str, pair: tuple[Any, ...], step: float) -> Array:
    """Numbers from low to high; the highest one may be less than a step below high."""
    try:
        low, high = (float(side) for side in pair)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not (len(pair) == 2 and np.isfinite([low, high]).all() and low <= high):
        raise InvalidParameter(f"grid: the range of {name!r} must be a pair (low, high); got {pair!r}")
    count = np.floor((high - low) / step + _SLACK) + 1
    if count > _MOST_STEPS:
        raise InvalidParameter(f"grid: the range of {name!r} has {count:.3g} steps; take a larger step")
    return low + step * np.arange(int(count))


def _axis(model: Model, name: str, values: Array) -> Axis:
    reading, sphere = model.reading, model.inputs.sphere
    feature = next((each for each in reading.features if each.column == name), None)
    if feature is None:
        raise InvalidParameter(f"grid: the model has no column {name!r}; it has {', '.join(model.units.columns)}")
    if len(values) == 0:
        raise InvalidParameter(f"grid: the axis {name!r} has no values")
    if feature.kind == "category":
        raise InvalidParameter(f"grid: {name!r} is a category; give one of its values")
    place = list(reading.feature_names).index(name)
    numbers = values
    if values.dtype.kind == "M":
        if not is_date(feature.kind):
            raise InvalidParameter(f"grid: {name!r} is a {feature.kind}, not a date")
        numbers = values.astype("M8[s]").astype(np.int64) / 86400.0 * per_day(feature.kind)
    try:
        numbers = np.asarray(numbers, float)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"grid: the values of {name!r} must be numbers ({error})") from error
    degrees = "" if sphere is None else {sphere.longitude: "east", sphere.latitude: "north"}.get(place, "")
    return Axis(name, place, numbers if values.dtype.kind != "M" else values, numbers, degrees)


def _row(model: Model, values: Mapping[str, Any]) -> Array:
    """One row as the model reads it; categories and dates are encoded as those of tables.

    values : of the columns that are not axes; the others have any value of their kind
    """
    import pyarrow as pa  # noqa: PLC0415 takes time to load

    reading = model.reading
    cells = {}
    for feature in reading.features:
        value = values.get(feature.column, PLACEHOLDERS[feature.kind])
        if isinstance(value, np.datetime64) and is_date(feature.kind):
            value = value.astype("M8[D]" if feature.kind == "date" else "M8[s]")
        cells[feature.column] = pa.array(np.array([value]))
    table = pa.table(cells)
    return np.array(next(open_rows(table, encoding=reading).blocks(1)).X[0], float)


Answer = Callable[[Array], list[Array]]


def predicted_blocks(
    grid: Grid, answer: Answer, at_once: int, say: Callable[[int], None]
) -> Iterator[tuple[Block, list[Array]]]:
    """Each block with its predictions, one array of the block's shape per variable."""
    done = 0
    for block in grid.blocks(at_once):
        yield block, [each.reshape(block.shape) for each in answer(block.X)]
        done += len(block.X)
        say(done)

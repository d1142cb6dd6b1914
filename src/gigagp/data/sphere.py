"""Longitude and latitude as places on a sphere: three coordinates instead of two angles.

A place is the unit vector (cos lat cos lon, cos lat sin lon, sin lat). The straight distance between two of them, the
chord 2 sin(angle / 2), grows with the great-circle distance, so a kernel of the chord depends on the great circle
alone: there is no seam where longitudes jump from 180 to -180 degrees, and a pole is one place. The axes point to the
east, the north and upwards in the middle of the data, so that the rows of a small region differ in two of them only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.directions import Directions
from gigagp.data.scaling import Moments, Scaling
from gigagp.data.warping import Warp
from gigagp.errors import InvalidInput, InvalidParameter

DEGREES = 180 / np.pi  # in one radian
KM_PER_DEGREE = 6371.0088 / DEGREES  # along a great circle of the earth, with its mean radius
_WORDS = {"longitude": ("longitude", "lon", "long", "lng"), "latitude": ("latitude", "lat")}
_LEAST_DIRECTION = 1e-3  # length of the mean unit vector from which it is the middle of the data
_HIGHEST = 90 + 1e-6  # degrees of latitude, with room for rounding
_WIDEST_FLAT = 90.0  # degrees of longitude that data on a flat map may span
_FLATTEST = 1.25  # ratio of the lengths of a degree of longitude within them


@dataclass(frozen=True, eq=False)
class Sphere:
    """Two columns that are a place on a sphere.

    The coordinates along the three axes take the places of longitude, of latitude, and after the last column.
    """

    longitude: int
    latitude: int
    axes: Array  # (3, 3): unit vectors to the east, the north and upwards in the middle of the data
    west: float = -180.0  # the smallest longitude in the user's numbering: -180, or 0 where longitudes go up to 360

    def coordinates(self, X: Array) -> Array:
        """The coordinates of rows along the axes, (n, 3)."""
        longitude, latitude = (np.asarray(X[:, d], float) for d in (self.longitude, self.latitude))
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(np.abs(latitude) > _HIGHEST)
        if len(wrong):
            raise InvalidInput(
                f"column {self.latitude} has the latitude {latitude[wrong[0]]:.6g}; latitudes are between -90 and 90 "
                "degrees"
            )
        return _unit_vectors(longitude, latitude) @ self.axes.T

    def derivatives(self, X: Array) -> tuple[Array, Array]:
        """Derivatives of `coordinates` per degree of longitude, and per degree of latitude."""
        turn, height = (np.asarray(X[:, d], float) / DEGREES for d in (self.longitude, self.latitude))
        zero, east, north = np.zeros_like(turn), np.cos(height), np.sin(height)
        by_longitude = np.column_stack([-east * np.sin(turn), east * np.cos(turn), zero])
        by_latitude = np.column_stack([-north * np.cos(turn), -north * np.sin(turn), east])
        return by_longitude @ self.axes.T / DEGREES, by_latitude @ self.axes.T / DEGREES

    def degrees(self, coordinates: Array) -> tuple[Array, Array]:
        """Longitude and latitude of coordinates, which may be inside the sphere: the inverse of `coordinates`."""
        x, y, z = np.moveaxis(np.asarray(coordinates, float) @ self.axes, -1, 0)
        longitude = np.arctan2(y, x) * DEGREES
        return self.west + np.remainder(longitude - self.west, 360.0), np.arctan2(z, np.hypot(x, y)) * DEGREES


def _unit_vectors(longitude: Array, latitude: Array) -> Array:
    """Unit vectors; equal to the last bit for longitudes that differ by 360 degrees."""
    turn, height = np.remainder(longitude, 360.0) / DEGREES, latitude / DEGREES
    return np.column_stack([np.cos(height) * np.cos(turn), np.cos(height) * np.sin(turn), np.sin(height)])


@dataclass(frozen=True)
class Circle:
    """A column wound onto a circle: two further columns of the model, cos and sin of 2 pi x / period.

    Kernels do not read these columns; the metric of a periodic kernel does, so that rows are near that are near in
    phase.
    """

    column: int  # of the user's columns
    period: float  # in the user's units

    def coordinates(self, X: Array) -> Array:
        """cos and sin of the phase, (n, 2)."""
        turn = 2 * np.pi * np.remainder(np.asarray(X[:, self.column], float) / self.period, 1.0)
        return np.column_stack([np.cos(turn), np.sin(turn)])

    def derivatives(self, X: Array) -> Array:
        """Derivatives of `coordinates` by the column."""
        cosine, sine = self.coordinates(X).T
        return np.column_stack([-sine, cosine]) * (2 * np.pi / self.period)


@dataclass(frozen=True, eq=False)
class InputScaling:
    """From the user's columns to those of the model: normal scores, places on a sphere, all columns scaled, directions.

    Circles come last, two columns each, and are not scaled.
    """

    scaling: Scaling  # of the model's columns
    sphere: Sphere | None = None
    warps: tuple[Warp, ...] = ()  # of the user's columns that are not places on the sphere
    circles: tuple[Circle, ...] = ()
    directions: Directions | None = None  # combinations of the scaled columns that take their places

    def with_circles(self, circles: Sequence[Circle]) -> InputScaling:
        """The same scaling with circles besides."""
        new = 2 * len(circles)
        scaling = Scaling(np.append(self.scaling.centre, np.zeros(new)), np.append(self.scaling.scale, np.ones(new)))
        return replace(self, scaling=scaling, circles=tuple(circles))

    @property
    def columns(self) -> int:
        """The number of the user's columns."""
        return len(self.scaling.scale) - (self.sphere is not None) - 2 * len(self.circles)

    @property
    def widths(self) -> Array:
        """The size of one unit of each of the model's columns, in the user's units: on the sphere in degrees."""
        widths = self.scaling.scale.copy()
        if self.sphere is not None:
            widths[list(self.together)] *= DEGREES
        return widths

    @property
    def together(self) -> tuple[int, ...]:
        """The model's columns that have a common length-scale."""
        return () if self.sphere is None else (self.sphere.longitude, self.sphere.latitude, self.columns)

    def expanded(self, X: Array) -> Array:
        """The user's columns, warped and with coordinates instead of longitude and latitude, before scaling."""
        given = X
        if self.warps:
            X = np.array(X, float)
            for warp in self.warps:
                X[:, warp.column] = warp.apply(X[:, warp.column])
        if self.sphere is None and not self.circles:
            return X
        wide = np.empty((len(X), len(self.scaling.scale)))
        wide[:, : self.columns] = X
        if self.sphere is not None:
            wide[:, list(self.together)] = self.sphere.coordinates(X)
        for place, circle in zip(self._places_of_circles, self.circles, strict=True):
            wide[:, place] = circle.coordinates(given)
        return wide

    @property
    def _places_of_circles(self) -> list[slice]:
        first = len(self.scaling.scale) - 2 * len(self.circles)
        return [slice(first + 2 * i, first + 2 * i + 2) for i in range(len(self.circles))]

    def apply(self, X: Array, dtype: np.dtype[Any]) -> Array:
        """The model's columns of rows in the user's units, in the given precision."""
        scaled = self.scaling.apply(self.expanded(X), dtype)
        return scaled if self.directions is None else self.directions.apply(scaled)

    def pulled(self, X: Array, gradient: Array) -> Array:
        """Derivatives by the user's columns at rows X, from those by the model's columns, (n, columns)."""
        gradient = gradient if self.directions is None else self.directions.pulled(gradient)
        scaled = gradient / self.scaling.scale
        for warp in self.warps:
            scaled[:, warp.column] *= warp.slope(X[:, warp.column])
        out = np.array(scaled[:, : self.columns])
        for own, circle in zip(self._places_of_circles, self.circles, strict=True):
            out[:, circle.column] += (scaled[:, own] * circle.derivatives(X)).sum(axis=1)
        if self.sphere is None:
            return out
        by_coordinates = scaled[:, list(self.together)]
        by_degrees = self.sphere.derivatives(X)
        for place, slopes in zip((self.sphere.longitude, self.sphere.latitude), by_degrees, strict=True):
            out[:, place] = (by_coordinates * slopes).sum(axis=1)
        return out

    def restore(self, Z: Array) -> Array:
        """The inverse of `apply`."""
        X = self.scaling.restore(Z if self.directions is None else self.directions.restore(Z))
        if self.circles:
            X = np.ascontiguousarray(X[..., : -2 * len(self.circles)])
        for warp in self.warps:
            X[..., warp.column] = warp.restore(X[..., warp.column])
        if self.sphere is None:
            return X
        longitude, latitude = self.sphere.degrees(X[..., list(self.together)])
        X[..., self.sphere.longitude], X[..., self.sphere.latitude] = longitude, latitude
        return np.ascontiguousarray(X[..., :-1])


def on_sphere(
    inputs: Scaling, moments: Moments, sample: Array, longitude: int, latitude: int, standardize: bool
) -> tuple[InputScaling, Moments]:
    """The scaling, and the moments of the model's columns, where two columns are longitude and latitude.

    inputs, moments : of the user's columns
    sample : random rows, from which centre and size of the region are estimated
    """
    low, high = (float(side[longitude]) for side in (moments.low, moments.high))
    points = _unit_vectors(np.asarray(sample[:, longitude], float), np.asarray(sample[:, latitude], float))
    west = 0.0 if low >= 0 and high > 180 else -180.0
    sphere = Sphere(longitude, latitude, _axes(points.mean(axis=0)), west)
    places = [longitude, latitude, len(inputs.scale)]
    centre, scale = np.append(inputs.centre, 0.0), np.append(inputs.scale, 1.0)
    points = points @ sphere.axes.T
    size = float(np.sqrt(points.var(axis=0).sum() / 2))  # of the two directions along the surface
    if standardize:
        centre[places], scale[places] = points.mean(axis=0), size if size > 0 else 1.0
    else:
        centre[places], scale[places] = 0.0, 1 / DEGREES  # the model's units are degrees
    scaling = InputScaling(Scaling(centre, scale), sphere)
    return scaling, moments.with_columns(places, Moments.of(scaling.expanded(sample)[:, places] * DEGREES))


def _axes(middle: Array) -> Array:
    """East, north and up at a place; the axes of the earth where the data have no middle."""
    length = float(np.linalg.norm(middle))
    if length < _LEAST_DIRECTION:
        return np.eye(3)
    up = middle / length
    pole = np.array([0.0, 0.0, 1.0]) if abs(up[2]) < 1 - 1e-12 else np.array([0.0, 1.0, 0.0])
    east = np.cross(pole, up)
    east /= np.linalg.norm(east)
    return np.stack([east, np.cross(up, east), up])


def find_pair(names: Sequence[str]) -> tuple[int, int] | None:
    """Numbers of the columns that are longitude and latitude by their names; None if there is no pair, or several.

    A name may have more words, such as pickup_longitude, if both columns have them.
    """
    pairs = [
        (i, j)
        for i, first in enumerate(names)
        for j, second in enumerate(names)
        if (rest := _other_words(first, "longitude")) is not None and rest == _other_words(second, "latitude")
    ]
    return pairs[0] if len(pairs) == 1 else None


def _other_words(name: str, kind: str) -> tuple[str, ...] | None:
    """The words of a column's name without that for longitude or latitude; None unless it has one such word."""
    words = [word for word in re.split(r"[^a-z]+", str(name).lower()) if word]
    others = tuple(word for word in words if word not in _WORDS[kind])
    return others if len(others) == len(words) - 1 else None


def range_error(names: Sequence[str], longitude: int, latitude: int, moments: Moments) -> str | None:
    """Why the values of two columns cannot be degrees of longitude and latitude; None if they can."""
    low, high = moments.low, moments.high
    if low[latitude] < -_HIGHEST or high[latitude] > _HIGHEST:
        return _range(names[latitude], low[latitude], high[latitude], "latitude", "-90 to 90")
    if low[longitude] < -180 - 1e-6 or high[longitude] > 360 + 1e-6 or high[longitude] - low[longitude] > 360 + 1e-6:
        return _range(names[longitude], low[longitude], high[longitude], "longitude", "-180 to 180, or 0 to 360")
    return None


def is_flat(moments: Moments, longitude: int, latitude: int) -> bool:
    """Whether a flat map of longitude and latitude has the right distances up to one constant factor per axis.

    Length-scales account for such factors. The length of a degree of longitude is proportional to the cosine of the
    latitude, which must hardly vary, and the longitudes must not go around the pole.
    """
    low, high = moments.low, moments.high
    shortest = min(np.cos(np.radians(low[latitude])), np.cos(np.radians(high[latitude])))
    longest = 1.0 if low[latitude] <= 0 <= high[latitude] else max(
        np.cos(np.radians(low[latitude])), np.cos(np.radians(high[latitude]))
    )  # fmt: skip
    return bool(high[longitude] - low[longitude] < _WIDEST_FLAT and longest < _FLATTEST * shortest)


def _range(name: str, low: float, high: float, kind: str, allowed: str) -> str:
    return f"column {name!r} has values from {low:.6g} to {high:.6g}, and a {kind} is in degrees, {allowed}"


def check_pair(pair: tuple[str | int, str | int], names: Sequence[str], kinds: Sequence[str]) -> tuple[int, int]:
    """Numbers of the two columns that the user names or numbers; InvalidParameter if there are no such columns.

    names, kinds : of the user's columns, as in `Feature`
    """
    numbers = [_column_number(column, names) for column in pair]
    if numbers[0] == numbers[1]:
        raise InvalidParameter(f"sphere must be two different columns, longitude and latitude; got {pair!r}")
    for number in numbers:
        if kinds[number] != "number":
            raise InvalidParameter(f"sphere: column {names[number]!r} is a {kinds[number]}, not degrees")
    return numbers[0], numbers[1]


def _column_number(column: str | int, names: Sequence[str]) -> int:
    if isinstance(column, str):
        if column in names:
            return list(names).index(column)
        raise InvalidParameter(f"sphere: the data have no column {column!r}; they have {', '.join(map(repr, names))}")
    if -len(names) <= column < len(names):
        return column % len(names)
    raise InvalidParameter(f"sphere: there is no column number {column}; the data have {len(names)}")

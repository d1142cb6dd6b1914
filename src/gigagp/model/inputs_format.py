"""The inputs of a saved model: which rows, names of columns, how tables are read, places on a sphere, directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gigagp.data.array_files import ArrayFiles
from gigagp.data.directions import Directions
from gigagp.data.folders import damaged
from gigagp.data.scaling import Scaling
from gigagp.data.sources.encoding import Encoding
from gigagp.data.sources.share import Share
from gigagp.data.sphere import Circle, InputScaling, Sphere
from gigagp.data.warping import unstacked
from gigagp.errors import InvalidInput
from gigagp.model.calibration_format import floats
from gigagp.model.gap_scales import GapScales, gap_places
from gigagp.model.plain_values import count, field, number, require


def describe_sphere(sphere: Sphere | None) -> dict[str, Any]:
    """What a manifest says of longitude and latitude; nothing where there are none."""
    if sphere is None:
        return {}
    return {
        "sphere": {
            "longitude": sphere.longitude,
            "latitude": sphere.latitude,
            "west": sphere.west,
            "axes": sphere.axes.ravel().tolist(),
        }
    }


def describe_circles(circles: tuple[Circle, ...]) -> dict[str, Any]:
    """What a manifest says of columns that are wound onto circles; nothing where there are none."""
    return {"circles": [[circle.column, float(circle.period)] for circle in circles]} if circles else {}


def read_circles(manifest: dict[str, Any], columns: int) -> tuple[Circle, ...]:
    """Columns that are wound onto circles; ValueError if they are not valid.

    columns : the number of columns of the stored rows, which has two more per circle
    """
    content = manifest.get("circles", [])
    pairs: list[Any] = content if isinstance(content, list) else [None]
    own = columns - 2 * len(pairs)
    valid = all(
        isinstance(each, list) and len(each) == 2 and type(each[0]) is int and 0 <= each[0] < own
        and isinstance(each[1], float) and 0 < each[1] < np.inf
        for each in pairs
    )  # fmt: skip
    require(valid and own > 0, "its circles are not valid")
    return tuple(Circle(int(column), float(period)) for column, period in pairs)


def read_gap_scales(manifest: dict[str, Any], encoding: Encoding | None) -> GapScales | None:
    """The factors of rows with missing values; None where the model has none."""
    if "gap_factors" not in manifest:
        return None
    places, factors = gap_places(encoding), floats(manifest, "gap_factors")
    require(len(factors) == len(places) + 1 and bool((factors > 0).all()), "its factors of gaps are not valid")
    return GapScales(tuple(places), factors)


def describe_share(share: Share | None) -> dict[str, Any]:
    """What a manifest says of the rows that the model was fitted to; nothing if these were all."""
    if share is None:
        return {}
    return {"share": {"fraction": float(share.fraction), "seed": int(share.seed), "rest": bool(share.rest)}}


def read_share(manifest: dict[str, Any]) -> Share | None:
    """The rows that the model was fitted to; ValueError if the description is not valid."""
    if "share" not in manifest:
        return None
    content = field(manifest, "share", dict)
    fraction, rest = number(content, "fraction"), field(content, "rest", bool)
    require(0 < fraction < 1, "its share of the rows is not valid")
    return Share(fraction, count(content, "seed"), rest)


def read_sphere(manifest: dict[str, Any], columns: int) -> Sphere | None:
    """Longitude and latitude; ValueError if they are not valid.

    columns : the number of columns of the stored rows, which has one more than the user's data
    """
    if "sphere" not in manifest:
        return None
    content = field(manifest, "sphere", dict)
    longitude, latitude = count(content, "longitude"), count(content, "latitude")
    require(longitude != latitude and max(longitude, latitude) < columns - 1, "its longitude and latitude do not exist")
    axes = floats(content, "axes")
    require(len(axes) == 9, "the axes of its sphere are not valid")
    axes = axes.reshape(3, 3)
    require(bool(np.allclose(axes @ axes.T, np.eye(3), atol=1e-9)), "the axes of its sphere are not perpendicular")
    return Sphere(longitude, latitude, axes, number(content, "west"))


def read_inputs(files: ArrayFiles, manifest: dict[str, Any], sphere: Sphere | None, columns: int) -> InputScaling:
    """The scaling of the inputs, the maps of columns that are warped, circles and directions."""
    scaling = InputScaling(
        read_scaling(files, "inputs", columns), sphere, circles=read_circles(manifest, columns),
        directions=_read_directions(files, manifest, columns),
    )  # fmt: skip
    if "knots" not in manifest:
        return scaling
    knots = files.read("warps", (3, count(manifest, "knots", 2)), "float64")
    try:
        return replace(scaling, warps=unstacked(knots, scaling.columns))
    except ValueError as error:
        raise damaged(files.path("warps"), str(error)) from None


def _read_directions(files: ArrayFiles, manifest: dict[str, Any], columns: int) -> Directions | None:
    """The directions in a file; an error that names the file if columns cannot be restored from them."""
    if "directions" not in manifest:
        return None
    matrix = files.read("directions", (columns, columns), "float64")
    if not Directions.is_valid(matrix):
        raise damaged(files.path("directions"), "its directions do not determine the columns")
    directions = Directions(matrix)
    require(count(manifest, "directions") == len(directions.combined), "its number of directions is wrong")
    return directions


def read_scaling(files: ArrayFiles, name: str, columns: int) -> Scaling:
    """The scaling in a file; an error that names the file if its scales are not positive."""
    centre, scale = files.read(name, (2, columns), "float64")
    if (scale <= 0).any():
        raise damaged(files.path(name), "its scales are not positive")
    return Scaling(centre, scale)


def read_user_columns(
    manifest: dict[str, Any], columns: int
) -> tuple[Sphere | None, Encoding | None, list[str] | None]:
    """Longitude and latitude, how columns of tables are read, and the names of the columns.

    columns : the number of columns of the stored rows
    """
    sphere, circles = read_sphere(manifest, columns), read_circles(manifest, columns)
    return sphere, *read_columns(manifest, columns - (sphere is not None) - 2 * len(circles))


def read_columns(manifest: dict[str, Any], columns: int) -> tuple[Encoding | None, list[str] | None]:
    """How columns of tables are read, and their names.

    columns : the number of the user's columns
    """
    names, description = manifest.get("feature_names"), manifest.get("encoding")
    if names is not None:
        require(isinstance(names, list) and len(names) == columns, "it does not have one name per column")
        require(all(isinstance(name, str) for name in names), "a column name is not text")
    if description is None:
        return None, names
    try:
        encoding = Encoding.from_dict(description)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    require(len(encoding.feature_names) == columns, "its encoding does not fit its number of columns")
    require(names in (None, encoding.feature_names), "its column names are not those of its encoding")
    return encoding, names

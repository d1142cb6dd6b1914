"""Opens the user's data as a source. Libraries of tables and files are imported only where they are needed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gigagp.data.sources.array import ArraySource
from gigagp.data.sources.base import Addressable, Source
from gigagp.data.sources.npy import NpySource
from gigagp.errors import InvalidInput


def open_source(data: Any) -> Source:
    """A source over an array, a table, or a path."""
    if isinstance(data, Source):
        return data
    if isinstance(data, str | os.PathLike):
        return _open_path(os.fspath(data))
    return _open_memory(data, "X", "the table")


def open_target(target: Any, name: str = "y", role: str = "the target") -> Addressable:
    """A source of one column over numbers that lie beside the data: an array, a series, or an .npy file.

    name, role : what errors call the numbers
    """
    if isinstance(target, str | os.PathLike):
        source = _open_path(os.fspath(target))
    else:
        flat = not _is_table(target) and np.ndim(target) == 1
        source = _open_memory(np.asarray(target)[:, None] if flat else target, name, name)
        source = source.read_as(dict.fromkeys(source.columns, "category"))  # text is no target, not even that of dates
    if len(source.columns) != 1:
        raise InvalidInput(f"{source.name} has {len(source.columns)} columns; {role} is one column")
    if not isinstance(source, Addressable):
        raise InvalidInput(f"{role} must be a column of the data, an array or an .npy file; got {source.name}")
    return source


def _is_table(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow")


def is_geographic(data: Any) -> bool:
    """Whether data are a table of geopandas, with a geometry per row."""
    return type(data).__module__.partition(".")[0] == "geopandas" and hasattr(data, "geometry")


def _with_coordinates(data: Any) -> Any:
    """A table of geopandas as one of pandas: the places of its points are columns.

    These are longitude and latitude, in degrees, where the coordinate system of the points is known, and x and y
    elsewhere.
    """
    import pandas as pd  # noqa: PLC0415

    points = data.geometry
    if not (points.geom_type == "Point").all() or points.is_empty.any():
        raise InvalidInput(
            "the geometries of a GeoDataFrame must be points; take data.set_geometry(data.representative_point()), or "
            "its centroids"
        )
    known = points.crs is not None
    points = points.to_crs(4326) if known else points
    table = pd.DataFrame(data.drop(columns=points.name)) if hasattr(data, "columns") else pd.DataFrame(index=data.index)
    for name, values in zip(("longitude", "latitude") if known else ("x", "y"), (points.x, points.y), strict=True):
        if name in table.columns:
            raise InvalidInput(f"the table has a column {name!r} besides its geometry; rename or drop one of them")
        table[name] = values.to_numpy()
    return table


def _open_memory(data: Any, array_name: str, table_name: str) -> Source:
    if is_geographic(data):
        data = _with_coordinates(data)
    if _is_table(data):
        from gigagp.data.sources.table import open_table  # noqa: PLC0415

        return open_table(data, table_name)
    if isinstance(data, np.ma.MaskedArray):
        data = np.ma.filled(data.astype(float), np.nan)  # else what is masked would be read
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise InvalidInput(f"{array_name} is not an array: {error}") from error
    if not array.ndim:
        raise InvalidInput(f"cannot read {array_name} from a {type(data).__name__}; give an array, a table or a path")
    if array.dtype.kind in "OSU":
        from gigagp.data.sources.table import open_objects  # noqa: PLC0415

        return open_objects(array, array_name)
    return ArraySource(array, array_name)


def _open_path(path: str) -> Source:
    local = path.removeprefix("file://")
    if path.lower().endswith(".npy") and "://" not in local:
        return NpySource(local)
    from gigagp.data.sources.csv import CsvSource  # noqa: PLC0415
    from gigagp.data.sources.files import Files  # noqa: PLC0415
    from gigagp.data.sources.parquet import ParquetSource  # noqa: PLC0415

    files = Files(path)
    return ParquetSource(files) if files.format == "Parquet" else CsvSource(files)

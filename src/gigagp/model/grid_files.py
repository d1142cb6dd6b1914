"""Grids of predictions as xarray Datasets, and as NetCDF, Zarr and GeoTIFF files that are written block by block."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.errors import InvalidParameter
from gigagp.model.grids import Block, Grid
from gigagp.version import __version__

_KINDS = "NetCDF (.nc), Zarr (.zarr) or GeoTIFF (.tif)"
_ENDINGS = (".nc", ".zarr", ".tif", ".tiff")
_ZARR_FILES = {"zarr.json", ".zgroup"}  # of which a group has one, in versions 3 and 2 of the format


@dataclass(frozen=True, eq=False)
class Variables:
    """What is predicted at each point of a grid: names, and what they are."""

    names: tuple[str, ...]
    descriptions: tuple[str, ...]

    @property
    def attributes(self) -> dict[str, str]:
        """Of the whole file."""
        return {"Conventions": "CF-1.11", "source": f"gigagp {__version__}"}


def module(name: str) -> Any:
    """A library of the extra `geo`; an error that says how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidParameter(f"grids need {name}, which is not installed: pip install 'gigagp[geo]'") from error


def dataset(grid: Grid, variables: Variables, blocks: Iterator[tuple[Block, list[Array]]]) -> Any:
    """All predictions as an xarray Dataset in memory."""
    xarray = module("xarray")
    arrays = np.empty((len(variables.names), *grid.shape))
    for block, values in blocks:
        for array, part in zip(arrays, values, strict=True):
            array[block.index] = part
    dims = [axis.name for axis in grid.axes]
    return xarray.Dataset(
        {
            name: (dims, array, {"long_name": text})
            for name, text, array in zip(variables.names, variables.descriptions, arrays, strict=True)
        },
        {axis.name: (axis.name, axis.values, axis.attributes) for axis in grid.axes},
        variables.attributes,
    )


def check_memory(grid: Grid, variables: Variables, budget: int) -> None:
    """InvalidParameter, before any work, for a grid that exceeds half of the memory budget or has a name twice."""
    _check_names(grid, variables)
    size = 8 * grid.size * len(variables.names)
    if size > budget // 2:
        raise InvalidParameter(
            f"the grid has {grid.size:,} points and takes {size / 2**30:.1f} GB; pass output=, a file that is written "
            "block by block, or take a larger step"
        )


def check_output(grid: Grid, variables: Variables, output: str | os.PathLike[str], overwrite: bool) -> Path:
    """The path of the file; InvalidParameter, before any work, if it cannot be written there."""
    final = folders.output_path(output)
    suffix = final.suffix.lower()
    if suffix not in _ENDINGS:
        raise InvalidParameter(f"the output is written as {_KINDS}; got {output}")
    if final.exists() and not overwrite:
        raise InvalidParameter(f"{final} exists; give overwrite=True to replace it, or choose another output")
    _check_names(grid, variables)
    _check_kind(final, suffix)
    for axis in grid.axes:
        if axis.values.dtype.kind == "M":
            raise InvalidParameter(
                f"a grid with dates along {axis.name!r} cannot be written to a file; call predict_grid without output="
            )
    if suffix in (".tif", ".tiff"):
        _transform(grid)
    folders.check_writable(final, 8 * grid.size * len(variables.names), "the grid")
    return final


def _check_names(grid: Grid, variables: Variables) -> None:
    """InvalidParameter for an axis with the name of a variable: a Dataset has one of that name."""
    both = {axis.name for axis in grid.axes} & set(variables.names)
    if both:
        raise InvalidParameter(
            f"grid: {min(both)!r} is a column and also the name of a prediction; give one value of it, or fit the "
            "model with another name of that column"
        )


def _check_kind(final: Path, suffix: str) -> None:
    """InvalidParameter for a folder where a file is written, a file in place of a folder, or a folder of other things.

    What exists is removed when the grid is complete: it must be a grid.
    """
    if suffix != ".zarr" and final.is_dir():
        raise InvalidParameter(f"{final} is a folder; choose another output")
    if suffix == ".zarr" and final.exists():
        if not final.is_dir():
            raise InvalidParameter(f"{final} is not a folder, which Zarr needs; choose another output")
        names = {path.name for path in final.iterdir()}
        if names and not names & _ZARR_FILES:
            raise InvalidParameter(f"{final} is a folder that contains no Zarr group; choose another output")


def write(grid: Grid, variables: Variables, blocks: Iterator[tuple[Block, list[Array]]], final: Path) -> Any:
    """Write the file block by block, and open it as an xarray Dataset. The file is complete or absent."""
    suffix = final.suffix.lower()
    writer = {".nc": _NetCDF, ".zarr": _Zarr}.get(suffix, _GeoTiff)
    with folders.disk_errors("writing the grid", final.parent), _partial(final) as partial:
        sink: _Writer = writer(partial, grid, variables)
        try:
            for block, values in blocks:
                sink.write(block, values)
        finally:
            sink.close()
    return opened(final)


def opened(path: Path) -> Any:
    """A file that `write` has written, as an xarray Dataset whose values are read when they are needed."""
    suffix = path.suffix.lower()
    if suffix == ".nc":
        return module("xarray").open_dataset(path, engine="h5netcdf")
    if suffix == ".zarr":
        return module("xarray").open_zarr(path, consolidated=False, chunks=None)
    image = module("rioxarray").open_rasterio(path, band_as_variable=True)
    return image.rename({name: image[name].attrs["long_name"] for name in image.data_vars})


@contextmanager
def _partial(final: Path) -> Iterator[Path]:
    """A path beside the final one, which gets its name when it is complete and is removed after an error."""
    folders.make(final.parent)
    partial = final.with_name(f".{final.stem}.partial-{os.getpid()}{final.suffix}")

    def remove(path: Path) -> None:
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    remove(partial)
    try:
        yield partial
        if final.is_dir():
            remove(final)
        partial.replace(final)
    except BaseException:
        remove(partial)
        raise


class _Writer(ABC):
    """A file that receives blocks."""

    def __init__(self, path: Path, grid: Grid, variables: Variables) -> None:
        self.path, self.grid, self.variables = path, grid, variables

    @abstractmethod
    def write(self, block: Block, values: Sequence[Array]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class _NetCDF(_Writer):
    def __init__(self, path: Path, grid: Grid, variables: Variables) -> None:
        super().__init__(path, grid, variables)
        self._file = module("h5netcdf").File(path, "w")
        self._file.dimensions = {axis.name: len(axis.values) for axis in grid.axes}
        self._file.attrs.update(variables.attributes)
        for axis in grid.axes:
            variable = self._file.create_variable(axis.name, (axis.name,), float, data=axis.values)
            variable.attrs.update(axis.attributes)
        dims = tuple(axis.name for axis in grid.axes)
        for name, text in zip(variables.names, variables.descriptions, strict=True):
            self._file.create_variable(name, dims, float).attrs["long_name"] = text

    def write(self, block: Block, values: Sequence[Array]) -> None:
        for name, part in zip(self.variables.names, values, strict=True):
            self._file.variables[name][block.index] = part

    def close(self) -> None:
        self._file.close()


class _Zarr(_Writer):
    def __init__(self, path: Path, grid: Grid, variables: Variables) -> None:
        super().__init__(path, grid, variables)
        self._group = module("zarr").open_group(str(path), mode="w")
        self._group.attrs.update(variables.attributes)
        for axis in grid.axes:
            array = self._group.create_array(
                axis.name,
                shape=axis.values.shape,
                dtype="float64",
                dimension_names=[axis.name],
                attributes=axis.attributes,
            )
            array[:] = axis.values
        dims = [axis.name for axis in grid.axes]
        for name, text in zip(variables.names, variables.descriptions, strict=True):
            self._group.create_array(
                name, shape=grid.shape, dtype="float64", dimension_names=dims, attributes={"long_name": text}
            )

    def write(self, block: Block, values: Sequence[Array]) -> None:
        for name, part in zip(self.variables.names, values, strict=True):
            self._group[name][block.index] = part

    def close(self) -> None:
        pass


class _GeoTiff(_Writer):
    """One band per variable; the first line of the image is the northernmost."""

    def __init__(self, path: Path, grid: Grid, variables: Variables) -> None:
        super().__init__(path, grid, variables)
        rasterio = module("rasterio")
        height, width = grid.shape
        places = bool(grid.axes[0].degrees and grid.axes[1].degrees)
        self._window = module("rasterio.windows").Window
        self._image = rasterio.open(
            path, "w", driver="GTiff", height=height, width=width, count=len(variables.names), dtype="float64",
            transform=_transform(grid), nodata=np.nan, tiled=False, BIGTIFF="IF_SAFER",
            **({"crs": "EPSG:4326"} if places else {}),
        )  # fmt: skip
        for band, name in enumerate(variables.names, 1):
            self._image.set_band_description(band, name)

    def write(self, block: Block, values: Sequence[Array]) -> None:
        height, width = self.grid.shape
        lines = block.index[-1]
        window = self._window(0, height - lines.stop, width, lines.stop - lines.start)
        for band, part in enumerate(values, 1):
            self._image.write(part[::-1], band, window=window)

    def close(self) -> None:
        self._image.close()


def _transform(grid: Grid) -> Any:
    """Where the pixels of an image lie; an error unless the grid has two even axes of increasing values."""
    steps = []
    for axis in grid.axes:
        differences = np.diff(axis.numbers)
        if not (len(differences) and differences[0] > 0 and np.allclose(differences, differences[0], rtol=1e-6)):
            raise InvalidParameter(f"GeoTIFF needs axes of increasing values at equal steps; {axis.name!r} has others")
        steps.append(float(differences[0]))
    if len(steps) != 2:
        raise InvalidParameter(f"GeoTIFF needs a grid of two columns; got {len(steps)}; write .nc or .zarr instead")
    north, west = float(grid.axes[0].numbers[-1]), float(grid.axes[1].numbers[0])
    return module("rasterio").Affine(steps[1], 0.0, west - steps[1] / 2, 0.0, -steps[0], north + steps[0] / 2)

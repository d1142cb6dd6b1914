"""Maps of grids that `HGPRegressor.predict_grid` has predicted."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.errors import InvalidParameter
from gigagp.plotting import style

_PIXELS = 1_500  # of a map, along each side
_WIDEST = 2.2  # ratio of the sides of a map
_LABEL_WIDTH = 24  # characters of a line beside the colours
_CLIPPED = 0.005  # share of the values at each end that the colours do not resolve


def grid_map(grid: Any, variable: str = "mean", ax: Axes | None = None) -> Axes:
    """One variable of a grid over two columns, such as mean, std or q0.05.

    grid : the Dataset that `predict_grid` returns
    """
    if variable not in grid:
        raise InvalidParameter(f"the grid has no variable {variable!r}; it has {', '.join(map(str, grid.data_vars))}")
    values = grid[variable]
    if values.ndim != 2:
        raise InvalidParameter(
            f"a map needs a grid of two columns; {variable!r} has {values.ndim}; select one with sel"
        )
    rows, columns = (max(1, -(-size // _PIXELS)) for size in values.shape)
    values = values[::rows, ::columns]
    vertical, horizontal = values.dims
    x, y, z = values[horizontal].values, values[vertical].values, values.values
    degrees = grid[horizontal].attrs.get("units") == "degrees_east"
    ax = style.axes(ax, 7.2, 3.9)
    low, high = np.nanquantile(z, [_CLIPPED, 1 - _CLIPPED]) if np.isfinite(z).any() else (0.0, 1.0)
    image = ax.pcolormesh(
        x, y, z, shading="nearest", cmap=style.MAP, vmin=low, vmax=high if high > low else low + 1, rasterized=True
    )
    if degrees and y.dtype.kind == "f":  # a degree of longitude is as long as one of latitude, in the middle of the map
        middle = float(np.cos(np.radians(np.clip((y.min() + y.max()) / 2, -75, 75))))
        shape = float(np.ptp(x)) * middle / max(float(np.ptp(y)), 1e-9)
        ax.set_aspect(1 / middle if 1 / _WIDEST <= shape <= _WIDEST else "auto")
    for name, axis in ((horizontal, ax.xaxis), (vertical, ax.yaxis)):
        axis.set_label_text(style.short(str(name)))
        if degrees:
            axis.set_major_formatter("{x:g}°")
    lines = textwrap.wrap(str(values.attrs.get("long_name", variable)), _LABEL_WIDTH)
    bar = ax.figure.colorbar(image, ax=ax, label="\n".join(map(style.short, lines)), extend="both")
    bar.outline.set_visible(False)  # type: ignore[operator]
    return ax

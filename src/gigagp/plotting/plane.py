"""A plane of queries over two columns, and the map of their predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.estimators.base import HGPEstimator
from gigagp.plotting import style
from gigagp.plotting.influence import two_columns
from gigagp.plotting.rows import label_axis, span, typical_row

_QUERIES = 48  # along each side


@dataclass(frozen=True, eq=False)
class Plane:
    """Queries on a grid over two columns, the other columns as in one row."""

    model: HGPEstimator
    columns: tuple[int, int]
    queries: Array
    sides: tuple[Array, Array]  # the coordinates of the queries, as two square arrays
    note: str

    @classmethod
    def of(cls, model: HGPEstimator, columns: tuple[int | str, int | str] | None, at: Any) -> Plane:
        """columns : default the two that change predictions most. at : default a typical training row."""
        i, j = two_columns(model, columns)
        row = typical_row(model) if at is None else np.asarray(at, float)
        queries = np.tile(row, (_QUERIES**2, 1))
        x, y = np.meshgrid(*(np.linspace(*span(model, d), _QUERIES) for d in (i, j)))
        queries[:, i], queries[:, j] = x.ravel(), y.ravel()
        note = "" if at is not None or model.n_features_in_ == 2 else "other columns as in a typical row"
        return cls(model, (i, j), queries, (x, y), note)

    def draw(self, values: Array, label: str, ax: Axes, limits: tuple[float, float] | None = None) -> None:
        """The map of one value per query, with a colour bar. limits : of the colours; default those of the values."""
        (x, y), (i, j) = self.sides, self.columns
        low, high = limits or (None, None)
        image = ax.imshow(
            values.reshape(x.shape), origin="lower", extent=(x[0, 0], x[0, -1], y[0, 0], y[-1, 0]), aspect="auto",
            cmap=style.MAP, interpolation="bilinear", vmin=low, vmax=high,
        )  # fmt: skip
        label_axis(self.model, ax.xaxis, i)
        label_axis(self.model, ax.yaxis, j)
        bar = ax.figure.colorbar(image, ax=ax, label=label)
        bar.outline.set_visible(False)  # type: ignore[operator]
        style.note(ax, self.note)

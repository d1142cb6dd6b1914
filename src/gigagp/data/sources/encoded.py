"""Rows that are the model's own columns already: categories are the numbers of their levels, gaps are filled."""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.array import ArraySource
from gigagp.data.sources.base import Batch
from gigagp.data.sources.encoding import Encoding, Feature
from gigagp.data.sources.row_noise import RowNoise, Target
from gigagp.data.sources.rows import Rows


class EncodedRows(Rows):
    """Rows of an array with the columns that an encoding makes."""

    def __init__(
        self, X: Array, y: Array, encoding: Encoding, weights: Array | None = None, deviations: Array | None = None
    ) -> None:
        first, places = 0, {}
        for feature in encoding.features:
            places[f"x{first}"] = first
            first += len(feature.names)
        noise = RowNoise(*(_beside(values) for values in (weights, deviations)))
        noisy = weights is not None or deviations is not None
        super().__init__(
            ArraySource(X), list(places), encoding, _beside(np.asarray(y, float)), noise=noise if noisy else None
        )
        self._first = places
        self.dtype = np.dtype(X.dtype)

    @property
    def columns_read(self) -> list[str]:
        return [f"x{d}" for d in range(len(self.source.columns))]

    def _numbers(self, piece: Batch, name: str, feature: Feature) -> Array:
        first = self._first[name]
        return np.column_stack([piece.numbers(f"x{first + i}") for i in range(len(feature.names))])


def _beside(values: Array | None) -> Target | None:
    if values is None:
        return None
    return Target("x0", ArraySource(np.asarray(values, float)[:, None], "y"))

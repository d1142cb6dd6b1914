"""Deviations of rows with missing values: how much wider than those of other rows they must be.

The calibration of a model is that of all rows together. Rows without gaps are predicted better than rows with gaps, so
that one calibration is too wide for the former and too narrow for the latter. Held-out rows show by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.encoding import Encoding
from gigagp.model.distribution import Shape

_LEVELS = np.array([0.5, 0.8, 0.95])  # of quantiles of absolute errors that are to be right
_PRIOR_ROWS = 20.0  # rows that say that a group needs no factor of its own


@dataclass(frozen=True, eq=False)
class GapScales:
    """Factors of the standard deviations: of rows without gaps and, for each column, of rows in which it is missing.

    A row in which several columns are missing has the largest of their factors.
    """

    places: tuple[tuple[int, float], ...]  # columns of X, and the number in them that says that a value is missing
    factors: Array  # one more than places: the first is that of rows without gaps

    @classmethod
    def learnt(cls, places: Sequence[tuple[int, float]], X: Array, z: Array, shape: Shape) -> GapScales:
        """From held-out rows X in the user's units, with errors z in predicted deviations."""
        scales = cls(tuple(places), np.ones(1 + len(places)))
        gaps = scales.gaps(X)
        groups = [~gaps.any(axis=1), *gaps.T]
        expected = shape.size_quantile(_LEVELS)
        return cls(scales.places, np.array([_factor(np.abs(z[group]), expected) for group in groups]))

    def gaps(self, X: Array) -> Array:
        """Whether each of the columns is missing, (rows, places)."""
        return np.stack([X[:, place] == number for place, number in self.places], axis=1)

    def at(self, X: Array) -> Array:
        """The factor of each row."""
        gaps = self.gaps(X)
        of_gaps = np.where(gaps, self.factors[1:], 0.0).max(axis=1)
        return np.asarray(np.where(gaps.any(axis=1), of_gaps, self.factors[0]))


def _factor(errors: Array, expected: Array) -> float:
    """The factor that gives the standard deviations the right coverage, shrunk towards one if there are few rows."""
    if len(errors) == 0:
        return 1.0
    ratios = np.quantile(errors, _LEVELS) / expected
    trust = len(errors) / (len(errors) + _PRIOR_ROWS)
    return float(np.exp(trust * np.mean(np.log(np.clip(ratios, 0.1, 10.0)))))


def gap_places(encoding: Encoding | None) -> list[tuple[int, float]]:
    """The columns of X that mark missing values, and the number with which each of them does."""
    if encoding is None or encoding.gaps is None:
        return []
    places, at = [], 0
    for feature in encoding.features:
        if feature.gaps:
            places.append((at + 1, 1.0))
        elif feature.categories is not None and not feature.one_hot:
            places.append((at, float(len(feature.categories))))
        at += len(feature.names)
    return places

"""Scores of arriving rows, each predicted before it is learnt (prequential; Dawid 1984), and whether they drift.

The record is an array with one row per update that was scored, and the columns below. Sums, not means, are kept, so
that consecutive rows of the record can be added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.model.likelihood_distribution import Distribution

# Columns of the record.
ARRIVED = 0  # rows
SCORED = 1  # rows
LOSS = 2  # sum of negative log densities, in the user's units
SQUARED_LOSS = 3
SQUARED_ERROR = 4
CRPS = 5
COVERED = 6  # rows within their 95% interval
COLUMNS = 7
_TOGETHER = 64  # scores of several updates that are added up in one row of the record
_WINDOW = 512  # scored rows that are compared with the reference, at least
_LEAST_DRIFT = 0.1  # nats per row
_ERRORS = 3.0  # standard errors of the difference
_LEVEL = 0.95  # of the intervals


def score(distribution: Distribution, y: Array, arrived: int) -> Array:
    """One row of the record, from the predictive distributions of some of the rows that have arrived."""
    losses = -np.asarray(distribution.log_pdf(y))
    low, high = distribution.interval(_LEVEL)
    row = np.empty(COLUMNS)
    row[ARRIVED], row[SCORED] = arrived, len(y)
    row[LOSS], row[SQUARED_LOSS] = losses.sum(), (losses**2).sum()
    row[SQUARED_ERROR], row[CRPS] = ((y - distribution.mean) ** 2).sum(), distribution.crps(y).sum()
    row[COVERED] = ((y >= low) & (y <= high)).sum()
    return row


@dataclass(frozen=True)
class Drift:
    """How much worse the most recent rows were predicted than the first ones: nats per row, and its standard error."""

    difference: float
    error: float
    rows: int  # scored rows that were compared, of each kind

    @property
    def detected(self) -> bool:
        """Whether the difference is neither small nor an accident."""
        return self.difference > max(_LEAST_DRIFT, _ERRORS * self.error)


@dataclass(frozen=True, eq=False)
class Prequential:
    """The record of a model, since its last fit.

    Attributes
    ----------
    record : array
        One row per update.

    """

    record: Array

    @property
    def rows(self) -> int:
        """The number of rows that have arrived."""
        return int(self.record[:, ARRIVED].sum())

    @property
    def scored(self) -> int:
        """The number of rows that were scored."""
        return int(self.record[:, SCORED].sum())

    def _mean(self, column: int) -> float:
        return float(self.record[:, column].sum() / self.scored) if self.scored else float("nan")

    @property
    def nlpd(self) -> float:
        """Mean negative log predictive density."""
        return self._mean(LOSS)

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self._mean(SQUARED_ERROR)))

    @property
    def crps(self) -> float:
        return self._mean(CRPS)

    @property
    def coverage(self) -> float:
        """Share of the rows within their 95% interval."""
        return self._mean(COVERED)

    def curve(self, points: int = 50) -> tuple[Array, Array]:
        """Rows that have arrived, and the mean NLPD of those scored since the point before, at some points."""
        if not self.scored:
            return np.empty(0), np.empty(0)
        ends = np.unique(np.linspace(0, len(self.record), min(points, len(self.record)) + 1).astype(int))
        totals = np.add.reduceat(self.record, ends[:-1], axis=0)
        arrived = np.cumsum(totals[:, ARRIVED])
        some = totals[:, SCORED] > 0
        return arrived[some], totals[some, LOSS] / totals[some, SCORED]

    @property
    def drift(self) -> Drift | None:
        """The last rows compared with the first; None while too few have been scored."""
        counts = np.cumsum(self.record[:, SCORED])
        if not len(counts) or counts[-1] < 2 * _WINDOW:
            return None
        first = self.record[: int(np.searchsorted(counts, _WINDOW)) + 1].sum(axis=0)
        last = self.record[int(np.searchsorted(counts, counts[-1] - _WINDOW, side="right")) :].sum(axis=0)
        (a, va, na), (b, vb, nb) = (_moments(part) for part in (first, last))
        return Drift(b - a, float(np.sqrt(va / na + vb / nb)), int(min(na, nb)))


def _moments(total: Array) -> tuple[float, float, float]:
    """Mean and variance of the losses, and how many there are."""
    n = float(total[SCORED])
    mean = float(total[LOSS]) / n
    return mean, max(float(total[SQUARED_LOSS]) / n - mean**2, 0.0), n


def appended(record: Array | None, row: Array) -> Array:
    """The record with one more row, which is added to the last one where that has few scores."""
    if record is None:
        return row[None, :]
    if record[-1, SCORED] < _TOGETHER:
        return np.concatenate([record[:-1], (record[-1] + row)[None, :]])
    return np.concatenate([record, row[None, :]])

"""Scores of arriving rows, each predicted before it is learnt (prequential; Dawid 1984), and whether they drift.

The record is an array with one row per update that was scored, and the columns below. Sums, not means, are kept, so
that consecutive rows of the record can be added. A row without scored rows is a marker: a training has ended there, its
column `LOSS` has the NLPD that is expected of the model from then on, if `SQUARED_ERROR` is one, and `SQUARED_LOSS`
how the training ended. Of classes, `LOSS` is the log loss, `CRPS` is the Brier score, and errors and intervals are NaN.
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
# How a training has ended.
FITTED = 0  # a fit, or one that the user has requested
ACCEPTED = 1  # recent rows are predicted better
WARM_REJECTED = 2  # a training from the present theta predicts them no better
COLD_REJECTED = 3  # nor does a fit from the beginning
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


def class_score(log_probabilities: Array, classes: Array, arrived: int) -> Array:
    """One row of the record, from the probabilities of classes: log loss, Brier score, and nothing else."""
    own = np.arange(len(classes))
    losses, p = -log_probabilities[own, classes], np.exp(log_probabilities)
    row = np.full(COLUMNS, np.nan)
    row[ARRIVED], row[SCORED] = arrived, len(classes)
    row[LOSS], row[SQUARED_LOSS] = losses.sum(), (losses**2).sum()
    row[CRPS] = (p**2).sum() + (1 - 2 * p[own, classes]).sum()
    return row


@dataclass(frozen=True)
class Drift:
    """How much worse the last rows were predicted than is expected: nats per row, and the standard error.

    Expected is the score of the held-out rows of the last training, or that of earlier arrivals where it was lower.
    """

    difference: float
    error: float
    rows: int  # scored rows that were compared

    @property
    def detected(self) -> bool:
        """Whether the difference is neither small nor an accident."""
        return self.difference > max(_LEAST_DRIFT, _ERRORS * self.error)


@dataclass(frozen=True, eq=False)
class Prequential:
    """The record of a model, since it was fitted.

    Attributes
    ----------
    record : array
        One row per update, and markers of trainings.

    """

    record: Array

    @property
    def trainings(self) -> Array:
        """How many rows had arrived when each training ended."""
        return np.asarray(np.cumsum(self.record[:, ARRIVED])[self.record[:, SCORED] == 0])

    @property
    def last_training(self) -> int:
        """How the last training ended."""
        return FITTED if self._last_marker is None else int(self.record[self._last_marker, SQUARED_LOSS])

    @property
    def rejected(self) -> int:
        """How many trainings have gained nothing since the last one that has."""
        ends = self.record[self.record[:, SCORED] == 0, SQUARED_LOSS]
        gained = np.flatnonzero(ends < WARM_REJECTED)
        return len(ends) - 1 - int(gained[-1]) if len(gained) else len(ends)

    @property
    def expected(self) -> float:
        """The NLPD of the held-out rows of the last training that was kept; NaN if it is not known."""
        marker = self._last_marker
        if marker is None or not self.record[marker, SQUARED_ERROR]:
            return float("nan")
        return float(self.record[marker, LOSS])

    @property
    def rows_since_training(self) -> int:
        """The number of rows that have arrived since the last training."""
        return int(self._since[:, ARRIVED].sum())

    @property
    def _last_marker(self) -> int | None:
        markers = np.flatnonzero(self.record[:, SCORED] == 0)
        return int(markers[-1]) if len(markers) else None

    @property
    def _since(self) -> Array:
        """The scores since the last training."""
        return self.record if self._last_marker is None else self.record[self._last_marker + 1 :]

    @property
    def rows(self) -> int:
        """The number of rows that have arrived."""
        return int(self.record[:, ARRIVED].sum())

    @property
    def scored(self) -> int:
        """The number of rows that were scored."""
        return int(self.record[:, SCORED].sum())

    def _mean(self, column: int) -> float:
        scores = self.record[self.record[:, SCORED] > 0]
        return float(scores[:, column].sum() / self.scored) if self.scored else float("nan")

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
        scores = self.record[self.record[:, SCORED] > 0]
        ends = np.unique(np.linspace(0, len(scores), min(points, len(scores)) + 1).astype(int))
        totals = np.add.reduceat(scores, ends[:-1], axis=0)
        return np.cumsum(totals[:, ARRIVED]), totals[:, LOSS] / totals[:, SCORED]

    @property
    def drift(self) -> Drift | None:
        """The last rows compared with what is expected; None while too few have been scored."""
        scores = self._since
        counts = np.cumsum(scores[:, SCORED])
        if not len(counts) or counts[-1] < _WINDOW:
            return None
        begin = int(np.searchsorted(counts, counts[-1] - _WINDOW, side="right"))
        mean, variance, rows = _moments(scores[begin:].sum(axis=0))
        expected = [_moments(window) for window in _windows(scores[:begin])]
        if np.isfinite(self.expected):
            expected.append((self.expected, 0.0, rows))
        if not expected:
            return None
        lowest, its_variance, its_rows = min(expected)
        return Drift(mean - lowest, float(np.sqrt(variance / rows + its_variance / its_rows)), int(rows))


def _windows(scores: Array) -> list[Array]:
    """Sums over consecutive rows of the record, each with so many scored rows that windows can be compared."""
    result, begin = [], 0
    counts = np.cumsum(scores[:, SCORED])
    while begin < len(counts):
        before = counts[begin - 1] if begin else 0.0
        end = int(np.searchsorted(counts, before + _WINDOW)) + 1
        if end > len(counts):
            break
        result.append(scores[begin:end].sum(axis=0))
        begin = end
    return result


def _moments(total: Array) -> tuple[float, float, float]:
    """Mean and variance of the losses, and how many there are."""
    n = float(total[SCORED])
    mean = float(total[LOSS]) / n
    return mean, max(float(total[SQUARED_LOSS]) / n - mean**2, 0.0), n


def marker(expected: float, outcome: int) -> Array:
    """The row of the record that marks the end of a training; `expected` : NLPD in the user's units, NaN if unknown."""
    row = np.zeros(COLUMNS)
    known = bool(np.isfinite(expected))
    row[LOSS], row[SQUARED_LOSS], row[SQUARED_ERROR] = expected if known else 0.0, outcome, known
    return row


def appended(record: Array | None, row: Array) -> Array:
    """The record with one more row, which is added to the last one where that has few scores."""
    if record is None:
        return row[None, :]
    if 0 < record[-1, SCORED] < _TOGETHER and row[SCORED] > 0:
        return np.concatenate([record[:-1], (record[-1] + row)[None, :]])
    return np.concatenate([record, row[None, :]])

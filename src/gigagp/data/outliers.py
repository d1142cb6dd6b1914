"""Rows whose target lies far outside those of all others.

With d_1 >= d_2 >= .. the distances of the targets from their median, the first k rows are outliers if

    d_k >= 10 d_(k+1),

for the largest such k of at most one row in 200. Where the tail of the target is a power law with exponent a, chance
produces such a gap after k rows with probability 10^(-a k): in one of a hundred data sets where the variance is barely
finite (a = 2), and practically never in others. Outliers that lie near to each other in the inputs are structure and
count as ordinary rows, and so does everything where half of the targets are equal.

An outlier is used with a noise variance of its own, d^2: the value that maximises the likelihood of a row whose error
is d. It hardly influences predictions then, and it does not determine the scale of the target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import BLOCK, Moments
from gigagp.data.scan import Sample, Scan
from gigagp.data.store import Targets, join_targets, split_targets
from gigagp.linalg.row_noise import ADDED, FACTOR

_GAP = 10.0  # ratio of the distances of the nearest outlier and of the farthest other row
_ROWS_PER_OUTLIER = 200  # at most one row in so many is an outlier
_LEAST_ROWS = 20  # from which one row may be an outlier
_NEAR_ROWS = 10  # nearest rows, among which there must not be another outlier


@dataclass(frozen=True, eq=False)
class Outliers:
    """Some rows, as the model and as the user numbers them, and the noise variance of each in the target's units."""

    rows: Array
    source_rows: Array
    variances: Array

    def __len__(self) -> int:
        return len(self.rows)

    def mark(self, targets: Targets, rows: Array) -> Targets:
        """Targets of these rows, with the row noise of the outliers among them."""
        if len(self) == 0:
            return targets
        y, row_noise = split_targets(targets)
        row_noise = np.tile([1.0, 0.0], (len(y), 1)) if row_noise is None else row_noise.copy()
        _, here, ours = np.intersect1d(rows, self.rows, assume_unique=True, return_indices=True)
        row_noise[here, ADDED] += self.variances[ours] * row_noise[here, FACTOR]
        return join_targets(y, row_noise)


NONE = Outliers(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def find_outliers(data: Scan) -> Outliers:
    """The outliers among the rows of a scan."""
    y, _ = split_targets(data.sample.y)
    centre = float(np.median(y))
    if data.rows < _LEAST_ROWS or not np.median(np.abs(0.5 * y - 0.5 * centre)) > 0:
        return NONE
    extremes = data.extremes
    distances = np.abs(0.5 * extremes.y - 0.5 * centre)  # halved: nothing overflows
    order = np.argsort(-distances, kind="stable")
    sorted_distances = distances[order]
    few = min(max(1, data.rows // _ROWS_PER_OUTLIER), len(order) // 2 - 1)  # all of them are extremes
    gaps = np.flatnonzero(sorted_distances[:few] >= _GAP * sorted_distances[1 : few + 1])
    if len(gaps) == 0:
        return NONE
    best = order[: gaps[-1] + 1]
    if not _isolated(extremes.X[best], extremes.rows[best], data.sample, data.inputs.scaling().scale):
        return NONE
    best = best[np.argsort(extremes.rows[best])]
    with np.errstate(over="ignore"):
        variances = np.minimum(np.square(2 * distances[best]), np.finfo(float).max)
    return Outliers(extremes.rows[best], extremes.source_rows[best], variances)


def _isolated(X: Array, rows: Array, sample: Sample, scale: Array) -> bool:
    """Whether no outlier is among the rows nearest to another one, in standardised inputs."""
    ordinary = sample.X[~np.isin(sample.rows, rows)] / scale
    points = X / scale
    for i, point in enumerate(points):
        squares = np.square(ordinary - point).sum(axis=1)
        near = np.partition(squares, min(_NEAR_ROWS, len(squares) - 1))[min(_NEAR_ROWS, len(squares) - 1)]
        others = np.square(np.delete(points, i, axis=0) - point).sum(axis=1)
        if (others <= near).any():
            return False
    return True


def without(data: Scan, outliers: Outliers) -> Scan:
    """The scan with the target's moments of all other rows, from the sample where rows are more than that."""
    if len(outliers) == 0:
        return data
    y, row_noise = split_targets(data.sample.y)
    ordinary = ~np.isin(data.sample.rows, outliers.rows)
    order = np.argsort(data.sample.rows[ordinary])
    y = y[ordinary][order][:, None]
    weights = None if row_noise is None else 1 / row_noise[ordinary, FACTOR][order]
    moments = Moments(y[0])
    for start in range(0, len(y), BLOCK):
        here = slice(start, start + BLOCK)
        moments.add(y[here], None if weights is None else weights[here])
    marked = replace(data.sample, y=outliers.mark(data.sample.y, data.sample.rows))
    return replace(data, target=moments, sample=marked)

"""Scores of any number of predicted rows in bounded memory: sums per region, PIT counts, a sample for the figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp import metrics
from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.likelihood_distribution import Distribution
from gigagp.plotting.influence import influential_columns
from gigagp.plotting.rows import TYPICAL, leaf_centre, training_rows

SAMPLE = 20_000  # rows that the figures show
LEVEL = 0.95  # of the intervals whose coverage is reported
_REGIONS = 8
_PIT_BINS = 1_000
_PIT_BLOCK = 1_000  # rows of discrete targets that are counted together
_FAR_SAMPLE = 1_000  # rows that are checked for their distance from the training rows
_FAR_VARIANCE = 0.9  # share of the prior variance from which a query counts as far from the training rows


@dataclass(frozen=True)
class Score:
    """How good the predictions of some rows are."""

    name: str
    rows: int
    rmse: float
    nlpd: float
    coverage: float
    bias: float  # mean of (y - mean) / std; 0 for a calibrated model
    spread: float  # root mean square of (y - mean) / std; 1 for a calibrated model
    centre: Array  # mean inputs


class Regions:
    """The leaf and the region of the input space that a row lies in.

    With the local partition regions are subtrees. With other partitions every expert sees the whole input space:
    regions are then slices along the most relevant column, and rows have no leaf.
    """

    def __init__(self, model: HGPEstimator) -> None:
        self._model, self.local = model, model.model_.local
        if self.local:
            nodes = model.tree_.cut(_REGIONS)
            self.count = len(nodes)
            self._of_leaf = np.repeat(np.arange(len(nodes)), [len(node.leaves) for node in nodes])
            self.names = [_leaf_range(node.leaves) for node in nodes]
            return
        self._column = influential_columns(model, 1)[0]
        x = training_rows(model, TYPICAL).X[:, self._column]
        self._edges = np.unique(np.quantile(x, np.linspace(0, 1, _REGIONS + 1)))[1:-1]
        self.count = len(self._edges) + 1
        column = model.units_.columns[self._column]
        ends = [model.units_.text(self._column, edge, float(np.ptp(x))) for edge in self._edges]
        self.names = [
            f"{column} {low} to {high}" for low, high in zip(["lowest", *ends], [*ends, "highest"], strict=True)
        ]

    def leaf(self, X: Array) -> Array:
        """The nearest expert of each row."""
        model = self._model
        Z = model.model_.inputs.apply(X, np.dtype(float))
        return np.asarray(model.model_.committee.router.nearest(Z, 1).experts[:, 0])

    def of(self, X: Array, leaf: Array) -> Array:
        if self.local:
            return np.asarray(self._of_leaf[leaf])
        return np.searchsorted(self._edges, X[:, self._column], side="right")


def _leaf_range(leaves: range) -> str:
    first, last = leaves[0], leaves[-1]
    return f"leaf {first:,}" if first == last else f"leaves {first:,} to {last:,}"


class RowSample:
    """A sample of rows that come in blocks: those with the smallest keys, whatever the sizes of the blocks are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.parts: list[tuple[Array, ...]] = []

    def add(self, block: tuple[Array, ...]) -> None:
        """Arrays of a block of rows, the first of them the keys."""
        self.parts.append(block)
        if sum(len(part[0]) for part in self.parts) > 2 * self._most:
            self.parts = [self.rows()]

    def rows(self) -> tuple[Array, ...]:
        """The arrays of the sampled rows."""
        parts = [np.concatenate(column) for column in zip(*self.parts, strict=True)]
        best = np.argsort(parts[0], kind="stable")[: self._most]
        return tuple(part[best] for part in parts)


class ScoreCollector:
    """Accumulates the scores of blocks of rows; called with inputs, targets and predictive distributions."""

    def __init__(self, model: HGPRegressor, seed: int) -> None:
        self._model, self._seed = model, seed
        self.regions = Regions(model)
        self.rows = 0
        self.inputs: Moments | None = None
        self.target: Moments | None = None
        columns = model.n_features_in_
        self._by_region = _GroupSums(self.regions.count, columns)
        self._by_leaf = _GroupSums(model.n_leaves_ if self.regions.local else 0, 0)
        self.pit_counts = np.zeros(_PIT_BINS)
        self.sampled = RowSample(SAMPLE)

    def __call__(self, X: Array, y: Array, distribution: Distribution) -> None:
        self.add(X, y, distribution, self.regions.leaf(X) if self.regions.local else np.zeros(len(X), int))

    def add(self, X: Array, y: Array, distribution: Distribution, leaf: Array) -> None:
        if self.inputs is None or self.target is None:
            self.inputs, self.target = Moments(X[0]), Moments(y[:1])
        self.inputs.add(X)
        self.target.add(y[:, None])
        low, high = distribution.pit(y)
        self.pit_counts += _pit_histogram(low, high)
        scores = _scores_per_row(y, distribution, metrics.inside_level(low, high, LEVEL))
        self._by_region.add(self.regions.of(X, leaf), scores, X)
        if self.regions.local:
            self._by_leaf.add(leaf, scores, X[:, :0])
        keys = row_keys(self.rows, len(y), self._seed)
        self.sampled.add((keys, X, y, distribution.mean, distribution.std))
        self.rows += len(y)

    def rows_far_from_data(self) -> int:
        """Estimated number of rows so far from the training rows that their variance is nearly the prior variance."""
        model, committee = self._model, self._model.model_.committee
        Z = model.model_.inputs.apply(self.sample()[0][:_FAR_SAMPLE], committee.store.X.dtype)
        with model.predictor_.engine() as engine:
            variance = model.predictor_.latent_prediction(Z, engine).variance
        assert variance is not None
        prior = committee.kernel.diagonal(committee.theta[:-1], Z)
        return round(self.rows * float(np.mean(variance >= _FAR_VARIANCE * prior)))

    def sample(self) -> tuple[Array, Array, Array, Array]:
        """Inputs, targets, means and deviations of at most SAMPLE rows."""
        _, X, y, mean, std = self.sampled.rows()
        return X, y, mean, std

    @property
    def pit(self) -> Array:
        """The centres of the bins of `pit_counts`."""
        return (np.arange(_PIT_BINS) + 0.5) / _PIT_BINS

    def all_rows(self) -> Score:
        """The score of all rows together."""
        return self._by_region.all()

    def by_region(self) -> list[Score]:
        """The scores of the regions that have rows."""
        scores = [self._by_region.score(region, name) for region, name in enumerate(self.regions.names)]
        return [score for score in scores if score.rows]

    def worst_leaves(self, count: int, least: int) -> list[Score]:
        """The leaves with the highest NLPD, among those with at least `least` scored rows."""
        return [
            replace(self._by_leaf.score(leaf, f"{leaf:,}"), centre=leaf_centre(self._model, leaf))
            for leaf in self._by_leaf.worst(count, least)
        ]


def _scores_per_row(y: Array, distribution: Distribution, inside: Array) -> Array:
    z = (y - distribution.mean) / distribution.std
    loss = -distribution.log_pdf(y)
    return np.stack([np.ones(len(y)), (y - distribution.mean) ** 2, loss, inside, z, z * z])


def _pit_histogram(low: Array, high: Array) -> Array:
    """Rows per bin; a discrete target is spread over the probabilities that it takes up (Czado et al. 2009)."""
    wide = high > low
    counts = np.histogram(low[~wide], _PIT_BINS, (0, 1))[0].astype(float)
    edges = np.linspace(0, 1, _PIT_BINS + 1)
    for start in range(0, int(wide.sum()), _PIT_BLOCK):
        first, last = (ends[wide][start : start + _PIT_BLOCK, None] for ends in (low, high))
        counts += np.diff(np.clip((edges - first) / (last - first), 0.0, 1.0).sum(axis=0))
    return counts


class _GroupSums:
    """Sums of scores and inputs per group of rows."""

    def __init__(self, groups: int, columns: int) -> None:
        self._scores, self._X = np.zeros((groups, 6)), np.zeros((groups, columns))

    def add(self, group: Array, scores: Array, X: Array) -> None:
        for sums, values in ((self._scores, scores), (self._X, X.T)):
            for column, each in enumerate(values):
                sums[:, column] += np.bincount(group, each, minlength=len(sums))

    def worst(self, count: int, least: int) -> list[int]:
        """The groups with the highest NLPD first, among those with at least `least` rows."""
        rows, nlpd = self._scores[:, 0], self._scores[:, 2]
        enough = np.flatnonzero(rows >= least)
        return [int(group) for group in enough[np.argsort(-nlpd[enough] / rows[enough], kind="stable")[:count]]]

    def score(self, group: int, name: str) -> Score:
        return _score(name, self._scores[group], self._X[group])

    def all(self) -> Score:
        return _score("all rows", self._scores.sum(axis=0), self._X.sum(axis=0))


def _score(name: str, sums: Array, X: Array) -> Score:
    rows = max(sums[0], 1)
    square, nlpd, inside, bias, spread = (float(s) for s in sums[1:] / rows)
    return Score(name, int(sums[0]), square**0.5, nlpd, inside, bias, spread**0.5, X / rows)

"""Predictions and truth of any number of rows, in bounded memory: sums by region, counts, and a sample for pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.distribution import PredictiveDistribution
from gigagp.plotting.rows import TYPICAL, leaf_centre, most_relevant, training_rows

SAMPLE = 20_000
LEVEL = 0.95
_REGIONS = 8
_PIT_BINS = 1_000
_FAR_SAMPLE = 1_000  # rows of which it is asked whether they are far
_FAR = 0.9  # of the prior variance: a query that knows no more than this is far from the training rows


@dataclass(frozen=True)
class Score:
    """How good predictions of some rows are. `spread`: deviation of (y - mean) / std, 1 of an honest model."""

    name: str
    rows: int
    rmse: float
    nlpd: float
    coverage: float
    bias: float  # mean of (y - mean) / std
    spread: float
    centre: Array  # mean inputs


class Regions:
    """Which leaf and which region of the input space a row lies in.

    Experts that are neighbourhoods divide the space, and subtrees of them are regions. Others see all of it: regions
    are then slices along the most relevant column, and no leaf is nearest.
    """

    def __init__(self, model: HGPRegressor) -> None:
        self._model, self.local = model, model.model_.local
        if self.local:
            nodes = model.tree_.cut(_REGIONS)
            self.count = len(nodes)
            self._of_leaf = np.repeat(np.arange(len(nodes)), [len(node.leaves) for node in nodes])
            self.names = [_leaves(node.leaves) for node in nodes]
            return
        self._column = most_relevant(model, 1)[0]
        x = training_rows(model, TYPICAL).X[:, self._column]
        self._edges = np.unique(np.quantile(x, np.linspace(0, 1, _REGIONS + 1)))[1:-1]
        self.count = len(self._edges) + 1
        column = model.units_.columns[self._column]
        ends = [f"{edge:.4g}" for edge in self._edges]
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


def _leaves(leaves: range) -> str:
    first, last = leaves[0], leaves[-1]
    return f"leaf {first:,}" if first == last else f"leaves {first:,} to {last:,}"


class Scored:
    """Hears blocks of rows with their predictions."""

    def __init__(self, model: HGPRegressor, seed: int) -> None:
        self._model, self._seed = model, seed
        self.regions = Regions(model)
        self.rows = 0
        self.inputs: Moments | None = None
        self.target: Moments | None = None
        columns = model.n_features_in_
        self._by_region = _Sums(self.regions.count, columns)
        self._by_leaf = _Sums(model.n_leaves_ if self.regions.local else 0, 0)
        self.pit_counts = np.zeros(_PIT_BINS)
        self._held: list[tuple[Array, ...]] = []

    def __call__(self, X: Array, y: Array, mean: Array, std: Array) -> None:
        self.add(X, y, mean, std, self.regions.leaf(X) if self.regions.local else np.zeros(len(X), int))

    def add(self, X: Array, y: Array, mean: Array, std: Array, leaf: Array) -> None:
        if self.inputs is None or self.target is None:
            self.inputs, self.target = Moments(X[0]), Moments(y[:1])
        self.inputs.add(X)
        self.target.add(y[:, None])
        predicted = PredictiveDistribution(mean, std, self._model.predictor_.calibration.shape)
        pit = predicted.cdf(y)
        self.pit_counts += np.histogram(pit, _PIT_BINS, (0, 1))[0]
        scores = _per_row(y, predicted, pit)
        self._by_region.add(self.regions.of(X, leaf), scores, X)
        if self.regions.local:
            self._by_leaf.add(leaf, scores, X[:, :0])
        keys = row_keys(self.rows, len(y), self._seed)
        self._keep((keys, X, y, mean, std))
        self.rows += len(y)

    def far(self) -> int:
        """About how many rows the model knows little more of than before it saw any: so many as of a sample."""
        model, committee = self._model, self._model.model_.committee
        Z = model.model_.inputs.apply(self.sample()[0][:_FAR_SAMPLE], committee.store.X.dtype)
        with model.predictor_.engine() as engine:
            variance = model.predictor_.latent_prediction(Z, engine).variance
        assert variance is not None
        prior = committee.kernel.diagonal(committee.theta[:-1], Z)
        return round(self.rows * float(np.mean(variance >= _FAR * prior)))

    def _keep(self, block: tuple[Array, ...]) -> None:
        """The rows with the smallest keys are the sample, whatever the size of blocks."""
        self._held.append(block)
        if sum(len(part[0]) for part in self._held) > 2 * SAMPLE:
            self._held = [self._smallest()]

    def _smallest(self) -> tuple[Array, ...]:
        parts = [np.concatenate(column) for column in zip(*self._held, strict=True)]
        best = np.argsort(parts[0], kind="stable")[:SAMPLE]
        return tuple(part[best] for part in parts)

    def sample(self) -> tuple[Array, Array, Array, Array]:
        """Inputs, targets, means and deviations of at most SAMPLE rows."""
        _, X, y, mean, std = self._smallest()
        return X, y, mean, std

    @property
    def pit(self) -> Array:
        """The values that `pit_counts` counts."""
        return (np.arange(_PIT_BINS) + 0.5) / _PIT_BINS

    def whole(self) -> Score:
        return self._by_region.all()

    def by_region(self) -> list[Score]:
        found = [self._by_region.score(region, name) for region, name in enumerate(self.regions.names)]
        return [score for score in found if score.rows]

    def worst_leaves(self, count: int, least: int) -> list[Score]:
        """The leaves of highest NLPD, among those with at least so many rows."""
        found = self._by_leaf.worst(count, least)
        return [
            replace(self._by_leaf.score(leaf, f"{leaf:,}"), centre=leaf_centre(self._model, leaf)) for leaf in found
        ]


def _per_row(y: Array, predicted: PredictiveDistribution, pit: Array) -> Array:
    z = (y - predicted.mean) / predicted.std
    loss = -predicted.log_pdf(y)
    return np.stack([np.ones(len(y)), (y - predicted.mean) ** 2, loss, 2 * np.abs(pit - 0.5) <= LEVEL, z, z * z])


class _Sums:
    """Sums of scores and inputs, group by group."""

    def __init__(self, groups: int, columns: int) -> None:
        self._scores, self._X = np.zeros((groups, 6)), np.zeros((groups, columns))

    def add(self, group: Array, scores: Array, X: Array) -> None:
        for sums, values in ((self._scores, scores), (self._X, X.T)):
            for column, each in enumerate(values):
                sums[:, column] += np.bincount(group, each, minlength=len(sums))

    def worst(self, count: int, least: int) -> list[int]:
        """Groups of at least so many rows, those of highest NLPD first."""
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

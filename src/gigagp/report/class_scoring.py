"""Scores of any number of rows whose class was predicted, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2

from gigagp.arrays import Array
from gigagp.data.row_keys import row_keys
from gigagp.data.scaling import Moments
from gigagp.estimators.classifier import HGPClassifier
from gigagp.model import laplace_neighbourhood
from gigagp.model.class_evaluation import CalibrationBins
from gigagp.plotting.rows import leaf_centre
from gigagp.report.scoring import SAMPLE, Regions, RowSample

_AUC_BINS = 10_000  # of the probability, in which rows of both classes are counted
_FAR_SAMPLE = 1_000  # rows that are checked for their distance from the training rows
_FAR_VARIANCE = 0.9  # share of the prior variance from which a query counts as far from the training rows
_LEAST_IN_BIN = 5.0  # expected rows and others of a bin that enters the test of calibration
_SUMS = 3  # rows, losses and right answers per group


@dataclass(frozen=True)
class ClassScore:
    """How good the predicted probabilities of some rows are."""

    name: str
    rows: int
    log_loss: float
    accuracy: float
    centre: Array  # mean inputs


class ClassScoreCollector:
    """Accumulates the scores of blocks of rows; called with inputs, numbers of classes and probabilities."""

    def __init__(self, model: HGPClassifier, seed: int) -> None:
        self._model, self._seed = model, seed
        self.regions = Regions(model)
        self.rows = 0
        self.inputs: Moments | None = None
        number = len(model.classes_)
        self._by_region = np.zeros((self.regions.count, _SUMS + model.n_features_in_))
        self._by_leaf = np.zeros((model.n_leaves_, _SUMS))
        self.confusion = np.zeros((number, number))  # rows of each class, by predicted class
        self.losses = np.zeros(number)  # summed over the rows of each class
        self.predicted = np.zeros(number)  # summed probabilities of each class
        self.bins = CalibrationBins()
        self._ranks = np.zeros((2, _AUC_BINS))
        self.sampled = RowSample(SAMPLE)

    def __call__(self, X: Array, codes: Array, p: Array) -> None:
        self.add(X, codes, p, self.regions.leaf(X))

    def add(self, X: Array, codes: Array, p: Array, leaf: Array) -> None:
        if self.inputs is None:
            self.inputs = Moments(X[0])
        self.inputs.add(X)
        number = len(self.losses)
        losses = -np.log(np.maximum(p[np.arange(len(codes)), codes], np.finfo(float).tiny))
        guess = p.argmax(axis=1)
        self.confusion += np.bincount(codes * number + guess, minlength=number**2).reshape(number, number)
        self.losses += np.bincount(codes, losses, minlength=number)
        self.predicted += p.sum(axis=0)
        self.bins.add(p, codes)
        places = np.minimum((p[:, 1] * _AUC_BINS).astype(int), _AUC_BINS - 1)
        for second in (0, 1):
            self._ranks[second] += np.bincount(places[(codes == 1) == second], minlength=_AUC_BINS)
        scores = np.column_stack([np.ones(len(codes)), losses, guess == codes])
        np.add.at(self._by_region, self.regions.of(X, leaf), np.hstack([scores, X]))
        np.add.at(self._by_leaf, leaf, scores)
        self.sampled.add((row_keys(self.rows, len(codes), self._seed), X, codes, p))
        self.rows += len(codes)

    def sample(self) -> tuple[Array, Array, Array]:
        """Inputs, numbers of classes and probabilities of at most SAMPLE rows."""
        _, X, codes, p = self.sampled.rows()
        return X, codes, p

    @property
    def counts(self) -> Array:
        """The number of rows of each class."""
        return np.asarray(self.confusion.sum(axis=1))

    @property
    def base_log_loss(self) -> float:
        """The log loss if the shares of the classes in these rows were predicted."""
        shares = self.counts[self.counts > 0] / self.rows
        return float(-(shares * np.log(shares)).sum())

    @property
    def auc(self) -> float | None:
        """The area under the ROC curve of two classes; None for more, and where all rows are of one class."""
        first, second = self._ranks
        if len(self.losses) > 2 or not (first.sum() and second.sum()):
            return None
        below = np.cumsum(first) - 0.5 * first
        return float((second * below).sum() / (first.sum() * second.sum()))

    @property
    def miscalibration(self) -> float:
        """Probability of such differences between probabilities and frequencies, if predictions were calibrated.

        From Pearson's statistic over the bins that have enough rows.
        """
        n, predicted, observed = self.bins.counts, self.bins.predicted, self.bins.observed
        used = (predicted > _LEAST_IN_BIN) & (n - predicted > _LEAST_IN_BIN)
        if not used.any():
            return 1.0
        n, predicted, observed = n[used], predicted[used], observed[used]
        statistic = ((observed - predicted) ** 2 / (predicted * (1 - predicted / n))).sum()
        return float(chi2.sf(statistic, used.sum()))

    def rows_far_from_data(self) -> int:
        """Estimated number of rows so far from the training rows that their variance is nearly the prior variance."""
        model, near = self._model, self._model.predictor_.neighbourhood
        assert near is not None
        assert model.model_.classes is not None
        Z = model.model_.inputs.apply(self.sample()[0][:_FAR_SAMPLE], near.store.X.dtype)
        with model.predictor_.engine() as engine:
            variance = laplace_neighbourhood.predict(near, model.model_.classes.classes, Z, engine).variance.min(axis=1)
        return round(self.rows * float(np.mean(variance >= _FAR_VARIANCE * laplace_neighbourhood.prior_variance(near))))

    def all_rows(self) -> ClassScore:
        """The score of all rows together."""
        return _score("all rows", self._by_region.sum(axis=0))

    def by_region(self) -> list[ClassScore]:
        """The scores of the regions that have rows."""
        scores = [_score(name, sums) for name, sums in zip(self.regions.names, self._by_region, strict=True)]
        return [score for score in scores if score.rows]

    def worst_leaves(self, count: int, least: int) -> list[ClassScore]:
        """The leaves with the highest log loss, among those with at least `least` scored rows."""
        enough = np.flatnonzero(self._by_leaf[:, 0] >= least)
        worst = enough[np.argsort(-self._by_leaf[enough, 1] / self._by_leaf[enough, 0], kind="stable")[:count]]
        return [
            replace(_score(f"{leaf:,}", self._by_leaf[leaf]), centre=leaf_centre(self._model, leaf))
            for leaf in worst.tolist()
        ]


def _score(name: str, sums: Array) -> ClassScore:
    rows = max(sums[0], 1)
    return ClassScore(name, int(sums[0]), float(sums[1] / rows), float(sums[2] / rows), sums[_SUMS:] / rows)

"""Scores of a model of classes on rows with labels, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources import Rows
from gigagp.progress import Counter, Listener, silent

_BINS = 15  # of equal width, for the expected calibration error
ClassBlockListener = Callable[[Array, Array, Array], None]  # inputs, numbers of the classes, probabilities


@dataclass(frozen=True)
class ClassEvaluation:
    """Scores of predicted probabilities.

    calibration_error is the expected calibration error of the most probable class (Guo et al. 2017): the mean
    difference between its probability and its frequency in 15 bins of equal width; with two classes, of the second.
    """

    rows: int
    dropped: int  # rows with missing values, which are not scored
    log_loss: float
    accuracy: float
    brier: float  # mean squared error of the probabilities, summed over classes
    calibration_error: float
    base_log_loss: float  # the log loss if the shares of the classes in these rows were predicted
    seconds: float

    def __repr__(self) -> str:
        dropped = f" ({self.dropped:,} dropped)" if self.dropped else ""
        return (
            f"ClassEvaluation: {self.rows:,} rows{dropped}, log loss {self.log_loss:.4g} (of the class shares "
            f"{self.base_log_loss:.4g}), accuracy {self.accuracy:.1%}, Brier score {self.brier:.4g}, expected "
            f"calibration error {self.calibration_error:.4g}"
        )


class CalibrationBins:
    """Sums of predicted probabilities and outcomes in bins of the probability."""

    def __init__(self, bins: int = _BINS) -> None:
        self.counts, self.predicted, self.observed = (np.zeros(bins) for _ in range(3))

    def add(self, p: Array, codes: Array) -> None:
        """Rows with predicted probabilities of all classes and the numbers of their classes."""
        if p.shape[1] == 2:
            confidence, right = p[:, 1], codes == 1
        else:
            confidence, right = p.max(axis=1), p.argmax(axis=1) == codes
        bins = len(self.counts)
        places = np.minimum((confidence * bins).astype(int), bins - 1)
        self.counts += np.bincount(places, minlength=bins)
        self.predicted += np.bincount(places, confidence, minlength=bins)
        self.observed += np.bincount(places, right, minlength=bins)

    @property
    def error(self) -> float:
        return float(np.abs(self.predicted - self.observed).sum() / max(self.counts.sum(), 1.0))


def evaluate_classes(
    rows: Rows, predict: Callable[[Array], Array], classes: int, at_once: int, tell: Listener = silent,
    each: ClassBlockListener | None = None,
) -> ClassEvaluation:  # fmt: skip
    """Compare predictions (`predict`: log-probabilities) with the classes of the rows, `at_once` rows at a time."""
    start = time.perf_counter()
    count = Counter("evaluation", rows.n_rows, tell)
    done, sums, shares, bins = 0, np.zeros(3), np.zeros(classes), CalibrationBins()
    for block in rows.blocks(at_once):
        assert block.y is not None
        codes = block.y.astype(int)
        logs = predict(block.X)
        p, own = np.exp(logs), np.arange(len(codes))
        if each is not None:
            each(block.X, codes, p)
        brier = (p**2).sum() + (1 - 2 * p[own, codes]).sum()
        sums += -logs[own, codes].sum(), (p.argmax(axis=1) == codes).sum(), brier
        shares += np.bincount(codes, minlength=classes)
        bins.add(p, codes)
        done += len(codes)
        count(done)
    log_loss, accuracy, brier = (sums / done).tolist()
    shares = shares[shares > 0] / done
    return ClassEvaluation(
        rows=done, dropped=rows.n_dropped or 0, log_loss=log_loss, accuracy=accuracy, brier=brier,
        calibration_error=bins.error, base_log_loss=float(-(shares * np.log(shares)).sum()),
        seconds=time.perf_counter() - start,
    )  # fmt: skip

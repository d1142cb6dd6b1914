"""How good a model is on rows whose target is known, in the user's units and in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigagp import metrics
from gigagp.arrays import Array
from gigagp.data.sources import Rows
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.progress import Counter, Listener, silent

LEVELS = (0.5, 0.8, 0.95)
Hearer = Callable[[Array, Array, Array, Array], None]  # hears inputs, targets, means and deviations of a block


@dataclass(frozen=True)
class Evaluation:
    """Scores of predictions. `coverage` maps the level of a central interval to the share of targets inside it."""

    rows: int
    dropped: int  # left out for missing values
    rmse: float
    nlpd: float
    crps: float
    coverage: dict[float, float]
    target_std: float  # what the RMSE would be if the mean of these rows were predicted
    seconds: float

    def __repr__(self) -> str:
        inside = ", ".join(f"{level:.0%} intervals cover {share:.1%}" for level, share in self.coverage.items())
        dropped = f" ({self.dropped:,} dropped)" if self.dropped else ""
        return (
            f"Evaluation: {self.rows:,} rows{dropped}, RMSE {self.rmse:.4g} (the target's deviation is "
            f"{self.target_std:.4g}), NLPD {self.nlpd:.4g}, CRPS {self.crps:.4g}; {inside}"
        )


def evaluate(
    rows: Rows,
    answer: Callable[[Array], tuple[Array, Array]],
    shape: Shape,
    at_once: int,
    tell: Listener = silent,
    each: Hearer | None = None,
) -> Evaluation:
    """Compare predictions (`answer`: mean and standard deviation) with the targets, `at_once` rows at a time.

    shape : the distribution of (y - mean) / std
    """
    begun = time.perf_counter()
    count = Counter("evaluation", rows.n_rows, tell)
    seen, sums = 0, np.zeros(3 + len(LEVELS))
    centre = squares = 0.0
    for block in rows.blocks(at_once):
        y = block.y
        assert y is not None
        mean, std = answer(block.X)
        if each is not None:
            each(block.X, y, mean, std)
        predicted = PredictiveDistribution(mean, std, shape)
        covered = (metrics.inside(y, *predicted.interval(level)) for level in LEVELS)
        scores = (np.mean((y - mean) ** 2), -predicted.log_pdf(y).mean(), predicted.crps(y).mean(), *covered)
        n = len(y)
        sums += n * np.array(scores)
        # Chan, Golub & LeVeque (1983), eq. 1.5
        shift = float(y.mean()) - centre
        squares += float(np.sum((y - y.mean()) ** 2)) + shift**2 * seen * n / (seen + n)
        centre += shift * n / (seen + n)
        seen += n
        count(seen)
    square, nlpd, crps, *inside = (float(total) / seen for total in sums)
    return Evaluation(
        rows=seen,
        dropped=rows.n_dropped or 0,
        rmse=square**0.5,
        nlpd=nlpd,
        crps=crps,
        coverage=dict(zip(LEVELS, inside, strict=True)),
        target_std=(squares / seen) ** 0.5,
        seconds=time.perf_counter() - begun,
    )

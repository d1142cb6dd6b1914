"""Scores of a model on rows with targets, in the user's units and in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gigagp import metrics
from gigagp.arrays import Array
from gigagp.data.sources import Rows
from gigagp.data.target_checks import possible_blocks
from gigagp.likelihoods import Likelihood
from gigagp.model.likelihood_distribution import Distribution
from gigagp.progress import Counter, Listener, silent

LEVELS = (0.5, 0.8, 0.95)
# Called with the inputs, targets, means and standard deviations of each block.
BlockListener = Callable[[Array, Array, Array, Array], None]
# Called with the inputs, targets and predictive distributions of each block.
DistributionListener = Callable[[Array, Array, Distribution], None]


@dataclass(frozen=True)
class Evaluation:
    """Scores of predictions.

    `coverage` maps the level of a central interval to the share of targets inside it. A discrete target counts in
    proportion: the interval of probabilities that it takes up, from that of smaller values to that of values up to
    it, may lie partly inside. Calibrated distributions then have the coverage of the level, as continuous ones do.
    """

    rows: int
    dropped: int  # rows with missing values, which are not scored
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
    predict: Callable[..., Distribution],
    at_once: int,
    tell: Listener = silent,
    each: DistributionListener | None = None,
    likelihood: Likelihood | None = None,
) -> Evaluation:
    """Compare predictions with the targets, `at_once` rows at a time.

    predict : called with the inputs of some rows and, where the rows differ in noise, with their row noise
    likelihood : of the targets, where it is not Gaussian
    """
    start = time.perf_counter()
    count = Counter("evaluation", rows.n_rows, tell)
    rows_done, sums = 0, np.zeros(3 + len(LEVELS))
    centre = squares = 0.0
    for block in possible_blocks(rows, at_once, likelihood):
        y = block.y
        assert y is not None
        distribution = predict(block.X) if block.row_noise is None else predict(block.X, block.row_noise)
        if each is not None:
            each(block.X, y, distribution)
        pit = distribution.pit(y)
        coverages = (metrics.inside_level(*pit, level).mean() for level in LEVELS)
        square, nlpd = np.mean((y - distribution.mean) ** 2), -distribution.log_pdf(y).mean()
        scores = (square, nlpd, distribution.crps(y).mean(), *coverages)
        n = len(y)
        sums += n * np.array(scores)
        # Chan, Golub & LeVeque (1983), eq. 1.5
        shift = float(y.mean()) - centre
        squares += float(np.sum((y - y.mean()) ** 2)) + shift**2 * rows_done * n / (rows_done + n)
        centre += shift * n / (rows_done + n)
        rows_done += n
        count(rows_done)
    square, nlpd, crps, *inside = (float(total) / rows_done for total in sums)
    return Evaluation(
        rows=rows_done,
        dropped=rows.n_dropped or 0,
        rmse=square**0.5,
        nlpd=nlpd,
        crps=crps,
        coverage=dict(zip(LEVELS, inside, strict=True)),
        target_std=(squares / rows_done) ** 0.5,
        seconds=time.perf_counter() - start,
    )

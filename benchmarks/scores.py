"""Scores of the accuracy comparison: of one answer, and of the difference between two on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from gigagp import metrics
from gigagp.arrays import Array
from peers import Said

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
INTERVALS = {0.5: (2, 4), 0.8: (1, 5), 0.95: (0, 6)}  # central interval -> places of its ends in LEVELS
_FINE = (np.arange(199) + 0.5) / 199


def log_losses(y: Array, mean: Array, std: Array) -> Array:
    """Negative log density of each row under N(mean, std^2); `metrics.nlpd` is their mean."""
    return np.asarray(0.5 * ((y - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi))


def quantile_crps(y: Array, quantiles: Array) -> float:
    """Mean CRPS of the distributions with these quantiles at LEVELS: twice the pinball loss, averaged over levels.

    Between the levels, and beyond them, a quantile is linear in the normal quantile of its level: exact for Gaussians.
    """
    known, wanted = ndtri(LEVELS), ndtri(_FINE)
    left = np.clip(np.searchsorted(known, wanted) - 1, 0, len(known) - 2)
    share = (wanted - known[left]) / (known[left + 1] - known[left])
    total = 0.0
    for level, place, part in zip(_FINE, left, share, strict=True):
        over = y - ((1 - part) * quantiles[:, place] + part * quantiles[:, place + 1])
        total += float(np.mean(np.maximum(level * over, (level - 1) * over)))
    return 2 * total / len(_FINE)


def coverages(y: Array, quantiles: Array) -> dict[str, float]:
    """Share of rows inside the central intervals that the quantiles at LEVELS bound."""
    return {
        f"{level:g}": float(np.mean((quantiles[:, low] <= y) & (y <= quantiles[:, high])))
        for level, (low, high) in INTERVALS.items()
    }


def scores(y: Array, said: Said) -> dict[str, float | dict[str, float]]:
    """RMSE, NLPD, CRPS and coverage of an answer to these rows; the Gaussian's own where no quantiles were given."""
    if said.distribution is not None:
        predicted = said.distribution
        covered = {f"{level:g}": metrics.inside(y, *predicted.interval(level)) for level in INTERVALS}
        nlpd, crps = float(-predicted.log_pdf(y).mean()), float(predicted.crps(y).mean())
        return {"rmse": metrics.rmse(y, said.mean), "nlpd": nlpd, "crps": crps, "coverage": covered}
    if said.quantiles is None:
        crps = metrics.crps(y, said.mean, said.std)
        covered = {f"{level:g}": metrics.coverage(y, said.mean, said.std, level) for level in INTERVALS}
    else:
        crps, covered = quantile_crps(y, said.quantiles), coverages(y, said.quantiles)
    return {
        "rmse": metrics.rmse(y, said.mean), "nlpd": metrics.nlpd(y, said.mean, said.std), "crps": crps,
        "coverage": covered,
    }  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A mean difference, ours less theirs, with its 95% interval: negative is better."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "win"
        return "loss" if self.low > 0 else "tie"


def paired(ours: Sequence[Array], theirs: Sequence[Array]) -> Difference:
    """The mean difference over the rows that both answered, one pair of arrays a split.

    Rows are in the same order; who ran out of time answered the first of them. The standard error is that of the rows,
    or of the splits' means where that is larger.
    """
    apart = [a[: len(b)] - b[: len(a)] for a, b in zip(ours, theirs, strict=True)]
    means = np.array([rows.mean() for rows in apart])
    errors = np.array([rows.std(ddof=1) / len(rows) ** 0.5 for rows in apart])
    within = np.sqrt(np.sum(errors**2)) / len(means)
    between = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
    half = float(ndtri(0.975) * max(within, between))
    mean = float(means.mean())
    return Difference(mean, mean - half, mean + half)

"""Bike rentals, counts per hour: our likelihoods, our Gaussian model and gradient boosting on the same rows.

    python benchmarks/likelihoods.py --data ../shared/data --split 1

Splits from 1 on are for development; split 0 is for results that are reported. NLPD is the mean of -ln P(y). For the
Gaussian model P(y) is the probability between y - 1/2 and y + 1/2; its density at y is printed too. scikit-learn's
HistGradientBoosting with the Poisson loss predicts means: once as Poisson counts, and once as negative binomial ones,
whose dispersion is fitted to a tenth of its training rows, held out. Calibration: the largest difference between the
empirical and the uniform distribution function of the randomised PIT, and shares of rows inside intervals of the PIT.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize, stats
from sklearn.ensemble import HistGradientBoostingRegressor

from gigagp import HGPRegressor
from gigagp.metrics import inside_level

BOOSTING = {"loss": "poisson", "max_iter": 500, "early_stopping": True, "random_state": 0}
LEVELS = (0.5, 0.8, 0.95)
Cdf = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Rows:
    X: np.ndarray
    y: np.ndarray
    new_X: np.ndarray
    new_y: np.ndarray


def read(folder: Path, split: int, rows: int | None) -> Rows:
    data = np.load(folder / "count_bike.npz", allow_pickle=False)
    X, y, test = data["X"].astype(float), data["y"].astype(float), data["test_mask"][:, split]
    train = np.random.default_rng(split).permutation(np.flatnonzero(~test))[:rows]
    return Rows(X[train], y[train], X[test], y[test])


def print_scores(
    name: str, rows: Rows, mean: np.ndarray, log_p: np.ndarray, cdf: Cdf, seconds: tuple[float, ...]
) -> None:
    """One line: errors of the mean, NLPD and calibration.

    cdf : probability of a count of at most y
    """
    y = rows.new_y
    low, high = cdf(y - 1), cdf(y)
    pit = low + (high - low) * np.random.default_rng(0).random(len(y))
    distance = stats.kstest(pit, "uniform").statistic
    inside = " ".join(f"{inside_level(low, high, level).mean():6.1%}" for level in LEVELS)
    rmse = np.sqrt(np.mean((mean - y) ** 2)) / y.std()
    spent = " ".join(f"{each:6.1f}" for each in seconds)
    print(f"{name:32}{-log_p.mean():8.4f}{rmse:10.4f}{distance:8.3f}   {inside}   {spent}", flush=True)


def ours(rows: Rows, likelihood: str) -> None:
    begun = time.perf_counter()
    model = HGPRegressor(likelihood=likelihood, random_state=0).fit(rows.X, rows.y)
    fitted = time.perf_counter()
    law = model.predict_distribution(rows.new_X)
    mean = law.mean
    seconds = (fitted - begun, time.perf_counter() - fitted)
    if likelihood != "auto":
        print_scores(f"gigagp {likelihood}", rows, mean, law.log_pdf(rows.new_y), law.cdf, seconds)
        return
    counts = np.log(np.maximum(law.cdf(rows.new_y + 0.5) - law.cdf(rows.new_y - 0.5), 1e-300))
    print_scores("gigagp auto, P of the count", rows, mean, counts, lambda y: law.cdf(y + 0.5), seconds)
    print_scores("gigagp auto, density", rows, mean, law.log_pdf(rows.new_y), lambda y: law.cdf(y + 0.5), seconds)


def boosting(rows: Rows) -> None:
    begun = time.perf_counter()
    mean = HistGradientBoostingRegressor(**BOOSTING).fit(rows.X, rows.y).predict(rows.new_X)
    seconds = (time.perf_counter() - begun, 0.0)
    poisson = stats.poisson(mean)
    print_scores("HistGB Poisson", rows, mean, poisson.logpmf(rows.new_y), poisson.cdf, seconds)
    held_out = np.random.default_rng(0).random(len(rows.y)) < 0.1
    part = HistGradientBoostingRegressor(**BOOSTING).fit(rows.X[~held_out], rows.y[~held_out])
    guess = part.predict(rows.X[held_out])

    def loss(log_d: float) -> float:
        d = np.exp(log_d)
        return float(-stats.nbinom.logpmf(rows.y[held_out], 1 / d, 1 / (1 + d * guess)).mean())

    d = float(np.exp(optimize.minimize_scalar(loss, bounds=(-8, 2), method="bounded").x))
    negative_binomial = stats.nbinom(1 / d, 1 / (1 + d * mean))
    name = f"HistGB negative binomial, d {d:.3f}"
    print_scores(name, rows, mean, negative_binomial.logpmf(rows.new_y), negative_binomial.cdf, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--rows", type=int, help="training rows; default all")
    parser.add_argument("--methods", nargs="+", default=["boosting", "negative_binomial", "poisson", "auto"])
    options = parser.parse_args()
    if not (options.data / "count_bike.npz").exists():
        print(f"skipped: {options.data / 'count_bike.npz'} is not there")
        return
    rows = read(options.data, options.split, options.rows)
    print(f"split {options.split}, {len(rows.y):,} training rows, {len(rows.new_y):,} test rows")
    print(
        f"{'':32}{'NLPD':>8}{'RMSE/std':>10}{'KS':>8}   {'50%':>6} {'80%':>6} {'95%':>6}   {'fit s':>6} {'pred s':>6}"
    )
    for method in options.methods:
        if method == "boosting":
            boosting(rows)
        else:
            ours(rows, method)


if __name__ == "__main__":
    main()

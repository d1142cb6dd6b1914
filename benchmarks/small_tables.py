"""Small public tables: our defaults against exact GPs and boosting, the same rows, one run.

Four methods predict the held-out rows of each split: our defaults; ours with one leaf (the exact GP, Matern 5/2,
without calibration); scikit-learn's exact GP (constant x Matern 5/2 with one length-scale per column + white noise, its
own optimiser, with restarts where the rows are few); scikit-learn's HistGradientBoosting, whose Gaussian has the
deviation of its residuals in five folds. Targets are in deviations of the training rows.

Bars: mean over splits RMSE at most 1.03 times and NLPD at most .05 above the better of the two exact GPs; 95% intervals
cover 91% or more. Without --full: splits 1 and 2, and scikit-learn's GP up to 500 rows only.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import warnings
from argparse import Namespace
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import cross_val_predict

from gigagp import HGPRegressor
from gigagp.kernels import Matern52
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.paper.datasets import Rows
from measure import arguments, bar, data_set, save

TABLES = ("autos", "yacht", "energy", "concrete", "airfoil", "wine")
OURS, ONE_LEAF, PEER, BOOSTING = "GigaGP", "GigaGP, one leaf", "scikit-learn GP", "HistGradientBoosting"
SCORES = ("rmse", "nlpd", "crps", "coverage", "seconds")
RMSE_FACTOR = 1.03
NLPD_MARGIN = 0.05  # nats per row
COVERAGE = 0.91
MANY_ROWS = 500  # from which scikit-learn's optimiser is started once only
RESTARTS = 2


def standardised(content: Any, split: int) -> Rows:
    """Training rows and queries of one split, in units of the training rows' deviations."""
    test = content["test_mask"][:, split]
    X, y = content["X"].astype(float), content["y"].astype(float)
    centre, width = X[~test].mean(axis=0), X[~test].std(axis=0)
    X = (X - centre) / np.where(width > 0, width, 1.0)
    y = (y - y[~test].mean()) / y[~test].std()
    return Rows(X[~test], y[~test], X[test], y[test])


def defaults(rows: Rows) -> PredictiveDistribution:
    return HGPRegressor(random_state=0).fit(rows.X, rows.y).predict_distribution(rows.Z)


def one_leaf(rows: Rows) -> PredictiveDistribution:
    columns = rows.X.shape[1]
    model = HGPRegressor(
        Matern52(1.0, [columns**0.5] * columns), leaf_size=len(rows.y), method="committee", calibrate=False,
        random_state=0,
    )  # fmt: skip
    return model.fit(rows.X, rows.y).predict_distribution(rows.Z)


def scikit_learn(rows: Rows) -> PredictiveDistribution:
    columns = rows.X.shape[1]
    scales = Matern([columns**0.5] * columns, (1e-3, 1e4), nu=2.5)
    kernel = ConstantKernel(1.0, (1e-4, 1e5)) * scales + WhiteKernel(0.1, (1e-7, 10.0))
    restarts = RESTARTS if len(rows.y) < MANY_ROWS else 0
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=restarts, random_state=0)
    mean, std = model.fit(rows.X, rows.y).predict(rows.Z, return_std=True)
    return PredictiveDistribution(mean, std, Shape.gaussian())


def boosting(rows: Rows) -> PredictiveDistribution:
    model = HistGradientBoostingRegressor(max_iter=300, random_state=0)
    left = rows.y - cross_val_predict(model, rows.X, rows.y, cv=5)
    mean = model.fit(rows.X, rows.y).predict(rows.Z)
    return PredictiveDistribution(mean, np.full(len(mean), np.sqrt(np.mean(left**2))), Shape.gaussian())


METHODS: dict[str, Callable[[Rows], PredictiveDistribution]] = {
    OURS: defaults,
    ONE_LEAF: one_leaf,
    PEER: scikit_learn,
    BOOSTING: boosting,
}


def scored(method: Callable[[Rows], PredictiveDistribution], rows: Rows) -> dict[str, float]:
    """RMSE, NLPD, CRPS, coverage of 95% intervals, and seconds of fit and prediction."""
    begun = perf_counter()
    predicted = method(rows)
    spent = perf_counter() - begun
    low, high = predicted.interval(0.95)
    return {
        "rmse": float(np.sqrt(np.mean((rows.truth - predicted.mean) ** 2))),
        "nlpd": float(-predicted.log_pdf(rows.truth).mean()),
        "crps": float(predicted.crps(rows.truth).mean()),
        "coverage": float(np.mean((low <= rows.truth) & (rows.truth <= high))),
        "seconds": spent,
    }


def measured(content: Any, splits: list[int], full: bool) -> dict[str, dict[str, list[float]]]:
    """Scores of every method, one number per split."""
    found: dict[str, dict[str, list[float]]] = {}
    for split in splits:
        rows = standardised(content, split)
        for name, method in METHODS.items():
            if name == PEER and not full and len(rows.y) >= MANY_ROWS:
                continue
            for score, value in scored(method, rows).items():
                found.setdefault(name, {each: [] for each in SCORES})[score].append(value)
    return found


def bars(table: str, found: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Ours against the better of the exact GPs, by means over splits."""
    mean = {name: {score: float(np.mean(values)) for score, values in of.items()} for name, of in found.items()}
    exact = [mean[name] for name in (ONE_LEAF, PEER) if name in mean]
    rmse, nlpd = min(each["rmse"] for each in exact), min(each["nlpd"] for each in exact)
    return [
        bar(f"{table}: RMSE over the exact GP's", mean[OURS]["rmse"] / rmse, RMSE_FACTOR, at_least=False),
        bar(f"{table}: NLPD less the exact GP's", mean[OURS]["nlpd"] - nlpd, NLPD_MARGIN, at_least=False),
        bar(f"{table}: coverage of 95% intervals", mean[OURS]["coverage"], COVERAGE, at_least=True),
    ]


def main(options: Namespace) -> None:
    warnings.simplefilter("ignore")
    tables, judged = {}, []
    for table in options.tables or TABLES:
        content = data_set(options.data, f"small_{table}")
        if content is None:
            continue
        splits = options.splits or (list(range(content["test_mask"].shape[1])) if options.full else [1, 2])
        found = tables[table] = measured(content, splits, options.full)
        print(f"{table}, splits {splits}", flush=True)
        for name, scores in found.items():
            shown = "  ".join(f"{score} {np.mean(values):8.4f}" for score, values in scores.items())
            print(f"  {name:<22}{shown}", flush=True)
        judged += bars(table, found)
    save("small_tables" if options.full else "small_tables_quick", {"tables": tables, "bars": judged})


if __name__ == "__main__":
    parser = arguments(__doc__ or "", data=True)
    parser.add_argument("--tables", nargs="*", choices=TABLES, help="default all")
    parser.add_argument("--splits", nargs="*", type=int, help="default all with --full, otherwise 1 and 2")
    main(parser.parse_args())

"""Small public tables: our defaults against exact GPs and boosting, on the same rows.

Four methods predict the test rows of each split: our defaults; ours with one leaf (the exact GP, Matern 5/2, without
calibration); scikit-learn's exact GP (constant x Matern 5/2 with one length-scale per column + white noise, its own
optimiser and starts, with restarts where the rows are few); scikit-learn's HistGradientBoosting, whose Gaussian has the
deviation of its residuals in five folds. Targets are in deviations of the training rows.

The evidence that scikit-learn's optimiser maximises is computed by our code, which gives the same value and gradient in
a fraction of the time; --own-evidence uses scikit-learn's.

Bars: mean over splits RMSE at most 1.03 times and NLPD at most .05 above the better of the two exact GPs; 95% intervals
cover 91% or more. Every run has a file of its own, <table>_<split>_<method>.json, in a folder (--results), so that a
long comparison can be done in pieces; --resume leaves out what has been measured, and --collect measures nothing. At
the end all files are collected in results/small_tables.json.
--full: ten splits. Without it: splits 1 and 2 of the six tables of the data folder; --others adds tables by which no
setting was chosen.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")

import json
import warnings
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import cross_val_predict

from gigagp import HGPRegressor, expert
from gigagp.arrays import Array
from gigagp.kernels import Matern52
from gigagp.linalg.workspace import Workspace
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.paper.datasets import Rows
from measure import RESULTS, arguments, bar, machine, save
from small_table_data import OTHERS, SMALL, SPLITS, TABLES, table

SCORES = ("rmse", "nlpd", "crps", "coverage", "seconds")
RMSE_FACTOR = 1.03
NLPD_MARGIN = 0.05  # nats per row
COVERAGE = 0.91
MANY_ROWS = 500  # from which scikit-learn's optimiser is started once only
RESTARTS = 2
Result = dict[str, Any]


def defaults(rows: Rows) -> PredictiveDistribution:
    return HGPRegressor(random_state=0).fit(rows.X, rows.y).predict_distribution(rows.Z)


def one_leaf(rows: Rows) -> PredictiveDistribution:
    columns = rows.X.shape[1]
    model = HGPRegressor(
        Matern52(1.0, [columns**0.5] * columns), leaf_size=len(rows.y), method="committee", calibrate=False,
        random_state=0,
    )  # fmt: skip
    return model.fit(rows.X, rows.y).predict_distribution(rows.Z)


@dataclass(frozen=True)
class ScikitLearn:
    """Its GaussianProcessRegressor; the evidence is computed by our code, or by its own."""

    own_evidence: bool = False

    def __call__(self, rows: Rows) -> PredictiveDistribution:
        columns = rows.X.shape[1]
        scales = Matern([columns**0.5] * columns, (1e-3, 1e4), nu=2.5)
        kernel = ConstantKernel(1.0, (1e-4, 1e5)) * scales + WhiteKernel(0.1, (1e-7, 10.0))
        restarts = RESTARTS if len(rows.y) < MANY_ROWS else 0
        optimiser = "fmin_l_bfgs_b" if self.own_evidence else same_optimiser(rows)
        model = GaussianProcessRegressor(
            kernel, optimizer=optimiser, normalize_y=True, n_restarts_optimizer=restarts, random_state=0
        )
        mean, std = model.fit(rows.X, rows.y).predict(rows.Z, return_std=True)
        return PredictiveDistribution(mean, std, Shape.gaussian())


def same_optimiser(rows: Rows) -> Callable[..., tuple[Array, float]]:
    """scikit-learn's L-BFGS-B, with the evidence computed by our code; targets are standardised already."""
    X, y = np.ascontiguousarray(rows.X), np.ascontiguousarray(rows.y)
    kernel, work = Matern52().bind(X.shape[1]), Workspace()

    def minus_evidence(theta: Array) -> tuple[float, Array]:
        total = expert.evidence(kernel, theta, X, y, work)
        return -total.value, -total.gradient

    def optimise(_: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
        end = minimize(minus_evidence, start, method="L-BFGS-B", jac=True, bounds=bounds)
        return end.x, float(end.fun)

    return optimise


def boosting(rows: Rows) -> PredictiveDistribution:
    model = HistGradientBoostingRegressor(max_iter=300, random_state=0)
    left = rows.y - cross_val_predict(model, rows.X, rows.y, cv=min(5, len(rows.y)))
    mean = model.fit(rows.X, rows.y).predict(rows.Z)
    return PredictiveDistribution(mean, np.full(len(mean), np.sqrt(np.mean(left**2))), Shape.gaussian())


METHODS: dict[str, Callable[[Rows], PredictiveDistribution]] = {
    "ours": defaults,
    "one_leaf": one_leaf,
    "scikit_learn": ScikitLearn(),
    "boosting": boosting,
}
EXACT = ("one_leaf", "scikit_learn")


def scored(method: Callable[[Rows], PredictiveDistribution], rows: Rows) -> Result:
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


def measure(name: str, options: Namespace) -> None:
    """Every chosen split and method of one table, one file per run."""
    content = table(options.data, name)
    if content is None:
        return
    for split in options.splits:
        rows = content.split(split)
        for method in options.methods:
            path = options.results / f"{name}_{split}_{method}.json"
            if options.resume and path.exists():
                continue
            run = ScikitLearn(options.own_evidence) if method == "scikit_learn" else METHODS[method]
            here = machine()
            head = {"table": name, "split": split, "method": method, "rows": len(rows.y)}
            result = {**head, **scored(run, rows), "commit": here["commit"], "date": here["date"]}
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(result) + "\n")
            print(f"{name:<20}{split:3d} {line(method, result)}", flush=True)


def line(method: str, result: Result) -> str:
    return f"{method:<14}" + "  ".join(f"{score} {result[score]:8.4f}" for score in SCORES)


def means(runs: list[Result]) -> dict[str, Result]:
    """Mean scores of each method over the splits that all methods have."""
    by_method: dict[str, dict[int, Result]] = {}
    for run in runs:
        by_method.setdefault(run["method"], {})[run["split"]] = run
    if not by_method:
        return {}
    common = sorted(set.intersection(*(set(of) for of in by_method.values())))
    return {
        method: {"splits": common, **{s: float(np.mean([by_method[method][i][s] for i in common])) for s in SCORES}}
        for method in METHODS
        if method in by_method and common
    }


def bars(name: str, mean: dict[str, Result]) -> list[Result]:
    """Ours against the better of the exact GPs, by means over splits."""
    exact = [mean[method] for method in EXACT if method in mean]
    if "ours" not in mean or not exact:
        return []
    ours, rmse, nlpd = mean["ours"], min(each["rmse"] for each in exact), min(each["nlpd"] for each in exact)
    return [
        bar(f"{name}: RMSE over the exact GP's", ours["rmse"] / rmse, RMSE_FACTOR, at_least=False),
        bar(f"{name}: NLPD less the exact GP's", ours["nlpd"] - nlpd, NLPD_MARGIN, at_least=False),
        bar(f"{name}: coverage of 95% intervals", ours["coverage"], COVERAGE, at_least=True),
    ]


def collect(folder: Path) -> None:
    """All runs of the folder, compared and judged, in one file."""
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    by_table, judged = {}, []
    for name in TABLES:
        here = means([run for run in runs if run["table"] == name])
        if here:
            by_table[name] = here
            print(f"{name}, splits {next(iter(here.values()))['splits']}", flush=True)
            for method, mean in here.items():
                print(f"  {line(method, mean)}", flush=True)
            judged += bars(name, here)
    save(folder.name, {"runs": runs, "tables": by_table, "bars": judged})


def main(options: Namespace) -> None:
    warnings.simplefilter("ignore")
    if not options.collect:
        for name in options.tables or (SMALL + OTHERS if options.others else SMALL):
            measure(name, options)
    collect(options.results)


if __name__ == "__main__":
    parser = arguments((__doc__ or "").split("\n\n", maxsplit=1)[0], data=True)
    parser.add_argument("--tables", nargs="*", choices=TABLES, help="default the six of the data folder")
    parser.add_argument("--others", action="store_true", help="also tables by which no setting was chosen")
    parser.add_argument("--splits", nargs="*", type=int, help="default all with --full, otherwise 1 and 2")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS), help="default all")
    parser.add_argument("--own-evidence", action="store_true", help="scikit-learn computes its evidence itself: slow")
    parser.add_argument("--resume", action="store_true", help="leave out what has been measured")
    parser.add_argument("--collect", action="store_true", help="measure nothing, collect the files of the folder")
    parser.add_argument("--results", type=Path, help="folder for the files of the runs")
    parsed = parser.parse_args()
    parsed.splits = parsed.splits or (list(range(SPLITS)) if parsed.full else [1, 2])
    parsed.results = parsed.results or RESULTS / ("small_tables" if parsed.full else "small_tables_quick")
    main(parsed)

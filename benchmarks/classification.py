"""HGPClassifier and its peers on the same rows: log loss, AUC, expected calibration error and seconds.

    python benchmarks/classification.py --data ../shared/data --sets magic digits adult airline --split 1

Splits from 1 on are for development; split 0 is for results that are reported: it is kept in
results/classification.json, from which `classification_page.py` writes the tables of docs/classification.md. The
airline data have one split: with --split 0 the 700,000 training and 100,000 test rows, otherwise --rows random training
rows and others of them as test rows. HGPClassifier is told which columns are category codes; its peers are given one
0/1 column per category.
ECE is the expected calibration error of the second class in 15 bins (of the most probable class where there are more),
"chance" what calibrated probabilities would have on so many rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from class_peers import GPBoostClassifier, SVGPClassifier
from gigagp import HGPClassifier
from gigagp.model.class_evaluation import CalibrationBins
from gigagp.paper.provenance import machine
from measure import RESULTS, save

CODES = ("workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country", "native")
MOST_CODES = 100  # values of a column that is a category
LATE_MINUTES = 15.0  # arrival delay that counts as late
DIGITS_TEST_ROWS = 360
DEVELOPMENT_TEST_ROWS = 30_000  # of the airline data
BOOSTING = {"max_iter": 500, "early_stopping": True, "random_state": 0}
GPC_ROWS = 2_000  # training rows of scikit-learn's exact GP classifier
GPBOOST_ROWS = 5_000  # training rows of GPBoost, whose time grows quickly with the number of columns
SVGP_SECONDS = 60.0  # of training


@dataclass(frozen=True)
class Rows:
    """Training rows, test rows, and which columns are category codes."""

    X: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    truth: np.ndarray
    categories: tuple[int, ...] = ()

    def with_indicators(self) -> Rows:
        """One 0/1 column per category instead of codes."""

        def wide(X: np.ndarray) -> np.ndarray:
            codes = {j: np.unique(np.append(self.X[:, j], self.queries[:, j])) for j in self.categories}
            columns = [X[:, j, None] == codes[j] if j in codes else X[:, j, None] for j in range(X.shape[1])]
            return np.hstack([column.astype(float) for column in columns])

        return Rows(wide(self.X), self.y, wide(self.queries), self.truth)


def digits(split: int) -> Rows:
    X, y = load_digits(return_X_y=True)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=DIGITS_TEST_ROWS, random_state=split, stratify=y
    )  # fmt: skip
    return Rows(train, y_train, test, y_test)


def airline(folder: Path, split: int, rows: int) -> Rows:
    data = np.load(folder / "airline2008_jan_apr.npz")
    X, y = data["X"].astype(float), (data["y"] > LATE_MINUTES).astype(int)
    masks = [mask[:, 0] if mask.ndim > 1 else mask for mask in (data["train700k_mask"], data["test_mask"])]
    train, test = (np.flatnonzero(mask) for mask in masks)
    if split:
        train = np.random.default_rng(split).permutation(train)
        test, train = train[:DEVELOPMENT_TEST_ROWS], train[DEVELOPMENT_TEST_ROWS : DEVELOPMENT_TEST_ROWS + rows]
    return Rows(X[train], y[train], X[test], y[test])


def table(folder: Path, name: str, split: int) -> Rows:
    data = np.load(folder / f"class_{name}.npz")
    X, y, test = data["X"].astype(float), data["y"].astype(int), data["test_mask"][:, split]
    codes = [name.lower().startswith(CODES) and not name.endswith("num") for name in map(str, data["feature_names"])]
    categories = tuple(j for j in np.flatnonzero(codes).tolist() if len(np.unique(X[:, j])) <= MOST_CODES)
    return Rows(X[~test], y[~test], X[test], y[test], categories)


@dataclass(frozen=True)
class Peer:
    """A classifier, how many training rows it can take (None: all), and whether it can have more than two classes."""

    name: str
    make: Callable[[], Any]
    most_rows: int | None = None
    many_classes: bool = True
    takes_categories: bool = False


def peers() -> list[Peer]:
    found = [
        Peer("HGPClassifier", lambda: HGPClassifier(random_state=0), takes_categories=True),
        Peer("HistGradientBoosting", lambda: HistGradientBoostingClassifier(**BOOSTING)),
    ]
    if find_spec("lightgbm"):
        from lightgbm import LGBMClassifier  # noqa: PLC0415

        found.append(Peer("LightGBM", lambda: LGBMClassifier(n_estimators=300, learning_rate=0.05, verbose=-1)))
    if find_spec("gpboost"):
        found.append(Peer("GPBoost", GPBoostClassifier, GPBOOST_ROWS, many_classes=False))
    if find_spec("torch") and find_spec("gpytorch"):
        found.append(Peer("SVGP (GPyTorch)", lambda: SVGPClassifier(cap=SVGP_SECONDS)))
    kernel = ConstantKernel(4.0) * RBF(3.0)
    exact = Peer("GaussianProcessClassifier", lambda: scaled(GaussianProcessClassifier(kernel)), GPC_ROWS)
    return [*found, exact]


def chance_error(p: np.ndarray, repeats: int = 20) -> float:
    """The expected calibration error that these probabilities would have if they were calibrated, by chance."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(repeats):
        bins = CalibrationBins()
        bins.add(p, (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1).clip(0, p.shape[1] - 1))
        errors.append(bins.error)
    return float(np.mean(errors))


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def measured(peer: Peer, rows: Rows) -> dict[str, Any]:
    """Scores on the test rows, seconds, and how many rows a model has been trained on."""
    categories = {"categorical": list(rows.categories)} if peer.takes_categories else {}
    rows = rows if peer.takes_categories else rows.with_indicators()
    X, y, truth = rows.X, rows.y, rows.truth
    if peer.most_rows is not None and len(y) > peer.most_rows:
        some = np.random.default_rng(0).permutation(len(y))[: peer.most_rows]
        X, y = X[some], y[some]
    start = time.perf_counter()
    model = peer.make().fit(X, y, **categories)
    fitted = time.perf_counter()
    p = model.predict_proba(rows.queries)
    predicted = time.perf_counter()
    bins = CalibrationBins()
    bins.add(p, truth)
    return {
        "model": peer.name, "log loss": float(log_loss(truth, p)),
        "AUC": float(roc_auc_score(truth, p[:, 1])) if p.shape[1] == 2 else None,
        "accuracy": float((p.argmax(axis=1) == truth).mean()), "ECE": bins.error, "chance": chance_error(p),
        "fit": fitted - start, "predict": predicted - fitted, "training rows": len(y),
    }  # fmt: skip


def line(run: dict[str, Any], rows: int) -> str:
    auc = "     -" if run["AUC"] is None else f"{run['AUC']:.4f}"
    few = "" if run["training rows"] == rows else f" ({run['training rows']:,} training rows)"
    return (
        f"{run['model']:26} {run['log loss']:8.4f} {auc:>7} {run['accuracy']:9.4f} {run['ECE']:7.4f}"
        f" {run['chance']:7.4f} {run['fit']:7.1f} {run['predict']:8.1f}{few}"
    )


def keep(run: dict[str, Any]) -> None:
    """Add a run to results/classification.json; it replaces an earlier one of the same model, set and split."""
    path, here = RESULTS / "classification.json", machine()
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    same = ("set", "split", "model")
    runs = [each for each in runs if any(each[name] != run[name] for name in same)]
    save("classification", {"runs": [*runs, {**run, "commit": here["commit"], "date": here["date"]}]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--sets", nargs="+", default=["magic", "digits", "adult", "airline"])
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--rows", type=int, default=200_000, help="training rows of airline in development")
    parser.add_argument("--only", nargs="+", help="names of the models to run; default all that are installed")
    options = parser.parse_args()
    for name in options.sets:
        try:
            if name == "digits":
                rows = digits(options.split)
            elif name == "airline":
                rows = airline(options.data, options.split, options.rows)
            else:
                rows = table(options.data, name, options.split)
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error.filename} is not there")
            continue
        sizes = f"{len(rows.y):,} training rows, {len(rows.truth):,} test rows, {rows.X.shape[1]} columns"
        print(f"{name}, split {options.split}: {sizes}")
        head = f"{'model':26} {'log loss':>8} {'AUC':>7} {'accuracy':>9} {'ECE':>7} {'chance':>7}"
        print(f"{head} {'fit, s':>7} {'pred., s':>8}")
        for peer in peers():
            chosen = not options.only or peer.name in options.only
            if chosen and (peer.many_classes or rows.y.max() == 1):
                run = measured(peer, rows)
                print(line(run, len(rows.y)), flush=True)
                if options.split == 0:
                    keep({"set": name, "split": 0, "rows": len(rows.y), "test rows": len(rows.truth), **run})


if __name__ == "__main__":
    main()

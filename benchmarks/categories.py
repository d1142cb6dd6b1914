"""Categories as one column against a 0/1 column per level, and against their codes read as numbers.

    python benchmarks/categories.py --data ../shared/data --sets bike wind adult --split 1 --rows 8000

Splits from 1 on are for development and leave out the test rows of split 0. Each row of the table gives the error on
test rows (RMSE in standard deviations of the target, or log loss for adult), the mean negative log density, and the
seconds of the fit. `levels` is a synthetic table with thousands of levels, for
which 0/1 columns are not tried.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss

from gigagp import HGPClassifier, HGPRegressor

CODES = {
    "adult": ("workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country"),
    "bike": ("season", "mnth", "hr", "weekday", "weathersit"),
    "wind": ("turbine_id",),
    "airline": ("Month", "DayOfWeek"),
}
FILES = {
    "adult": "class_adult", "bike": "count_bike", "wind": "wind_la_haute_borne", "airline": "airline2008_jan_apr",
}  # fmt: skip
TEST_ROWS = 4_000
LEVELS = 5_000  # of the synthetic table
# Inputs, target, names of the categories, and which rows are the test rows of split 0.
Table = tuple[pd.DataFrame, np.ndarray, list[str], np.ndarray]


def read(folder: Path, name: str) -> Table:
    """The rows of a data set."""
    if name == "levels":
        rng = np.random.default_rng(0)
        n = 60_000
        level, x = rng.integers(LEVELS, size=n), rng.uniform(-2, 2, (n, 2))
        effect = rng.standard_normal(LEVELS)
        y = effect[level] + np.sin(3 * x[:, 0]) + 0.3 * x[:, 1] + 0.2 * rng.standard_normal(n)
        return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "level": level}), y, ["level"], np.arange(n) < TEST_ROWS
    data = np.load(folder / f"{FILES[name]}.npz")
    X = pd.DataFrame(data["X"].astype(float), columns=[str(each) for each in data["feature_names"]])
    mask = data["test_mask"]
    return X, np.asarray(data["y"], float), list(CODES[name]), mask[:, 0]


def encoded(X: pd.DataFrame, categories: list[str], how: str) -> pd.DataFrame:
    """The table as a model reads it."""
    if how == "one-hot":
        return pd.get_dummies(X, columns=categories, dtype=float)
    if how == "category":
        return X.astype(dict.fromkeys(categories, "int")).astype(dict.fromkeys(categories, "category"))
    return X


def measured(table: Table, how: str, split: int, rows: int, classes: bool) -> str:
    """One row of the table."""
    X, y, categories, of_split_0 = table
    rng = np.random.default_rng(split)
    others = rng.permutation(np.flatnonzero(~of_split_0))
    order = np.append(rng.permutation(np.flatnonzero(of_split_0))[:TEST_ROWS], others) if split == 0 else others
    test, train = order[:TEST_ROWS], order[TEST_ROWS : TEST_ROWS + rows]
    Z = encoded(X.iloc[order[: TEST_ROWS + rows]].reset_index(drop=True), categories, how)
    here, there = Z.iloc[TEST_ROWS:], Z.iloc[:TEST_ROWS]
    begun = time.perf_counter()
    if classes:
        classifier = HGPClassifier(random_state=0).fit(here, y[train].astype(int))
        seconds = time.perf_counter() - begun
        p = classifier.predict_proba(there)
        return f"{how:10} log loss {log_loss(y[test], p):.4f}  {seconds:5.1f} s  {classifier.kernel_}"
    model = HGPRegressor(random_state=0).fit(here, y[train])
    seconds = time.perf_counter() - begun
    law = model.predict_distribution(there)
    error = float(np.sqrt(np.mean((law.mean - y[test]) ** 2))) / y.std()
    density = float(-np.log(np.maximum(law.pdf(y[test]), 1e-300)).mean() - np.log(y.std()))
    low, high = law.interval(0.95)
    cover = float(np.mean((y[test] >= low) & (y[test] <= high)))
    return f"{how:10} RMSE {error:.4f}  NLPD {density:.3f}  cover {cover:.3f}  {seconds:5.1f} s"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=["bike", "wind", "adult"], choices=[*FILES, "levels"])
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8_000)
    parser.add_argument("--how", nargs="+", default=["category", "one-hot", "number"])
    arguments = parser.parse_args()
    for name in arguments.sets:
        table = read(arguments.data, name)
        print(f"{name}: {arguments.rows} rows, split {arguments.split}, categories {', '.join(table[2])}", flush=True)
        for how in arguments.how:
            if not (name == "levels" and how == "one-hot"):
                row = measured(table, how, arguments.split, arguments.rows, name == "adult")
                print(f"    {row}", flush=True)


if __name__ == "__main__":
    main()

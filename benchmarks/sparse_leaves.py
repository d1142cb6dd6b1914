"""Exact leaves against sparse leaves of the same and of larger size: accuracy against seconds.

A smooth function of two columns under much noise, the robot arm with little noise, and kin40k, of whose split 1 both
rows for training and rows for test are taken from the training rows. All models have a squared exponential kernel, but
for the defaults. Writes the table of docs/sparse.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from gigagp.kernels import SquaredExponential
from measure import HERE, arguments, data_set, save, seconds

PAGE = HERE.parent / "docs" / "sparse.md"
TEST_ROWS = 1000
TRAINING_ROWS = 4000
FULL_TRAINING_ROWS = 16_000
EXACT = "exact"
SPARSE = "sparse"
# partition, kind of leaf, rows per leaf, inducing points
VARIANTS = (
    ("random", EXACT, 250, 0),
    ("random", EXACT, 1000, 0),
    ("random", SPARSE, 1000, 60),
    ("random", SPARSE, 1000, 250),
    ("random", SPARSE, 4000, 250),
    ("local", EXACT, 250, 0),
    ("local", SPARSE, 1000, 250),
)


def smooth_and_noisy(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Waves along two columns, under noise of the same size."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X[:, 0]) + np.cos(3 * X[:, 1]) + rng.standard_normal(rows)


def sets(folder: Path, rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Inputs and targets, in a random order."""
    result = {"smooth and noisy": smooth_and_noisy(rows), "robot arm": robot_arm(rows)}
    data = data_set(folder, "uci_kin40k")
    if data is not None:
        training = np.flatnonzero(~data["test_mask"][:, 1])
        chosen = np.random.default_rng(1).permutation(training)[:rows]
        result["kin40k"] = data["X"][chosen].astype(float), data["y"].ravel()[chosen].astype(float)
    return result


def model_of(partition: str, leaf: str, leaf_size: int, inducing: int) -> HGPRegressor:
    own = {"inducing": inducing} if leaf == SPARSE else {}
    return HGPRegressor(
        SquaredExponential(), partition=partition, leaf=leaf, leaf_size=leaf_size, method="committee",
        random_state=0, **own,
    )  # fmt: skip


def measure(name: str, X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    train, test = slice(None, -TEST_ROWS), slice(-TEST_ROWS, None)
    y = (y - y[train].mean()) / y[train].std()
    rows = []
    for variant in (None, *VARIANTS):
        model = HGPRegressor(random_state=0) if variant is None else model_of(*variant)
        predictions: list[tuple[np.ndarray, np.ndarray]] = []
        fit = seconds(lambda m=model: m.fit(X[train], y[train]))
        predict = seconds(lambda m=model, p=predictions: p.append(m.predict(X[test], return_std=True)))
        mean, deviation = predictions[0]
        row = {
            "data": name, "variant": variant, "fit": fit, "predict": predict, "rmse": metrics.rmse(y[test], mean),
            "nlpd": metrics.nlpd(y[test], mean, deviation),
            "evidence": None if variant is None else model.log_marginal_likelihood() / len(y[train]),
        }  # fmt: skip
        rows.append(row)
        print(name, variant, {k: v for k, v in row.items() if isinstance(v, float)}, flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    head = "| data | partition | leaves | inducing points | evidence per row | time | RMSE | NLPD |"
    lines = [head, "|" + "---|" * 8]
    for row in rows:
        first = next(each for each in rows if each["data"] == row["data"])
        times = (row["fit"] + row["predict"]) / (first["fit"] + first["predict"])
        if row["variant"] is None:
            what = "defaults | | | "
        else:
            partition, leaf, size, inducing = row["variant"]
            what = f"{partition} | {leaf}, {size:,} rows | {inducing or ''} | {row['evidence']:.3f}"
        lines.append(f"| {row['data']} | {what} | {times:.2f} | {row['rmse']:.4f} | {row['nlpd']:.3f} |")
    return "\n".join(lines)


def write(rows: list[dict[str, Any]], count: int) -> None:
    """The table of the page, between its marks."""
    words = (
        f"{count:,} rows for training, {TEST_ROWS:,} for test. Time is that of a fit and a prediction, relative to the "
        "defaults in the same run; the evidence of sparse leaves is their bound."
    )
    text = f"<!-- sparse -->\n\n{words}\n\n{table(rows)}\n\n<!-- /sparse -->"
    PAGE.write_text(re.sub(r"<!-- sparse -->.*?<!-- /sparse -->", lambda _: text, PAGE.read_text(), flags=re.S))


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    count = FULL_TRAINING_ROWS if options.full else TRAINING_ROWS
    model_of("random", SPARSE, 300, 20).fit(*robot_arm(600))  # loads compiled code
    HGPRegressor(random_state=0).fit(*robot_arm(3000))
    rows: list[dict[str, Any]] = []
    for name, data in sets(options.data, count + TEST_ROWS).items():
        rows += measure(name, *data)
        write(rows, count)
    save("sparse_leaves", {"rows": rows, "bars": []})


if __name__ == "__main__":
    main()

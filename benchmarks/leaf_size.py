"""Leaf size and sharing of local experts: accuracy against seconds, on held-out training rows (never test rows).

kin40k (its 10,000 training rows) stands for hard and small, protein for noisy, the robot arm for smooth and large.
Seconds are for a fit and a prediction with variance of the held-out rows, relative to the defaults in the same run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from measure import arguments, data_set, save, seconds

LEAVES = (128, 256, 512)  # rows per leaf
SHARING = (1, 2, 4, 8)
SHAPES = [(leaf, sharing) for leaf in LEAVES for sharing in SHARING if leaf * sharing <= 2048]
HELD_OUT = 0.15


def sets(folder: Path, full: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    by_name = {"robot arm": robot_arm(200_000 if full else 60_000)}
    for name, of_training in (("uci_kin40k", True), ("uci_protein", False)):
        data = data_set(folder, name)
        if data is None:
            continue
        X, y = data["X"], data["y"].ravel()
        if of_training:
            keep = ~data["orig_test_mask"].astype(bool).ravel()
            X, y = X[keep], y[keep]
        else:
            keep = np.random.default_rng(1).permutation(len(X))[: int(0.9 * len(X))]
            X, y = X[keep], y[keep]
        by_name[name.removeprefix("uci_")] = X, y
    return by_name


def measure(name: str, X: np.ndarray, y: np.ndarray) -> list[dict[str, Any]]:
    held_out = int(HELD_OUT * len(y))
    train, rest = slice(None, -held_out), slice(-held_out, None)
    y = (y - y[train].mean()) / y[train].std()
    rows = []
    for leaf, sharing in [(None, None), *SHAPES]:
        model = HGPRegressor(leaf_size=leaf, sharing=sharing, random_state=0)
        predictions: list[tuple[np.ndarray, np.ndarray]] = []
        fit = seconds(lambda m=model: m.fit(X[train], y[train]))
        predict = seconds(lambda m=model, s=predictions: s.append(m.predict(X[rest], return_std=True)))
        row = {
            "data": name, "leaf": leaf, "sharing": sharing, "fit": fit, "predict": predict,
            "rmse": metrics.rmse(y[rest], predictions[0][0]), "nlpd": metrics.nlpd(y[rest], *predictions[0]),
        }  # fmt: skip
        row["times"] = (fit + predict) / (rows[0]["fit"] + rows[0]["predict"]) if rows else 1.0
        rows.append(row)
        shape = "defaults" if leaf is None else f"leaf {leaf}, sharing {sharing}"
        print(
            f"  {name:<10} {shape:<20} {fit:6.2f} + {predict:6.2f} s ({row['times']:.2f} times the defaults)  "
            f"RMSE {row['rmse']:.4f}, NLPD {row['nlpd']:.4f}",
            flush=True,
        )
    return rows


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    HGPRegressor(random_state=0).fit(*robot_arm(600))  # loads compiled code
    rows = [row for name, (X, y) in sets(options.data, options.full).items() for row in measure(name, X, y)]
    save("leaf_size", {"rows": rows, "bars": []})


if __name__ == "__main__":
    main()

"""What each setting costs and gains on held-out rows: RMSE, NLPD, coverage and seconds, beside those of the defaults.

The robot arm is smooth, kin40k is hard and almost without noise, protein is noisy and rough. The held-out rows of the
latter two are the test rows of split 1; those of split 0 are kept for the results that are reported elsewhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from gigagp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from gigagp.model.distribution import PredictiveDistribution
from measure import arguments, data_set, save, seconds

SPLIT = 1
ROWS = 12_000  # training rows of each data set; with --full all of them, and more of the robot arm
ROBOT_ARM_ROWS = 100_000  # with --full
QUERIES = 2_000  # held-out rows of each data set; with --full all of them
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y of the training rows; X, y of the held-out rows


@dataclass(frozen=True)
class Choice:
    """One line of a table: a name and the settings of a model."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)


DEFAULTS = Choice("defaults")
SPREAD = {"partition": "stratified"}
NEAR = {"method": "neighbourhood"}
SECTIONS: dict[str, list[Choice]] = {
    "method": [
        DEFAULTS,
        *(Choice(f'`method="{name}"`', {"method": name}) for name in ("neighbourhood", "committee")),
    ],
    "neighbours": [DEFAULTS, *(Choice(f"`neighbours={m}`", {**NEAR, "neighbours": m}) for m in (32, 64, 128, 256))],
    "partition": [
        DEFAULTS,
        *(Choice(f'`partition="{name}"`', {"partition": name}) for name in ("stratified", "random")),
    ],
    "leaf size": [DEFAULTS, *(Choice(f"`leaf_size={n}`", {"leaf_size": n}) for n in (128, 256, 512))],
    "sharing": [DEFAULTS, *(Choice(f"`sharing={n}`", {"sharing": n}) for n in (1, 2, 4, 8))],
    "kernel": [
        DEFAULTS,
        *(
            Choice(f"`{kind.__name__}()`", {"kernel": kind()})
            for kind in (SquaredExponential, Matern52, Matern32, Matern12)
        ),
    ],
    "rule": [
        DEFAULTS,
        *(
            Choice(f'`combine="{name}"`', {"combine": name})
            for name in ("healed_blend", "blend", "healed", "gpoe", "poe", "rbcm")
        ),
        Choice('stratified, `combine="healed"`', {**SPREAD, "combine": "healed"}),
        *(Choice(f'stratified, `combine="{n}"`', {**SPREAD, "combine": n}) for n in ("gpoe", "poe", "bcm", "rbcm")),
    ],
    "experts per query": [
        DEFAULTS,
        *(Choice(f"`experts_per_query={k}`", {"experts_per_query": k}) for k in (1, 2, 4, 8, 16)),
    ],
    "scales": [
        DEFAULTS,
        Choice('`experts="gaussian"`', {"experts": "gaussian"}),
        Choice("`calibrate=False`", {"calibrate": False}),
        Choice('`experts="gaussian"`, `calibrate=False`', {"experts": "gaussian", "calibrate": False}),
    ],
    "noise": [
        DEFAULTS,
        *(Choice(f"`noise_bounds=({low:g}, 10)`", {"noise_bounds": (low, 10.0)}) for low in (1e-3, 1e-2)),
    ],
    "training": [DEFAULTS, *(Choice(f'`training="{name}"`', {"training": name}) for name in ("full", "progressive"))],
    "precision": [DEFAULTS, Choice('`dtype="float32"`', {"dtype": "float32"})],
    "engine": [DEFAULTS, *(Choice(f'`engine="{name}"`', {"engine": name}) for name in ("serial", "processes"))],
}


def data_sets(folder: Path, full: bool) -> dict[str, Data]:
    rows = ROBOT_ARM_ROWS if full else ROWS
    X, y = robot_arm(rows + QUERIES)
    by_name = {"robot arm": (X[:rows], y[:rows], X[rows:], y[rows:])}
    for name in ("kin40k", "protein"):
        data = data_set(folder, f"uci_{name}")
        if data is not None:
            is_test = data["test_mask"][:, SPLIT].astype(bool)
            train, test = (np.random.default_rng(0).permutation(np.flatnonzero(mask)) for mask in (~is_test, is_test))
            if not full:
                train, test = train[:ROWS], test[:QUERIES]
            X, y = data["X"], data["y"].ravel()
            by_name[name] = X[train], y[train], X[test], y[test]
    return by_name


class Models:
    """Models of one data set, each fitted and scored once."""

    def __init__(self, data: Data) -> None:
        X, y, self.Z, truth = data
        scale, centre = float(y.std()), float(y.mean())
        self.X, self.y, self.truth = X, (y - centre) / scale, (truth - centre) / scale
        self._rows: dict[str, dict[str, Any]] = {}

    def measure(self, choice: Choice) -> dict[str, Any]:
        if choice.name not in self._rows:
            self._rows[choice.name] = self._measure(choice)
        return self._rows[choice.name]

    def _measure(self, choice: Choice) -> dict[str, Any]:
        model = HGPRegressor(random_state=0, **choice.settings)
        fit = seconds(lambda: model.fit(self.X, self.y))
        predictions: list[PredictiveDistribution] = []
        predict = seconds(lambda: predictions.append(model.predict_distribution(self.Z)))
        prediction = predictions[0]
        return {
            "choice": choice.name, "rows": len(self.y), "fit": fit, "predict": predict,
            "rmse": metrics.rmse(self.truth, prediction.mean), "nlpd": float(-prediction.log_pdf(self.truth).mean()),
            "coverage95": float(np.mean(np.abs(2 * prediction.cdf(self.truth) - 1) < 0.95)),
        }  # fmt: skip


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    load = os.getloadavg()[0]  # before the first measurement
    for dtype in ("float64", "float32"):  # compiled code is loaded before the first measurement
        model = HGPRegressor(random_state=0, dtype=dtype).fit(*robot_arm(600))
        model.predict(robot_arm(600)[0], return_std=True)
    rows = []
    for name, data in data_sets(options.data, options.full).items():
        models = Models(data)
        for section, choices in SECTIONS.items():
            for choice in choices:
                row = {"section": section, "data": name, **models.measure(choice)}
                rows.append(row)
                print(
                    f"  {name:<10} {section:<18} {choice.name:<36} {row['fit']:6.2f} + {row['predict']:6.2f} s  "
                    f"RMSE {row['rmse']:.4f}, NLPD {row['nlpd']:.4f}, 95% covers {row['coverage95']:.1%}",
                    flush=True,
                )
    save("choices", {"rows": rows, "load": load, "bars": []})


if __name__ == "__main__":
    main()

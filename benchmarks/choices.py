"""What each setting costs and gains on held-out rows: RMSE, NLPD, coverage and seconds, beside those of the defaults.

The robot arm is smooth, kin40k is hard and almost without noise, protein is noisy and rough. The held-out rows of the
latter two are the test rows of split 1; those of split 0 are kept for the results that are reported elsewhere.

Every setting and data set has a file of its own in results/choices, so that a long comparison can be done in pieces:
--minutes ends one, and --resume leaves out what has been measured. At the end all files are collected in
results/choices.json, from which the tables of docs/choosing.md are rendered.
"""

from __future__ import annotations

import json
import os
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm
from gigagp.kernels import Matern12, Matern32, Matern52, SquaredExponential
from gigagp.model.distribution import PredictiveDistribution
from measure import RESULTS, arguments, data_set, machine, save, seconds

SPLIT = 1
ROWS = 6_000  # training rows of each data set; with --full all of them, and more of the robot arm
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


@dataclass(frozen=True)
class Models:
    """Models of one data set, targets in units of their deviation."""

    name: str
    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    truth: np.ndarray

    @classmethod
    def of(cls, name: str, data: Data) -> Models:
        X, y, Z, truth = data
        scale, centre = float(y.std()), float(y.mean())
        return cls(name, X, (y - centre) / scale, Z, (truth - centre) / scale)

    def measure(self, choice: Choice) -> dict[str, Any]:
        model = HGPRegressor(random_state=0, **choice.settings)
        load = os.getloadavg()[0]
        fit = seconds(lambda: model.fit(self.X, self.y))
        predictions: list[PredictiveDistribution] = []
        predict = seconds(lambda: predictions.append(model.predict_distribution(self.Z)))
        prediction = predictions[0]
        return {
            "data": self.name, "choice": choice.name, "rows": len(self.y), "fit": fit, "predict": predict,
            "rmse": metrics.rmse(self.truth, prediction.mean), "nlpd": float(-prediction.log_pdf(self.truth).mean()),
            "coverage95": float(np.mean(np.abs(2 * prediction.cdf(self.truth) - 1) < 0.95)),
            "load": load, "commit": machine()["commit"],
        }  # fmt: skip


def run_path(folder: Path, data: str, choice: str) -> Path:
    return folder / ("".join(c if c.isalnum() or c in ".-" else "_" for c in f"{data}-{choice}") + ".json")


def measure(options: Namespace) -> None:
    """Every setting on every data set, until the time is over."""
    for dtype in ("float64", "float32"):  # compiled code is loaded before the first measurement
        model = HGPRegressor(random_state=0, dtype=dtype).fit(*robot_arm(600))
        model.predict(robot_arm(600)[0], return_std=True)
    end = monotonic() + 60 * options.minutes
    choices = {choice.name: choice for section in SECTIONS.values() for choice in section}
    options.results.mkdir(parents=True, exist_ok=True)
    for name, data in data_sets(options.data, options.full).items():
        models = Models.of(name, data)
        for choice in choices.values():
            path = run_path(options.results, name, choice.name)
            if (options.resume and path.exists()) or monotonic() > end:
                continue
            row = models.measure(choice)
            path.write_text(json.dumps(row) + "\n")
            print(
                f"  {name:<10} {choice.name:<44} {row['fit']:6.2f} + {row['predict']:6.2f} s  "
                f"RMSE {row['rmse']:.4f}, NLPD {row['nlpd']:.4f}, 95% covers {row['coverage95']:.1%}",
                flush=True,
            )


def collect(folder: Path) -> None:
    """All files of the folder in one, section by section; settings that have not been measured are left out."""
    rows = []
    for name in ("robot arm", "kin40k", "protein"):
        for section, choices in SECTIONS.items():
            for choice in choices:
                path = run_path(folder, name, choice.name)
                if path.exists():
                    rows.append({"section": section, **json.loads(path.read_text())})
    if rows:
        save("choices", {"rows": rows, "load": max(row["load"] for row in rows), "bars": []})


if __name__ == "__main__":
    parser = arguments((__doc__ or "").split("\n\n", maxsplit=1)[0], data=True)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further setting is begun")
    parser.add_argument("--resume", action="store_true", help="leave out what has been measured")
    parser.add_argument("--results", type=Path, default=RESULTS / "choices", help="folder for the files of the runs")
    given = parser.parse_args()
    measure(given)
    collect(given.results)

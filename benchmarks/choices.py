"""What each choice costs and brings, on rows held out: RMSE, NLPD, coverage and seconds beside the defaults'.

The robot arm is smooth and large, kin40k hard and almost without noise, protein noisy and rough. Of the latter two the
rows held out are the test rows of split 1; those of split 0 are for results that are reported elsewhere.
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
ROWS, QUERIES = 12_000, 2_000  # of each data set; all of them with --full
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X, y to learn from; X, y held out


@dataclass(frozen=True)
class Choice:
    """One line of a table: settings of a model."""

    name: str
    fit: dict[str, Any] = field(default_factory=dict)


DEFAULTS = Choice("defaults")
SPREAD = {"partition": "stratified"}
SECTIONS: dict[str, list[Choice]] = {
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


def sets(folder: Path, full: bool) -> dict[str, Data]:
    rows = 100_000 if full else ROWS
    X, y = robot_arm(rows + QUERIES)
    found = {"robot arm": (X[:rows], y[:rows], X[rows:], y[rows:])}
    for name in ("kin40k", "protein"):
        data = data_set(folder, f"uci_{name}")
        if data is not None:
            held = data["test_mask"][:, SPLIT].astype(bool)
            learn, test = (np.random.default_rng(0).permutation(np.flatnonzero(rows)) for rows in (~held, held))
            if not full:
                learn, test = learn[:ROWS], test[:QUERIES]
            X, y = data["X"], data["y"].ravel()
            found[name] = X[learn], y[learn], X[test], y[test]
    return found


class Models:
    """Measurements of one data set, each made once."""

    def __init__(self, data: Data) -> None:
        X, y, self.Z, truth = data
        scale, centre = float(y.std()), float(y.mean())
        self.X, self.y, self.truth = X, (y - centre) / scale, (truth - centre) / scale
        self._measured: dict[str, dict[str, Any]] = {}

    def measure(self, choice: Choice) -> dict[str, Any]:
        if choice.name not in self._measured:
            self._measured[choice.name] = self._measure(choice)
        return self._measured[choice.name]

    def _measure(self, choice: Choice) -> dict[str, Any]:
        model = HGPRegressor(random_state=0, **choice.fit)
        fit = seconds(lambda: model.fit(self.X, self.y))
        said: list[PredictiveDistribution] = []
        predict = seconds(lambda: said.append(model.predict_distribution(self.Z)))
        law = said[0]
        return {
            "choice": choice.name, "rows": len(self.y), "fit": fit, "predict": predict,
            "rmse": metrics.rmse(self.truth, law.mean), "nlpd": float(-law.log_pdf(self.truth).mean()),
            "coverage95": float(np.mean(np.abs(2 * law.cdf(self.truth) - 1) < 0.95)),
        }  # fmt: skip


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    load = os.getloadavg()[0]  # before we begin
    for dtype in ("float64", "float32"):  # loads compiled code
        warm = HGPRegressor(random_state=0, dtype=dtype).fit(*robot_arm(600))
        warm.predict(robot_arm(600)[0], return_std=True)
    rows = []
    for name, data in sets(options.data, options.full).items():
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

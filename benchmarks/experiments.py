"""Ways to better experts, each against the defaults: development splits or held-out training rows, never split 0."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from measure import arguments, data_set, save

SPLIT = 1
SETS = {
    "uci_elevators": None,
    "uci_pol": None,
    "uci_protein": None,
    "uci_kin40k": None,
    "wind_la_haute_borne": 60_000,
    "airline2008_jan_apr": 60_000,
}  # rows that are used; None: all of the split
QUICK = ("uci_elevators", "uci_pol")
HELD_OUT = 4_000
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one Gaussian scale for all experts": {"experts": "gaussian"},
    "one Gaussian scale, not calibrated": {"experts": "gaussian", "calibrate": False},
    "not calibrated": {"calibrate": False},
    "blend of 4": {"combine": "blend", "experts_per_query": 4},
    "healed of 4": {"combine": "healed", "experts_per_query": 4},
    "NPAE of the nearest 4": {"combine": "npae", "experts_per_query": 4, "sharing": 2},
    "as NPAE, healed blend": {"combine": "healed_blend", "experts_per_query": 4, "sharing": 2},
    "communication expert (GRBCM of 4)": {"combine": "grbcm", "experts_per_query": 4},
    "leaves of 128, sharing 8": {"leaf_size": 128, "sharing": 8},
    "leaves of 256, sharing 4": {"leaf_size": 256, "sharing": 4},
    "leaves of 512, sharing 2": {"leaf_size": 512, "sharing": 2},
}


def rows_of(folder: Path, name: str, most: int | None) -> tuple[Array, Array, Array, Array] | None:
    """Training and development rows, the target standardised on the training rows."""
    data = data_set(folder, name)
    if data is None:
        return None
    X, y, masks = data["X"].astype(float), data["y"].astype(float).ravel(), data["test_mask"].astype(bool)
    masks = masks.reshape(len(y), -1)
    rng = np.random.default_rng(SPLIT)
    if masks.shape[1] > SPLIT:
        train, test = np.flatnonzero(~masks[:, SPLIT]), np.flatnonzero(masks[:, SPLIT])
    else:
        shuffled = rng.permutation(np.flatnonzero(~masks[:, 0]))[: None if most is None else most + HELD_OUT]
        train, test = shuffled[HELD_OUT:], shuffled[:HELD_OUT]
    test = rng.permutation(test)[:HELD_OUT]
    centre, scale = y[train].mean(), y[train].std()
    return X[train], (y[train] - centre) / scale, X[test], (y[test] - centre) / scale


def measured(rows: tuple[Array, Array, Array, Array], settings: dict[str, Any]) -> dict[str, Any]:
    X, y, Z, z = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        begun = time.perf_counter()
        model = HGPRegressor(random_state=0, **settings).fit(X, y)
        fitted = time.perf_counter()
        mean, std = model.predict(Z, return_std=True)
        done = time.perf_counter()
    ends = model.predict_quantiles(Z, [0.25, 0.75, 0.1, 0.9, 0.025, 0.975]).T
    return {
        "rmse": metrics.rmse(z, mean),
        "nlpd": metrics.nlpd(z, mean, std),
        "coverage": [metrics.inside(z, ends[i], ends[i + 1]) for i in (0, 2, 4)],
        "fit_seconds": fitted - begun,
        "predict_seconds": done - fitted,
        "share_of_choosing": model.report_.choosing,
    }


def main() -> None:
    options = arguments(__doc__ or "", data=True).parse_args()
    lines: list[dict[str, Any]] = []
    for name, most in SETS.items():
        if not options.full and name not in QUICK:
            continue
        rows = rows_of(options.data, name, most)
        if rows is None:
            continue
        print(f"{name}: {len(rows[1]):,} rows, {len(rows[3]):,} to predict", flush=True)
        for variant, settings in VARIANTS.items():
            got = measured(rows, settings)
            lines.append({"set": name, "rows": len(rows[1]), "variant": variant, **got})
            inside = " ".join(f"{share:.3f}" for share in got["coverage"])
            print(
                f"  {variant:<36} RMSE {got['rmse']:.4f}  NLPD {got['nlpd']:8.4f}  covered {inside}  "
                f"fit {got['fit_seconds']:.1f} s ({got['share_of_choosing']:.0%} to choose), "
                f"predict {got['predict_seconds']:.1f} s",
                flush=True,
            )
        save("experiments", {"split": SPLIT, "rows": lines, "bars": []})


if __name__ == "__main__":
    main()

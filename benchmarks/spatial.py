"""Places on a sphere: accuracy on precipitation and houses, the seam at 180 degrees, and a map of the earth.

    python benchmarks/spatial.py --data ../shared/data --splits 1,2
    python benchmarks/spatial.py --data ../shared/data --only map

Splits from 1 on are for development; split 0 is for results that are reported. RMSE is in units of the target's
standard deviation among the training rows. The bars are those of the default, `sphere="auto"`, on a table whose columns
have names; declared as a sphere and as plain numbers stand beside it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gigagp import HGPRegressor
from measure import arguments, bar, data_set, save

# Data, the numbers of the columns longitude and latitude, and the bar of the RMSE.
SETS = {"geo_precipitation": ((0, 1), 0.130), "geo_houses": ((7, 6), 0.372)}
MAP_STEP = 1 / 6  # degrees
MAP_SECONDS = 60.0


def table(X: np.ndarray, places: tuple[int, int]) -> pd.DataFrame:
    """Inputs with the names of their columns."""
    names = {places[0]: "longitude", places[1]: "latitude"}
    return pd.DataFrame(X.astype(float), columns=[names.get(j, f"column {j}") for j in range(X.shape[1])])


def accuracy(data: Any, name: str, split: int, geometry: str) -> dict[str, Any]:
    X, y, test = table(data["X"], SETS[name][0]), data["y"].astype(float), data["test_mask"][:, split]
    sphere = {"auto": "auto", "sphere": ("longitude", "latitude"), "plane": None}[geometry]
    start = time.perf_counter()
    model = HGPRegressor(sphere=sphere, random_state=0).fit(X[~test], y[~test])
    fitted = time.perf_counter()
    scores = model.evaluate(X[test], y[test])
    row = {
        "set": name, "split": split, "geometry": geometry, "rows": int((~test).sum()),
        "rmse": scores.rmse / float(y[~test].std()), "nlpd": scores.nlpd, "coverage": scores.coverage,
        "fit_seconds": fitted - start, "predict_seconds": time.perf_counter() - fitted,
    }  # fmt: skip
    if geometry != "plane" and list(X) == ["longitude", "latitude"]:
        latitudes = np.linspace(60, 80, 21)  # land on both sides of the seam
        sides = [pd.DataFrame({"longitude": side, "latitude": latitudes}) for side in (-179.9, 179.9)]
        west, east = (model.predict(side) for side in sides)
        row["seam"] = float(np.abs(west - east).max() / y[~test].std())
    levels = ", ".join(f"{100 * share:.1f}" for share in scores.coverage.values())
    print(
        f"{name} split {split} {row['geometry']:6} RMSE {row['rmse']:.4f} NLPD {scores.nlpd:.3f} covers {levels}% "
        f"fit {row['fit_seconds']:.1f} s" + (f" seam {row['seam']:.4f}" if "seam" in row else ""), flush=True,
    )  # fmt: skip
    return row


def elevation_map(data: Any) -> dict[str, Any]:
    """Fit all rows of etopo5, and predict mean and standard deviation on a grid of 10 minutes into a file."""
    X, y = data["X"], data["y"]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model = HGPRegressor(sphere=(0, 1), random_state=0).fit(X, y)
        fitted = time.perf_counter()
        grid = model.predict_grid(
            lon=(-180, 180 - MAP_STEP), lat=(-90, 90), step=MAP_STEP, output=Path(folder) / "map.nc"
        )
        mapped = time.perf_counter()
        row = {
            "rows": len(y),
            "points": grid["mean"].size,
            "fit_seconds": fitted - start,
            "map_seconds": mapped - fitted,
        }
        grid.close()
    print(
        f"etopo5: {row['rows']:,} rows fitted in {row['fit_seconds']:.1f} s, {row['points']:,} points in "
        f"{row['map_seconds']:.1f} s, {model.report_.choices[-1].name}", flush=True,
    )  # fmt: skip
    return row


def main() -> int:
    parser = arguments(__doc__ or "", data=True, quick=False)
    parser.add_argument("--splits", default="1")
    parser.add_argument("--sets", default=",".join(SETS), help="of the accuracy")
    parser.add_argument("--geometries", default="auto,sphere,plane", help="some of auto,sphere,plane")
    parser.add_argument("--only", choices=["accuracy", "map"], help="default both")
    options = parser.parse_args()
    rows, bars, mapped = [], [], None
    for name, (_, bound) in SETS.items() if options.only != "map" else ():
        data = data_set(options.data, name) if name in options.sets.split(",") else None
        if data is None:
            continue
        own = [
            accuracy(data, name, int(split), geometry)
            for split in options.splits.split(",")
            for geometry in options.geometries.split(",")
        ]
        rows += own
        default = [row["rmse"] for row in own if row["geometry"] == "auto"]
        if default:
            bars.append(bar(f"{name}: RMSE / deviation", float(np.mean(default)), bound, at_least=False))
    if options.only != "accuracy" and (data := data_set(options.data, "etopo5")) is not None:
        mapped = elevation_map(data)
        bars.append(bar("etopo5: seconds of a map at 10'", mapped["map_seconds"], MAP_SECONDS, at_least=False))
        total = mapped["fit_seconds"] + mapped["map_seconds"]
        bars.append(bar("etopo5: seconds of fit and map", total, MAP_SECONDS, at_least=False))
    save("spatial", {"rows": rows, "map": mapped, "bars": bars})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Places on a sphere: accuracy on precipitation and houses, the seam at 180 degrees, and a map of the earth.

    python benchmarks/spatial.py --data ../shared/data --splits 1,2
    python benchmarks/spatial.py --data ../shared/data --only map
    python benchmarks/spatial.py --page    # what the last runs have measured, into docs/kriging.md

Splits from 1 on are for development; split 0 is for results that are reported. RMSE is in units of the target's
standard deviation among the training rows. The bars are those of the default, `sphere="auto"`, on a table whose columns
have names; declared as a sphere and as plain numbers stand beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gigagp import HGPRegressor
from measure import HERE, RESULTS, arguments, bar, data_set, save
from page_parts import origin, time_of
from page_parts import table as markdown

# Data, the numbers of the columns longitude and latitude, and the bar of the RMSE.
SETS = {"geo_precipitation": ((0, 1), 0.130), "geo_houses": ((7, 6), 0.372)}
MAP_STEP = 1 / 6  # degrees
MAP_SECONDS = 60.0
PAGE = HERE.parent / "docs" / "kriging.md"
MARKS = ("<!-- spatial -->", "<!-- /spatial -->")


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


def page() -> None:
    """Write the last results into the page."""
    accuracy, mapped = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("spatial", "spatial_map"))
    head = ("data", "split", "training rows", "geometry", "RMSE / deviation", "bar", "95% intervals cover", "fit")
    body = [
        (
            row["set"].removeprefix("geo_"), str(row["split"]), f"{row['rows']:,}", row["geometry"],
            f"{row['rmse']:.4f}", f"{SETS[row['set']][1]:.3f}", f"{100 * row['coverage']['0.95']:.1f}%",
            time_of(row["fit_seconds"]),
        )
        for row in accuracy["rows"]
    ]  # fmt: skip
    splits = ",".join(str(split) for split in sorted({row["split"] for row in accuracy["rows"]}))
    globe = mapped["map"]
    seams = [row["seam"] for row in accuracy["rows"] if "seam" in row]
    words = (
        f"Measured with `python benchmarks/spatial.py --splits {splits}` at commit {accuracy['machine']['commit']} "
        f'({origin(accuracy)}, {accuracy["machine"]["date"]}). With `sphere="auto"` precipitation, which covers the '
        "earth, is on the sphere, and the houses, which are in California, are on a flat map. "
        + (f"Predictions at -179.9 and 179.9 degrees differ by at most {seams[0]:.4f} deviations." if seams else "")
    )
    fit, predict = time_of(globe["fit_seconds"]), time_of(globe["map_seconds"])
    below = (
        f"All {globe['rows']:,} rows of etopo5 (heights of the earth) were fitted in {fit}, and mean and standard "
        f"deviation at {globe['points']:,} places, every 10 minutes of arc, were predicted into a NetCDF file in "
        f"{predict} (`--only map`, commit {mapped['machine']['commit']}; bar: one minute for the map)."
    )
    text = PAGE.read_text()
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{words}\n\n{markdown(head, body)}\n\n{below}\n{MARKS[1]}{after}")


def main() -> int:
    parser = arguments(__doc__ or "", data=True, quick=False)
    parser.add_argument("--splits", default="1")
    parser.add_argument("--sets", default=",".join(SETS), help="of the accuracy")
    parser.add_argument("--geometries", default="auto,sphere,plane", help="some of auto,sphere,plane")
    parser.add_argument("--only", choices=["accuracy", "map"], help="default both")
    parser.add_argument("--page", action="store_true", help="write the last results into docs/kriging.md")
    options = parser.parse_args()
    if options.page:
        page()
        return 0
    rows, bars = [], []
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
    if rows:
        save("spatial", {"rows": rows, "bars": bars})
    if options.only != "accuracy" and (data := data_set(options.data, "etopo5")) is not None:
        mapped = elevation_map(data)
        total = mapped["fit_seconds"] + mapped["map_seconds"]
        times = {"a map at 10'": mapped["map_seconds"], "fit and map": total}
        bars = [bar(f"etopo5: seconds of {what}", time, MAP_SECONDS, at_least=False) for what, time in times.items()]
        save("spatial_map", {"map": mapped, "bars": bars})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""GigaGP beside PyKrige and GSTools: precipitation over land, the same rows for all; error, seconds and memory.

    python benchmarks/kriging.py --data ../shared/data --split 1

Each method runs in a process of its own, with the variogram that its documentation begins with for places on a sphere:
PyKrige's ordinary kriging with a spherical variogram and geographic coordinates, once with all rows and once with the
32 nearest; GSTools' ordinary kriging with an exponential covariance that is fitted to the empirical variogram. Both
solve systems of all training rows, so they get a random part of the rows: GSTools, which computes a pseudo-inverse, did
not end within four minutes with 4,000 rows. Writes the table of docs/kriging.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from measure import HERE, save
from page_parts import origin, table, time_of

PAGE = HERE.parent / "docs" / "kriging.md"
QUERIES = 2_000
NEAREST = 32
RUNS = [
    ("pykrige", 1_000), ("pykrige", 4_000), ("pykrige_window", 4_000), ("gstools", 1_000), ("gstools", 2_000),
    ("gigagp", 1_000), ("gigagp", 2_000), ("gigagp", 4_000), ("gigagp", 43_601),
]  # fmt: skip
LABELS = {
    "pykrige": "PyKrige, all rows", "pykrige_window": f"PyKrige, {NEAREST} nearest rows", "gstools": "GSTools",
    "gigagp": "GigaGP",
}  # fmt: skip
Predict = Callable[[np.ndarray], np.ndarray]


def pykrige(X: np.ndarray, y: np.ndarray, nearest: int | None = None) -> Predict:
    from pykrige.ok import OrdinaryKriging  # noqa: PLC0415

    model = OrdinaryKriging(X[:, 0] % 360, X[:, 1], y, variogram_model="spherical", coordinates_type="geographic")
    how = {} if nearest is None else {"n_closest_points": nearest, "backend": "loop"}
    return lambda Z: np.asarray(model.execute("points", Z[:, 0] % 360, Z[:, 1], **how)[0])


def gstools(X: np.ndarray, y: np.ndarray) -> Predict:
    import gstools as gs  # noqa: PLC0415

    lat, lon = X[:, 1], X[:, 0]
    bins, gamma = gs.vario_estimate((lat, lon), y, latlon=True, geo_scale=gs.DEGREE_SCALE)
    covariance = gs.Exponential(latlon=True, geo_scale=gs.DEGREE_SCALE)
    covariance.fit_variogram(bins, gamma, nugget=True)
    model = gs.krige.Ordinary(covariance, (lat, lon), y)
    return lambda Z: np.asarray(model((Z[:, 1], Z[:, 0]))[0])


def gigagp(X: np.ndarray, y: np.ndarray) -> Predict:
    from gigagp import HGPRegressor  # noqa: PLC0415

    model = HGPRegressor(sphere=(0, 1), random_state=0).fit(X, y)
    return lambda Z: model.predict(Z, return_std=True)[0]


METHODS: dict[str, Callable[[np.ndarray, np.ndarray], Predict]] = {
    "pykrige": pykrige, "pykrige_window": lambda X, y: pykrige(X, y, NEAREST), "gstools": gstools, "gigagp": gigagp
}  # fmt: skip


def measured(folder: Path, method: str, rows: int, split: int) -> dict[str, Any]:
    """One method in this process."""
    data = np.load(folder / "geo_precipitation.npz")
    X, y, test = data["X"].astype(float), data["y"].astype(float), data["test_mask"][:, split]
    rng = np.random.default_rng(split)
    train, held_out = rng.permutation(np.flatnonzero(~test))[:rows], rng.permutation(np.flatnonzero(test))[:QUERIES]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    predict = METHODS[method](X[train], y[train])
    fitted = time.perf_counter()
    errors = predict(X[held_out]) - y[held_out]
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "method": method, "rows": len(train), "rmse": float(np.sqrt(np.mean(errors**2)) / y[~test].std()),
        "fit_seconds": fitted - start, "predict_seconds": done - fitted, "gb": (peak - before) / 2**20,
    }  # fmt: skip


def page(result: dict[str, Any]) -> None:
    head = ("method", "training rows", "RMSE / deviation", "fit", f"{QUERIES:,} queries", "memory")
    body = [
        (
            LABELS[r["method"]], f"{r['rows']:,}", f"{r['rmse']:.3f}", time_of(r["fit_seconds"]),
            time_of(r["predict_seconds"]), f"{r['gb']:.2f} GB",
        )
        for r in result["rows"]
    ]  # fmt: skip
    words = (
        f"Precipitation over land, {QUERIES:,} held-out places, the same rows for all methods "
        f"(`python benchmarks/kriging.py --split {result['split']}`; {origin(result)}, measured "
        f"{result['machine']['date']}). Memory is what the method adds to its process. The other libraries solve one "
        "system of all training rows, so that time grows with their cube and memory with their square; their "
        "variograms are fitted once, with default settings. GigaGP tries several kernels and calibrates its intervals, "
        "which takes most of its time where rows are few. The others have models that GigaGP does not have, such "
        "as directional variograms. The machine had other work to do, so that times are upper bounds."
    )
    text = PAGE.read_text()
    before, rest = text.split("<!-- measured -->")
    _, after = rest.split("<!-- /measured -->")
    PAGE.write_text(f"{before}<!-- measured -->\n{words}\n\n{table(head, body)}\n<!-- /measured -->{after}")


def _earlier(split: int, methods: list[str]) -> list[dict[str, Any]]:
    """The results of methods that are not run now, from the last run with this split."""
    path = HERE / "results" / "kriging.json"
    last = json.loads(path.read_text()) if path.exists() else {"rows": [], "split": split}
    return [row for row in last["rows"] if last["split"] == split and row["method"] not in methods]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="others stay as they are"
    )
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "ROWS"), help="one run, in this process")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.data, options.one[0], int(options.one[1]), options.split)))
        return 0
    rows = _earlier(options.split, options.methods)
    for method, count in RUNS:
        if method not in options.methods:
            continue
        command = [sys.executable, __file__, "--data", str(options.data), "--split", str(options.split)]
        run = subprocess.run([*command, "--one", method, str(count)], capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{method}, {count:,} rows: {run.stderr.strip().splitlines()[-1]}", flush=True)
            continue
        rows.append(json.loads(run.stdout.splitlines()[-1]))
        r = rows[-1]
        print(f"{method:15} {r['rows']:7,} RMSE {r['rmse']:.4f} fit {r['fit_seconds']:7.1f} s predict "
              f"{r['predict_seconds']:6.1f} s memory {r['gb']:.2f} GB", flush=True)  # fmt: skip
    order = [method for method, _ in RUNS]
    rows.sort(key=lambda row: (order.index(row["method"]), row["rows"]))
    save("kriging", {"rows": rows, "split": options.split})
    page(json.loads((HERE / "results" / "kriging.json").read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

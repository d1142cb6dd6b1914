"""Prediction from neighbours: cost of a query, exactness of the search, one row, and the share of choosing.

scattered: random queries of robot arm models (8 columns) of 1e5, 1e6 and (--full) 1e7 rows, 64 neighbours, with
variance, two threads; each size is a process of its own. The cost at the largest size is compared with that at 1e5.
search: the share of the true 64 nearest rows that the limited search finds, by SciPy's KD-tree, and what an exact
search costs.
one row: a Python call warm, and in a process that has just loaded the model, whose compiled code is cached.
choosing: the seconds of all choices and of the calibration, as a share of those of a fit with defaults.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.engines import ThreadsEngine
from gigagp.memory import peak_memory
from gigagp.model import neighbourhood
from measure import HERE, Timing, arguments, bar, save, seconds

NEIGHBOURS = 64
QUERIES = 20_000
CHECKED = 500  # queries whose neighbours are compared with SciPy's
ONE_ROW_CALLS = 300
CHOICES = ("choice of", "average of")  # stages of a fit
LOADED_MODELS = 5  # processes that load a model and predict one row


def cost(n: int, repeats: int) -> dict[str, Any]:
    """Seconds per query of a model of n rows, the search's recall, and how the fit spent its time."""
    X, y = robot_arm(n + QUERIES)
    Z = X[n:].copy()
    model = HGPRegressor(method="neighbourhood", neighbours=NEIGHBOURS, random_state=0, n_jobs=2)
    fit = seconds(lambda: model.fit(X[:n], y[:n]))
    default = HGPRegressor(random_state=0, n_jobs=2)
    default_fit = seconds(lambda: default.fit(X[:n], y[:n]))
    spent = default.report_.seconds
    choosing = sum(value for stage, value in spent.items() if stage.startswith(CHOICES)) / default_fit
    X = y = np.empty(0)
    model.predict(Z[:1], return_std=True)
    with_variance = [seconds(lambda: model.predict(Z, return_std=True)) / QUERIES for _ in range(repeats)]
    mean_only = [seconds(lambda: model.predict(Z)) / QUERIES for _ in range(repeats)]
    one = [seconds(lambda i=i: model.predict(Z[i : i + 1], return_std=True)) for i in range(ONE_ROW_CALLS)]
    found = {
        "rows": n, "fit": fit, "default_fit": default_fit, "choosing": choosing, "default_seconds": spent,
        "with_variance": vars(Timing.of(with_variance)), "mean_only": vars(Timing.of(mean_only)),
        "one_row": vars(Timing.of(one)), "gb": peak_memory(),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        found["first_row"] = float(np.median([first_row(Path(folder) / "model") for _ in range(LOADED_MODELS)]))
    return found | exactness(model, Z[:CHECKED])


def exactness(model: HGPRegressor, Z: np.ndarray) -> dict[str, Any]:
    """Recall of the limited search, the shift it causes, and the price of an exact one."""
    near = model.model_.neighbourhood
    assert near is not None
    scaled = model.model_.inputs.apply(Z, near.store.X.dtype)
    tree = cKDTree(near.store.X * near.router.metric)
    distances, _ = tree.query(scaled * near.router.metric, NEIGHBOURS)
    with ThreadsEngine(2) as engine:
        limited = neighbourhood.predict(near, scaled, engine)
        took = seconds(lambda: neighbourhood.predict(replace(near, exact=True), scaled, engine))
        exact = neighbourhood.predict(replace(near, exact=True), scaled, engine)
    recall = []
    for z, reach in zip(scaled, distances[:, -1], strict=True):
        rows = neighbourhood.nearest_rows(near, z)
        inside = (((near.store.X[rows] - z) * near.router.metric) ** 2).sum(axis=1) <= reach**2 * (1 + 1e-12)
        recall.append(inside[:NEIGHBOURS].mean())
    assert exact.variance is not None
    shift = np.abs(limited.mean - exact.mean) / np.sqrt(exact.variance + near.noise)
    return {"recall": float(np.mean(recall)), "exact": took / len(Z), "shift": float(np.mean(shift))}


def first_row(folder: Path) -> float:
    """Seconds of the first prediction in a process that has just loaded a model, the compiled code cached."""
    code = (
        "import sys, time, numpy as np, gigagp\n"
        "model = gigagp.load(sys.argv[1]); z = np.zeros((1, 8))\n"
        "begun = time.perf_counter(); model.predict(z, return_std=True); print(time.perf_counter() - begun)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def in_its_own_process(*what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(HERE / "neighbourhood.py"), "--one", *what], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--one", nargs=2, help="number of rows, and repeats: one size, in this process")
    parser.add_argument("--sizes", type=lambda text: [int(float(n)) for n in text.split(",")])
    options = parser.parse_args()
    if options.one:
        print(json.dumps(cost(int(options.one[0]), int(options.one[1]))))
        return
    sizes = options.sizes or ([100_000, 1_000_000, 10_000_000] if options.full else [100_000])
    begun = time.perf_counter()
    rows, bars = [], []
    for n in sizes:
        row = in_its_own_process(str(n), "5")
        rows.append(row)
        print(
            f"  {n:>10,} rows: {1e6 * row['with_variance']['median']:.1f} us per query with variance, "
            f"{1e6 * row['mean_only']['median']:.1f} us mean only; exact search {1e6 * row['exact']:.0f} us; "
            f"{row['recall']:.2%} of the nearest rows are found, means move by {row['shift']:.4f} deviations; one row "
            f"{1e3 * row['one_row']['median']:.2f} ms; choosing {row['choosing']:.0%} of a fit of "
            f"{row['default_fit']:.1f} s; {row['gb']:.1f} GB",
            flush=True,
        )
    by_rows = {row["rows"]: row for row in rows}
    for n, row in by_rows.items():
        bars.append(bar(f"one row, warm, {n:,} rows (ms)", 1e3 * row["one_row"]["median"], 1.0, at_least=False))
        bars.append(bar(f"one row, model just loaded, {n:,} rows (ms)", 1e3 * row["first_row"], 3.0, at_least=False))
    if 1_000_000 in by_rows:
        million = by_rows[1_000_000]
        bars.append(bar("us per query, 1e6 rows", 1e6 * million["with_variance"]["median"], 60.0, at_least=False))
        bars.append(bar("share of choosing, 1e6 rows", million["choosing"], 0.2, at_least=False))
    if 10_000_000 in by_rows and 100_000 in by_rows:
        ratio = by_rows[10_000_000]["with_variance"]["median"] / by_rows[100_000]["with_variance"]["median"]
        bars.append(bar("cost at 1e7 rows over that at 1e5", ratio, 1.5, at_least=False))
    save("neighbourhood", {"rows": rows, "bars": bars, "seconds": time.perf_counter() - begun})


if __name__ == "__main__":
    main()

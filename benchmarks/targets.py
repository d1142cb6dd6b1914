"""Several targets: one fit with a common theta, one fit with a theta each, and one fit per target.

    python benchmarks/targets.py                 # robot arm: 100,000 rows, four targets
    python benchmarks/targets.py --rows 20000 --targets 3

Targets are positions of the robot arm of `gigagp.datasets`: the coordinates of its joints, which are functions of the
same kind of the same angles. Each way runs in a process of its own, so that its peak memory is its own. Times include
no compilation: each process first fits a small table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from gigagp import HGPRegressor

WAYS = ("shared", "auto", "separate", "one by one")
_QUERIES = 20_000


def positions(rows: int, targets: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Angles and lengths of an arm of four segments, and coordinates of the ends of its segments, with noise."""
    rng = np.random.default_rng(seed)
    angles, lengths = rng.uniform(0, 2 * np.pi, (rows, 4)), rng.uniform(0, 1, (rows, 4))
    turned = np.cumsum(angles, axis=1)
    x, y = np.cumsum(lengths * np.cos(turned), axis=1), np.cumsum(lengths * np.sin(turned), axis=1)
    every = np.column_stack([x[:, 3], y[:, 3], x[:, 2], y[:, 2], x[:, 1], y[:, 1]])[:, :targets]
    return np.column_stack([angles, lengths]), every + 0.05 * rng.standard_normal(every.shape)


def _peak_memory(reset: bool = False) -> float:
    """The peak of the memory of this process in MB, on Linux; with `reset`, from now on."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def run(way: str, rows: int, targets: int) -> dict[str, object]:
    """Seconds, peak memory and scores of one way."""
    X, Y = positions(rows + _QUERIES, targets, 0)
    small = HGPRegressor(random_state=0, targets="shared", neighbours=32).fit(X[:3000], Y[:3000])
    small.predict(X[:100], return_std=True)
    HGPRegressor(random_state=0).fit(X[:3000], Y[:3000, 0]).predict(X[:100], return_std=True)
    train, test = (X[:rows], Y[:rows]), (X[rows:], Y[rows:])
    before = _peak_memory(reset=True)
    begun = time.perf_counter()
    if way == "one by one":
        models = [HGPRegressor(random_state=0).fit(train[0], y) for y in train[1].T]
        fitted = time.perf_counter()
        parts = [model.predict(test[0], return_std=True) for model in models]
        mean, std = (np.column_stack(each) for each in zip(*parts, strict=True))
        chosen = "separate"
    else:
        model = HGPRegressor(random_state=0, targets=way).fit(*train)
        fitted = time.perf_counter()
        mean, std = model.predict(test[0], return_std=True)
        chosen = "separate" if model.targets_.shared is None else "shared"
    ended = time.perf_counter()
    errors = test[1] - mean
    return {
        "way": way,
        "chosen": chosen,
        "fit": fitted - begun,
        "predict": ended - fitted,
        "memory": _peak_memory() - before,
        "rmse": np.sqrt((errors**2).mean(axis=0) / test[1].var(axis=0)).tolist(),
        "cover": float((np.abs(errors) < 1.96 * std).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--targets", type=int, default=4, choices=range(2, 7))
    parser.add_argument("--only", choices=WAYS, nargs="*", default=WAYS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.way:
        print(json.dumps(run(arguments.way, rows, arguments.targets)))
        return
    results = []
    print(f"{rows:,} rows, 8 columns, {arguments.targets} targets, {_QUERIES:,} queries, {os.cpu_count()} cores")
    print(f"{'':12} {'fit s':>7} {'predict s':>9} {'peak MB':>8} {'cover':>6}  RMSE / deviation of each target")
    for way in arguments.only:
        command = [sys.executable, __file__, "--way", way, "--rows", str(rows), "--targets", str(arguments.targets)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        each = json.loads(done.stdout.splitlines()[-1])
        results.append(each)
        errors = " ".join(f"{value:.4f}" for value in each["rmse"])
        name = way if way == each["chosen"] or way == "one by one" else f"{way} ({each['chosen']})"
        print(
            f"{name:12} {each['fit']:7.1f} {each['predict']:9.2f} {each['memory']:8.0f} {each['cover']:6.3f}  {errors}"
        )
    if arguments.out:
        arguments.out.write_text(json.dumps({"rows": rows, "results": results}, indent=1))


if __name__ == "__main__":
    main()

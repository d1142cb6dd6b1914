"""Several targets: one fit with a common theta, one fit with a theta each, and one fit per target.

    python benchmarks/targets.py                 # robot arm: 100,000 rows, four targets
    python benchmarks/targets.py --rows 20000 --targets 3
    python benchmarks/targets.py --rows 1e6 --file csv --brief --only separate "one by one"

Targets are positions of the robot arm of `gigagp.datasets`: the coordinates of its joints, which are functions of the
same kind of the same angles. Each way runs in a process of its own, so that its peak memory is its own. Times include
no compilation: each process first fits a small table. With --file the rows are read from a CSV or Parquet file, and
"passes" is how often it was read; --brief fixes kernel and number of neighbours, so that reading is a larger part of a
fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from gigagp import HGPRegressor
from gigagp.data.sources.csv import CsvSource
from gigagp.data.sources.parquet import ParquetSource
from gigagp.kernels import Matern32

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


def _written(X: np.ndarray, Y: np.ndarray, folder: Path, end: str) -> Path:
    """The rows as a file with the columns x0, x1, ..., y0, y1, ..."""
    names = [f"x{d}" for d in range(X.shape[1])] + [f"y{d}" for d in range(Y.shape[1])]
    table, path = pa.table([*X.T, *Y.T], names=names), folder / f"rows.{end}"
    pa.csv.write_csv(table, path) if end == "csv" else pq.write_table(table, path)
    return path


@contextmanager
def _counted_passes() -> Iterator[list[int]]:
    """The number of times that the first rows of a file are read with all inputs, as an only element."""
    count = [0]

    def counting(read: Any) -> Any:
        def batches(self: Any, columns: Any, rows: int, start: int = 0) -> Any:
            count[0] += start == 0 and "x7" in columns
            return read(self, columns, rows, start)

        return batches

    kept = {source: source.batches for source in (CsvSource, ParquetSource)}
    for source, read in kept.items():
        source.batches = counting(read)  # type: ignore[method-assign]
    yield count
    for source, read in kept.items():
        source.batches = read  # type: ignore[method-assign]


def run(way: str, rows: int, targets: int, file: str | None, brief: bool) -> dict[str, object]:
    """Seconds, peak memory and scores of one way."""
    X, Y = positions(rows + _QUERIES, targets, 0)
    small = HGPRegressor(random_state=0, targets="shared", neighbours=32).fit(X[:3000], Y[:3000])
    small.predict(X[:100], return_std=True)
    HGPRegressor(random_state=0).fit(X[:3000], Y[:3000, 0]).predict(X[:100], return_std=True)
    settings: dict[str, Any] = {"random_state": 0, "targets": "separate" if way == "one by one" else way}
    settings |= {"kernel": Matern32(), "neighbours": 32, "method": "neighbourhood"} if brief else {}
    queries, truth = X[rows:], Y[rows:]
    with tempfile.TemporaryDirectory() as folder, _counted_passes() as passes:
        data = (X[:rows], Y[:rows]) if file is None else (_written(X[:rows], Y[:rows], Path(folder), file), None)
        del X, Y
        before = _peak_memory(reset=True)
        begun = time.perf_counter()
        models = _fitted(way, data[0], data[1], targets, settings)
        fitted = time.perf_counter()
        used = _peak_memory() - before
        parts = [model.predict(queries, return_std=True) for model in models]
        ended = time.perf_counter()
    mean, std = (np.column_stack(each) for each in zip(*parts, strict=True))
    errors = truth - mean
    several = getattr(models[0], "targets_", None)
    return {
        "way": way,
        "chosen": "separate" if several is None or several.shared is None else "shared",
        "fit": fitted - begun,
        "predict": ended - fitted,
        "memory": used,
        "passes": passes[0],
        "rmse": np.sqrt((errors**2).mean(axis=0) / truth.var(axis=0)).tolist(),
        "cover": float((np.abs(errors) < 1.96 * std).mean()),
    }


def _fitted(way: str, X: Any, Y: Any, targets: int, settings: dict[str, Any]) -> list[HGPRegressor]:
    """One model of all targets, or one per target."""
    names = [f"y{d}" for d in range(targets)]
    if way != "one by one":
        return [HGPRegressor(**settings).fit(X, names if Y is None else Y)]
    if Y is not None:
        return [HGPRegressor(**settings).fit(X, y) for y in Y.T]
    return [HGPRegressor(**settings).fit(X, name, drop=[n for n in names if n != name]) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--targets", type=int, default=4, choices=range(2, 7))
    parser.add_argument("--only", choices=WAYS, nargs="*", default=WAYS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="file for the results as JSON")
    parser.add_argument("--file", choices=("csv", "parquet"), help="read the rows from a file")
    parser.add_argument("--brief", action="store_true", help="Matérn 3/2 and 32 neighbours, without choices")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.way:
        print(json.dumps(run(arguments.way, rows, arguments.targets, arguments.file, arguments.brief)))
        return
    results = []
    print(f"{rows:,} rows, 8 columns, {arguments.targets} targets, {_QUERIES:,} queries, {os.cpu_count()} cores")
    print(f"{'':12} {'fit s':>7} {'predict s':>9} {'peak MB':>8} {'passes':>6} {'cover':>6}  RMSE / deviation, each")
    for way in arguments.only:
        command = [sys.executable, __file__, "--way", way, "--rows", str(rows), "--targets", str(arguments.targets)]
        command += ["--file", arguments.file] if arguments.file else []
        command += ["--brief"] if arguments.brief else []
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        each = json.loads(done.stdout.splitlines()[-1])
        results.append(each)
        errors = " ".join(f"{value:.4f}" for value in each["rmse"])
        name = way if way == each["chosen"] or way == "one by one" else f"{way} ({each['chosen']})"
        cost = f"{each['fit']:7.1f} {each['predict']:9.2f} {each['memory']:8.0f} {each['passes']:6}"
        print(f"{name:12} {cost} {each['cover']:6.3f}  {errors}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"rows": rows, "results": results}, indent=1))


if __name__ == "__main__":
    main()

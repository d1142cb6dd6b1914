"""Queries from a file against rows from a file: robot arm rows in Parquet, a budget of 2 GB, 64 neighbours.

The files are written first, by this process. A process of its own fits the rows and predicts the queries, mean and
standard deviation, into a third file; its times and its peak resident memory are measured. Errors and the coverage of
95% intervals are then computed from the files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from measure import arguments, bar, save, seconds
from out_of_core import COLUMNS, write

MEMORY = "2GB"
NEIGHBOURS = 64
TRAIN, QUERIES, PREDICTED = "train.parquet", "queries.parquet", "predicted.parquet"


def run(folder: Path) -> dict[str, Any]:
    """What the child process does."""
    settings: dict[str, Any] = {
        "method": "neighbourhood", "neighbours": NEIGHBOURS, "random_state": 0, "n_jobs": 2, "dtype": "float32",
    }  # fmt: skip
    HGPRegressor(**settings).fit(*robot_arm(5000)).predict(robot_arm(10)[0], return_std=True)  # loads compiled code
    model = HGPRegressor(**settings, memory=MEMORY)
    fit = seconds(lambda: model.fit(folder / TRAIN, COLUMNS[-1]))
    fitted = peak_memory()
    predict = seconds(lambda: model.predict_file(folder / QUERIES, folder / PREDICTED))
    return {
        "fit": fit, "stages": model.report_.seconds, "predict": predict, "gb_fit": fitted, "gb": peak_memory(),
        "mapped": model.model_.store.mapped, "scale": float(model.model_.target.scale[0]),
    }  # fmt: skip


def scores(folder: Path, scale: float) -> dict[str, float]:
    """RMSE in standard deviations of the target, and the coverage of 95% intervals if errors were Gaussian."""
    squares, covered, count = 0.0, 0, 0
    truth, predicted = (pq.ParquetFile(folder / name) for name in (QUERIES, PREDICTED))
    batches = (truth.iter_batches(1 << 17, columns=COLUMNS[-1:]), predicted.iter_batches(1 << 17))
    for known, answer in zip(*batches, strict=True):
        errors = answer["mean"].to_numpy() - known[COLUMNS[-1]].to_numpy()
        squares += float(np.sum(errors**2))
        covered += int(np.sum(np.abs(errors) <= 1.96 * answer["std"].to_numpy()))
        count += len(errors)
    return {"rmse": (squares / count) ** 0.5 / scale, "coverage": covered / count, "predicted": count}


def measure(parent: Path | None, rows: int, queries: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        write(folder / TRAIN, rows, seed=1)
        write(folder / QUERIES, queries, seed=2)
        command = [sys.executable, __file__, "--child", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {"rows": rows, "queries": queries, **result, **scores(folder, result["scale"])}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=lambda text: int(float(text)))
    parser.add_argument("--queries", type=lambda text: int(float(text)))
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's temporary folder)")
    parser.add_argument("--child", help="for the program itself")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(Path(options.child))))
        return
    size = 10_000_000 if options.full else 200_000
    found = measure(options.folder, options.rows or size, options.queries or size)
    print(
        f"  {found['queries']:,} queries against {found['rows']:,} rows: fit {found['fit']:.1f} s, "
        f"predictions {found['predict']:.1f} s ({1e6 * found['predict'] / found['queries']:.1f} us per query); peak "
        f"memory {found['gb_fit']:.2f} GB after the fit, {found['gb']:.2f} GB in all; RMSE {found['rmse']:.4f}, 95% "
        f"intervals cover {found['coverage']:.1%}",
        flush=True,
    )
    bars = []
    if found["rows"] >= 10_000_000:  # fewer rows need less than the interpreter and its libraries
        bars.append(bar("peak resident GB, budget 2 GB", found["gb"], 2.3, at_least=False))
        at_full_size = 1e7 * found["predict"] / found["queries"] / 60
        bars.append(bar("minutes for 1e7 queries at this rate", at_full_size, 10.0, at_least=False))
    save("file_to_file", {**found, "memory": MEMORY, "bars": bars})


if __name__ == "__main__":
    main()

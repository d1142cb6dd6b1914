"""Data larger than the memory budget: robot arm rows in a Parquet file, fitted and predicted out of core.

Each size runs in a process of its own; its peak resident memory, the disk its expert store takes at most, and the time
are measured. Predicted are a five-hundredth as many other rows, from file to file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gigagp import HGPRegressor, metrics
from gigagp.datasets import robot_arm, robot_arm_batches
from gigagp.memory import peak_memory
from measure import DiskUse, arguments, bar, save, seconds

COLUMNS = [*(f"joint{d}" for d in range(1, 9)), "distance"]
DTYPE = np.dtype("float32")
SHARE = 500  # rows for one query


def write(path: Path, rows: int, seed: int) -> None:
    """Robot arm rows as a Parquet file, in bounded memory."""
    schema = pa.schema([(name, pa.float64()) for name in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for X, y in robot_arm_batches(rows, seed=seed, batch=1 << 17):
            file.write_batch(pa.record_batch([*(pa.array(c) for c in X.T), pa.array(y)], schema=schema))


def run(folder: Path, rows: int, memory: str) -> dict[str, Any]:
    """What the child process does."""
    HGPRegressor(random_state=0, dtype=DTYPE.name).fit(*robot_arm(300)).predict(robot_arm(10)[0])  # loads compiled code
    disk = DiskUse(folder / "store")
    (folder / "store").mkdir()
    disk.start()
    model = HGPRegressor(random_state=0, dtype=DTYPE.name, memory=memory)
    fit = seconds(lambda: model.fit(folder / "train.parquet", "distance", store=folder / "store"))
    used = disk.stop()
    fitted = peak_memory()
    output = folder / "predicted.parquet"
    predict = seconds(lambda: model.predict_file(folder / "queries.parquet", output))
    truth = pq.read_table(folder / "queries.parquet", columns=["distance"])["distance"].to_numpy()
    predictions = pq.read_table(output, columns=["mean", "std"])
    scale = float(model.model_.target.scale[0])
    mean, std = predictions["mean"].to_numpy(), predictions["std"].to_numpy()
    return {
        "rows": rows, "fit_seconds": fit, "stages": model.report_.seconds, "predict_seconds": predict,
        "queries": len(truth), "peak_gb_fit": fitted, "peak_gb": peak_memory(), "disk_gb": used / 1e9,
        "rows_gb": rows * len(COLUMNS) * DTYPE.itemsize / 1e9, "on_disk": model.model_.store.mapped,
        "rmse": metrics.rmse(truth, mean) / scale, "nlpd": metrics.nlpd(truth, mean, std) - float(np.log(scale)),
    }  # fmt: skip


def measure(parent: Path | None, rows: int, memory: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        start = time.perf_counter()
        write(folder / "train.parquet", rows, seed=1)
        write(folder / "queries.parquet", rows // SHARE, seed=2)
        size = (folder / "train.parquet").stat().st_size
        print(f"  {rows:,} rows written ({size / 1e9:.2f} GB, {time.perf_counter() - start:.0f} s)", flush=True)
        command = [sys.executable, __file__, "--child", name, str(rows), memory]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print("  " + ", ".join(f"{k} {v:.4g}" for k, v in row.items() if isinstance(v, int | float)), flush=True)
    print("  stages: " + ", ".join(f"{k} {v:.1f} s" for k, v in row["stages"].items()), flush=True)
    return row


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's temporary folder)")
    parser.add_argument("--child", nargs=3, help="for the program itself")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(Path(options.child[0]), int(options.child[1]), options.child[2])))
        return
    sizes, memory = ((5_000_000, 50_000_000), "2GB") if options.full else ((500_000, 5_000_000), "200MB")
    small, large = (measure(options.folder, rows, memory) for rows in sizes)
    per_row = [(r["fit_seconds"] + r["predict_seconds"]) / r["rows"] for r in (small, large)]
    what = f"{large['rows']:,} rows"
    bars = [
        bar(f"seconds per row over those of {small['rows']:,} rows", per_row[1] / per_row[0], 1.15, at_least=False),
        bar(f"{what}: disk over the rows' own size", large["disk_gb"] / large["rows_gb"], 1.2, at_least=False),
    ]
    if options.full:  # the interpreter and its libraries alone are larger than the quick run's budget
        bars.insert(0, bar(f"{what}: peak resident GB, budget 2GB", large["peak_gb"], 2.3, at_least=False))
    save("out_of_core", {"memory": memory, "rows": [small, large], "bars": bars})


if __name__ == "__main__":
    main()

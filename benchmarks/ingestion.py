"""How fast rows are ingested: read from Parquet twice, scanned, sorted into cells and written to a store on disk.

    python benchmarks/ingestion.py --rows 1e7 --folder /where/there/is/space

Rows of 8 columns and a target in float32, uncompressed, are ingested with a budget of 2 GB by one and by two workers
(threads), each in a process of its own; the source is removed from the page cache before. Beside the rate, the seconds
of processors tell what a run would cost on an idle machine: divide them by the number of workers. Bytes written are
those of the process, so that temporary files count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gigagp import memory
from gigagp.data.copies import CopySearch
from gigagp.data.scaled import StreamedRows, scaled_targets
from gigagp.data.scan import Sample, Scan
from gigagp.data.sources import open_rows
from gigagp.data.sphere import InputScaling
from gigagp.engines import Engine, open_engine
from gigagp.fit.scanning import scan_rows
from gigagp.fit.store_writer import DiskStorage, write_store
from gigagp.partition import Shape, partitioner
from measure import arguments, bar, bytes_written, save

COLUMNS = 8
ROW_GROUP = 1 << 20
SEED = 22
STAGES = ("scan", "store")
FEW = 1 << 19  # rows of the first run, which loads compiled code


def write(path: Path, rows: int) -> None:
    """Random rows as Parquet."""
    schema = pa.schema([(name, pa.float32()) for name in [*(f"x{d}" for d in range(COLUMNS)), "y"]])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first in range(0, rows, ROW_GROUP):
            rng = np.random.default_rng([SEED, first])
            X = rng.random((min(ROW_GROUP, rows - first), COLUMNS), dtype=np.float32)
            file.write_table(pa.table([*np.ascontiguousarray(X.T), X.sum(axis=1)], schema=schema))


def uncached(path: Path) -> None:
    """Remove a file from the page cache, where the system allows it."""
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def store_rows(data: Scan, rows: Any, folder: Path, budget: int, engine: Engine) -> None:
    """Sort all rows into cells of a store, as a fit does whose length-scales are equal."""
    inputs, target, dtype = InputScaling(data.inputs.scaling()), data.target.scaling(), np.dtype("float32")
    some = data.sample
    sample = Sample(some.keys, some.rows, inputs.apply(some.X, dtype), scaled_targets(some.y, target, dtype))
    streamed = StreamedRows(rows, data.rows, inputs, target, dtype)
    write_store(
        partitioner("local"), streamed, Shape(None, None, None, None), np.ones(COLUMNS), sample, SEED,
        np.random.default_rng(SEED), DiskStorage(folder / "store", budget, "benchmark"), engine,
    )  # fmt: skip


def ingest(path: Path, folder: Path, budget: int, workers: int) -> dict[str, Any]:
    """Scan and store, with wall and processor seconds of each."""
    folder.mkdir()
    rows, result, before = open_rows(path, target="y"), {}, bytes_written()
    with open_engine("threads", workers) as engine:
        for stage in STAGES:
            start, busy = time.perf_counter(), time.process_time()
            if stage == "scan":
                data = scan_rows(rows, SEED, None, engine, lambda done: None, CopySearch(budget // 8, rows.n_rows))
            else:
                store_rows(data, rows, folder, budget, engine)
            result |= {stage: time.perf_counter() - start, f"{stage}_cpu": time.process_time() - busy}
    size = data.rows * 4 * (COLUMNS + 1)
    stored = sum(file.stat().st_size for file in (folder / "store").iterdir())
    result |= {"written_over_rows": (bytes_written() - before) / size, "store_over_rows": stored / size}
    shutil.rmtree(folder)
    return result


def run(path: Path, budget: int, workers: int) -> dict[str, Any]:
    """What a child process does."""
    with tempfile.TemporaryDirectory(prefix="ingestion-", dir=path.parent) as name:
        few = Path(name) / "few.parquet"
        write(few, FEW)
        ingest(few, Path(name) / "few", budget, workers)
        uncached(path)
        return {"workers": workers, **ingest(path, Path(name) / "all", budget, workers)}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=float, default=2e6, help="number of rows (--full: 2e7)")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where all files go")
    parser.add_argument("--child", nargs=2, help="for the program itself")
    options = parser.parse_args()
    budget = memory.budget(options.memory)
    if options.child:
        path, workers = options.child
        print(json.dumps(run(Path(path), budget, int(workers))))
        return
    rows, measured = int(2e7 if options.full else options.rows), []
    with tempfile.TemporaryDirectory(prefix="ingestion-", dir=options.folder) as name:
        path = Path(name) / "rows.parquet"
        write(path, rows)
        for workers in (1, 2):
            command = [sys.executable, __file__, "--child", str(path), str(workers), "--memory", options.memory]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
            print("  " + ", ".join(f"{k} {v:.4g}" for k, v in measured[-1].items()), flush=True)
    one, two = (sum(each[stage] for stage in STAGES) for each in measured)
    busy = sum(measured[1][f"{stage}_cpu"] for stage in STAGES)
    bars = [
        bar("million rows per second, two workers", rows / two / 1e6, 2.5, at_least=True),
        bar("the same by CPU time of two workers", 2 * rows / busy / 1e6, 2.5, at_least=True),
        bar("two workers over one", one / two, 1.7, at_least=True),
        bar("bytes written over those of the rows", measured[1]["written_over_rows"], 2.2, at_least=False),
        bar("bytes of the store over those of the rows", measured[1]["store_over_rows"], 1.05, at_least=False),
    ]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    save("ingestion", {"rows": rows, "memory": options.memory, "load": load, "runs": measured, "bars": bars})


if __name__ == "__main__":
    main()

"""A model of up to a billion rows on one machine: rows in Parquet, three inputs and a target in float32.

    python benchmarks/billion.py --sizes 1e6,1e7,1e8 --memory 4GB --folder /where/there/is/space

For each size, rows of a known function with Gaussian noise are written to Parquet files; a process of its own fits
them, saves the model, opens it again and answers scattered queries. Seconds per stage, peak memory and disk use are
measured, and errors, density and coverage are computed against the known truth. Where others use the machine too,
seconds of processors and the load tell more than wall times. Sizes that were measured before (by
the same commit, on the same machine) are read from the results, unless --again is given, so that an interrupted run
can be continued. All files of a size are removed before the next.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gigagp
from gigagp import HGPRegressor, metrics
from gigagp.arrays import Array
from gigagp.memory import peak_memory
from measure import RESULTS, DiskUse, Resident, arguments, bar, bytes_written, save, seconds

COLUMNS = ["x0", "x1", "x2"]
TARGET = "y"
NOISE = 0.2  # standard deviation
ROWS_PER_FILE = 1 << 24
ROW_GROUP = 1 << 20
QUERIES = 1_000_000
FIRST_QUERIES = 1_000  # of the model that has just been opened
INGESTION = ("scan", "store", "sort")  # stages in which rows are read and sorted
NEEDED = 2.4  # bytes on the disk per byte of the rows: source, store with what is being sorted, boxes of the model


def truth(X: Array) -> Array:
    """A function with details of several sizes, between about -2 and 2."""
    a, b, c = X.T
    return np.asarray(np.sin(9 * a + 2 * np.sin(5 * b)) + 0.6 * np.cos(12 * b * c + 4 * a) + 0.4 * np.sin(25 * c))


def rows_of(first: int, count: int) -> tuple[Array, Array]:
    """Rows first, first + 1, ..: inputs in the unit cube and noisy targets, the same whenever they are made."""
    rng = np.random.default_rng([22, first])
    X = rng.random((count, len(COLUMNS)), dtype=np.float32)
    y = truth(X) + NOISE * rng.standard_normal(count, dtype=np.float32)
    return X, y.astype(np.float32)


def write_file(path: Path, start: int, stop: int) -> None:
    """Some rows as a Parquet file."""
    schema = pa.schema([(name, pa.float32()) for name in [*COLUMNS, TARGET]])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as file:
        for first in range(start, stop, ROW_GROUP):
            X, y = rows_of(first, min(ROW_GROUP, stop - first))
            file.write_table(pa.table([*np.ascontiguousarray(X.T), y], schema=schema))


def write(folder: Path, rows: int) -> None:
    """The rows as Parquet files, written by as many processes as there are processors."""
    folder.mkdir()
    starts = range(0, rows, ROWS_PER_FILE)
    paths = [folder / f"{number:04d}.parquet" for number in range(len(starts))]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(write_file, paths, starts, [min(start + ROWS_PER_FILE, rows) for start in starts]))


def queries(count: int) -> tuple[Array, Array, Array]:
    """Scattered queries, the true function there, and noisy observations."""
    rng = np.random.default_rng(2222)
    X = rng.random((count, len(COLUMNS)), dtype=np.float32)
    f = truth(X)
    return X, f, f + NOISE * rng.standard_normal(count)


class Stages:
    """A listener that keeps the seconds of the stages that read rows, and reports all stages as they end."""

    def __init__(self, resident: Resident) -> None:
        self.seconds: dict[str, float] = {}
        self._resident, self._last = resident, ""

    def __call__(self, event: Any) -> None:
        if event.stage in INGESTION:
            self.seconds[event.stage] = event.seconds
        if event.stage != self._last:
            self.enter(event.stage)
        if event.finished:
            told = f"{event.seconds:.0f} s, processors {time.process_time():.0f} s, peak so far {peak_memory():.2f} GB"
            print(
                f"  {event.stage} ended: {told}; {self._resident.described(event.stage)}", file=sys.stderr, flush=True
            )

    def enter(self, stage: str) -> None:
        """The memory of the process is that of this stage from now on."""
        self._resident.stage = self._last = stage


def reopened(folder: Path, Z: Array, expected: Array) -> list[float]:
    """Seconds to open a saved model and to answer its first query, trusted and verified."""
    opening: list[float] = []
    for verify in ("nothing", True):
        start = time.perf_counter()
        opened = gigagp.load(folder, verify=verify)
        middle = time.perf_counter()
        opened.predict(Z[:1])
        opening += [middle - start, time.perf_counter() - middle]
        again, _ = opened.predict(Z[:FIRST_QUERIES], return_std=True)
        assert (again == expected[:FIRST_QUERIES]).all()
    return opening


def run(folder: Path, rows: int, memory: str, asked: int, engine: str) -> dict[str, Any]:
    """What the child process does: everything that is measured."""
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    settings: dict[str, Any] = {"random_state": 0, "dtype": "float32", "engine": engine}
    X, y = rows_of(0, 20_000)
    HGPRegressor(**settings).fit(X, y).predict(X[:10], return_std=True)  # loads compiled code
    resident, disk = Resident(), DiskUse(folder)
    stages = Stages(resident)
    model = HGPRegressor(**settings, memory=memory)
    (folder / "store").mkdir()
    disk.start()
    resident.start()
    before, busy = bytes_written(), time.process_time()
    fit = seconds(lambda: model.fit(folder / "rows", TARGET, store=folder / "store", progress=stages))
    written, fit_cpu = bytes_written() - before, time.process_time() - busy
    peak_fit, busy = peak_memory(), time.process_time()
    stages.enter("queries")
    Z, f, observed = queries(asked)
    answers: list[Array] = []
    predict = seconds(lambda: answers.extend(model.predict(Z, return_std=True)))
    predict_cpu = time.process_time() - busy
    stages.enter("save and load")
    save_seconds = seconds(lambda: model.save(folder / "model"))
    mapped, report, tree = model.model_.store.mapped, model.report_, model.model_.neighbourhood.tree
    opening = reopened(folder / "model", Z, answers[0])
    memory_of_stages = resident.stop()
    mean, std = answers
    size = rows * 4 * (len(COLUMNS) + 1)
    ingestion = stages.seconds.get("scan", 0.0) + report.seconds["partition and store"]
    return {
        "rows": rows, "fit": fit, "fit_cpu": fit_cpu, "predict_cpu": predict_cpu, "load": os.getloadavg()[0],
        "ingested_per_second": rows / ingestion, "ingestion": stages.seconds,
        "stages": report.seconds, "predict": predict, "queries": asked, "save": save_seconds,
        "tree_bytes_per_row": tree.nbytes / rows, "neighbours": model.model_.neighbourhood.description,
        "open_ms": 1e3 * opening[0], "first_query_ms": 1e3 * opening[1], "open_verified": opening[2],
        "peak_gb_fit": peak_fit, "peak_gb": peak_memory(), "resident": memory_of_stages, "mapped": mapped,
        "rows_gb": size / 1e9,
        "disk_over_rows": disk.stop() / size, "written_over_rows": written / size,
        "rmse_to_truth": metrics.rmse(f, mean), "rmse": metrics.rmse(observed, mean),
        "nlpd": metrics.nlpd(observed, mean, std),
        "nlpd_of_truth": metrics.nlpd(observed, f, np.full(asked, NOISE)),
        "coverage_95": float(np.mean(np.abs(observed - mean) <= 1.959964 * std)),
        "choices": [f"{choice}" for choice in report.choices if choice.chosen],
    }  # fmt: skip


def measure(parent: Path, rows: int, options: Any) -> dict[str, Any]:
    """One size, in a folder of its own that is removed in the end."""
    free, needed = shutil.disk_usage(parent).free, NEEDED * 16 * rows
    if needed > free:
        raise SystemExit(f"{rows:.0e} rows need about {needed / 1e9:.0f} GB in {parent}; {free / 1e9:.0f} GB are free")
    with tempfile.TemporaryDirectory(prefix="billion-", dir=parent) as name:
        start = time.perf_counter()
        write(Path(name) / "rows", rows)
        print(f"{rows:.0e} rows written in {time.perf_counter() - start:.0f} s", flush=True)
        if options.drop_caches:
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("1")
        command = [sys.executable, __file__, "--child", name, str(rows), options.memory]
        command += ["--queries", str(options.queries), "--engine", options.engine]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print("  " + ", ".join(f"{k} {v:.4g}" for k, v in row.items() if isinstance(v, int | float)), flush=True)
    for name in ("ingestion", "stages"):
        print(f"  {name}: " + ", ".join(f"{k} {v:.1f} s" for k, v in row[name].items()), flush=True)
    for stage, peaks in row["resident"].items():
        print(f"  memory of {stage}: " + ", ".join(f"{k} {v:.2f} GB" for k, v in peaks.items()), flush=True)
    return row


def bars(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the largest size must reach."""
    last = measured[-1]
    total = last["fit"] + last["predict"] + last["save"]
    found = [
        bar(f"{last['rows']:.0e} rows: minutes in all", total / 60, 60, at_least=False),
        bar("opening the model and one query, ms", last["open_ms"] + last["first_query_ms"], 50, at_least=False),
        bar("peak resident GB (budget 4 GB)", last["peak_gb"], 4.0, at_least=False),
        bar("bytes written over the rows' own size, in a fit", last["written_over_rows"], 2.2, at_least=False),
    ]
    reference = next((each for each in measured if each["rows"] == 10**7), None)
    if reference is not None and reference is not last:
        for kind, what in (("fit", "seconds"), ("fit_cpu", "CPU seconds")):
            per_row = [each[kind] / each["rows"] for each in (reference, last)]
            name = f"{what} of a fit per row over those of 1e7 rows"
            found.append(bar(name, per_row[1] / per_row[0], 1.2, at_least=False))
    return found


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--sizes", default="1e5,1e6", help="numbers of rows, ascending (--full: 1e6 to 1e9)")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where all files go")
    parser.add_argument("--again", action="store_true", help="measure sizes that are among the results again")
    parser.add_argument("--drop-caches", action="store_true", help="drop the page cache before a fit (needs root)")
    parser.add_argument("--child", nargs=3, help="for the program itself")
    options = parser.parse_args()
    if options.child:
        folder, rows, memory = options.child
        print(json.dumps(run(Path(folder), int(rows), memory, options.queries, options.engine)))
        return
    sizes = [int(float(size)) for size in ("1e6,1e7,1e8,1e9" if options.full else options.sizes).split(",")]
    known = RESULTS / "billion.json"
    content = json.loads(known.read_text()) if known.exists() and not options.again else {}
    same = content.get("memory") == options.memory and content.get("engine") == options.engine
    before = {row["rows"]: row for row in content.get("sizes", [])} if same else {}
    measured: list[dict[str, Any]] = []
    for size in sizes:
        measured.append(before.get(size) or measure(options.folder, size, options))
        result = {"memory": options.memory, "engine": options.engine, "sizes": measured}
        save("billion", {**result, "bars": bars(measured) if size == sizes[-1] else []})


if __name__ == "__main__":
    main()

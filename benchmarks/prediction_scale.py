"""Files of queries against models of the same size: rows of `billion.py`, three inputs and a target in float32.

    python benchmarks/prediction_scale.py --rows 1e7 --queries 1e7 --memory 2GB --folder /where/there/is/space
    python benchmarks/prediction_scale.py --rows 1e6 --queries 1e6 --compare processes,dask --repeats 3

The rows are fitted and saved once, by a process of its own; a folder that is given with --keep keeps model and queries
for further runs. Another process then opens the model, trusted and mapped, and predicts the queries from file to file;
before this, all files are dropped from the page cache. Measured are the time of this call, the bytes that the disk
reads, and the peak memory of all its processes together (proportional set size: pages that processes share count once).
With --compare one and two workers of each engine take turns, and the medians are compared: of seconds, and of CPU time,
which shows on a busy machine whether two workers have more to do than one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import gigagp
from billion import COLUMNS, NOISE, ROW_GROUP, TARGET, rows_of, truth, write
from gigagp import HGPRegressor
from measure import arguments, bar, save, seconds

BAR_WORKERS = 1.7  # two workers over one
QUERIES, ROWS, MODEL, PREDICTED = "queries", "rows", "model", "predicted.parquet"
SCORED = 1_000_000  # queries that are compared with the truth
WARM_UP = 4096  # queries that are predicted first, so that processes are started and code is loaded


class Watch(threading.Thread):
    """Peak memory, and bytes read from the disk, of a process and its children, measured twice per second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._over = 0, threading.Event()
        self._reads: dict[int, int] = {}
        self._seconds: dict[int, float] = {}

    def run(self) -> None:
        while not self._over.wait(0.5):
            self.look()

    def look(self) -> None:
        own, total = psutil.Process(), 0
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
                self._reads[process.pid] = process.io_counters().read_bytes
                self._seconds[process.pid] = sum(process.cpu_times()[:2])
        self.peak = max(self.peak, total)

    def used(self) -> np.ndarray[Any, Any]:
        """Bytes read and seconds of CPU time so far."""
        self.look()
        return np.array([sum(self._reads.values()), sum(self._seconds.values())])

    def stop(self) -> None:
        self._over.set()
        self.join()


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the pages of all files below a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def fit(folder: Path, memory: str) -> dict[str, Any]:
    """Fit the rows and save the model."""
    model = HGPRegressor(random_state=0, dtype="float32", memory=memory)
    took = seconds(lambda: model.fit(folder / ROWS, TARGET, store=folder))
    model.save(folder / MODEL)
    return {"fit": took, "choices": [f"{choice}" for choice in model.report_.choices if choice.chosen]}


def predict(folder: Path, memory: str, engine: str, workers: int) -> dict[str, Any]:
    """Predict the queries with the saved model, from file to file."""
    output, few = folder / f"{engine}{workers}-{PREDICTED}", folder / "few.npy"
    np.save(few, np.random.default_rng(0).random((WARM_UP, len(COLUMNS)), dtype=np.float32))
    drop_from_cache(folder)
    model = gigagp.load(folder / MODEL, verify="nothing").set_params(n_jobs=workers, memory=memory)
    predictor = model.set_params(engine=engine).predictor_
    with predictor.engine() as opened:
        model.set_params(engine=opened)
        model.predict_file(few, folder / f"few-{engine}{workers}.parquet", overwrite=True)
        watch = Watch()
        watch.start()
        before = watch.used()
        took = seconds(lambda: model.predict_file(folder / QUERIES, output, overwrite=True))
        read, cpu = watch.used() - before
        watch.stop()
    near = model.model_.neighbourhood
    assert near is not None
    return {
        "engine": engine, "workers": workers, "seconds": took, "cpu_seconds": float(cpu), "read_gb": float(read) / 1e9,
        "peak_gb": watch.peak / 1e9, "neighbours": near.neighbours, "kernels": len(near.members), "output": str(output),
    }  # fmt: skip


def scores(folder: Path, output: Path) -> dict[str, float]:
    """RMSE to the truth and coverage of 95% intervals, from the first queries; whether all rows are there."""
    mean, std = (pq.read_table(output, columns=[name])[name].to_numpy()[:SCORED] for name in ("mean", "std"))
    first = pq.read_table(sorted((folder / QUERIES).iterdir())[0]).slice(0, len(mean))
    f, y = truth(np.column_stack([first[name] for name in COLUMNS])), first[TARGET].to_numpy()
    return {
        "rmse_to_truth": float(np.sqrt(np.mean((mean - f) ** 2))), "noise": NOISE,
        "coverage_95": float(np.mean(np.abs(y - mean) <= 1.959964 * std)),
        "predicted": pq.ParquetFile(output).metadata.num_rows,
    }  # fmt: skip


def child(*words: str) -> dict[str, Any]:
    """What a process of its own prints."""
    command = [sys.executable, __file__, "--child", *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(folder: Path, memory: str, engines: list[str], repeats: int) -> dict[str, Any]:
    """Seconds of one and two workers in turn."""
    results: dict[str, Any] = {}
    for engine in engines:
        runs: dict[str, list[tuple[float, float]]] = {"1": [], "2": []}
        for _ in range(repeats):
            for workers, taken in runs.items():
                done = child("predict", str(folder), memory, engine, workers)
                taken.append((done["seconds"], done["cpu_seconds"]))
                print(f"  {engine}, {workers} workers: {taken[-1][0]:.1f} s, CPU time {taken[-1][1]:.1f} s", flush=True)
        one, two = ([statistics.median(each) for each in zip(*taken, strict=True)] for taken in runs.values())
        ratio, cpu = one[0] / two[0], one[1] / two[1]
        print(f"  CPU time of one {engine} worker over that of two: {cpu:.2f} (1 if nothing is lost)", flush=True)
        result = bar(f"two {engine} workers over one", ratio, BAR_WORKERS, at_least=True)
        results[engine] = {"seconds_and_cpu": runs, "cpu_ratio": cpu, **result}
    return results


def prepare(folder: Path, rows: int, queries: int, memory: str) -> dict[str, Any]:
    """Write rows and queries, and fit the model, unless they are there."""
    about = folder / f"about-{rows}-{queries}.json"
    if not about.exists():
        write(folder / ROWS, rows)
        write_queries(folder / QUERIES, -(-rows // ROW_GROUP) * ROW_GROUP, queries)
        about.write_text(json.dumps(child("fit", str(folder), memory)))
    result: dict[str, Any] = json.loads(about.read_text())
    return result


def write_queries(folder: Path, first: int, count: int) -> None:
    """Rows after those of the fit, with their targets, as Parquet files of one row group each."""
    folder.mkdir()
    for start in range(0, count, ROW_GROUP):
        X, y = rows_of(first + start, min(ROW_GROUP, count - start))
        table = pa.table([*np.ascontiguousarray(X.T), y], names=[*COLUMNS, TARGET])
        pq.write_table(table, folder / f"{start:012}.parquet", compression="none", use_dictionary=False)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=lambda text: int(float(text)))
    parser.add_argument("--queries", type=lambda text: int(float(text)))
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's temporary folder)")
    parser.add_argument("--keep", type=Path, help="a folder whose model and queries are kept, and used if present")
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--compare", default="", help="engines of which one and two workers are compared: a,b")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", nargs="*", help="for the program itself")
    options = parser.parse_args()
    if options.child:
        what, folder, memory, *rest = options.child
        done = fit(Path(folder), memory) if what == "fit" else predict(Path(folder), memory, rest[0], int(rest[1]))
        print(json.dumps(done))
        return
    size = 10_000_000 if options.full else 200_000
    rows, queries = options.rows or size, options.queries or size
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        result: dict[str, Any] = {"rows": rows, "queries": queries, "memory": options.memory}
        result |= prepare(folder, rows, queries, options.memory)
        engines = [each for each in options.compare.split(",") if each]
        if engines:
            result["compared"] = compare(folder, options.memory, engines, options.repeats)
        else:
            result |= child("predict", str(folder), options.memory, options.engine, "2")
            result |= scores(folder, Path(result["output"]))
            per_query = 1e6 * result["seconds"] / queries
            print(
                f"  {queries:,} queries against {rows:,} rows, {result['neighbours']} neighbours, {result['kernels']} "
                f"kernel(s), two {options.engine}: {result['seconds']:.1f} s ({per_query:.1f} us per query), "
                f"{result['read_gb']:.2f} GB read, peak {result['peak_gb']:.2f} GB; 1e8 queries at this rate: "
                f"{1e2 * per_query / 3600:.2f} hours; coverage {result['coverage_95']:.1%}",
                flush=True,
            )
            assert result["predicted"] == queries
    save("prediction_scale" + ("_compared" if engines else ""), result)


if __name__ == "__main__":
    main()

"""Updates: how fast rows are learnt, how long a prediction takes meanwhile, and what the order of arrival costs.

rate: rows of the robot arm arrive in chunks of 10,000 as fast as the model learns them, from 100,000 to a million rows
(ten million with --full); 256 rows of each chunk are predicted before they are learnt.
latency: 50,000 rows arrive per second, while another thread predicts one row at a time, with its deviation.
durable: the same rate through the log of a saved model, and the bytes per row that the folder takes.
agreement: predictions of the model whose rows have arrived in chunks, against those of the same rows sorted at once.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.memory import peak_memory
from measure import arguments, bar, save

FIRST = 100_000  # rows that the model is fitted to
CHUNK = 10_000  # rows
PACE = 50_000  # rows per second while latency is measured
PAUSE = 0.002  # seconds between two predictions


def fitted() -> HGPRegressor:
    X, y = robot_arm(FIRST)
    model = HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=64, random_state=0, n_jobs=1)
    model.fit(X, y)
    model.partial_fit(X[:10] + 1e-6, y[:10])  # loads the compiled code
    model.predict(X[:1], return_std=True)
    return model


def chunks(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows that arrive; all of them are different."""
    for start in range(0, rows, CHUNK):
        yield robot_arm(CHUNK, seed=1 + start // CHUNK)


def resident_memory() -> int:
    """Bytes of memory that the process has at present."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def learn(model: HGPRegressor, rows: int) -> dict[str, Any]:
    """Learn so many rows; the time to make them does not count."""
    spent, longest, done, trace = 0.0, 0.0, 0, []
    for X, y in chunks(rows):
        start = time.perf_counter()
        model.partial_fit(X, y)
        took = time.perf_counter() - start
        spent, longest, done = spent + took, max(longest, took), done + len(y)
        if done % max(CHUNK, rows // 10) < CHUNK:
            trace.append({"rows": done, "rate": done / spent, "memory": resident_memory()})
            print(f"  {done:>10,} rows, {done / spent:,.0f} rows/s so far", flush=True)
    return {"rows": rows, "rate": rows / spent, "longest_call": longest, "trace": trace}


def latency(model: HGPRegressor, seconds: float) -> dict[str, float]:
    """Milliseconds of predictions of one row while rows arrive at a steady pace."""
    queries, _ = robot_arm(10_000, seed=99)
    ended, times = threading.Event(), []

    def predict() -> None:
        for number in range(1 << 30):
            if ended.is_set():
                return
            query = queries[number % len(queries)][None, :]
            start = time.perf_counter()
            model.predict(query, return_std=True)
            times.append(time.perf_counter() - start)
            time.sleep(PAUSE)

    reader = threading.Thread(target=predict)
    reader.start()
    begin, done = time.perf_counter(), 0
    for X, y in chunks(int(PACE * seconds)):
        model.partial_fit(X, y)
        done += len(y)
        time.sleep(max(0.0, begin + done / PACE - time.perf_counter()))
    rate = done / (time.perf_counter() - begin)
    ended.set()
    reader.join()
    p50, p99, p999 = np.percentile(1e3 * np.array(times), [50, 99, 99.9])
    result = {"rate": rate, "p50": float(p50), "p99": float(p99), "p999": float(p999), "predictions": len(times)}
    print(f"  at {rate:,.0f} rows/s: p50 {p50:.2f}, p99 {p99:.2f}, p99.9 {p999:.2f} ms", flush=True)
    return result


def agreement(model: HGPRegressor) -> dict[str, float]:
    """How far predictions are from those of the same rows sorted at once, in predicted deviations."""
    queries, _ = robot_arm(5000, seed=98)
    mean, std = model.predict(queries, return_std=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")  # sorts all rows at once
    sorted_mean, _ = model.predict(queries, return_std=True)
    apart = np.abs(mean - sorted_mean) / std
    return {"mean": float(apart.mean()), "p99": float(np.percentile(apart, 99))}


def durable(model: HGPRegressor, rows: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        with HGPRegressor.open(Path(folder) / "model") as opened:
            before = bytes_of(Path(folder))
            result = learn(opened, rows)
            result["log_bytes_per_row"] = (bytes_of(Path(folder)) - before) / rows
            opened.compact()
            result["folder_bytes_per_row"] = bytes_of(Path(folder)) / opened.n_rows_
            return result


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", choices=("rate", "latency", "durable"), help="one of the parts")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    bars = []
    model = fitted()
    if options.only in (None, "latency"):
        print("latency", flush=True)
        result["latency"] = latency(model, 40 if options.full else 10)
        bars.append(bar("one-row prediction while rows arrive, p99 (ms)", result["latency"]["p99"], 2, at_least=False))
    if options.only in (None, "durable"):
        print("durable", flush=True)
        result["durable"] = durable(fitted(), 1_000_000 if options.full else 200_000)
        bars.append(bar("rows/s through the log", result["durable"]["rate"], 50_000, at_least=True))
    if options.only in (None, "rate"):
        print("rate", flush=True)
        model = fitted()
        result["rate"] = learn(model, 10_000_000 if options.full else 1_000_000)
        result["rate"]["peak_memory"] = peak_memory()
        result["agreement"] = agreement(model)
        print(f"  agreement: {result['agreement']}", flush=True)
        bars.append(bar("rows/s learnt", result["rate"]["rate"], 50_000, at_least=True))
    save("online" if options.only is None else f"online_{options.only}", {**result, "bars": bars})


if __name__ == "__main__":
    main()

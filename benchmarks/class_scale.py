"""HGPClassifier at scale: many rows out of core, and the cost of ten classes compared with two.

    python benchmarks/class_scale.py rows     # 2 million rows of a Parquet file, sorted on disk; at most 2 GB in all
    python benchmarks/class_scale.py classes  # seconds of fit and prediction with two and with ten classes

rows: whether the tip of the robot arm of `gigagp.datasets` is nearer than the median, with 5% of the labels exchanged,
so that the best possible log loss is known: .199. The rows fit into 2 GB; the fit is given a budget that they exceed,
and the process as a whole, with interpreter and compiled code, must stay below 2 GB. It writes predictions of another
file, and its peak resident memory is measured. classes: the distance in two or ten classes of equal size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gigagp import HGPClassifier
from gigagp.datasets import robot_arm, robot_arm_batches
from gigagp.memory import peak_memory
from measure import bar, seconds

ROWS, QUERIES = 2_000_000, 10_000
MEMORY = "150MB"  # budget of the fit: less than the 104 bytes per row that a fit in memory would take
MOST_GB = 2.0  # of the process
EXCHANGED = 0.05  # share of the labels
COLUMNS = [f"joint{d}" for d in range(1, 9)]
CLASS_ROWS, CLASS_QUERIES = 20_000, 2_000


def write(path: Path, rows: int, seed: int) -> None:
    """Joints and labels as a Parquet file, in bounded memory."""
    middle = float(np.median(robot_arm(10_000)[1]))
    rng = np.random.default_rng(seed)
    schema = pa.schema([*((name, pa.float64()) for name in COLUMNS), ("reach", pa.string())])
    with pq.ParquetWriter(path, schema) as file:
        for X, y in robot_arm_batches(rows, seed=seed, batch=1 << 17):
            near = (y < middle) != (rng.random(len(y)) < EXCHANGED)
            columns = [*(pa.array(c) for c in X.T), pa.array(np.where(near, "near", "far"))]
            file.write_batch(pa.record_batch(columns, schema=schema))


def child(folder: Path) -> dict[str, Any]:
    """Fit, predict file to file, and evaluate, in a process of its own."""
    X, y = robot_arm(300)
    HGPClassifier(random_state=0, dtype="float32").fit(X, y > np.median(y)).predict(X[:10])  # loads compiled code
    before = peak_memory()
    model = HGPClassifier(random_state=0, dtype="float32", memory=MEMORY)
    fit = seconds(lambda: model.fit(folder / "train.parquet", "reach", store=folder))
    fitted = peak_memory()
    predict = seconds(lambda: model.predict_file(folder / "queries.parquet", folder / "predicted.parquet"))
    scores = model.evaluate(folder / "queries.parquet")
    return {
        "peak GB before": before, "peak GB of the fit": fitted, "peak GB": peak_memory(), "fit seconds": fit,
        "predict seconds": predict, "log loss": scores.log_loss, "accuracy": scores.accuracy,
        "calibration error": scores.calibration_error, "rows on disk": model.model_.store.mapped,
        "neighbours": model.model_.neighbourhood.neighbours if model.model_.neighbourhood else 0,
        "stages": {name: round(spent, 1) for name, spent in model.report_.seconds.items()},
    }  # fmt: skip


def many_rows(rows: int, parent: Path | None) -> None:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        write(folder / "train.parquet", rows, seed=1)
        write(folder / "queries.parquet", QUERIES, seed=2)
        command = [sys.executable, __file__, "--child", name]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    best = -(EXCHANGED * np.log(EXCHANGED) + (1 - EXCHANGED) * np.log(1 - EXCHANGED))
    print(f"{rows:,} rows, budget {MEMORY}, {QUERIES:,} queries; best possible log loss {best:.4f}")
    bar("peak GB of the process", result["peak GB"], MOST_GB, at_least=False)
    bar("whether rows are on disk", float(result["rows on disk"]), 1.0, at_least=True)
    for key, value in result.items():
        print(f"  {key}: {value:.4g}" if isinstance(value, float) else f"  {key}: {value}")


def many_classes() -> None:
    X, y = robot_arm(CLASS_ROWS + CLASS_QUERIES)
    edges = {number: np.quantile(y, np.arange(1, number) / number) for number in (2, 10)}
    HGPClassifier(random_state=0).fit(X[:300], np.digitize(y[:300], edges[2])).predict(X[:10])  # loads compiled code
    spent = {}
    for number, cuts in edges.items():
        codes = np.digitize(y, cuts)
        # The same neighbours for both, since the number that is chosen changes the cost more than classes do.
        model = HGPClassifier(neighbours=128, random_state=0)
        fit = seconds(lambda m=model, c=codes: m.fit(X[:CLASS_ROWS], c[:CLASS_ROWS]))
        predict = seconds(lambda m=model: m.predict_proba(X[CLASS_ROWS:]))
        loss = model.evaluate(X[CLASS_ROWS:], codes[CLASS_ROWS:]).log_loss
        spent[number] = np.array([fit, predict])
        print(f"{number} classes: fit {fit:.1f} s, prediction {predict:.2f} s, log loss {loss:.4f}", flush=True)
    ratios = spent[10] / spent[2]
    print(f"ten classes over two: fit {ratios[0]:.1f}, prediction {ratios[1]:.1f} (bar 12)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["rows", "classes"], help="some of: rows, classes")
    parser.add_argument("--rows", type=float, default=ROWS)
    parser.add_argument("--folder", type=Path, help="where the files go (default: the system's temporary folder)")
    parser.add_argument("--child", type=Path, help="for the program itself")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child)))
        return
    if "rows" in options.what:
        many_rows(int(options.rows), options.folder)
    if "classes" in options.what:
        many_classes()


if __name__ == "__main__":
    main()

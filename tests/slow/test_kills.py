"""Fits that are killed at random moments and resumed. Run by `make test-slow`.

Each partition runs in a process of its own, this file as a program: it loads everything once, then forks a child for
every fit, kills that with SIGKILL, looks at what is left, and has another child resume. Moments are drawn within the
phases of a fit (before anything is there, scan, buckets and store, training), and reading and writing are slowed down,
or else nearly all kills would hit the training.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gigagp import HGPRegressor, datasets, memory
from gigagp.data import scan
from gigagp.data.sources.rows import Rows
from gigagp.data.store import PlacedWriter, StorePlaces, open_store
from gigagp.fit import store_writer
from gigagp.fit.checkpoint import EvaluationLog

pytestmark = pytest.mark.slow

KILLS = 25  # of each partition
ROWS = 12_000
PHASES = {"nothing": None, "scan": "manifest.json", "placing": "scan.npz", "training": "store"}  # what they begin with
DRAWN = ("nothing", "scan", "placing", "placing", "training", "training")  # in turn
SHAPES = {
    "local": {"partition": "local", "leaf_size": 100},
    "random": {"partition": "random", "leaf_size": 100, "sharing": 2},
    "stratified": {"partition": "stratified", "levels": 3, "branching": 5},
}
SETTINGS = {"random_state": 0, "training": "full", "memory": 120 * ROWS, "n_jobs": 2}


@pytest.mark.parametrize("partition", SHAPES)
def test_every_resume_ends_as_if_nothing_had_happened(partition, tmp_path):
    ran = subprocess.run(
        [sys.executable, __file__, partition, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    kills = json.loads(ran.stdout)
    assert sum(kills.values()) == KILLS
    assert all(kills[phase] > 0 for phase in PHASES), kills


def slowed(function, seconds):
    def slow(*arguments, **others):
        time.sleep(seconds)
        return function(*arguments, **others)

    return slow


def slow_blocks(blocks):
    def slow(*arguments, **others):
        for block in blocks(*arguments, **others):
            time.sleep(0.01)
            yield block

    return slow


def fit(partition, source, queries, checkpoint):
    """All that a fit decides, as text that is the same only for the same bits."""
    model = HGPRegressor(**SHAPES[partition], **SETTINGS).fit(source, "distance", checkpoint=checkpoint)
    assert model.model_.store.mapped
    mean, std = model.predict(queries, return_std=True)
    report = model.report_
    traces = [report.theta_trace.tobytes().hex(), np.array(report.evidence_trace).tobytes().hex()]
    return json.dumps([model.theta_.tobytes().hex(), mean.tobytes().hex(), std.tobytes().hex(), *traces])


class Child:
    """A process that fits, and leaves its answer in a file."""

    def __init__(self, partition, source, queries, checkpoint):
        self.answer = Path(f"{checkpoint}.answer")
        self.pid = os.fork()
        if self.pid == 0:
            try:
                answer = fit(partition, source, queries, checkpoint)
                self.answer.with_suffix(".writing").write_text(answer)
                self.answer.with_suffix(".writing").rename(self.answer)
            finally:
                os._exit(not self.answer.exists())

    def wait(self):
        assert os.waitpid(self.pid, 0)[1] == 0, "the fit failed"
        answer = self.answer.read_text()
        self.answer.unlink()
        return answer

    def kill(self):
        """Whether there was still something to kill."""
        os.kill(self.pid, signal.SIGKILL)
        ended = os.waitpid(self.pid, 0)[1]
        self.answer.unlink(missing_ok=True)
        return os.WIFSIGNALED(ended)


def begin(folder, phase):
    """Wait for a phase to begin; the folder tells."""
    if PHASES[phase]:
        while not (folder / PHASES[phase]).exists():
            time.sleep(0.0005)


def durations(partition, source, queries, folder):
    """How long each phase takes when nothing disturbs it, and what comes out."""
    child, times = Child(partition, source, queries, folder), [time.perf_counter()]
    for phase in list(PHASES)[1:]:
        begin(folder, phase)
        times.append(time.perf_counter())
    answer = child.wait()
    times.append(time.perf_counter())
    return dict(zip(PHASES, np.diff(times), strict=True)), answer


def check_whole(folder):
    """Whatever has its final name is whole."""
    if (folder / "manifest.json").exists():
        json.loads((folder / "manifest.json").read_text())
    if (folder / "scan.npz").exists():
        with np.load(folder / "scan.npz") as arrays:
            assert len(arrays["X"]) == 300
    if (folder / "store").exists():
        store, cells = open_store(folder / "store")
        assert len(store.y) == ROWS
        assert len(cells) > 10


def check_clean(folder):
    names = [path.name for path in folder.rglob("*")]
    assert set(os.listdir(folder)) == {"manifest.json", "scan.npz", "evaluations.log", "store"}, names
    assert not [name for name in names if "partial" in name or "buckets" in name or "old" in name], names


def main(partition, place):
    tempfile.tempdir = str(place / "tmp")
    (place / "tmp").mkdir()
    memory.LEAST = 1
    store_writer.bucket_rows = lambda columns: 2000
    scan._SAMPLE_ROWS = scan._LEAST_SAMPLE = 300
    Rows.blocks = slow_blocks(Rows.blocks)
    StorePlaces.write = slowed(StorePlaces.write, 0.01)
    PlacedWriter.finish = slowed(PlacedWriter.finish, 0.05)
    EvaluationLog._append = slowed(EvaluationLog._append, 0.005)
    X, y = datasets.robot_arm(ROWS + 100)
    names = [f"joint{d}" for d in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(distance=y)
    frame[:ROWS].to_parquet(place / "t.parquet", row_group_size=1000)
    queries = frame[ROWS:][names]
    HGPRegressor(engine="serial", leaf_size=100).fit(X[:300], y[:300]).predict(X[:10])  # load what is compiled
    took, quiet = durations(partition, place / "t.parquet", queries, place / "quiet")
    check_clean(place / "quiet")
    rng, kills = np.random.default_rng(list(SHAPES).index(partition)), dict.fromkeys(PHASES, 0)
    while sum(kills.values()) < KILLS:
        phase = DRAWN[sum(kills.values()) % len(DRAWN)]
        folder = place / f"run{sum(kills.values())}"
        child = Child(partition, place / "t.parquet", queries, folder)
        begin(folder, phase)
        time.sleep(rng.uniform(0, took[phase]))
        if child.kill():
            kills[phase] += 1
            if folder.exists():
                check_whole(folder)
        assert Child(partition, place / "t.parquet", queries, folder).wait() == quiet, f"killed in {phase}"
        check_clean(folder)
        subprocess.run(["rm", "-r", str(folder)], check=True)
    assert os.listdir(place / "tmp") == []
    print(json.dumps(kills))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

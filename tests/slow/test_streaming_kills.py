"""Predictions of files that are killed at random moments and resumed. Run by `make test-slow`.

This file is also a program, run in a process of its own: it loads everything once, then forks a child for every
prediction, kills it with SIGKILL, looks at what is left, perhaps kills who goes on, too, and lets the last one finish.
Writing is slowed down, or else hardly a kill would hit it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gigagp import HGPRegressor, datasets
from gigagp.data.parts import Parts
from gigagp.model import committee_prediction, prediction_files, predictor

pytestmark = pytest.mark.slow

KILLS = 25  # of each format
ROWS = 1500
COMPLETE = 1200  # rows without missing values
PART = 64  # rows that are predicted together
OPTIONS = {"quantiles": [0.05, 0.95], "keep": ["key"], "missing": "drop"}
# A committee, whose blocks are predicted one after the other; and neighbourhoods, whose blocks are read, predicted and
# written by two threads, in no fixed order.
MODELS = {
    "committee": {"engine": "serial", "leaf_size": 50, "sharing": 2},
    "neighbourhood": {"engine": "threads", "n_jobs": 2, "method": "neighbourhood", "neighbours": 16},
}
MODELS["sorted"] = MODELS["neighbourhood"]  # with queries that are sorted by buckets
BUCKETS = 5
PHASES = ("nothing", "predicting", "merging", "tidying")
DRAWN = ("predicting", "merging", "predicting", "tidying", "nothing")  # in turn


@pytest.mark.parametrize(
    ("form", "model"),
    [("parquet", "committee"), ("csv", "committee"), ("parquet", "neighbourhood"), ("parquet", "sorted")],
)
def test_every_resume_ends_with_the_same_file(form, model, tmp_path):
    command = [sys.executable, __file__, form, model, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    kills = json.loads(ran.stdout)
    assert sum(kills.values()) == KILLS
    assert all(kills[phase] > 0 for phase in PHASES), kills


def slowed(function, seconds):
    def slow(*arguments, **others):
        time.sleep(seconds)
        return function(*arguments, **others)

    return slow


def child(model, data, output):
    pid = os.fork()
    if pid == 0:
        try:
            model.predict_file(data, output, **OPTIONS)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def finished(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def hidden_beside(output):
    return output.with_name(f".{output.name}.gigagp")


def has_begun(phase, output):
    """Whether a phase has begun, by the files that there are."""
    parts = len(list(hidden_beside(output).glob("part-*.parquet")))
    return {
        "nothing": True,
        "predicting": parts > 0 or output.exists(),
        "merging": parts == -(-ROWS // PART) or output.exists(),
        "tidying": output.exists(),
    }[phase]


def wait_for(phase, output):
    while not has_begun(phase, output):
        time.sleep(0.0003)


def durations(model, data, output):
    """How long each phase takes when nothing disturbs it."""
    times, pid = [time.perf_counter()], child(model, data, output)
    for phase in PHASES[1:]:
        wait_for(phase, output)
        times.append(time.perf_counter())
    assert finished(pid) == 0
    times.append(time.perf_counter())
    return dict(zip(PHASES, np.diff(times), strict=True))


def kill(model, data, output, phase, seconds):
    """Begin, and kill so long after a phase began; whether there was still something to kill."""
    pid = child(model, data, output)
    wait_for(phase, output)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return finished(pid) == -signal.SIGKILL


def main(form, name, place):
    predictor._FEWEST_QUERIES, committee_prediction.QUERIES_AT_ONCE = 1, PART
    if name == "sorted":
        prediction_files._buckets = lambda *_: BUCKETS
    os.fsync, os.unlink = slowed(os.fsync, 0.003), slowed(os.unlink, 0.002)
    Parts.publish = slowed(Parts.publish, 0.01)
    X, y = datasets.robot_arm(ROWS + 500)
    model = HGPRegressor(**MODELS[name], random_state=0).fit(X[ROWS:], y[ROWS:])
    model.predict(X[:10], return_std=True)  # load what is compiled
    if name == "committee":
        X[:: ROWS // (ROWS - COMPLETE), 2] = np.nan
    else:
        OPTIONS["missing"] = "error"  # workers read blocks themselves only where no row can be incomplete
    data, folder = place / f"q.{form}", place / "out"
    table = pa.table({"key": [f"row {i}" for i in range(ROWS)], **{f"x{j}": X[:ROWS, j] for j in range(X.shape[1])}})
    pa.csv.write_csv(table, data) if form == "csv" else pq.write_table(table, data, row_group_size=100)
    took = durations(model, data, place / "quiet.parquet")
    quiet, output = (place / "quiet.parquet").read_bytes(), folder / "o.parquet"
    rng, kills = np.random.default_rng(0), dict.fromkeys(PHASES, 0)
    while sum(kills.values()) < KILLS:
        phase = DRAWN[sum(kills.values()) % len(DRAWN)]
        if kill(model, data, output, phase, rng.uniform(0, took[phase])):
            kills[phase] += 1
            if phase == "predicting":  # and who goes on is killed, too
                kill(model, data, output, "nothing", rng.uniform(0, sum(took.values())))
            assert not output.exists() or output.read_bytes() == quiet
            if not output.exists() or hidden_beside(output).exists():  # else it was killed after all was done
                assert finished(child(model, data, output)) == 0
        assert output.read_bytes() == quiet
        assert os.listdir(folder) == ["o.parquet"]
        output.unlink()
        folder.rmdir()
    print(json.dumps(kills))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

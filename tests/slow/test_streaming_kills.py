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
from gigagp.model import committee_prediction, predictor

pytestmark = pytest.mark.slow

KILLS = 25  # of each format
ROWS = 1500
KEPT = 1200  # rows without missing values
PART = 64  # rows that are predicted together
OPTIONS = {"quantiles": [0.05, 0.95], "keep": ["key"], "missing": "drop"}
PHASES = ("nothing", "predicting", "merging", "tidying")
DRAWN = ("predicting", "merging", "predicting", "tidying", "nothing")  # in turn


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_resume_ends_with_the_same_file(form, tmp_path):
    ran = subprocess.run([sys.executable, __file__, form, str(tmp_path)], capture_output=True, text=True, check=False)
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


def begins(output):
    """The file with which each phase begins."""
    hidden, last = hidden_beside(output), -(-KEPT // PART) - 1
    return {
        "nothing": None,
        "predicting": hidden / "part-00000000.parquet",
        "merging": hidden / f"part-{last:08}.parquet",
        "tidying": output,
    }


def wait_for(path):
    while path is not None and not path.exists():
        time.sleep(0.0003)


def durations(model, data, output):
    """How long each phase takes when nothing disturbs it."""
    times, pid = [time.perf_counter()], child(model, data, output)
    for path in list(begins(output).values())[1:]:
        wait_for(path)
        times.append(time.perf_counter())
    assert finished(pid) == 0
    times.append(time.perf_counter())
    return dict(zip(PHASES, np.diff(times), strict=True))


def kill(model, data, output, phase, seconds):
    """Begin, and kill so long after a phase began; whether there was still something to kill."""
    pid = child(model, data, output)
    wait_for(begins(output)[phase])
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return finished(pid) == -signal.SIGKILL


def main(form, place):
    predictor._FEWEST_QUERIES, committee_prediction.QUERIES_AT_ONCE = 1, PART
    os.fsync, os.unlink = slowed(os.fsync, 0.003), slowed(os.unlink, 0.002)
    Parts.publish = slowed(Parts.publish, 0.01)
    X, y = datasets.robot_arm(ROWS + 500)
    model = HGPRegressor(engine="serial", leaf_size=50, sharing=2, random_state=0).fit(X[ROWS:], y[ROWS:])
    model.predict(X[:10], return_std=True)  # load what is compiled
    X[:: ROWS // (ROWS - KEPT), 2] = np.nan
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
    main(sys.argv[1], Path(sys.argv[2]))

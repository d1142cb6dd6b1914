"""Writers of updates are killed at random moments: an acknowledged row is never lost, a half-written one never seen."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import gigagp
from gigagp import HGPRegressor
from gigagp.data.update_log import NAME, ROWS, RowsRecord, UpdateLog, read

pytestmark = pytest.mark.slow

LOG_WRITER = """
import sys
from pathlib import Path
import numpy as np
from gigagp.data.update_log import ROWS, RowsRecord, UpdateLog

log, first = UpdateLog(Path(sys.argv[1])), int(sys.argv[2])
print("open", flush=True)
while True:
    rng = np.random.default_rng(first)
    count = int(rng.integers(1, 2000))
    X = rng.standard_normal((count, 5))
    log.append(ROWS, RowsRecord(X, X[:, 0], None, first + np.arange(count), np.empty(0)).to_bytes())
    first += count
    print(first, flush=True)
"""

MODEL_WRITER = """
import sys
import numpy as np
from gigagp import HGPRegressor

with HGPRegressor.open(sys.argv[1]) as model:
    print("open", model.next_arrival_, flush=True)
    step = 0
    while True:
        first = model.next_arrival_
        rng = np.random.default_rng(first)
        X = rng.uniform(-2, 2, (int(rng.integers(1, 60)), 2))
        model.partial_fit(X, X[:, 0], score_rows=0)
        step += 1
        if step % 7 == 0:
            model.forget(rows=[model.next_arrival_ - 1])
        if step % 11 == 0:
            model.compact()
        print(model.next_arrival_, model.n_rows_, flush=True)
"""


def killed(code, arguments, updates, delay):
    """The lines that a process has written before it was killed: it has opened the folder, and made some updates.

    delay : seconds that it has for the next updates
    """
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        lines = [process.stdout.readline().strip() for _ in range(1 + updates)]
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
    return [line for line in lines if line]


def expected_rows(until):
    """The rows that the writer of the log makes, up to a number of arrival."""
    parts, first = [], 0
    while first < until:
        rng = np.random.default_rng(first)
        count = int(rng.integers(1, 2000))
        parts.append(rng.standard_normal((count, 5)))
        first += count
    return np.concatenate(parts), first


def test_a_hundred_killed_writers_of_a_log_lose_nothing(tmp_path):
    rng, first = random.Random(0), 0
    for _ in range(100):
        lines = killed(LOG_WRITER, [tmp_path, first], rng.randrange(4), rng.uniform(0.0, 0.03))
        acknowledged = int(lines[-1]) if lines[-1] != "open" else first
        written = list(read(tmp_path / NAME)) if (tmp_path / NAME).exists() else []
        records = [RowsRecord.of(record.content) for record in written if record.kind == ROWS]
        present = sum(len(record.y) for record in records)
        expected, end = expected_rows(present) if present else (None, 0)
        assert present >= acknowledged  # one that was written and not yet acknowledged may be there
        assert present == end  # whole records only
        if records:
            np.testing.assert_array_equal(np.concatenate([record.X for record in records]), expected)
        first = present
    assert first > 0
    UpdateLog(tmp_path).close()


def test_killed_writers_of_a_model_leave_whole_states(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    folder = tmp_path / "model"
    HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=15, random_state=0).fit(
        X, X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.standard_normal(120)
    ).save(folder)
    delays, progress = random.Random(1), []
    for _ in range(8):
        lines = killed(MODEL_WRITER, [folder], delays.randrange(14), delays.uniform(0.0, 0.1))
        model = gigagp.load(folder)
        if len(lines) > 1:
            following, rows = map(int, lines[-1].split())
            assert model.next_arrival_ >= following
            if model.next_arrival_ == following:
                assert abs(model.n_rows_ - rows) <= 1
        assert np.isfinite(model.predict(X[:5], return_std=True)).all()
        progress.append(model.next_arrival_)
    assert progress == sorted(progress)
    assert progress[-1] > 120

"""One fit at a time works in a checkpoint folder, and a killed one leaves it free."""

import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from gigagp import HGPRegressor
from gigagp.data.folder_lock import LOCK, FolderLock
from gigagp.errors import FolderInUse

ROWS = """
import numpy as np
rng = np.random.default_rng(4)
X = rng.uniform(-2, 2, (200, 2))
y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(200)
"""

# Says when it has begun, and then waits for a line on stdin that never comes.
STALLED_FIT = (
    ROWS
    + """
import sys
from gigagp import HGPRegressor
from gigagp.fit import fitting

def scan(*arguments):
    print("scanning", flush=True)
    sys.stdin.readline()

fitting.scan_rows = scan
HGPRegressor(leaf_size=50, random_state=0).fit(X, y, checkpoint=sys.argv[1])
"""
)


def test_a_second_fit_is_refused_until_the_first_is_killed(tmp_path):
    folder, names = tmp_path / "run", {}
    exec(ROWS, names)
    X, y = names["X"], names["y"]
    model = HGPRegressor(leaf_size=50, random_state=0)
    first = subprocess.Popen(
        [sys.executable, "-c", STALLED_FIT, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with first:
        assert first.stdout.readline() == "scanning\n"
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(
            FolderInUse, match=rf"run is in use by another fit \(process {first.pid} on .*\); wait .* or choose another"
        ):
            model.fit(X, y, checkpoint=folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, "the first fit is undisturbed"
        first.send_signal(signal.SIGKILL)
    resumed = model.fit(X, y, checkpoint=folder).predict(X)
    assert LOCK not in os.listdir(folder)
    np.testing.assert_array_equal(resumed, model.fit(X, y).predict(X))


def test_one_owner_at_a_time(tmp_path):
    """Owners remove the file as they leave; whoever opened it just before must not take it for the lock."""
    owners, most, taken = [], [], []

    def work():
        while len(taken) < 300:
            try:
                lock = FolderLock(tmp_path)
            except FolderInUse:
                continue
            owners.append(None)
            most.append(len(owners))
            taken.append(None)
            owners.pop()
            lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert os.listdir(tmp_path) == []


def test_the_refusal_pickles(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderInUse) as kept:
        FolderLock(tmp_path)
    assert pickle.loads(pickle.dumps(kept.value)).args == kept.value.args
    lock.release()
    FolderLock(tmp_path).release()


def test_disks_without_locks_are_used_without(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("gigagp.data.folder_lock.fcntl.flock", unsupported)
    for lock in (FolderLock(tmp_path), FolderLock(tmp_path)):
        lock.release()

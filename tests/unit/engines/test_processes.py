"""The engine of processes: the same bits as the serial one, also when workers die; nothing is left behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_info

import engine_models
from engine_models import (
    MODELS,
    answers,
    check_large_tasks,
    check_out_of_core,
    check_prediction_file,
    ingested,
    write_ingested,
)
from gigagp import HGPRegressor
from gigagp.engines import open_engine
from gigagp.engines.processes import ProcessesEngine
from gigagp.engines.transport import Depot, unpack
from gigagp.errors import DamagedFile, NotPositiveDefinite, WorkerLost
from gigagp.kernels import SquaredExponential
from gigagp.testing import check_engine
from traps import limit

ROWS = 300  # processes start slowly, so fewer rows than for other engines
data = partial(engine_models.data, ROWS)
fitted = partial(engine_models.fitted, rows=ROWS)
expected = partial(engine_models.expected, rows=ROWS)


def blocked(task, work):
    return signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.fixture(scope="module")
def pool():
    """Two workers for all tests that leave them alive."""
    with ProcessesEngine(2) as engine:
        yield engine


@pytest.fixture(autouse=True)
def in_time():
    with limit(300):  # only so that a test that hangs ends; the machine may be busy
        yield


def children():
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text():
                processes.add(int(folder.name))
        except OSError:
            continue
    return processes


def pid_of_worker(task, work):
    time.sleep(0.02)
    return os.getpid()


def blas_threads(task, work):
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


# The same bits


def test_meets_what_engines_promise(pool):
    check_engine(pool)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "npae" else pytest.mark.slow) for name in MODELS]
)
def test_the_same_bits_as_serial(pool, name, monkeypatch):
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 100)
    assert answers(fitted(pool, name)) == answers(fitted("serial", name))


def test_classes_have_the_same_bits_as_serial(pool, monkeypatch):
    monkeypatch.setattr("gigagp.model.neighbourhood._LITTLE_WORK", 0)  # predictions are made by the workers
    assert engine_models.class_answers(pool) == engine_models.expected_classes()


@pytest.mark.parametrize("noise", ["known", "inputs"])
def test_rows_of_different_noise_give_the_same_bits(pool, noise):
    X, y = data()
    settings = {"kernel": SquaredExponential(), "leaf_size": 60, "neighbours": 16, "method": "neighbourhood"}
    settings |= {"noise": "inputs"} if noise == "inputs" else {}
    known = {"noise_std": np.random.default_rng(1).uniform(0.05, 0.5, len(y))} if noise == "known" else {}
    models = [HGPRegressor(engine=engine, random_state=0, **settings).fit(X, y, **known) for engine in (pool, "serial")]
    one, other = (model.predict(X[:40], return_std=True) for model in models)
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_as_many_processes_as_asked_for(pool):
    assert len(set(pool.map(pid_of_worker, range(60))) - {os.getpid()}) == 2


@pytest.mark.slow
def test_one_worker():
    with open_engine("processes", 1) as engine:
        assert answers(fitted(engine)) == expected()
        (pid,) = set(engine.map(pid_of_worker, range(9)))
        assert pid != os.getpid()


@pytest.mark.parametrize("saved", [False, True])
def test_models_made_elsewhere_answer(pool, saved, tmp_path):
    model = fitted("threads", n_jobs=2)
    if saved:
        model.save(tmp_path / "model")
        model = HGPRegressor.load(tmp_path / "model")
    model.set_params(engine=pool)
    assert answers(model) == expected()
    check_prediction_file(model, tmp_path)


@pytest.mark.slow
def test_rows_of_a_parquet_file_out_of_core(pool, tmp_path, small_sizes):
    check_out_of_core(pool, tmp_path, ROWS)


def test_large_tasks_arrive(pool, monkeypatch):
    check_large_tasks(pool, monkeypatch, ROWS)


def test_one_blas_thread_in_every_task(pool):
    assert list(pool.map(blas_threads, range(6))) == [{1}] * 6


# Workers that die


class Deadly(SquaredExponential):
    """Kills the worker that comes to it, as often as there are files to say so."""

    def __init__(self, folder, home, variance=1.0, lengthscales=(1.0, 1.0)):
        super().__init__(variance, list(lengthscales))
        self.folder, self.home = folder, home

    def __reduce__(self):
        return _deadly, (self.folder, self.home, self.theta)

    def with_theta(self, theta):
        return _deadly(self.folder, self.home, theta)

    def bind(self, columns):
        return self

    def profile(self, theta, columns):
        return None

    def gram(self, theta, X, out=None):
        for name in os.listdir(self.folder) if os.getpid() != self.home else ():
            try:
                os.unlink(f"{self.folder}/{name}")
            except FileNotFoundError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gram(theta, X, out)


def _deadly(folder, home, theta):
    values = np.exp(theta)
    return Deadly(folder, home, float(values[0]), values[1:].tolist())


def deadly_model(folder, engine):
    kernel = Deadly(str(folder), os.getpid())
    return HGPRegressor(kernel, leaf_size=60, method="committee", random_state=3, engine=engine, n_jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["in training", "in prediction"])
def test_killed_workers_are_replaced(tmp_path, moment):
    right = answers(deadly_model(tmp_path, "serial").fit(*data()))
    with ProcessesEngine(1) as engine:
        model = deadly_model(tmp_path, engine)
        if moment == "in prediction":
            model.fit(*data())
        (tmp_path / moment).touch()
        if moment == "in training":
            model.fit(*data())
        assert answers(model) == right
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_a_worker_killed_while_idle():
    with ProcessesEngine(1) as engine:
        (pid, *_) = engine.map(pid_of_worker, range(20))
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)  # the pool notices, or does not
        assert pid not in set(engine.map(pid_of_worker, range(20)))


@pytest.mark.slow
def test_tasks_that_kill_every_worker_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("gigagp.engines.processes._ATTEMPTS", 2)
    for i in range(200):
        (tmp_path / str(i)).touch()
    with (
        ProcessesEngine(1) as engine,
        pytest.raises(WorkerLost, match=r"2 times in a row.*out of memory; use fewer workers"),
    ):
        deadly_model(tmp_path, engine).fit(*data())


# Errors


def test_errors_say_which_expert(pool):
    X, y = engine_models.data(200)
    X, y = np.repeat(X[:100], 2, axis=0), np.repeat(y[:100], 2)
    kernel = Indefinite(1.0, [1.0, 1.0])

    def failure(engine):
        with pytest.raises(NotPositiveDefinite) as caught:
            HGPRegressor(kernel, partition="random", leaf_size=50, random_state=0, engine=engine).fit(X, y)
        return str(caught.value)

    assert failure(pool) == failure("serial")


class Indefinite(SquaredExponential):
    def profile(self, theta, columns):
        return None

    def gram(self, theta, X, out=None):
        K = super().gram(theta, X, out)
        K[: len(X), : len(X)] = -5 * np.eye(len(X))
        return K


SCRIPT = """
import os, sys
import numpy as np
import engine_models
from engine_models import MODELS, answers, check_large_tasks, check_out_of_core, check_prediction_file
from gigagp import HGPRegressor
from gigagp.kernels import SquaredExponential

runs = "{folder}/runs"
with open(runs, "a") as file:
    file.write("x")

class Plain(SquaredExponential):
    def profile(self, theta, columns):
        return None

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (300, 2))
y = np.sin(X).sum(axis=1)
found = []
for engine in ("serial", "processes"):
    model = HGPRegressor(Plain(1.0, [1.0, 1.0]), leaf_size=50, random_state=0, engine=engine, n_jobs=1).fit(X, y)
    found.append([model.theta_.tobytes(), model.predict(X).tobytes()])
print(found[0] == found[1], os.path.getsize(runs))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["file", "typed"])
def test_a_script_without_main_guard_and_with_its_own_kernel(tmp_path, how):
    text = SCRIPT.format(folder=tmp_path)
    (tmp_path / "script.py").write_text(text)
    command = [str(tmp_path / "script.py")] if how == "file" else ["-c", text]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=80
    )
    assert ran.stdout.split() == ["True", "1"], ran.stderr
    assert not list(tmp_path.glob("gigagp-tmp-*"))


# Nothing is left


def test_no_process_and_no_folder_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children()
    kernel = Indefinite(1.0, [1.0, 1.0])
    with pytest.raises(NotPositiveDefinite) as raised:  # whoever holds the error holds no folder
        HGPRegressor(kernel, partition="random", leaf_size=50, engine="processes", n_jobs=1).fit(*data())
    left = {pid for pid in children() - before if b"resource_tracker" not in _command(pid)}
    assert left == set()
    assert os.listdir(tmp_path) == []
    assert raised.value is not None


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"resource_tracker"  # gone


@pytest.mark.slow
def test_fits_one_after_the_other_leave_nothing_in_the_depot(pool):
    for _ in range(3):
        answers(fitted(pool, "stratified"))
        gc.collect()
        assert os.listdir(pool._depot.folder) == [".lock"]


def test_what_is_sent_stays_for_as_long_as_the_message(tmp_path):
    depot = Depot(tmp_path)
    packed = depot.pack([np.arange(20_000), np.arange(3)])
    gc.collect()
    large, small = unpack(packed.data)
    np.testing.assert_array_equal(large, np.arange(20_000))
    np.testing.assert_array_equal(small, np.arange(3))
    assert not large.flags.writeable
    assert len(packed.data) < 1000
    del packed
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_mapped_arrays_are_sent_as_paths_and_large_ones_are_mapped(tmp_path):
    (tmp_path / "depot").mkdir()
    depot, values = Depot(tmp_path / "depot"), np.arange(40_000.0).reshape(-1, 2)
    np.save(tmp_path / "a.npy", values)
    whole = np.asarray(np.load(tmp_path / "a.npy", mmap_mode="r"))
    packed = depot.pack(whole)
    np.testing.assert_array_equal(unpack(packed.data), values)
    assert os.listdir(depot.folder) == []
    others = (whole[100:], whole[:, :1], whole.T, whole.view(np.int64), values)  # not what the file contains
    for number, part in enumerate(others):
        packed = depot.pack(part)
        arrived = unpack(packed.data)
        assert isinstance(arrived.base, np.memmap)
        assert arrived.dtype == part.dtype
        np.testing.assert_array_equal(arrived, part)
        assert len(os.listdir(depot.folder)) == number + 1
    np.save(tmp_path / "b.npy", values)
    packed = depot.pack(np.asarray(np.load(tmp_path / "b.npy", mmap_mode="r")))
    os.utime(tmp_path / "b.npy", (1, 1))
    with pytest.raises(DamagedFile, match="it has changed since it was opened"):
        unpack(packed.data)


def test_copies_are_engines_of_their_own():
    engine = ProcessesEngine(2)
    assert clone(HGPRegressor(engine=engine)).engine is engine
    other = pickle.loads(pickle.dumps(HGPRegressor(engine=engine))).engine
    assert isinstance(other, ProcessesEngine)
    assert other is not engine
    assert other.workers == 2


@pytest.mark.slow
def test_a_closed_engine_opens_again():
    engine = ProcessesEngine(1)
    for _ in range(2):
        assert len(set(engine.map(pid_of_worker, range(3)))) == 1
        engine.close()


def test_workers_never_hear_ctrl_c(pool):
    assert all(signal.SIGINT in signals for signals in pool.map(blocked, range(4)))
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process still does"


class DiesOnce(ProcessesEngine):
    """Its first task of a kind kills the worker."""

    def __init__(self, workers, name, mark):
        super().__init__(workers)
        self.name, self.mark = name, mark

    def map(self, function, tasks, together=1):
        named = getattr(function, "name", None) == self.name
        return super().map(partial(_dying, function, self.mark) if named else function, tasks, together)


def _dying(function, mark, task, work):
    result = function(task, work)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@pytest.mark.slow
def test_blocks_of_a_file_are_predicted_by_workers_also_where_one_dies(tmp_path, monkeypatch):
    """Rows that workers read themselves, and rows that this process reads for them."""
    monkeypatch.setattr("gigagp.model.predictor._FEWEST_QUERIES", 32)
    fitted("serial", method="neighbourhood", neighbours=8).save(tmp_path / "model")
    model = HGPRegressor.load(tmp_path / "model")
    here = pq.read_table(model.predict_file(data()[0], tmp_path / "here.parquet").output)
    np.save(tmp_path / "Z.npy", data()[0])
    with DiesOnce(2, "predict-block", tmp_path / "mark") as engine:
        for number, queries in enumerate((tmp_path / "Z.npy", data()[0])):
            there = model.set_params(engine=engine).predict_file(queries, tmp_path / f"{number}.parquet")
            assert pq.read_table(there.output).equals(here)  # to the bit; only the metadata name another source
    assert (tmp_path / "mark").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sort-queries", "answer-queries", "merge-answers"])
def test_sorted_queries_have_the_same_bits_also_where_a_worker_dies(name, tmp_path, monkeypatch):
    monkeypatch.setattr("gigagp.model.predictor._FEWEST_QUERIES", 32)
    fitted("serial", method="neighbourhood", neighbours=8).save(tmp_path / "model")
    model = HGPRegressor.load(tmp_path / "model")
    np.save(tmp_path / "Z.npy", data()[0])
    here = model.predict_file(tmp_path / "Z.npy", tmp_path / "here.parquet").output.read_bytes()
    monkeypatch.setattr("gigagp.model.prediction_files._buckets", lambda *_: 5)
    with DiesOnce(2, name, tmp_path / "mark") as engine:
        there = model.set_params(engine=engine).predict_file(tmp_path / "Z.npy", tmp_path / "there.parquet")
    assert there.output.read_bytes() == here
    assert (tmp_path / "mark").exists()


@pytest.mark.slow  # in short, without a death, in test_dask.py
@pytest.mark.parametrize("name", ["sort", "store"])
def test_ingestion_has_the_same_bits_as_serial_also_where_a_worker_dies(name, tmp_path, monkeypatch):
    write_ingested(tmp_path / "t.parquet")
    results = []
    for engine in (open_engine("serial", 1), DiesOnce(2, name, tmp_path / "mark")):
        folder = tmp_path / type(engine).__name__
        folder.mkdir()
        with engine as opened:
            results.append(ingested(opened, tmp_path / "t.parquet", folder, monkeypatch))
    assert (tmp_path / "mark").exists()
    assert results[0] == results[1]

"""Engines: order, errors, BLAS threads, and the same bits from each."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import shutil
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from gigagp import HGPRegressor, InvalidParameter
from gigagp.engines import Engine, SerialEngine, ThreadsEngine, one_blas_thread, open_engine
from gigagp.engines import blas_threads as blas_module
from gigagp.engines.processes import ProcessesEngine
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Tree

ENGINES = {"serial": SerialEngine, "threads": lambda: ThreadsEngine(3)}
each_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def data(n=400):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X).sum(axis=1) + 0.2 * rng.standard_normal(n)


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@each_engine
def test_map_keeps_the_order_of_tasks(make):
    def slow_first(task, work):
        time.sleep(0.02 if task % 7 == 0 else 0)
        return task * task

    with make() as engine:
        assert list(engine.map(slow_first, range(40))) == [task * task for task in range(40)]
        assert list(engine.map(slow_first, [])) == []
        assert list(engine.map(slow_first, iter([3]))) == [9]


@each_engine
def test_a_worker_keeps_its_workspace_to_itself(make):
    owners: dict[int, set[int]] = {}

    def note(task, work):
        assert isinstance(work, Workspace)
        owners.setdefault(id(work), set()).add(threading.get_ident())
        time.sleep(0.001)

    with make() as engine:
        list(engine.map(note, range(30)))
        list(engine.map(note, range(30)))
    assert all(len(threads) == 1 for threads in owners.values())
    assert len(owners) <= 3


def test_threads_run_side_by_side():
    """Each task waits until another is running too."""
    both = threading.Barrier(2, timeout=10)
    with ThreadsEngine(2) as engine:
        assert len(list(engine.map(lambda task, work: both.wait(), range(6)))) == 6


@each_engine
def test_results_do_not_pile_up(make):
    """No more than a few tasks are begun before the first result is read."""
    begun = []
    with make() as engine:
        results = engine.map(lambda task, work: begun.append(task), range(1000))
        next(results)
        time.sleep(0.05)
        assert len(begun) < 20
        results.close()


@each_engine
def test_an_error_in_a_task_reaches_the_caller(make):
    done = []

    def fail_at_three(task, work):
        if task == 3:
            raise ZeroDivisionError("task 3")
        done.append(task)
        return task

    with make() as engine:
        results = engine.map(fail_at_three, range(1000))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ZeroDivisionError, match="task 3"):
            next(results)
        assert len(done) < 100  # the rest is not begun
        assert list(engine.map(lambda task, work: task, range(5))) == list(range(5))  # and work can go on


@dataclass(frozen=True)
class Written:
    """A term that remembers how it was added."""

    text: str

    def __add__(self, other: Written) -> Written:
        return Written(f"({self.text}+{other.text})")


@each_engine
@given(
    tree=st.one_of(
        st.builds(Tree.balanced, st.integers(1, 1500)), st.builds(Tree.regular, st.integers(1, 5), st.just(4))
    )
)
def test_sum_adds_as_the_tree_says(make, tree):
    with make() as engine:
        total = engine.sum(tree, lambda leaf, work: Written(str(leaf)))
    assert total == tree.root.sum(lambda leaf: Written(str(leaf)))


def test_sum_of_an_uneven_tree():
    tree = Tree.nested([[90], 1, [[70, [30]], 2]])
    with ThreadsEngine(2) as engine:
        total = engine.sum(tree, lambda leaf, work: Written(str(leaf)))
    assert total == tree.root.sum(lambda leaf: Written(str(leaf)))


PARTITIONS = {
    "random": {"partition": "random", "levels": 2, "branching": 4, "sharing": 2},
    "stratified": {"partition": "stratified", "leaf_size": 40},
    "local": {"partition": "local", "leaf_size": 25, "sharing": 2},
}


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("asked", [None, 3])
def test_engines_give_the_same_bits(partition, asked):
    X, y = data()

    def outcome(engine, n_jobs=None):
        model = HGPRegressor(
            **PARTITIONS[partition], experts_per_query=asked, engine=engine, n_jobs=n_jobs, random_state=3
        ).fit(X, y)
        mean, std = model.predict(X[:120] + 0.01, return_std=True)
        return model.theta_, np.array(model.report_.evidence_trace), mean, std, model.log_marginal_likelihood()

    expected = outcome("serial")
    for workers in (1, 2, 3):
        for value, right in zip(outcome("threads", workers), expected, strict=True):
            np.testing.assert_array_equal(value, right)


@pytest.mark.parametrize("combine", ["grbcm", "npae", "healed"])
def test_engines_give_the_same_bits_for_rules_with_their_own_ways(combine):
    X, y = data(200)

    def outcome(engine):
        model = HGPRegressor(partition="local", leaf_size=25, combine=combine, engine=engine, n_jobs=3, random_state=3)
        return model.fit(X, y).predict(X[:60] + 0.01, return_std=True)

    np.testing.assert_array_equal(outcome("threads"), outcome("serial"))


def test_progressive_training_gives_the_same_bits(monkeypatch):
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 100)
    X, y = data()

    def theta(engine):
        model = HGPRegressor(leaf_size=10, training="progressive", engine=engine, n_jobs=2, random_state=3)
        return model.fit(X, y).theta_

    np.testing.assert_array_equal(theta("threads"), theta("serial"))


class Watching(SerialEngine):
    """Notes the number of BLAS threads inside its tasks."""

    def __init__(self):
        super().__init__()
        self.seen: set[int] = set()

    def map(self, function, tasks, together=1):
        def watched(task, work):
            self.seen |= blas_threads()
            return function(task, work)

        return super().map(watched, tasks, together)


@pytest.fixture(scope="module")
def fresh_process():
    """A process whose BLAS nobody has touched."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        if pool.submit(with_two_blas_threads, blas_threads).result() != {2}:
            pytest.skip("this BLAS has one thread only")
        yield pool


def with_two_blas_threads(check):
    """As a user may have set it."""
    with threadpool_limits(2, user_api="blas"):
        return check()


def one_inside_and_two_after():
    X, y = data(100)
    engine = Watching()
    model = HGPRegressor(leaf_size=50, engine=engine, random_state=0).fit(X, y)
    assert engine.seen == {1}, "in fit"
    assert blas_threads() == {2}, "after fit"
    engine.seen.clear()
    model.predict(X, return_std=True)
    assert engine.seen == {1}, "in predict"
    assert blas_threads() == {2}, "after predict"
    engine.seen.clear()
    model.log_marginal_likelihood()
    assert engine.seen == {1}, "in log_marginal_likelihood"
    assert blas_threads() == {2}, "after log_marginal_likelihood"


def two_after_an_error():
    class Failing(SerialEngine):
        def map(self, function, tasks):
            raise RuntimeError("lost")

    X, y = data(50)
    with pytest.raises(RuntimeError, match="lost"):
        HGPRegressor(engine=Failing()).fit(X, y)
    assert blas_threads() == {2}


def two_after_fits_that_overlap():
    """A second fit, in another thread, begins during the first and ends after it."""
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}, "the second fit is still at work"
    second.__exit__(None, None, None)
    assert blas_threads() == {2}, "after both"


@pytest.mark.slow
def test_blas_has_one_thread_inside_and_its_own_number_after(fresh_process):
    for check in (one_inside_and_two_after, two_after_an_error, two_after_fits_that_overlap):
        fresh_process.submit(with_two_blas_threads, check).result()


def test_models_can_be_fitted_side_by_side():
    X, y = data(120)

    def theta(_):
        return HGPRegressor(leaf_size=30, random_state=1).fit(X, y).theta_

    with ThreadPoolExecutor(4) as pool:
        thetas = list(pool.map(theta, range(8)))
    assert all((one == thetas[0]).all() for one in thetas)


@each_engine
def test_an_engine_given_as_an_object_can_be_used_again(make):
    """Who opens an engine closes it."""
    X, y = data(100)
    with make() as engine:
        model = HGPRegressor(leaf_size=25, engine=engine, random_state=0).fit(X, y)
        model.predict(X)
        again = HGPRegressor(leaf_size=25, engine=engine, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.theta_, again.theta_)


def test_fit_leaves_no_threads_behind():
    X, y = data(100)
    before = threading.active_count()
    HGPRegressor(leaf_size=25, engine="threads", n_jobs=3, random_state=0).fit(X, y).predict(X)
    assert threading.active_count() == before


def test_unknown_engines_are_refused():
    with pytest.raises(InvalidParameter, match=r"engine must be one of 'dask', 'processes', .*; got 'gpu'"):
        open_engine("gpu", None).__enter__()
    with pytest.raises(InvalidParameter, match=r"engine must be one of 'dask', 'processes', .*; got 'gpu'"):
        HGPRegressor(engine="gpu").fit(*data(20))
    with pytest.raises(InvalidParameter, match="engine must be one of"):
        open_engine(None, None).__enter__()


@pytest.mark.parametrize(("n_jobs", "workers"), [(1, 1), (3, 3), (None, CORES), (-1, CORES), (np.int64(2), 2)])
def test_number_of_workers(n_jobs, workers, monkeypatch):
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)
    with open_engine("threads", n_jobs) as engine:
        assert engine.workers == workers


@pytest.mark.parametrize("n_jobs", [0, -2, -5, 1.5, "two", True])
def test_senseless_numbers_of_workers_are_refused(n_jobs):
    for engine in ("serial", "threads", "processes", "dask", "tcp://127.0.0.1:9", SerialEngine()):
        with pytest.raises(InvalidParameter, match=r"n_jobs must be a positive number of workers, -1 .* or None; got"):
            open_engine(engine, n_jobs)
    for engine in (ThreadsEngine, ProcessesEngine):
        with pytest.raises(InvalidParameter, match="workers must be a positive number of workers"):
            engine(n_jobs)


def test_an_engine_must_map():
    with pytest.raises(TypeError, match="abstract"):
        Engine()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count loaded libraries")
def test_libraries_are_searched_for_a_blas_only_after_one_was_loaded(monkeypatch, tmp_path):
    searches = []

    class Counted(blas_module.ThreadpoolController):
        def __init__(self):
            searches.append(1)
            super().__init__()

    monkeypatch.setattr(blas_module, "ThreadpoolController", Counted)
    monkeypatch.setattr(blas_module, "_inside", 0)  # whatever contexts the tests are run in
    monkeypatch.setattr(blas_module, "_limit", None)
    copy = shutil.copy(_ctypes.__file__, tmp_path / "library.so")
    for expected, happens in [
        (1, lambda: ctypes.CDLL(copy)),  # earlier tests may have left a controller
        (1, lambda: monkeypatch.setitem(sys.modules, "a_module_without_libraries", sys)),
        (2, lambda: ctypes.CDLL(shutil.copy(copy, tmp_path / "other.so"))),
    ]:
        happens()
        with one_blas_thread():
            assert blas_threads() == {1}
        assert len(searches) == expected

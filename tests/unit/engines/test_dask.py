"""The Dask engine: the same bits as the serial one, whatever becomes of its workers; and errors that say who and where.

More faults, and slower ones, are in tests/slow/test_cluster_faults.py.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import dask
import numpy as np
import pytest
from dask.utils import key_split
from distributed import Client, LocalCluster, SchedulerPlugin
from distributed.security import Security
from sklearn.base import clone
from threadpoolctl import threadpool_info

from engine_models import (
    MODELS,
    Stepwise,
    answers,
    check_large_tasks,
    check_out_of_core,
    check_prediction_file,
    class_answers,
    data,
    expected,
    expected_classes,
    fitted,
    ingested,
    write_ingested,
)
from gigagp import HGPRegressor, InvalidParameter
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import OverLeaves, open_engine
from gigagp.engines.dask import SETTINGS, DaskEngine
from gigagp.errors import DamagedFile, NotFinite, NotPositiveDefinite, WorkerLost
from gigagp.kernels import SquaredExponential
from gigagp.testing import check_engine
from gigagp.tree import Tree
from traps import Traps, join, limit

# On a busy machine, workers may be silent for long without being lost; and a slot whose worker is killed twice within
# the second of these times is otherwise given up.
TESTED = {"distributed.scheduler.worker-ttl": "10m", "distributed.deploy.lost-worker-timeout": "1h"}


@pytest.fixture(scope="module")
def traps(tmp_path_factory):
    return Traps(tmp_path_factory.mktemp("traps"))


@pytest.fixture(scope="module")
def cluster():
    with (
        dask.config.set({**SETTINGS, **TESTED}),
        limit(600),  # only so that a test that hangs ends; the machine may be busy
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def connected(cluster, traps):
    with Client(cluster) as client:
        client.register_plugin(traps)
        yield client


@pytest.fixture
def client(connected, traps):
    """Two workers, and no trap set."""
    with limit(600):
        connected.wait_for_workers(2, timeout=250)
        yield connected
        traps.clear()


@pytest.fixture(autouse=True)
def small_first_batch(monkeypatch):
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 100)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """New workers start slowly where the machine is busy."""
    monkeypatch.setattr("gigagp.engines.dask_cluster._PATIENCE", 250)


def settled(engine):
    """Every shard is on one worker; copies that were made when a worker was lost are dropped within seconds."""
    end = time.monotonic() + 120
    while sum(engine.owners().values()) != len(engine._loaded.shards) and time.monotonic() < end:
        time.sleep(0.05)
    return engine.owners()


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


# The same bits


def test_meets_what_engines_promise(client):
    with DaskEngine(client) as engine:
        check_engine(engine)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "local" else pytest.mark.slow) for name in MODELS]
)
def test_the_same_bits_as_serial(client, name):
    assert answers(fitted(client, name)) == expected(name)


def children():
    """Processes that this one has started and that still run."""
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text():
                processes.add(int(folder.name))
        except OSError:
            continue
    return processes


@pytest.mark.slow
def test_classes_have_the_same_bits_as_serial(client, monkeypatch):
    monkeypatch.setattr("gigagp.model.neighbourhood._LITTLE_WORK", 0)  # predictions are made by the workers
    assert class_answers(client) == expected_classes()


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["shared", "separate"])
def test_several_targets_have_the_same_bits_as_serial(client, targets, monkeypatch):
    monkeypatch.setattr("gigagp.model.neighbourhood._LITTLE_WORK", 0)  # predictions are made by the workers
    X, y = data()
    Y = np.column_stack([y, np.sin(3 * X[:, 0]) - y])
    model = HGPRegressor("matern32", targets=targets, neighbours=16, leaf_size=50, random_state=0)
    predictions = [
        clone(model).set_params(engine=engine).fit(X, Y).predict(X[:30], return_std=True)
        for engine in ("serial", client)
    ]
    np.testing.assert_array_equal(*predictions)


@pytest.mark.slow
def test_a_cluster_of_its_own_ends_with_the_fit(client):
    before = children()
    model = fitted("dask", n_jobs=1)
    assert children() == before
    assert answers(model.set_params(engine=client)) == expected()


@pytest.mark.parametrize(
    "source", ["memory", *(pytest.param(each, marks=pytest.mark.slow) for each in ("disk", "file"))]
)
def test_models_made_elsewhere_answer_through_a_client(client, source, tmp_path):
    model = fitted("threads", n_jobs=2)
    if source != "memory":
        model.save(tmp_path / "model")
        model = HGPRegressor.load(tmp_path / "model")
    model.set_params(engine=client)
    if source != "file":
        assert answers(model) == expected()
        here = fitted("serial").log_marginal_likelihood(eval_gradient=True)
        there = model.log_marginal_likelihood(eval_gradient=True)
        assert here[0] == there[0]
        np.testing.assert_array_equal(here[1], there[1])
        return
    check_prediction_file(model, tmp_path, quantiles=(0.1,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "roles",
    [{}, {"sample_weight": "w", "noise_std": "s"}],
    ids=["equal noise", "row noise"],
)
def test_rows_of_a_parquet_file_out_of_core(client, tmp_path, small_sizes, roles):
    check_out_of_core(client, tmp_path, **roles)


# What the scheduler sees


class Seen(SchedulerPlugin):
    """The names of all new tasks that a scheduler is given."""

    def __init__(self):
        self.tasks, self._known = [], set()

    def update_graph(self, scheduler, *, tasks, **others):
        """tasks : also those that the new ones depend on"""
        self.tasks += [key_split(task) for task in tasks if task not in self._known]
        self._known |= set(tasks)


@pytest.fixture(scope="module")
def several_threads():
    """Three workers of two threads, all in this process, so that they start at once; and what their scheduler sees."""
    seen = Seen()
    with (
        limit(600),
        LocalCluster(n_workers=3, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        cluster.scheduler.add_plugin(seen)
        yield client, seen


def evaluated(leaf, X, y, work):
    """Each leaf at its own place, so that a sum shows which leaves were evaluated, and how often."""
    assert y.tolist() == [leaf, leaf]
    places = np.zeros(200)
    places[leaf] = 1
    return places


def two_rows_per_leaf(leaves=None):
    store = ExpertStore(np.ones((400, 2)), np.repeat(np.arange(200.0), 2))
    return OverLeaves(store, Runs(2 * np.arange(201)), leaves, evaluated)


@pytest.mark.parametrize(("most", "adding"), [(3, []), (2, ["add-leaves"])])
def test_a_step_has_one_task_per_worker_however_many_shards_and_threads(several_threads, monkeypatch, most, adding):
    client, seen = several_threads
    tree, over = Tree.balanced(200), two_rows_per_leaf()
    monkeypatch.setattr("gigagp.engines.dask_shards.MOST_GATHERED", most)
    for shards in (1, 20):
        monkeypatch.setattr("gigagp.engines.dask.SHARDS_PER_THREAD", shards)
        with DaskEngine(client) as engine:
            engine.sum(tree, over)
            assert len(engine._loaded.shards) == 6 * shards
            seen.tasks.clear()
            assert engine.sum(tree, over).tolist() == [1] * 200
            assert sorted(seen.tasks) == [*adding, *["leaves"] * 3]
            assert engine.tasks_of_step == len(seen.tasks)


def test_steps_leave_the_shards_where_they_are(several_threads):
    """Dask would place the tasks of a large group on any idle worker, and copy the rows there."""
    client, _ = several_threads
    tree, over = Tree.balanced(200), two_rows_per_leaf()
    with DaskEngine(client) as engine:
        for _ in range(20):
            engine.sum(tree, over)
        groups = engine._loaded.groups
        places = client.who_has(groups)
        assert [len(places[group.key]) for group in groups] == [1, 1, 1]


def raises_timeout(leaf, X, y, work):
    raise TimeoutError("of the task itself")


def test_a_result_that_arrives_late_is_no_error(several_threads, monkeypatch):
    """As on a busy machine: results are under way for longer than we wait between two looks at the workers."""
    client, _ = several_threads
    monkeypatch.setattr("gigagp.engines.dask_cluster._LOOK_SECONDS", 1e-4)
    monkeypatch.setattr("gigagp.engines.dask_cluster._IDLE_LOOKS", 10**6)
    tree, over = Tree.balanced(200), two_rows_per_leaf()
    with DaskEngine(client) as engine:
        assert engine.sum(tree, over).tolist() == [1] * 200
        with pytest.raises(TimeoutError, match="of the task itself"):
            engine.sum(tree, OverLeaves(over.store, over.lists, None, raises_timeout))


@pytest.mark.parametrize("count", [2, 50])
def test_a_batch_concerns_only_its_own_leaves(several_threads, count):
    """Workers load the rows of the batch alone, and where there are few leaves most workers have nothing to do."""
    client, seen = several_threads
    batch = np.sort(np.random.default_rng(count).permutation(200)[:count])
    tree, over = Tree.balanced(count), two_rows_per_leaf(batch)
    with DaskEngine(client) as engine:
        engine.sum(Tree.balanced(200), two_rows_per_leaf())
        for _ in range(2):
            seen.tasks.clear()
            assert engine.sum(tree, over).tolist() == np.isin(np.arange(200), batch).tolist()
        assert seen.tasks == ["leaves"] * min(count, 3)
        shards = client.gather(engine._loaded.shards)
        assert sum(len(shard.y) for shard in shards) == 2 * count
        assert np.concatenate([shard.leaves for shard in shards]).tolist() == batch.tolist()


# Ingestion


@pytest.fixture(scope="module")
def quiet_ingestion(tmp_path_factory):
    """A file, and every byte of its scan and store from the serial engine."""
    folder = tmp_path_factory.mktemp("ingested")
    write_ingested(folder / "t.parquet")
    (folder / "quiet").mkdir()
    with pytest.MonkeyPatch.context() as patch, open_engine("serial", 1) as engine:
        return folder / "t.parquet", ingested(engine, folder / "t.parquet", folder / "quiet", patch)


def test_ingestion_has_the_same_bits_as_serial(client, quiet_ingestion, tmp_path, monkeypatch):
    path, quiet = quiet_ingestion
    with DaskEngine(client) as engine:
        assert engine.that_reads([(str(path), path.stat().st_size)]) is engine
        assert ingested(engine, path, tmp_path, monkeypatch) == quiet
    assert os.listdir(tmp_path) == ["store"]


@pytest.mark.parametrize(
    "moment", ["sorting", *(pytest.param(name, marks=pytest.mark.slow) for name in ("scan", "sort", "store"))]
)
def test_a_worker_killed_in_ingestion(client, traps, quiet_ingestion, tmp_path, monkeypatch, moment):
    path, quiet = quiet_ingestion
    traps.set(moment)
    with DaskEngine(client) as engine:
        assert ingested(engine, path, tmp_path, monkeypatch) == quiet
    assert len(traps.sprung(moment)) == 1
    assert os.listdir(tmp_path) == ["store"]


def test_a_file_that_workers_do_not_see_is_read_here(client, tmp_path):
    with DaskEngine(client) as engine:
        assert engine.that_reads([(str(tmp_path / "elsewhere.parquet"), 10)]) is engine.local


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seen", [True, False])
def test_blocks_of_a_file_are_predicted_by_workers(client, traps, tmp_path, monkeypatch, killed, seen):
    """Where workers do not see the folder of the output, this process writes the parts."""
    monkeypatch.setattr("gigagp.model.predictor._FEWEST_QUERIES", 64)
    fitted("serial", method="neighbourhood", neighbours=8).save(tmp_path / "model")
    model = HGPRegressor.load(tmp_path / "model").set_params(engine=client)
    if not seen:
        monkeypatch.setattr(DaskEngine, "sees", lambda *_: False)
    if killed:
        traps.set("answer")
    check_prediction_file(model, tmp_path, quantiles=(0.1,))
    assert bool(traps.sprung("answer")) == killed
    with DaskEngine(client) as engine:
        assert killed or engine.slots == 2  # a killed worker may not be back yet
        if seen:
            assert engine.sees(tmp_path)
            assert not engine.sees(tmp_path / "elsewhere")


def test_queries_are_sorted_and_answered_by_workers(client, tmp_path, monkeypatch):
    """With the same bits; where workers do not see the folder of the output, each block is answered on its own."""
    monkeypatch.setattr("gigagp.model.predictor._FEWEST_QUERIES", 64)
    fitted("serial", method="neighbourhood", neighbours=8).save(tmp_path / "model")
    model, Z = HGPRegressor.load(tmp_path / "model"), tmp_path / "Z.npy"
    np.save(Z, data()[0])
    here = model.set_params(engine="serial").predict_file(Z, tmp_path / "here.parquet").output.read_bytes()
    monkeypatch.setattr("gigagp.model.prediction_files._buckets", lambda *_: 5)
    for seen in (True, False):
        if not seen:
            monkeypatch.setattr(DaskEngine, "sees", lambda *_: False)
        there = model.set_params(engine=client).predict_file(Z, tmp_path / f"{seen}.parquet").output
        assert there.read_bytes() == here


@pytest.mark.slow  # in short in test_processes.py
def test_large_tasks_arrive(client, monkeypatch):
    check_large_tasks(client, monkeypatch)


# Workers that die: each has to be started again, which takes seconds, so that most of these tests are slow


@pytest.mark.parametrize("moment", ["step", *(pytest.param(name, marks=pytest.mark.slow) for name in ("load", "add"))])
def test_a_worker_killed_in_training(client, traps, moment, monkeypatch):
    if moment == "add":  # as on clusters of many workers: the client of a small one adds all sums itself
        monkeypatch.setattr("gigagp.engines.dask_shards.MOST_GATHERED", 1)
    traps.set(moment)
    model = fitted(client, "progressive" if moment == "load" else "local")
    assert len(traps.sprung(moment)) == 1
    assert answers(model) == expected("progressive" if moment == "load" else "local")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "all experts", "npae"])
def test_a_worker_killed_in_prediction(client, traps, name):
    model = fitted("serial", name).set_params(engine=client)
    traps.set("answer")
    assert answers(model) == expected(name)
    assert traps.sprung("answer")


@pytest.mark.slow
def test_a_worker_killed_between_steps(client):
    engine = Stepwise(client, step4=lambda: kill_one(client))
    assert answers(fitted(engine)) == expected()


@pytest.mark.slow
def test_a_newcomer_gets_its_share_and_is_lost_for_good(client):
    shares, new = [], []
    with ExitStack() as stack:

        def hire():
            new.append(join(client, stack))

        def look():
            shares.append(settled(engine))

        engine = Stepwise(client, step3=hire, step5=look, step7=stack.close)
        model = fitted(engine, "all experts")
    left = settled(engine)
    assert sum(shares[0].values()) == 8
    assert min(shares[0].values()) >= 2, "8 shards, 3 workers"
    assert shares[0][new[0]] >= 2
    assert new[0] not in left
    assert sum(left.values()) == 8
    assert answers(model) == expected("all experts")


@pytest.mark.slow
def test_workers_that_die_again_and_again_are_reported(client, cluster, traps, monkeypatch):
    monkeypatch.setattr("gigagp.engines.dask_cluster._ATTEMPTS", 1)
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    traps.set("step", count=20)
    with pytest.raises(WorkerLost, match=r"'evidence' of .*expert.* \d+, the last at tcp://.*memory"):
        fitted(client)
    traps.clear()


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr("gigagp.engines.dask_cluster._PATIENCE", 1)
    with (
        limit(600),  # only so that a test that hangs ends; the machine may be busy
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        Client(empty) as client,
        pytest.raises(WorkerLost, match="had no worker for 1 s; start some"),
    ):
        DaskEngine(client)


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr("gigagp.engines.dask._CONNECT_SECONDS", 1)
    with limit(60), pytest.raises(InvalidParameter, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        fitted("tcp://127.0.0.1:9")


# Workers that cannot do what they are asked


def fake_package(folder, version):
    package = folder / "gigagp"
    package.mkdir()
    text = "raise ImportError('not here')" if version is None else ""
    (package / "__init__.py").write_text(text)
    (package / "version.py").write_text(f"__version__ = {version!r}")
    return str(folder)


@pytest.mark.parametrize(("version", "said"), [pytest.param(None, "none", marks=pytest.mark.slow), ("0.0.1", "0.0.1")])
def test_workers_with_another_version_or_none(client, tmp_path, version, said):
    with ExitStack() as stack:
        where = join(client, stack, first=fake_package(tmp_path, version), PYTHONSAFEPATH="1")
        wanted = rf"every worker needs gigagp .*: {where} has {said}; install it there \(pip install gigagp=="
        with pytest.raises(WorkerLost, match=wanted):
            fitted(client)


@pytest.mark.slow
def test_a_latecomer_without_the_package_does_no_harm(client, tmp_path):
    """It ends over its first task, and others do its work."""
    with ExitStack() as stack:
        package = fake_package(tmp_path, None)
        engine = Stepwise(client, step3=lambda: join(client, stack, first=package, PYTHONSAFEPATH="1"))
        assert answers(fitted(engine)) == expected()


def _be_blind(dask_worker, folder):
    dask_worker.isdir = os.path.isdir
    os.path.isdir = lambda path: not str(path).startswith(folder) and dask_worker.isdir(path)


def _see_again(dask_worker):
    os.path.isdir = dask_worker.isdir


def test_a_worker_that_does_not_see_the_folder(client, tmp_path):
    blind = next(iter(client.nthreads()))
    client.run(_be_blind, folder=str(tmp_path), workers=[blind])
    try:
        with pytest.raises(InvalidParameter, match=f"some workers do not see the folder {tmp_path}.*{blind}; choose"):
            HGPRegressor(engine=client).fit(*data(), store=tmp_path)
    finally:
        client.run(_see_again, workers=[blind])
    gc.collect()
    assert os.listdir(tmp_path) == []


class Faulty(SquaredExponential):
    """Goes wrong over the expert that has the row with a large number."""

    def __init__(self, fault, *arguments, **others):
        super().__init__(*arguments, **others)
        self.fault = fault

    def __reduce__(self):
        return _faulty, (self.fault, self.theta)

    def with_theta(self, theta):
        return _faulty(self.fault, theta)

    def bind(self, columns):
        return _faulty(self.fault, super().bind(columns).theta)

    def profile(self, theta, columns):
        return None

    def gram(self, theta, X, out=None):
        K = super().gram(theta, X, out)
        if X[:, 0].max() > 10:
            if self.fault == "nan":
                return np.full((len(X), len(X)), np.nan)
            if self.fault == "indefinite":
                K[: len(X), : len(X)] = -5 * np.eye(len(X))
            if self.fault == "memory":
                raise MemoryError
            if self.fault == "error":
                raise ZeroDivisionError("in a kernel")
            if self.fault == "mutation":
                X[0] = 0
        return K

    def pullback(self, theta, X, W, K):
        gradient = super().pullback(theta, X, W, K)
        return gradient * np.nan if self.fault == "slope" and X[:, 0].max() > 10 else gradient


def _faulty(fault, theta):
    values = np.exp(theta)
    return Faulty(fault, float(values[0]), values[1:].tolist())


def with_one_outlier():
    X, y = data()
    X = X.copy()
    X[77, 0] = 1000.0
    return X, y


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error", ZeroDivisionError),
        ("mutation", ValueError),
        ("slope", NotFinite),
        ("nan", NotPositiveDefinite),
        ("indefinite", NotPositiveDefinite),
    ],
)
def test_an_error_says_in_which_expert_and_where(client, fault, kind):
    def failure(engine):
        model = HGPRegressor(
            Faulty(fault, 1.0, [1.0, 1.0]), partition="random", leaf_size=50, random_state=0, engine=engine
        )
        with pytest.raises(kind) as caught:
            model.fit(*with_one_outlier())
        return str(caught.value), getattr(caught.value, "__notes__", [])

    here, said_here = failure("serial")
    there, said_there = failure(client)
    assert here == there
    assert "expert" in here + "".join(said_here)
    *experts, where = said_there
    assert experts == said_here
    assert where.split(" at ")[1] in client.nthreads()


def test_a_worker_out_of_memory(client):
    kernel = Faulty("memory", 1.0, [1.0, 1.0])
    with pytest.raises(WorkerLost, match=r"out of memory in 'evidence' in expert \d+, on the worker .*: give"):
        HGPRegressor(kernel, partition="random", leaf_size=50, engine=client).fit(*with_one_outlier())


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["changed", "missing", "other rows, same time"])
def test_a_file_that_changes_is_an_error_and_no_other_answer(client, tmp_path, harm):
    """A shard that must be read again is what it was, or the fit ends."""

    def spoil():
        (path,) = tmp_path.rglob("X.npy")
        seen, content = path.stat(), path.read_bytes()
        if harm == "missing":
            path.unlink()
        else:
            path.write_bytes(content[:128] + bytes(len(content) - 128))
        if harm.startswith("other"):
            os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
        kill_one(client)

    engine = Stepwise(client, step4=spoil)
    with pytest.raises(DamagedFile, match=r"X.npy"):
        HGPRegressor(**MODELS["local"], random_state=3, engine=engine).fit(*data(), store=tmp_path)


# What it costs


def _threads_inside(task, work):
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.slow
def test_one_blas_thread_in_every_task(monkeypatch):
    """Also where workers were started with two."""
    for library in ("OMP", "OPENBLAS", "MKL"):  # Dask takes one only where the environment says nothing
        monkeypatch.setenv(f"{library}_NUM_THREADS", "2")
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        DaskEngine(client) as engine,
    ):
        assert list(engine.map(_threads_inside, range(3))) == [{1}] * 3
        assert client.submit(_threads_inside, None, None).result() == {2}


def _count_bytes():
    from distributed.comm.tcp import TCP  # noqa: PLC0415

    if not hasattr(TCP, "written"):
        TCP.written, TCP.plain_write = 0, TCP.write

        async def write(self, *arguments, **others):
            sent = await TCP.plain_write(self, *arguments, **others)
            TCP.written += sent
            return sent

        TCP.write = write
    return TCP.written


@pytest.mark.slow
def test_a_step_moves_less_than_a_megabyte(client):
    """All that client, scheduler and workers send, while .7 MB of rows stay where they are."""
    moved = []

    def count():
        moved.append(_count_bytes() + sum(client.run(_count_bytes).values()))

    rng = np.random.default_rng(0)
    X = rng.standard_normal((8_000, 10))
    y = np.sin(X).sum(axis=1) + 0.1 * rng.standard_normal(8_000)
    engine = Stepwise(client, **{f"step{i}": count for i in range(3, 9)})
    model = HGPRegressor(
        SquaredExponential(1.0, [1.0] * 10), partition="random", leaf_size=20, training="full", engine=engine,
        noise_bounds=(0.1, 0.1), random_state=0,
    )  # fmt: skip
    model.fit(X, y)
    assert len(moved) == 6
    assert 0 < max(np.diff(moved)) < 300_000


# Engines and clients as values


def test_copies_compute_in_the_same_place(client):
    model = HGPRegressor(engine=client)
    assert clone(model).engine is client
    assert pickle.loads(pickle.dumps(model)).engine == client.scheduler.address
    with pytest.raises(InvalidParameter, match=r"n_jobs must be a positive number of workers, -1 .*; got -5"):
        DaskEngine(client, n_jobs=-5)
    engine = DaskEngine(client, folder=tempfile.gettempdir(), n_jobs=3)
    assert clone(HGPRegressor(engine=engine)).engine is engine
    with pickle.loads(pickle.dumps(engine)) as other:
        assert other.client.scheduler.address == client.scheduler.address
        assert (other.folder, other.n_jobs) == (engine.folder, 3)
        assert list(other.map(_threads_inside, [0])) == [{1}]
    with open_engine(client.scheduler.address, 2) as connected:
        assert connected.sum(Tree.balanced(3), _one) == 3
    assert connected.client.status == "closed"
    assert client.status == "running"


def _one(leaf, work):
    return 1


@pytest.mark.slow
def test_an_engine_used_again_keeps_what_it_holds(client, traps):
    engine = DaskEngine(client)
    model = fitted(engine)
    value = model.log_marginal_likelihood()
    loaded = engine._loaded
    traps.set("step")
    assert model.log_marginal_likelihood() == value
    assert engine._loaded is loaded
    assert value == fitted("serial").log_marginal_likelihood()
    assert answers(fitted(engine, "random")) == expected("random")
    engine.close()


@pytest.mark.slow
def test_no_folder_is_left(client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = fitted(client)
    assert answers(model) == expected()
    with pytest.raises(ZeroDivisionError):
        HGPRegressor(Faulty("error", 1.0, [1.0, 1.0]), partition="random", leaf_size=50, engine=client).fit(
            *with_one_outlier()
        )
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def mapped_below(folder):
    """How many files of a folder this process maps."""
    return sum(folder in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_workers_give_back_files_that_are_removed(client, tmp_path):
    """Their space is free only when no worker maps them."""
    np.save(tmp_path / "X.npy", np.ones(20_000))
    X, Z = np.load(tmp_path / "X.npy", mmap_mode="r"), np.ones(20_000)
    with DaskEngine(client) as engine:
        engine.use_folder(tmp_path)
        assert list(engine.map(lambda row, work: X[row] + Z[row], [0, 1])) == [2.0, 2.0]
        assert sum(client.run(mapped_below, str(tmp_path)).values()) > 1
    assert sum(client.run(mapped_below, str(tmp_path)).values()) == 0


def test_a_checkpoint_holds_no_more_than_its_own(client, tmp_path):
    model = HGPRegressor(**MODELS["local"], random_state=3, engine=client).fit(*data(), checkpoint=tmp_path / "kept")
    assert answers(model) == expected()
    assert set(os.listdir(tmp_path / "kept")) <= {"manifest.json", "scan.npz", "evaluations.log", "store"}


def test_an_asynchronous_client_is_refused(cluster):
    async def refuse():
        async with Client(cluster.scheduler_address, asynchronous=True) as asynchronous:
            with pytest.raises(InvalidParameter, match="asynchronous"):
                DaskEngine(asynchronous)

    asyncio.run(refuse())


# Encryption


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates")
def test_a_cluster_with_certificates_is_used_and_refuses_strangers(tmp_path, monkeypatch):
    monkeypatch.setattr("gigagp.engines.dask._CONNECT_SECONDS", 60)
    paths = {name: str(tmp_path / f"{name}.pem") for name in ("key", "cert", "other_key", "other_cert")}
    for key, cert in (("key", "cert"), ("other_key", "other_cert")):
        options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=gigagp"]
        command = ["openssl", "req", *options, "-keyout", paths[key], "-out", paths[cert]]
        subprocess.run(command, check=True, capture_output=True)

    def told(key, cert):
        own = {"distributed.comm.require-encryption": True, "distributed.comm.tls.ca-file": paths[cert]}
        for role in ("scheduler", "worker", "client"):
            prefix = f"distributed.comm.tls.{role}"
            own |= {f"{prefix}.cert": paths[cert], f"{prefix}.key": paths[key]}
        return dask.config.set(own)

    with limit(600), told("key", "cert"):
        security = Security()
    with (
        limit(600),
        LocalCluster(
            n_workers=1, threads_per_worker=1, protocol="tls://", security=security, dashboard_address=":0"
        ) as cluster,
    ):
        address = cluster.scheduler_address
        with told("key", "cert"):
            assert answers(fitted(address)) == expected()
        monkeypatch.setattr("gigagp.engines.dask._CONNECT_SECONDS", 5)
        with told("other_key", "other_cert"), pytest.raises(InvalidParameter, match="no Dask scheduler answers"):
            fitted(address)
        with pytest.raises(InvalidParameter, match="no Dask scheduler answers"):
            fitted(address.replace("tls://", "tcp://"))

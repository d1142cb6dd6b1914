"""Faults of a Dask cluster while it scans, sorts and stores rows: the store never depends on who died.

These are the kinds of faults of tests/slow/test_cluster_faults.py, at the moments of ingestion that tests/traps.py
knows. Workers killed over a finished task are in tests/unit/engines/test_dask.py. Run by `make test-slow`.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

from engine_models import ingested, write_ingested
from gigagp import HGPRegressor
from gigagp.engines import open_engine
from gigagp.engines.dask import SETTINGS, DaskEngine
from gigagp.errors import DiskFull, InvalidInput, WorkerLost
from hosts import cut, two_hosts
from traps import Traps, dask_process, join, limit

pytestmark = pytest.mark.slow

KEPT = {"distributed.deploy.lost-worker-timeout": "1h"}  # a slot killed twice in that time is otherwise given up
TTL = "5s"  # after which a worker that says nothing counts as lost, where a test waits for it
LONG = "10m"  # the same elsewhere: on a busy machine workers may be silent for long
PHASES = ("scan", "sort", "store")
MEMORY = 1 << 20  # bytes: several runs of rows are sorted


class Phasewise(DaskEngine):
    """Calls something before the tasks of a phase, or after the first of them."""

    def __init__(self, client, before=None, within=None):
        super().__init__(client)
        self.before, self.within = before or {}, within or {}

    def map(self, function, tasks, together=1):
        name = getattr(function, "name", "")
        self.before.pop(name, lambda: None)()
        for result in super().map(function, tasks, together):
            yield result
            self.within.pop(name, lambda: None)()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A file, and every byte of its scan and store from the serial engine."""
    folder = tmp_path_factory.mktemp("ingested")
    write_ingested(folder / "t.parquet")
    (folder / "quiet").mkdir()
    with pytest.MonkeyPatch.context() as patch, open_engine("serial", 1) as engine:
        return folder / "t.parquet", ingested(engine, folder / "t.parquet", folder / "quiet", patch, MEMORY)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """New workers start slowly where the machine is busy."""
    monkeypatch.setattr("gigagp.engines.dask_cluster._PATIENCE", 250)


@pytest.fixture
def traps(tmp_path):
    (tmp_path / "traps").mkdir()
    return Traps(tmp_path / "traps")


@contextmanager
def cluster_of(workers, traps, ttl=LONG):
    with (
        limit(900),  # only so that a test that hangs ends; the machine may be busy
        dask.config.set({**SETTINGS, "distributed.scheduler.worker-ttl": ttl, **KEPT}),
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(traps)
        yield client


@pytest.fixture
def client(traps):
    with cluster_of(2, traps) as client:
        yield client


def check(engine, quiet, tmp_path, monkeypatch):
    """Ingestion ends with the bits of the quiet run, and leaves nothing but the store."""
    path, expected = quiet
    folder = tmp_path / "folder"
    folder.mkdir()
    with engine:
        assert ingested(engine, path, folder, monkeypatch, MEMORY) == expected
    assert os.listdir(folder) == ["store"]


def kill(client, count=2):
    for pid in list(client.run(os.getpid).values())[:count]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("moment", ["scanning", "sorting", "storing"])
def test_a_worker_killed_in_the_midst_of_a_task(client, traps, quiet, tmp_path, monkeypatch, moment):
    traps.set(moment)
    check(DaskEngine(client), quiet, tmp_path, monkeypatch)
    assert len(traps.sprung(moment)) == 1


@pytest.mark.parametrize("phase", PHASES)
def test_a_worker_killed_between_phases(client, quiet, tmp_path, monkeypatch, phase):
    engine = Phasewise(client, before={phase: lambda: kill(client, 1)})
    check(engine, quiet, tmp_path, monkeypatch)
    assert not engine.before


@pytest.mark.parametrize("phase", PHASES)
def test_all_workers_killed_at_once(client, quiet, tmp_path, monkeypatch, phase):
    engine = Phasewise(client, within={phase: lambda: kill(client)})
    check(engine, quiet, tmp_path, monkeypatch)
    assert not engine.within


@pytest.mark.parametrize("moment", ["scan", "sorting", "storing"])
def test_the_only_worker_killed_five_times(traps, quiet, tmp_path, monkeypatch, moment):
    with cluster_of(1, traps) as client:
        traps.set(moment, count=5)
        check(DaskEngine(client), quiet, tmp_path, monkeypatch)
        assert len(traps.sprung(moment)) == 5


@pytest.mark.parametrize("phase", ["sort", "store"])
def test_a_newcomer_takes_part_and_is_lost_for_good(client, quiet, tmp_path, monkeypatch, phase):
    with ExitStack() as stack:
        new = []

        def hire():
            new.append(join(client, stack))

        engine = Phasewise(client, before={phase: hire}, within={phase: stack.close})
        check(engine, quiet, tmp_path, monkeypatch)
        assert new
        assert not engine.within


def test_a_newcomer_killed_over_its_first_task(traps, quiet, tmp_path, monkeypatch):
    """It is the only one that can be, because the other worker is stopped meanwhile."""
    with cluster_of(1, traps, TTL) as client, ExitStack() as stack:
        traps.set("sort", "stop")

        def hire():
            traps.wait("sort")
            join(client, stack)
            traps.set("sort")

        helper = threading.Thread(target=hire)
        helper.start()
        try:
            check(DaskEngine(client), quiet, tmp_path, monkeypatch)
        finally:
            helper.join()
        assert len(traps.sprung("sort")) == 2


@pytest.mark.parametrize("moment", ["scanning", "sorting", "storing"])
@pytest.mark.parametrize("seconds", [2, 12])
def test_a_worker_that_hangs_and_comes_back(traps, quiet, tmp_path, monkeypatch, moment, seconds):
    """It is stopped for less and for longer than the scheduler waits, and may then write what others have written."""

    def wake():
        traps.wait(moment)
        time.sleep(seconds)
        for pid in traps.sprung(moment):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    traps.set(moment, "stop")
    waker = threading.Thread(target=wake)
    waker.start()
    try:
        with cluster_of(2, traps, TTL) as client:
            check(DaskEngine(client), quiet, tmp_path, monkeypatch)
    finally:
        waker.join()


@pytest.mark.parametrize("phase", ["sort", "store"])
def test_a_host_cut_off_for_good(quiet, tmp_path, monkeypatch, phase):
    with limit(900), two_hosts() as hosts, ExitStack() as stack:
        settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": TTL, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s"}
        options = ("--host=10.213.11.1", "--port=28798", "--dashboard-address=:0")
        stack.enter_context(dask_process("scheduler", *options, **settings))
        client = stack.enter_context(Client("tcp://10.213.11.1:28798", timeout=120))
        for i, name in enumerate(hosts, 11):
            join(client, stack, within=("ip", "netns", "exec", name), host=f"10.213.{i}.2", **settings)
        engine = Phasewise(client, before={phase: lambda: cut(hosts[1])})
        check(engine, quiet, tmp_path, monkeypatch)
        assert len(client.nthreads()) == 1


def stored(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "store").iterdir())}


def test_a_scheduler_killed_and_the_fit_resumed(quiet, tmp_path, monkeypatch):
    monkeypatch.setattr("gigagp.fit.scanning._LEAST_ROWS", 1)
    monkeypatch.setattr("gigagp.fit.store_writer.bucket_rows", lambda columns: 20_000)
    monkeypatch.setattr("gigagp.memory.LEAST", 1)

    def fitted(engine, folder):
        model = HGPRegressor("matern32", leaf_size=200, neighbours=16, memory=MEMORY, random_state=0, engine=engine)
        return model.fit(quiet[0], "y", checkpoint=folder).theta_.tobytes()

    def cluster(stack):
        options = ("--host=127.0.0.1", "--port=0", f"--scheduler-file={tmp_path / 'scheduler.json'}")
        scheduler = stack.enter_context(dask_process("scheduler", *options, "--dashboard-address=:0"))
        client = stack.enter_context(Client(scheduler_file=str(tmp_path / "scheduler.json"), timeout=120))
        for _ in range(2):
            join(client, stack)
        return scheduler, client

    for phase in ("sort", "store"):
        with limit(900), ExitStack() as stack:
            scheduler, client = cluster(stack)
            engine = Phasewise(client, within={phase: scheduler.kill})
            with pytest.raises(WorkerLost, match=r"scheduler is gone; start it .*checkpoint=folder"):
                fitted(engine, tmp_path / "kept")
            assert not (tmp_path / "kept" / "store").exists()
        (tmp_path / "scheduler.json").unlink()
    with limit(900), ExitStack() as stack:
        theta = fitted(Phasewise(cluster(stack)[1]), tmp_path / "kept")
    assert theta == fitted("serial", tmp_path / "serial")
    assert stored(tmp_path / "kept") == stored(tmp_path / "serial")


@pytest.mark.parametrize("harm", ["changed", "missing"])
@pytest.mark.parametrize("phase", ["scan", "sort"])
def test_a_source_that_changes_is_an_error_and_no_other_store(client, quiet, tmp_path, monkeypatch, harm, phase):
    path = tmp_path / "t.parquet"
    path.write_bytes(quiet[0].read_bytes())

    def spoil():
        path.unlink()
        if harm == "changed":
            write_ingested(path, 100_000)

    folder = tmp_path / "folder"
    folder.mkdir()
    with Phasewise(client, before={phase: spoil}) as engine, pytest.raises(InvalidInput, match=r"t\.parquet"):
        ingested(engine, path, folder, monkeypatch, MEMORY)
    assert not (folder / "store").exists()


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_sorted_rows_that_are_lost_are_an_error_and_no_other_store(client, quiet, tmp_path, monkeypatch, harm):
    folder = tmp_path / "folder"
    folder.mkdir()

    def spoil():
        largest = max((folder / ".buckets").rglob("*.rows"), key=lambda path: path.stat().st_size)
        largest.unlink() if harm == "missing" else os.truncate(largest, 8)

    with (
        Phasewise(client, before={"store": spoil}) as engine,
        pytest.raises(DiskFull, match="writing the expert store"),
    ):
        ingested(engine, quiet[0], folder, monkeypatch, MEMORY)
    assert not (folder / "store").exists()


def test_a_bad_value_is_reported_as_by_the_serial_engine(client, tmp_path, monkeypatch):
    values = np.linspace(0, 1, 150_000)
    values[140_007] = np.inf
    pq.write_table(pa.table({"a": values, "b": values, "y": values}), tmp_path / "t.parquet", row_group_size=20_000)

    def failure(engine):
        with engine, pytest.raises(InvalidInput, match="row 140007") as caught:
            ingested(engine, tmp_path / "t.parquet", tmp_path, monkeypatch, MEMORY)
        return str(caught.value), getattr(caught.value, "__notes__", [])

    here, _ = failure(open_engine("serial", 1))
    there, (where,) = failure(DaskEngine(client))
    assert here == there
    assert where.split(" at ")[1] in client.nthreads()


def _fail(dask_worker, name, error):
    from gigagp.fit.bucket_sort import SortTask  # noqa: PLC0415
    from gigagp.fit.store_writer import StoreTask  # noqa: PLC0415

    def call(task, part, work):
        raise error

    {"sort": SortTask, "store": StoreTask}[name].__call__ = call


@pytest.mark.parametrize("phase", ["sort", "store"])
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DiskFull, "failed: No space left on device"),
        (MemoryError(), WorkerLost, "a worker ran out of memory in '{}'"),
    ],
    ids=["full disk", "no memory"],
)
def test_a_worker_without_space_is_reported(client, quiet, tmp_path, monkeypatch, phase, error, kind, message):
    worker = next(iter(client.nthreads()))
    client.run(_fail, name=phase, error=error, workers=[worker])
    folder = tmp_path / "folder"
    folder.mkdir()
    with DaskEngine(client) as engine, pytest.raises(kind, match=message.format(phase)):
        ingested(engine, quiet[0], folder, monkeypatch, MEMORY)
    assert not (folder / "store").exists()


def test_a_latecomer_without_the_package_does_no_harm(client, quiet, tmp_path, monkeypatch):
    """It ends over its first task, and others do its work."""
    package = tmp_path / "other" / "gigagp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not here')")
    with ExitStack() as stack:

        def hire():
            join(client, stack, first=str(package.parent), PYTHONSAFEPATH="1")

        check(Phasewise(client, before={"sort": hire}), quiet, tmp_path, monkeypatch)


def test_tasks_that_run_twice_at_the_same_time_write_the_same_store(client, quiet, tmp_path, monkeypatch):
    """As where a worker that was given up goes on: its files and those of its successor are the same."""

    class Twice(DaskEngine):
        others = ()

        def _run_bundle(self, name, packed, content):
            self.others = *self.others, super()._run_bundle(name, packed, content)
            return super()._run_bundle(name, packed, content)

    check(Twice(client), quiet, tmp_path, monkeypatch)

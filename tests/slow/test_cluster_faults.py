"""Faults of a Dask cluster that take their time: each ends with the bits of the quiet run. Run by `make test-slow`.

Kills are at the moments that tests/traps.py knows. Hosts of their own are network namespaces of this machine.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from engine_models import MODELS, Stepwise, answers, data, expected, fitted
from gigagp import HGPRegressor, datasets
from gigagp.engines.dask import SETTINGS
from gigagp.errors import WorkerLost
from hosts import cut, two_hosts
from traps import Traps, dask_process, join, limit

pytestmark = pytest.mark.slow

KEPT = {"distributed.deploy.lost-worker-timeout": "1h"}  # a slot killed twice in that time is otherwise given up
TTL = "5s"  # after which a worker that says nothing counts as lost, where a test waits for it
LONG = "10m"  # the same elsewhere: on a busy machine workers may be silent for long


@pytest.fixture(autouse=True)
def small_first_batch(monkeypatch):
    monkeypatch.setattr("gigagp.fit.training._FIRST_POINTS", 100)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """New workers start slowly where the machine is busy."""
    monkeypatch.setattr("gigagp.engines.dask_cluster._PATIENCE", 250)


@pytest.fixture
def sums_added_by_workers(monkeypatch):
    """As on clusters of many workers: the client of a small one adds all sums itself."""
    monkeypatch.setattr("gigagp.engines.dask_shards.MOST_GATHERED", 1)


@pytest.fixture
def traps(tmp_path):
    (tmp_path / "traps").mkdir()
    return Traps(tmp_path / "traps")


@contextmanager
def cluster_of(workers, traps, ttl=LONG):
    with (
        dask.config.set({**SETTINGS, "distributed.scheduler.worker-ttl": ttl, **KEPT}),
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(traps)
        yield client


@pytest.fixture
def client(traps):
    with limit(900), cluster_of(2, traps) as client:
        yield client


def kill(client, which=slice(None)):
    for pid in list(client.run(os.getpid).values())[which]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(workers, traps):
    with limit(900), cluster_of(workers, traps) as client:
        for name in MODELS:
            assert answers(fitted(client, name)) == expected(name), name


def test_processes_in_any_number_give_the_same_bits():
    with limit(900):
        for workers in (2, 4):
            model = HGPRegressor(**MODELS["local"], random_state=3, engine="processes", n_jobs=workers).fit(*data())
            assert answers(model) == expected()


def test_all_workers_killed_at_once(client):
    """The scheduler then forgets tasks that had a place."""
    assert answers(fitted(Stepwise(client, step4=lambda: kill(client)))) == expected()


@pytest.mark.parametrize("moment", ["load", "step"])
def test_the_only_worker_killed_five_times(traps, moment):
    with limit(900), cluster_of(1, traps) as client:
        traps.set(moment, count=5)
        assert answers(fitted(client)) == expected()
        assert len(traps.sprung(moment)) == 5


@pytest.mark.usefixtures("sums_added_by_workers")
def test_workers_killed_five_times_while_they_add(client, traps):
    traps.set("add", count=5)
    assert answers(fitted(client)) == expected()
    assert len(traps.sprung("add")) == 5


def test_a_newcomer_killed_while_it_takes_its_share(client, traps):
    with ExitStack() as stack:

        def hire():
            join(client, stack)
            traps.set("load")

        assert answers(fitted(Stepwise(client, step3=hire))) == expected()
    assert len(traps.sprung("load")) == 1


@pytest.mark.parametrize("moment", ["step", "add", "load"])
@pytest.mark.parametrize("seconds", [2, 12])
@pytest.mark.usefixtures("sums_added_by_workers")
def test_a_worker_that_hangs_and_comes_back(traps, moment, seconds):
    """It is stopped for less and for longer than the scheduler waits, and then goes on, if its nanny lets it."""

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
        with limit(900), cluster_of(2, traps, TTL) as client:
            assert answers(fitted(client)) == expected()
    finally:
        waker.join()


def test_a_scheduler_killed_and_the_fit_resumed(tmp_path):
    def cluster(stack, port):
        environment = {f"DASK_DISTRIBUTED__{name}": "False" for name in ("SCHEDULER__WORK_STEALING",)}
        options = ("--host=127.0.0.1", f"--port={port}", "--dashboard-address=:0")
        scheduler = stack.enter_context(dask_process("scheduler", *options, **environment))
        address = f"tcp://127.0.0.1:{port}"
        for _ in range(2):
            stack.enter_context(dask_process("worker", address, "--no-nanny", "--nthreads=1", "--no-dashboard"))
        client = stack.enter_context(Client(address, timeout=120))
        client.wait_for_workers(2, timeout=240)
        return scheduler, client

    with limit(900), ExitStack() as stack:
        scheduler, client = cluster(stack, 28786)
        engine = Stepwise(client, step5=scheduler.kill)
        with pytest.raises(WorkerLost, match=r"scheduler is gone; start it .*checkpoint=folder"):
            fitted(engine, arguments={"checkpoint": tmp_path / "kept"})
        known = (tmp_path / "kept" / "evaluations.log").stat().st_size
        assert known > 0
        _, client = cluster(stack, 28787)
        engine = Stepwise(client)
        assert answers(fitted(engine, arguments={"checkpoint": tmp_path / "kept"})) == expected()
        assert (tmp_path / "kept" / "evaluations.log").stat().st_size > known
        assert engine.step > 0


@pytest.mark.usefixtures("sums_added_by_workers")
def test_twenty_kills_over_a_million_rows(traps):
    X, y = datasets.robot_arm(1_000_000)
    X = X[:, :3]

    def theta(engine):
        model = HGPRegressor(partition="random", leaf_size=64, training="full", random_state=0, engine=engine)
        return model.fit(X, y).theta_.tobytes()

    quiet = theta("threads")
    kills = []

    def haunt(client):
        """Now at a moment of the work, now whenever."""
        rng = np.random.default_rng(0)
        while len(kills) < 20 and not done.is_set():
            moment = ("step", "load", "add", None)[len(kills) % 4]
            if moment is None:
                done.wait(rng.uniform(0, 3))
                pids = list(client.run(os.getpid, on_error="return").values())
                pid = next((p for p in pids if isinstance(p, int)), None)
                if pid is None:
                    continue
                os.kill(pid, signal.SIGKILL)
            else:
                before = len(traps.sprung(moment))
                traps.set(moment)
                while len(traps.sprung(moment)) == before and not done.wait(0.05):
                    pass
                if len(traps.sprung(moment)) == before:
                    return
            kills.append(moment)

    done = threading.Event()
    with limit(3600), cluster_of(2, traps) as client:
        killer = threading.Thread(target=haunt, args=(client,))
        killer.start()
        try:
            assert theta(client) == quiet
        finally:
            done.set()
            killer.join()
    assert len(kills) == 20


def test_a_host_cut_off_for_good():
    """The link goes down in mid-training."""
    with limit(900), two_hosts() as hosts, ExitStack() as stack:
        settings = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": TTL, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "15s"}
        options = ("--host=10.213.11.1", "--port=28788", "--dashboard-address=:0")
        stack.enter_context(dask_process("scheduler", *options, **settings))
        client = stack.enter_context(Client("tcp://10.213.11.1:28788", timeout=120))
        for i, name in enumerate(hosts, 11):
            inside = {"within": ("ip", "netns", "exec", name), "host": f"10.213.{i}.2"}
            join(client, stack, **inside, **settings)
        assert {address.split(":")[1] for address in client.nthreads()} == {"//10.213.11.2", "//10.213.12.2"}
        engine = Stepwise(client, step5=lambda: cut(hosts[1]))
        assert answers(fitted(engine)) == expected()
        assert len(client.nthreads()) == 1

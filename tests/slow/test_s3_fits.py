"""Fits whose store or checkpoint is on S3, on machines that share no file system; with moto's server on this machine.

Workers of the clusters here are processes that refuse every file of another process. tests/unit/fit/test_addressed_fits
has what needs neither S3 nor a cluster.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster, WorkerPlugin
from pyarrow import fs

from engine_models import ingested, write_ingested
from gigagp import HGPRegressor, InvalidParameter
from gigagp.data import leases
from gigagp.data.mirrors import Mirror
from gigagp.engines import open_engine
from gigagp.engines.dask import SETTINGS, DaskEngine
from gigagp.errors import DamagedFile, FolderInUse
from s3_server import BUCKET, empty_bucket, free_port, running_server
from traps import Traps, limit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # few rows
    pytest.mark.skipif(find_spec("moto") is None, reason="needs moto's server: pip install 'moto[server]'"),
]
ROWS = 3000
MEMORY = 1 << 14  # bytes: the rows are sorted in files
KEPT = {"distributed.scheduler.worker-ttl": "10m", "distributed.deploy.lost-worker-timeout": "1h"}


@pytest.fixture(scope="module")
def server():
    with running_server() as address:
        yield address


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    yield from empty_bucket(server, monkeypatch, tmp_path / "cache")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Sizes that only this process uses."""
    monkeypatch.setattr("gigagp.memory.LEAST", 1)
    monkeypatch.setattr("gigagp.fit.store_writer.bucket_rows", lambda columns: 500)
    monkeypatch.setattr("gigagp.engines.dask_cluster._PATIENCE", 250)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (ROWS, 2))
    y = np.sin(2 * X).sum(axis=1) + 0.2 * rng.standard_normal(ROWS)
    return pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})


def model(engine="serial", **settings):
    return HGPRegressor(**{"leaf_size": 40, "random_state": 3, "engine": engine, "memory": MEMORY, **settings})


def answers(fitted, table):
    mean, std = fitted.predict(table.select(["a", "b"]).slice(0, 300), return_std=True)
    return [fitted.theta_.tobytes(), mean.tobytes(), std.tobytes()]


@pytest.fixture(scope="module")
def expected(table):
    """The answers of a fit with a store on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gigagp.memory.LEAST", 1)
        patch.setattr("gigagp.fit.store_writer.bucket_rows", lambda columns: 500)
        return answers(model().fit(table, "y"), table)


def put(s3, table):
    pq.write_table(table, f"{BUCKET}/rows.parquet", row_group_size=700, filesystem=s3)
    return f"s3://{BUCKET}/rows.parquet"


def objects(s3, key=""):
    gc.collect()
    infos = s3.get_file_info(fs.FileSelector(f"{BUCKET}/{key}".rstrip("/"), recursive=True, allow_not_found=True))
    return sorted(info.path.removeprefix(f"{BUCKET}/") for info in infos if info.is_file)


def files(folder):
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file() and path.name != ".lock")


class Apart(WorkerPlugin):
    """Workers that refuse files of other processes, as if on machines of their own."""

    name = "apart"

    def setup(self, worker):
        from gigagp.data.array_files import ArrayPlace  # noqa: PLC0415
        from gigagp.data.mapped_file import MappedFile  # noqa: PLC0415
        from gigagp.fit.bucket_runs import FolderRuns  # noqa: PLC0415

        def refuse(self, *_):
            raise AssertionError(f"{self} is a file of another machine")

        MappedFile.open = ArrayPlace.fill = FolderRuns.writing = FolderRuns.read = refuse


@contextmanager
def cluster_of(workers, cache, traps=None, **environment):
    environment = {"GIGAGP_CACHE": str(cache), **environment}
    with (
        limit(600),  # only so that a test that hangs ends
        dask.config.set({**SETTINGS, **KEPT}),
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", env=environment) as cluster,
        Client(cluster) as client,
    ):
        for plugin in (Apart(), traps):
            if plugin is not None:
                client.register_plugin(plugin)
        yield client


@pytest.fixture
def traps(tmp_path):
    (tmp_path / "traps").mkdir()
    return Traps(tmp_path / "traps")


@pytest.mark.parametrize("engine", ["serial", "threads", "processes"])
def test_a_store_on_s3_gives_the_same_bits_on_one_machine(s3, table, expected, engine, tmp_path):
    fitted = model(engine, n_jobs=2).fit(table, "y", store=f"s3://{BUCKET}/run")
    assert fitted.model_.store.mapped
    assert answers(fitted, table) == expected
    assert len([name for name in objects(s3, "run") if "/store/X.npy/0" in name]) > 4
    del fitted
    assert objects(s3) == []
    assert files(tmp_path / "cache") == []


def test_a_cluster_that_shares_no_file_system(s3, table, expected, tmp_path):
    rows = put(s3, table)
    with cluster_of(2, tmp_path / "elsewhere") as client:
        fitted = model(client).fit(rows, "y", store=f"s3://{BUCKET}/run")
        assert answers(fitted, table) == expected, "also predictions, on the workers"
        assert files(tmp_path / "elsewhere") == [], "copies are removed with the engine that needed them"
        assert answers(fitted.set_params(engine="serial"), table) == expected
        del fitted
        assert objects(s3) == ["rows.parquet"]
        assert files(tmp_path / "cache") == []


@pytest.mark.parametrize("moment", ["sorting", "sort", "putting", "store", "load", "step"])
def test_a_worker_that_is_killed_changes_nothing(s3, table, expected, tmp_path, traps, moment):
    rows = put(s3, table)
    with cluster_of(2, tmp_path / "elsewhere", traps) as client:
        traps.set(moment)
        fitted = model(client).fit(rows, "y", store=f"s3://{BUCKET}/run")
        assert len(traps.sprung(moment)) == 1
        assert answers(fitted, table) == expected
        del fitted
    assert objects(s3) == ["rows.parquet"]


def test_every_byte_of_a_store_written_by_a_cluster(s3, tmp_path, monkeypatch):
    write_ingested(tmp_path / "t.parquet")
    (tmp_path / "quiet").mkdir()
    with open_engine("serial", 1) as engine:
        quiet = ingested(engine, tmp_path / "t.parquet", tmp_path / "quiet", monkeypatch, 1 << 20)
    with cluster_of(2, tmp_path / "elsewhere") as client, DaskEngine(client) as engine:
        mirror = Mirror.temporary(f"s3://{BUCKET}/run")
        assert ingested(engine, tmp_path / "t.parquet", mirror.folder, monkeypatch, 1 << 20, mirror) == quiet
        mirror.remove()
    assert objects(s3) == []


def test_an_object_that_changes_during_a_fit_is_an_error(s3, table, tmp_path):
    rows, spoilt = put(s3, table), []

    def spoil(event):
        if event.stage != "training" or spoilt:
            return
        for name in objects(s3, "run"):
            if "/store/X.npy/0" in name:
                with s3.open_output_stream(f"{BUCKET}/{name}") as file:
                    file.write(b"something else")
                spoilt.append(name)
        for pid in client.run(os.getpid).values():  # which has copies of what was there
            os.kill(pid, signal.SIGKILL)

    with cluster_of(1, tmp_path / "elsewhere") as client:
        with pytest.raises(DamagedFile, match=r"store/X\.npy/\d+ has changed since it was written; fit again"):
            model(client).fit(rows, "y", store=f"s3://{BUCKET}/run", progress=spoil)
        assert spoilt
    assert objects(s3) == ["rows.parquet"]


def test_workers_without_access_are_named(s3, table, tmp_path):
    nowhere = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    with (
        cluster_of(1, tmp_path / "elsewhere", **nowhere) as client,
        pytest.raises(InvalidParameter, match=r"some workers do not read from s3://bucket/run.*tcp.*same credentials"),
    ):
        model(client).fit(table, "y", store=f"s3://{BUCKET}/run")
    assert objects(s3) == []


@pytest.mark.parametrize("name", ["store", "checkpoint"])
def test_a_bucket_that_does_not_exist(s3, table, name):
    with pytest.raises(InvalidParameter, match=r"cannot read s3://nowhere/run.*: there is no bucket 'nowhere'"):
        model().fit(table, "y", **{name: "s3://nowhere/run"})


SCRIPT = """
import sys, time
import gigagp.memory, gigagp.fit.store_writer
from gigagp import HGPRegressor
gigagp.memory.LEAST = 1
gigagp.fit.store_writer.bucket_rows = lambda columns: 500
def tell(event):
    print(event.stage, flush=True)
    if event.stage == "training":
        time.sleep(0.3)  # otherwise a fast machine completes the fit before it is killed
HGPRegressor(leaf_size=40, random_state=3, engine="serial", memory=1 << 14).fit(
    sys.argv[1], "y", checkpoint=sys.argv[2], progress=tell)
"""


def killed_while(stage, count, rows, tmp_path):
    """A fit in a process of its own, killed when it reports a stage for the count-th time."""
    environment = os.environ | {"GIGAGP_CACHE": str(tmp_path / "lost")}
    command = [sys.executable, "-c", SCRIPT, rows, f"s3://{BUCKET}/run"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            count -= line.strip() == stage
            if count <= 0:
                if stage == "training":
                    time.sleep(1.5)  # evaluations are uploaded once a second
                break
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.full_choices
@pytest.mark.parametrize(("stage", "count"), [("scan", 1), ("sort", 2), ("training", 3)])
def test_a_fit_whose_machine_was_lost_continues_on_another(s3, table, tmp_path, monkeypatch, stage, count):
    rows = put(s3, table)
    alone = answers(model().fit(rows, "y"), table)
    killed_while(stage, count, rows, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(leases, "_machine", lambda: "another machine")
        with pytest.raises(FolderInUse, match=r"run is in use by another fit \(process \d+ on .* blocks it for two"):
            model().fit(rows, "y", checkpoint=f"s3://{BUCKET}/run")
    with cluster_of(2, tmp_path / "elsewhere") as client:
        fitted = model(client).fit(rows, "y", checkpoint=f"s3://{BUCKET}/run")
        assert answers(fitted, table) == alone
        del fitted
    assert not [name for name in objects(s3, "run") if "gigagp" in name or ".buckets" in name]
    assert answers(model().fit(rows, "y", checkpoint=f"s3://{BUCKET}/run"), table) == alone

"""Sources and models on S3, with moto's server on this machine, which `make test-slow` installs and runs."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from typer.testing import CliRunner

import gigagp
from gigagp import HGPRegressor, InvalidInput, InvalidParameter
from gigagp.cli import app
from gigagp.data import objects
from gigagp.datasets import robot_arm
from gigagp.errors import DiskFull
from gigagp.model import predictor, remote_folders
from s3_server import BUCKET, empty_bucket, free_port, running_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),  # few rows
    pytest.mark.skipif(find_spec("moto") is None, reason="needs moto's server: pip install 'moto[server]'"),
]
ROWS = 1000


@pytest.fixture(scope="module")
def server():
    with running_server() as address:
        yield address


@pytest.fixture
def s3(server, monkeypatch, tmp_path):
    yield from empty_bucket(server, monkeypatch, tmp_path / "cache")


@pytest.fixture(scope="module")
def table():
    X, y = robot_arm(ROWS)
    return pa.table({**{f"joint{d}": X[:, d] for d in range(X.shape[1])}, "distance": y})


@pytest.fixture(scope="module")
def model(table):
    """Fitted on this machine."""
    return regressor().fit(table, "distance")


def regressor():
    return HGPRegressor(method="neighbourhood", neighbours=16, random_state=0, engine="threads", n_jobs=2)


def put(system, table, key):
    """A folder of two files with several row groups each."""
    half = len(table) // 2
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, f"{BUCKET}/{key}/{number}.parquet", row_group_size=150, filesystem=system)


class Proxy(threading.Thread):
    """Passes connections on to the server; some of them are cut after so many bytes of the reply."""

    def __init__(self, server, cut, after=20_000):
        super().__init__(daemon=True)
        self.target = ("127.0.0.1", int(server.rpartition(":")[2]))
        self.cut, self.after, self.cuts = cut, after, 0  # cut: connections that are cut; None for all
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source, target, reply):
        passed = 0
        try:
            while data := source.recv(4096):
                passed += len(data)
                if reply and passed > self.after and (self.cut is None or self.cuts < self.cut):
                    self.cuts += 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()  # the other thread closes the target

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.listener.close()


def test_rows_on_s3_give_the_same_bits_as_those_on_this_machine(s3, table, model, tmp_path, monkeypatch):
    put(s3, table, "rows")
    there = regressor().fit(f"s3://{BUCKET}/rows", "distance")
    assert there.theta_.tobytes() == model.theta_.tobytes()
    expected, _ = model.predict(table, return_std=True)
    assert there.predict(f"s3://{BUCKET}/rows/*.parquet", return_std=True)[0].tobytes() == expected.tobytes()
    monkeypatch.setattr(predictor, "_FEWEST_QUERIES", 64)
    done = model.predict_file(f"s3://{BUCKET}/rows", tmp_path / "o.parquet")  # threads read blocks of 64 rows
    assert done.rows == ROWS
    assert pq.read_table(done.output)["mean"].to_numpy().tobytes() == expected.tobytes()


def test_a_model_on_s3_is_downloaded_once_and_again_when_it_changes(s3, table, model, tmp_path, monkeypatch):
    address = f"s3://{BUCKET}/models/arm"
    model.save(address)
    with pytest.raises(InvalidParameter, match=r"arm contains a model; pass overwrite=True, or choose another address"):
        model.save(address)
    assert gigagp.load(address).predict(table).tobytes() == model.predict(table).tobytes()
    (cached,) = (tmp_path / "cache" / "models").iterdir()
    before = {path: path.stat().st_mtime_ns for path in cached.iterdir()}
    monkeypatch.setattr(remote_folders, "_download", lambda *_: pytest.fail("it is in the cache"))
    assert (
        HGPRegressor.load(address, verify="nothing").predict(table[:9]).tobytes() == model.predict(table[:9]).tobytes()
    )
    assert {path: path.stat().st_mtime_ns for path in cached.iterdir()} == before
    monkeypatch.undo()


def test_a_model_that_is_replaced_and_one_of_several_targets(s3, table, tmp_path):
    address, X = f"s3://{BUCKET}/m", table.to_pandas().to_numpy()
    regressor().fit(X[:500, :8], X[:500, 8]).save(address)
    first = gigagp.load(address)
    second = regressor().fit(X[500:, :8], np.column_stack([X[500:, 8], X[500:, 8] ** 2]))
    second.save(address, overwrite=True)
    names = {info.path for info in s3.get_file_info(fs.FileSelector(f"{BUCKET}/m", recursive=True)) if info.is_file}
    assert f"{BUCKET}/m/y.npy" not in names, "a file of the model before"
    assert gigagp.load(address).predict(X[:9, :8]).tobytes() == second.predict(X[:9, :8]).tobytes()
    assert first.predict(X[:9, :8]).shape == (9,), "it is still mapped"
    assert len(list((tmp_path / "cache" / "models").iterdir())) == 2


def test_what_is_not_a_complete_model(s3, model):
    address = f"s3://{BUCKET}/half"
    model.save(address)
    s3.delete_file(f"{BUCKET}/half/manifest.json")
    with pytest.raises(InvalidInput, match=r"half has no manifest\.json: no model was saved there, or its upload is"):
        gigagp.load(address)
    model.save(address)  # an interrupted upload may be repeated
    gigagp.load(address)
    with s3.open_output_stream(f"{BUCKET}/half/diary.txt") as file:
        file.write(b"dear diary")
    for call in (lambda: gigagp.load(address), lambda: model.save(address, overwrite=True)):
        with pytest.raises((InvalidInput, InvalidParameter), match=r"something other than a gigagp model \(diary\.txt"):
            call()


def test_missing_buckets_and_keys(s3, model):
    for address in ("s3://nowhere/rows.parquet", f"s3://{BUCKET}/nothing.parquet"):
        with pytest.raises(InvalidInput, match=f"no such file or folder: {address}"):
            regressor().fit(address, "distance")
    with pytest.raises(InvalidInput, match=r"cannot read s3://nowhere/model: there is no bucket 'nowhere'"):
        gigagp.load("s3://nowhere/model")
    with pytest.raises(InvalidParameter, match=r"cannot write s3://nowhere/model: there is no bucket 'nowhere'"):
        model.save("s3://nowhere/model")
    with pytest.raises(InvalidInput, match=r"nothing has no manifest\.json"):
        gigagp.load(f"s3://{BUCKET}/nothing")


def test_access_denied_and_no_server(s3, model, monkeypatch):
    class Denied(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_POST = do_GET

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Denied) as denying:
        threading.Thread(target=denying.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{denying.server_port}")
        for call in (lambda: regressor().fit(f"s3://{BUCKET}/r.parquet", "y"), lambda: gigagp.load(f"s3://{BUCKET}/m")):
            with pytest.raises(InvalidInput, match="access is denied: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
                call()
        denying.shutdown()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(InvalidParameter, match=r"the server does not answer: check the network and AWS_ENDPOINT_URL"):
        model.save(f"s3://{BUCKET}/m")


def test_reads_that_are_interrupted_midway_are_repeated(s3, server, table, model, tmp_path, monkeypatch):
    put(s3, table, "rows")
    model.save(f"s3://{BUCKET}/m")
    with Proxy(server, cut=2) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        done = model.predict_file(f"s3://{BUCKET}/rows", tmp_path / "o.parquet")
        expected, _ = model.predict(table, return_std=True)
        assert pq.read_table(done.output)["mean"].to_numpy().tobytes() == expected.tobytes()
        proxy.cuts = 0
        assert gigagp.load(f"s3://{BUCKET}/m").predict(table[:9]).tobytes() == model.predict(table[:9]).tobytes()
        assert proxy.cuts == 2


def test_a_connection_that_always_breaks_is_an_error_and_leaves_nothing(
    s3, server, table, model, tmp_path, monkeypatch
):
    put(s3, table, "rows")
    model.save(f"s3://{BUCKET}/m")
    with Proxy(server, cut=None) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        with pytest.raises(InvalidInput, match=r"rows.*(does not answer|repeat the call|write it again)"):
            model.predict_file(f"s3://{BUCKET}/rows", tmp_path / "o.parquet")
        with pytest.raises(InvalidInput, match=r"cannot read s3://bucket/m: .*repeat the call"):
            gigagp.load(f"s3://{BUCKET}/m")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    assert not (tmp_path / "o.parquet").exists()


def test_an_upload_that_is_interrupted_leaves_no_model(s3, server, model, monkeypatch):
    copied, copy = [], objects.shutil.copyfileobj

    def failing(source, target, size):
        copied.append(source)
        if len(copied) == 4:
            raise OSError("curlCode: 55, Failed sending data to the peer")
        copy(source, target, size)

    monkeypatch.setattr(objects.shutil, "copyfileobj", failing)
    with pytest.raises(DiskFull, match=r"cannot write s3://bucket/m/\S+: curlCode: 55.* repeat the call"):
        model.save(f"s3://{BUCKET}/m")
    monkeypatch.setattr(objects.shutil, "copyfileobj", copy)
    with pytest.raises(InvalidInput, match=r"m has no manifest\.json"):
        gigagp.load(f"s3://{BUCKET}/m")
    model.save(f"s3://{BUCKET}/m")
    gigagp.load(f"s3://{BUCKET}/m")


def test_the_command_line(s3, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(s3, table.slice(0, 600), "rows")
    run = CliRunner()
    for words in (
        ["fit", f"s3://{BUCKET}/rows", "--target", "distance", "-o", f"s3://{BUCKET}/model", "--neighbours", "16"],
        ["predict", f"s3://{BUCKET}/model", f"s3://{BUCKET}/rows", "-o", "o.parquet"],
        ["inspect", f"s3://{BUCKET}/model"],
    ):
        done = run.invoke(app, words)
        assert done.exit_code == 0, done.output
    assert pq.ParquetFile("o.parquet").metadata.num_rows == 600
    assert np.isfinite(pq.read_table("o.parquet")["mean"].to_numpy()).all()
    assert "s3:" not in os.listdir()

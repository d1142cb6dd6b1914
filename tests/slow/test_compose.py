"""docs/clusters/compose.yaml without containers: its commands as processes, each service on a host of its own.

Hosts are network namespaces of this machine. Instead of MinIO, moto's server plays S3. Run by `make test-slow`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from gigagp import HGPRegressor
from hosts import hosts_of, knowing
from traps import limit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.full_choices,  # the processes make all choices
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, which makes the certificates"),
]

COMPOSE = Path(__file__).resolve().parents[2] / "docs" / "clusters" / "compose.yaml"
ADDRESSES = {"scheduler": 21, "minio": 22, "worker": 23, "worker2": 24, "fit": 25}


@contextmanager
def running(within, command, environment, log):
    with open(log, "wb") as file:
        process = subprocess.Popen([*within, *command], env=environment, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def commands_in(folder):
    """A folder of commands that run this Python, whatever is installed."""
    folder.mkdir()
    for name, arguments in {"python": [], "gigagp": ["-m", "gigagp"], "dask": ["-m", "dask"]}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *arguments])} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def wait_for(address, port):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            socket.create_connection((address, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nobody answers at {address}:{port}")


def test_the_services_fit_the_rows_of_the_bucket_over_tls(tmp_path):
    pytest.importorskip("moto.server", reason="needs moto, which plays S3")
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    shared, path = tmp_path / "shared", commands_in(tmp_path / "bin")
    shared.mkdir()

    def text(value):
        return value.replace("/shared", str(shared)).replace("-n 20000", "-n 2500")

    def command(name):
        return [text(word) for word in services[name]["command"]]

    def environment(name):
        own = {variable: text(value) for variable, value in services[name]["environment"].items()}
        paths = os.pathsep.join(p for p in sys.path if p)
        return {**os.environ, **own, "PYTHONPATH": paths, "PATH": f"{path}:{os.environ['PATH']}"}

    with limit(900), hosts_of(ADDRESSES.values()) as hosts, ExitStack() as stack:
        within = {name: ("ip", "netns", "exec", host) for name, host in zip(ADDRESSES, hosts, strict=True)}
        known = {name: f"10.213.{number}.2" for name, number in ADDRESSES.items()}
        for host in hosts:
            stack.enter_context(knowing(host, known))

        def start(name, host, words, port=None):
            stack.enter_context(running(within[host], words, environment(name), tmp_path / f"{host}.log"))
            if port is not None:
                wait_for(known[host], port)

        def run(name):
            command_of = [*within["fit"], *command(name)]
            done = subprocess.run(command_of, env=environment(name), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

        run("image")
        start("upload", "minio", [sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", "9000"], 9000)
        run("upload")
        start("scheduler", "scheduler", command("scheduler"), 8786)
        for host in ("worker", "worker2"):
            start("worker", host, command("worker"))
        run("fit")
    there = HGPRegressor.load(shared / "model")
    here = HGPRegressor(random_state=0, engine="serial").fit(shared / "rows.parquet", "distance")
    assert there.theta_.tobytes() == here.theta_.tobytes()
    assert sorted(path.name for path in shared.iterdir()) == ["cert.pem", "key.pem", "model", "rows.parquet"]

"""A real service and a real client: hostile requests are refused, nothing is lost, and it stops when it is told to."""

import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import gigagp
from gigagp import HGPRegressor

pytestmark = pytest.mark.slow


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def service(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 2))
    model = HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=15, random_state=0)
    model.fit(X, X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.standard_normal(120)).save(tmp_path / "model")
    port = free_port()
    command = [sys.executable, "-m", "gigagp", "serve", str(tmp_path / "model"), "--port", str(port), "--updates"]
    with subprocess.Popen([*command, "--max-body", "100000", "--max-rows", "100"]) as process:
        for _ in range(300):
            try:
                send(port, "GET", "/health", b"")
                break
            except OSError:
                time.sleep(0.1)
        yield port, process, tmp_path / "model"
        if process.poll() is None:
            process.kill()


def send(port, method, path, body, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body, headers or {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def hostile(rng):
    """A request that no client should send."""
    good = {"rows": [{"x0": 1.0, "x1": 2.0}]}
    text = json.dumps(good)
    makers = [
        lambda: bytes(text[: rng.randrange(len(text))], "ascii"),
        lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(200))),
        lambda: json.dumps({"rows": [{"x0": rng.choice([None, "1", [], {}, True]), "x1": 1}]}).encode(),
        lambda: json.dumps({"rows": [{"x0": 1, "x1": 2}] * rng.randrange(101, 200)}).encode(),
        lambda: b"[" * rng.randrange(1, 5000),
        lambda: json.dumps({**good, "quantiles": [rng.choice([0, 1, -1, 2, "x", None])]}).encode(),
        lambda: json.dumps({"rows": [{"x0": 1, "x1": 2, "x" * rng.randrange(1, 500): 0}]}).encode(),
        lambda: b"x" * rng.randrange(100_001, 200_000),
    ]
    return rng.choice(makers)()


def test_a_thousand_hostile_requests_and_a_graceful_stop(service):
    port, process, folder = service
    rng = random.Random(0)
    for number in range(1000):
        status, content = send(port, "POST", rng.choice(["/predict", "/update"]), hostile(rng))
        assert 400 <= status < 500, (number, status, content[:200])
    row = {"x0": 0.5, "x1": 0.5}
    status, content = send(port, "POST", "/predict", json.dumps({"rows": [row]}).encode())
    assert status == 200
    np.testing.assert_allclose(json.loads(content)["mean"], gigagp.load(folder).predict([[0.5, 0.5]]))
    status, content = send(port, "POST", "/update", json.dumps({"rows": [{**row, "y": 1.0}] * 5}).encode())
    assert (status, json.loads(content)["rows"]) == (200, 125)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) in (0, -signal.SIGTERM)
    assert gigagp.load(folder).n_rows_ == 125

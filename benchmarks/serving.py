"""The service: one-row predictions with deviations over HTTP, by a real client on the same machine.

rate: as many as two connections get, one request after the other.
latency: a hundred requests per second on one connection.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from measure import arguments, bar, save

ROWS = 100_000
CONNECTIONS = 2
PER_SECOND = 100


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Client:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def predict(self, row: np.ndarray) -> float:
        """Seconds of one request."""
        body = json.dumps({"rows": [{f"x{d}": float(value) for d, value in enumerate(row)}]})
        start = time.perf_counter()
        self._connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200
        assert "std" in content
        return time.perf_counter() - start


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the service has not started")


def rate(port: int, queries: np.ndarray, seconds: float) -> float:
    """Requests per second of several connections together."""
    counts = [0] * CONNECTIONS
    begin = time.perf_counter()

    def ask(number: int) -> None:
        client = Client(port)
        while time.perf_counter() - begin < seconds:
            client.predict(queries[(counts[number] * CONNECTIONS + number) % len(queries)])
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begin)


def latency(port: int, queries: np.ndarray, seconds: float) -> dict[str, float]:
    client, begin, times = Client(port), time.perf_counter(), []
    for number in range(int(PER_SECOND * seconds)):
        time.sleep(max(0.0, begin + number / PER_SECOND - time.perf_counter()))
        times.append(1e3 * client.predict(queries[number % len(queries)]))
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    seconds = 20 if options.full else 5
    X, y = robot_arm(ROWS + 1000)
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=64, random_state=0)
        model.fit(X[:ROWS], y[:ROWS]).save(Path(folder) / "model")
        port = free_port()
        command = [sys.executable, "-m", "gigagp", "serve", str(Path(folder) / "model"), "--port", str(port)]
        with subprocess.Popen(command) as process:
            try:
                wait_for(port)
                rate(port, X[ROWS:], 1)  # the first requests load compiled code
                result["rate"] = rate(port, X[ROWS:], seconds)
                result["latency"] = latency(port, X[ROWS:], seconds)
            finally:
                process.send_signal(signal.SIGTERM)
    bars = [
        bar("one-row predictions per second", result["rate"], 300, at_least=True),
        bar("p99 at 100 requests per second (ms)", result["latency"]["p99"], 20, at_least=False),
    ]
    save("serving", {**result, "bars": bars})


if __name__ == "__main__":
    main()

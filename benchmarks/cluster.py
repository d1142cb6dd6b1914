"""What an engine of processes adds to the experts' own time, and what it sends: local Dask clusters, and processes.

A step is LML + gradient over all experts. Every leaf times itself inside its worker and sends the seconds up with its
evidence, so that the same step tells what the work alone took: the step's overhead is the rest. Engines take turns, so
that a machine whose speed drifts slows all of them alike. Bytes are those the kernel counted on the sockets of client,
scheduler and workers (TCP_INFO) during some steps, less those of as long an idle time. Steps with nothing to do, on
1 to 8 workers and in 1 to 512 shards, show what a task of Dask costs; `simulate_cluster.py` uses these costs.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

import gigagp.engines.dask as dask_engine
from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.datasets import robot_arm
from gigagp.engines import Engine, OverLeaves, one_blas_thread, open_engine
from gigagp.engines.dask import DaskEngine
from gigagp.expert import Evidence
from gigagp.fit.training import LeafEvidence
from gigagp.kernels import SquaredExponential
from gigagp.kernels.base import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.partition import LocalPartition, Shape
from gigagp.tree import Tree
from measure import Timing, arguments, bar, save, seconds

D = 8  # columns
LEAF = 256  # rows per leaf
EMPTY = {1: (1, 512), 2: (8, 64, 512), 4: (64, 512), 8: (512,)}  # workers, and shards of steps with nothing to do
WARM_UP = 20  # steps with nothing to do before those that are measured: the first ones take longer
MESSAGES = 64  # that fit a socket's buffer
_RECEIVED = 128  # where tcp_info keeps tcpi_bytes_received


@dataclass(frozen=True, eq=False)
class Timed:
    """A leaf's evidence, and as one more summand the seconds that it took."""

    kernel: Kernel
    theta: Array
    name = "timed"

    def __call__(self, leaf: int, X: Array, y: Array, work: Workspace) -> Array:
        start = time.perf_counter()
        sums = expert.evidence(self.kernel, self.theta, X, y, work, leaf).sums
        return np.append(sums, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class Nothing:
    """As large as evidence, for no work."""

    size: int
    name = "nothing"

    def __call__(self, leaf: int, X: Array, y: Array, work: Workspace) -> Array:
        return np.zeros(self.size)


class Problem:
    """Robot arm rows among local experts, and theta that moves a little at every step, as in training."""

    def __init__(self, rows: int) -> None:
        X, y = robot_arm(rows)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
        partition = LocalPartition().split(X, Shape(leaf_size=LEAF), np.random.default_rng(0))
        self.rows, self.cells, self.tree = rows, partition.cells, partition.tree
        self.store = ExpertStore.in_memory(X, y, partition.order)
        self.kernel = SquaredExponential(1.0, 1.5).bind(D)
        self._steps = 0

    def theta(self) -> Array:
        self._steps += 1
        return np.append(self.kernel.theta, np.log(0.01)) + 1e-4 * self._steps

    def timed_step(self, engine: Engine) -> tuple[float, float]:
        """Seconds of a step, and the sum of the leaves' own seconds in it."""
        over = OverLeaves(self.store, self.cells, None, Timed(self.kernel, self.theta()))
        start = time.perf_counter()
        sums = engine.sum(self.tree, over)
        return time.perf_counter() - start, float(sums[-1])

    def step(self, engine: Engine) -> Evidence:
        """A step as training takes it."""
        over = OverLeaves(self.store, self.cells, None, LeafEvidence(self.kernel, self.theta()))
        return engine.sum(self.tree, over)


# (a) Seconds


def steps(rows: int, repeats: int) -> list[dict[str, Any]]:
    """Each engine's step, the engines in turn."""
    problem, lines = Problem(rows), []
    with ExitStack() as opened:
        engines = {
            (name, workers): opened.enter_context(open_engine(name, workers))
            for name in ("dask", "processes", "threads")
            for workers in (1, 2)
        }
        first = {which: seconds(lambda e=e: problem.timed_step(e)) for which, e in engines.items()}
        times: dict[tuple[str, int], list[tuple[float, float]]] = {which: [] for which in engines}
        for _ in range(repeats):
            for which, engine in engines.items():
                times[which].append(problem.timed_step(engine))
        for (name, workers), pairs in times.items():
            timing = Timing.of([step for step, _ in pairs])
            overhead = [1 - own / workers / step for step, own in pairs]
            low, share, high = np.percentile(overhead, [25, 50, 75])
            row = {
                "engine": name, "workers": workers, "first_step": first[name, workers], "seconds": timing.median,
                "low": timing.low, "high": timing.high, "repeats": timing.repeats,
                "own_seconds": float(np.median([own for _, own in pairs])), "overhead": float(share),
                "overhead_low": float(low), "overhead_high": float(high),
            }  # fmt: skip
            lines.append(row)
            print(
                f"  {rows:,} rows, {name} x {workers}: {row['seconds']:.3f} s per step, leaves alone "
                f"{row['own_seconds'] / workers:.3f} s, overhead {share:.1%} ({low:.1%} to {high:.1%})",
                flush=True,
            )
    return lines


def leaf_seconds(rows: int) -> float:
    """Processor seconds of one expert's LML + gradient, on one thread: the same on a busy machine."""
    problem = Problem(rows)
    with open_engine("serial", 1) as engine:
        problem.step(engine)
        times = []
        for _ in range(3):
            start = time.process_time()
            problem.step(engine)
            times.append(time.process_time() - start)
    return min(times) / problem.tree.n_leaves


# (b) Bytes


def received() -> int:
    """Bytes that came in over the TCP sockets which this process has open."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                    info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    total += struct.unpack_from("Q", info, _RECEIVED)[0]
        except OSError:
            continue  # closed meanwhile
    return total


def moved(engine: DaskEngine) -> int:
    """Bytes that any process of the cluster has received; scheduler and nannies are in this one."""
    return received() + sum(engine.client.run(received).values())


def traffic(rows: int, repeats: int) -> dict[str, Any]:
    """Bytes a step, with two workers: what the steps moved, less what as long a wait moved."""
    problem = Problem(rows)
    with open_engine("dask", 2) as engine:
        assert isinstance(engine, DaskEngine)
        before = moved(engine)
        load = seconds(lambda: problem.step(engine))
        loaded = moved(engine) - before
        problem.step(engine)
        before, start = moved(engine), time.perf_counter()
        for _ in range(repeats):
            problem.step(engine)
        duration, after = time.perf_counter() - start, moved(engine)
        time.sleep(duration)
        idle = moved(engine) - after
    row = {
        "rows": rows, "steps": repeats, "seconds": duration / repeats, "first_step": load, "first_bytes": loaded,
        "bytes": (after - before) / repeats, "idle_bytes": idle / repeats,
        "net_bytes": max(0, after - before - idle) / repeats,
    }  # fmt: skip
    print(
        f"  {rows:,} rows, dask x 2: {row['net_bytes']:,.0f} bytes per step (and {row['idle_bytes']:,.0f} that an idle "
        f"cluster sends meanwhile); {loaded:,} with the first, which loads the shards",
        flush=True,
    )
    return row


# (c) Steps with nothing to do


@contextmanager
def in_shards(count: int) -> Iterator[None]:
    """The engine cuts trees into so many shards."""
    before = dask_engine.SHARDS_PER_THREAD, dask_engine.MOST_SHARDS
    dask_engine.SHARDS_PER_THREAD = dask_engine.MOST_SHARDS = count
    try:
        yield
    finally:
        dask_engine.SHARDS_PER_THREAD, dask_engine.MOST_SHARDS = before


def empty_steps(repeats: int) -> list[dict[str, Any]]:
    """Seconds of steps without work, and the processor's: here (client, scheduler) and on workers."""
    lines = []
    for workers, numbers in EMPTY.items():
        with open_engine("dask", workers) as engine:
            assert isinstance(engine, DaskEngine)
            lines += [empty_step(engine, workers, shards, repeats) for shards in numbers]
    return lines


def empty_step(engine: DaskEngine, workers: int, shards: int, repeats: int) -> dict[str, Any]:
    leaves = max(map(max, EMPTY.values()))
    store, tree = ExpertStore(np.zeros((leaves, D)), np.zeros(leaves)), Tree.balanced(leaves)
    value = Nothing(len(Evidence.of(0.0, np.zeros(D + 2), 1, 0.0).sums))
    over = OverLeaves(store, Runs(np.arange(leaves + 1)), None, value)

    def on_workers() -> float:
        return float(sum(engine.client.run(time.process_time).values()))

    with in_shards(shards):
        for _ in range(WARM_UP):
            engine.sum(tree, over)
        there, here = on_workers(), time.process_time()
        times = [seconds(lambda: engine.sum(tree, over)) for _ in range(repeats)]
        here, there = time.process_time() - here, on_workers() - there
    timing = Timing.of(times)
    row = {
        "workers": workers, "shards": shards, "tasks": engine.tasks_of_step, "seconds": timing.median,
        "low": timing.low, "high": timing.high, "repeats": repeats, "cpu_here": here / repeats,
        "cpu_workers": there / repeats,
    }  # fmt: skip
    print(
        f"  nothing to do, {workers} workers, {shards} shards, {row['tasks']} tasks: {1e3 * timing.median:.1f} ms per "
        f"step; processor {1e3 * row['cpu_here']:.1f} ms here, {1e3 * row['cpu_workers']:.1f} ms on workers",
        flush=True,
    )
    return row


def message(repeats: int) -> dict[str, float]:
    """What one evidence costs sender and receiver over a plain socket, in Python, without any engine."""
    evidence = Evidence.of(1.0, np.ones(D + 2), 1, 0.0)
    packed = pickle.dumps(evidence)
    theta = cloudpickle.dumps(LeafEvidence(SquaredExponential(1.0, 1.5).bind(D), np.zeros(D + 2)))
    sending, receiving = [], []
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near, near.makefile("rb") as stream:
            for _ in range(repeats):
                start = time.perf_counter()
                for _ in range(MESSAGES):
                    data = pickle.dumps(evidence)
                    far.sendall(struct.pack("I", len(data)) + data)
                sending.append((time.perf_counter() - start) / MESSAGES)
                start, total = time.perf_counter(), evidence
                for _ in range(MESSAGES):
                    (size,) = struct.unpack("I", stream.read(4))
                    total = total + pickle.loads(stream.read(size))
                receiving.append((time.perf_counter() - start) / MESSAGES)
    result = {
        "send_seconds": float(np.median(sending)), "receive_seconds": float(np.median(receiving)),
        "evidence_bytes": len(packed), "question_bytes": len(theta),
    }  # fmt: skip
    print(
        f"  a message of {len(packed):,} bytes: {1e6 * result['send_seconds']:.0f} us to send, "
        f"{1e6 * result['receive_seconds']:.0f} us to receive and add",
        flush=True,
    )
    return result


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--rows", type=float, help="rows of the steps with work [default 2e5, with --full 1e6]")
    parser.add_argument("--only", choices=["empty"], help="only the steps with nothing to do, without a result file")
    options = parser.parse_args()
    full = options.full
    if options.only:
        empty_steps(20)
        return
    rows, many = (1_000_000, 5_000_000) if full else (200_000, 200_000)
    if options.rows:
        rows = many = int(options.rows)
    with one_blas_thread():
        step_times = steps(rows, 11 if full else 5)
        network = traffic(many, 5)
        empty = empty_steps(40 if full else 10)
        plain = message(50)

    def of(engine: str, workers: int) -> dict[str, Any]:
        return next(r for r in step_times if (r["engine"], r["workers"]) == (engine, workers))

    many_shards = next(r for r in empty if (r["workers"], r["shards"]) == (2, 512))
    what = f"overhead of a step, two workers, {many_shards['shards']} shards, ms"
    bars = [bar(f"MB moved per training step, {many:,} rows, dask", network["net_bytes"] / 1e6, 1.0, at_least=False)]
    bars.append(bar(what, 1e3 * many_shards["seconds"], 40, at_least=False))
    if full:  # a step of the quick run is too short for these bars
        one, two = of("dask", 1), of("dask", 2)
        bars += [
            bar(f"overhead of a step, {rows:,} rows, dask, two workers, share", two["overhead"], 0.10, at_least=False),
            bar(f"two workers over one, {rows:,} rows, dask", one["seconds"] / two["seconds"], 1.7, at_least=True),
        ]
    save(
        "cluster",
        {
            "rows": rows, "leaf": LEAF, "columns": D, "steps": step_times, "traffic": network, "empty": empty,
            "message": plain, "leaf_seconds": leaf_seconds(rows), "bars": bars,
        },
    )  # fmt: skip


if __name__ == "__main__":
    main()

"""Traps for the workers of a Dask cluster: whoever comes to a moment for which one is set is killed, or stopped, there.

A trap is a file, and is sprung once. Moments: `load` (a shard is read, and not yet handed over), `step` (in the midst
of a shard's experts), `add` (an inner sum is formed), `answer` (questions are answered, and not yet handed over), and
in ingestion `scan`, `sort` and `store` (a task is done, and its result not yet handed over) and `scanning`, `sorting`
and `storing` (in the midst of a task).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from distributed import WorkerPlugin

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Traps(WorkerPlugin):
    """Sets traps in a folder; as a plugin it makes each worker, also one that comes later, look for them."""

    name = "traps"

    def __init__(self, folder):
        self.folder = Path(folder)

    def set(self, moment, signal="kill", count=1):
        for i in range(count):
            (self.folder / f"{moment}.{signal}.{time.monotonic_ns()}-{i}").touch()

    def sprung(self, moment):
        """The processes that were caught."""
        return [int(path.name.split("-")[2]) for path in self.folder.glob(f"sprung-{moment}-*")]

    def clear(self):
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)

    def wait(self, moment, count=1, seconds=240):
        end = time.monotonic() + seconds
        while len(self.sprung(moment)) < count:
            assert time.monotonic() < end, f"no worker came to {moment}"
            time.sleep(0.01)

    def spring(self, moment):
        for name in os.listdir(self.folder):
            if not name.startswith(f"{moment}."):
                continue
            try:
                (self.folder / name).unlink()
            except FileNotFoundError:  # another worker was first
                continue
            (self.folder / f"sprung-{moment}-{os.getpid()}-{time.monotonic_ns()}").touch()
            os.kill(os.getpid(), SIGNALS[name.split(".")[1]])

    def setup(self, worker):
        try:
            from gigagp.data.array_files import ArrayPlace  # noqa: PLC0415
            from gigagp.data.objects import ObjectFolder  # noqa: PLC0415
            from gigagp.data.scan import PartialScan  # noqa: PLC0415
            from gigagp.engines import dask_tasks  # noqa: PLC0415
            from gigagp.engines.shards import Shard, ShardFiles  # noqa: PLC0415
            from gigagp.fit.bucket_sort import SortTask  # noqa: PLC0415
            from gigagp.fit.scanning import ScanTask  # noqa: PLC0415
            from gigagp.fit.store_writer import StoreTask  # noqa: PLC0415
        except ImportError:  # a worker without the package
            return
        if hasattr(dask_tasks, "trapped"):
            return
        dask_tasks.trapped = True
        dask_tasks.add = self._then(dask_tasks.add, "add")
        dask_tasks.run = self._then(dask_tasks.run, "answer")
        ShardFiles.load = self._then(ShardFiles.load, "load")
        for task in (ScanTask, SortTask, StoreTask):
            task.__call__ = self._then(task.__call__, task.name)
        PartialScan.add = self._then(PartialScan.add, "scanning")
        SortTask._write = self._then(SortTask._write, "sorting")
        ArrayPlace.write = self._then(ArrayPlace.write, "storing")
        ObjectFolder.put = self._then(ObjectFolder.put, "putting")
        sums = Shard.sums
        Shard.sums = lambda shard, value, work: sums(shard, self._then(value, "step"), work)

    def _then(self, function, moment):
        def watched(*arguments):
            result = function(*arguments)
            self.spring(moment)
            return result

        return watched


def join(client, stack, within=(), host="127.0.0.1", **environment):
    """One more worker, as a process of its own; its address once it takes tasks."""
    name = f"joined-{time.monotonic_ns()}"
    options = (f"--name={name}", f"--host={host}", "--no-nanny", "--nthreads=1", "--no-dashboard")
    stack.enter_context(dask_process("worker", client.scheduler.address, *options, within=within, **environment))
    end = time.monotonic() + 240  # seconds: the machine may be busy
    while time.monotonic() < end:
        for worker, state in client.scheduler_info(n_workers=-1)["workers"].items():
            if state["name"] == name and state["status"] == "running":
                return worker
        time.sleep(0.05)
    raise AssertionError("the worker did not come")


class Hung(BaseException):
    """A step took longer than it may."""


@contextmanager
def limit(seconds):
    """What takes longer fails, instead of hanging."""

    def ring(*_):
        raise Hung(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def dask_process(*arguments, within=(), **environment):
    """`dask scheduler` or `dask worker` as a process of its own; `within`: a command that runs it."""
    paths = [environment.pop("first", None), *sys.path]
    variables = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}
    command = [*within, sys.executable, "-m", "dask", *map(str, arguments)]
    process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()

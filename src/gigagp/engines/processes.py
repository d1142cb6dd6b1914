"""The processes engine: processes of this machine that map the same expert store, for kernels written in Python.

A kernel written in Python holds the interpreter's lock, so that threads do not run it in parallel. For compiled kernels
threads are as fast, and start at once.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from loky import ProcessPoolExecutor

from gigagp.data.folders import TemporaryFolder
from gigagp.engines.base import Engine, own_workspace
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import Depot, Packed, unpack, unpack_once
from gigagp.engines.workers import worker_count
from gigagp.errors import WorkerLost
from gigagp.linalg.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")

# One thread each. Without the second setting loky replaces a worker that has mapped a large store, as if it leaked.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"}
_ATTEMPTS = 5  # how often tasks are given to new workers before we conclude that the tasks kill them


@dataclass(eq=False)
class _Batch:
    """A batch of tasks, and its result once it is submitted."""

    content: Packed
    future: Future[list[Any]] | None = None


class ProcessesEngine(Engine):
    """A pool of `workers` processes, started when they are first needed. Keep it open to start them once."""

    reads_files = True

    def __init__(self, workers: int) -> None:
        self.workers = worker_count(workers, "workers")
        self._pool: ProcessPoolExecutor | None = None
        self._local: ThreadsEngine | None = None
        self._folder: TemporaryFolder | None = None
        self._depot: Depot | None = None

    @property
    def local(self) -> Engine:
        if self._local is None:
            self._local = ThreadsEngine(self.workers)
        return self._local

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        depot = self._depot_in_use()
        packed, waiting = depot.pack(function), iter(tasks)
        ahead: deque[_Batch] = deque()
        try:
            while True:
                while len(ahead) <= 2 * self.workers and (batch := list(islice(waiting, together))):
                    ahead.append(_Batch(depot.pack(batch)))
                if not ahead:
                    return
                yield from self._result(packed, ahead)
        finally:
            for bundle in ahead:
                if bundle.future is not None:
                    bundle.future.cancel()

    def _depot_in_use(self) -> Depot:
        if self._depot is None:
            self._folder = TemporaryFolder()
            self._depot = Depot(self._folder.path)
        return self._depot

    def _submit(self, packed: Packed, content: Packed) -> Future[list[Any]]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, env=_ENVIRONMENT)
        with _ctrl_c_is_ours():
            future: Future[list[Any]] = self._pool.submit(_run, packed.data, content.data)
        return future

    def _result(self, packed: Packed, ahead: deque[_Batch]) -> list[Any]:
        """The results of the first batch; where a worker died, a new pool repeats all batches that were submitted."""
        for _ in range(_ATTEMPTS):
            try:
                for bundle in ahead:
                    if bundle.future is None:
                        bundle.future = self._submit(packed, bundle.content)
                assert ahead[0].future is not None
                result = ahead[0].future.result()
                ahead.popleft()
                return result
            except BrokenProcessPool:
                self._stop()
                for bundle in ahead:
                    bundle.future = None
        raise WorkerLost(
            f"worker processes died {_ATTEMPTS} times in a row while they computed the same experts; usually "
            "the machine is out of memory; use fewer workers (n_jobs) or smaller leaves, or see the system's log"
        )

    def _stop(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=True)
            self._pool = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None
        if self._local is not None:
            self._local.close()
            self._local = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = self._depot = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ProcessesEngine, (self.workers,)


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Processes that start in this context ignore Ctrl-C, which a terminal sends to all processes.

    A worker would print a traceback, or die while it holds the lock of the queue, and all would wait forever.
    """
    resource_tracker.ensure_running()  # where it starts it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(packed: bytes, content: bytes) -> list[Any]:
    function, work = unpack_once(packed), own_workspace()  # which may load libraries
    with one_blas_thread():
        return [function(task, work) for task in unpack(content)]

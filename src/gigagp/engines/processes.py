"""Processes of this machine. They map the same expert store, so that nothing is copied; made for kernels in Python.

Threads are as good for compiled kernels, and begin at once. A kernel written in Python holds the interpreter's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from loky import ProcessPoolExecutor

from gigagp.data.folders import TemporaryFolder
from gigagp.engines.base import Engine, own_workspace
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.transport import Depot, unpack, unpack_once
from gigagp.errors import WorkerLost
from gigagp.linalg.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")

_AGAIN = 5  # times a task is given to a new worker before it is held to be what kills them


class ProcessesEngine(Engine):
    """A pool of `workers` processes, started when they are first needed. Keep it open to start them once."""

    reads_files = True

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._local: ThreadsEngine | None = None
        self._folder = TemporaryFolder()
        self._depot = Depot(self._folder.path)

    @property
    def local(self) -> Engine:
        if self._local is None:
            self._local = ThreadsEngine(self.workers)
        return self._local

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        packed, waiting = self._depot.pack(function), iter(tasks)
        ahead: deque[tuple[bytes, Future[list[R]]]] = deque()
        try:
            while True:
                while len(ahead) <= 2 * self.workers and (batch := list(islice(waiting, together))):
                    content = self._depot.pack(batch)
                    ahead.append((content, self._submit(packed, content)))
                if not ahead:
                    return
                yield from self._result(packed, ahead)
        finally:
            for _, future in ahead:
                future.cancel()

    def _submit(self, packed: bytes, content: bytes) -> Future[list[R]]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, initializer=_begin, env={"OMP_NUM_THREADS": "1"})
        future: Future[list[R]] = self._pool.submit(_run, packed, content)
        return future

    def _result(self, packed: bytes, ahead: deque[tuple[bytes, Future[list[R]]]]) -> list[R]:
        """The results of the first batch; where a worker died, the pool is made anew and all that is ahead repeated."""
        for _ in range(_AGAIN):
            try:
                result = ahead[0][1].result()
                ahead.popleft()
                return result
            except BrokenProcessPool:
                self._stop()
                for i, (content, _) in enumerate(ahead):
                    ahead[i] = content, self._submit(packed, content)
        raise WorkerLost(
            f"worker processes died {_AGAIN} times in a row over the same experts: most often the machine is out of "
            "memory; use fewer workers (n_jobs) or smaller leaves, or see the system's log"
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

    def __reduce__(self) -> tuple[Any, ...]:
        return ProcessesEngine, (self.workers,)


def _begin() -> None:
    """A worker's first act: one BLAS thread for good."""
    one_blas_thread().__enter__()


def _run(packed: bytes, content: bytes) -> list[Any]:
    function, work = unpack_once(packed), own_workspace()
    return [function(task, work) for task in unpack(content)]

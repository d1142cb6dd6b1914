"""Threads of this process. The compiled leaf holds no GIL, so they run side by side and share all memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from gigagp.engines.base import Engine, own_workspace
from gigagp.engines.workers import worker_count
from gigagp.linalg.team import Team
from gigagp.linalg.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")


class ThreadsEngine(Engine):
    """A pool of `workers` threads, each with a workspace of its own."""

    def __init__(self, workers: int) -> None:
        self.workers = worker_count(workers, "workers")
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="gigagp")
        self._team = Team(self.workers)

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        """Results in order; only a few bundles ahead of the reader are under way, so results do not pile up."""
        ahead: deque[Future[list[R]]] = deque()
        waiting = iter(tasks)
        if self.workers == 1:  # handing tasks to another thread would only take time
            work = own_workspace()
            yield from (function(task, work) for task in waiting)
            return
        try:
            while bundle := list(islice(waiting, together)):
                ahead.append(self._pool.submit(self._run, function, bundle))
                if len(ahead) > 2 * self.workers:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()

    def __reduce__(self) -> tuple[Any, ...]:
        return ThreadsEngine, (self.workers,)

    def close(self) -> None:
        self._pool.shutdown()
        self._team.close()

    def _run(self, function: Callable[[T, Workspace], R], bundle: list[T]) -> list[R]:
        work = own_workspace()
        work.team = self._team
        with self._team.at_work():
            return [function(task, work) for task in bundle]

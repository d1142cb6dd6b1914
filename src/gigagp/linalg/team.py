"""Threads that are free to take part in one large product; a column is the same whichever thread computes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

from gigagp.linalg.tiny import flush_in_this_thread


class Team:
    """A number of threads, most of them usually busy with their own experts."""

    def __init__(self, workers: int) -> None:
        self._free, self._lock = workers, threading.Lock()
        self._pool = ThreadPoolExecutor(max(1, workers - 1), "gigagp-team", initializer=flush_in_this_thread)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count one worker as busy during its own task."""
        self._add(-1)
        try:
            yield
        finally:
            self._add(1)

    @property
    def spare(self) -> int:
        """How many workers are idle."""
        return max(0, self._free)

    def run(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Run the first task in this thread, and the others on idle workers, or here too if none has begun them.

        Returns when all are done. No task waits for one that waits for a worker, so tasks may call `run` themselves.
        """
        others = [self._pool.submit(task) for task in tasks[1:]]
        self._add(-len(others))
        try:
            tasks[0]()
            for task, other in zip(tasks[1:], others, strict=True):
                if other.cancel():
                    task()
        finally:
            begun = [other for other in others if not other.cancel()]
            wait(begun)
            self._add(len(others))
        for other in begun:
            other.result()

    def close(self) -> None:
        self._pool.shutdown()

    def _add(self, change: int) -> None:
        with self._lock:
            self._free += change

"""Threads that are free to take part in one large product. Who computes a column changes nothing in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

from gigagp.linalg.tiny import flush_in_this_thread


class Team:
    """`workers` threads in all, most of them usually busy with experts of their own."""

    def __init__(self, workers: int) -> None:
        self._free, self._lock = workers, threading.Lock()
        self._pool = ThreadPoolExecutor(max(1, workers - 1), "gigagp-team", initializer=flush_in_this_thread)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a task of one worker's own."""
        self._add(-1)
        try:
            yield
        finally:
            self._add(1)

    @property
    def spare(self) -> int:
        """How many workers have nothing to do."""
        return max(0, self._free)

    def run(self, tasks: Sequence[Callable[[], object]]) -> None:
        """The first task here, the others on spare workers, or here too if nobody has begun them; returns when all
        are done. No one waits for a task that waits for a worker, so tasks may call this in their turn.
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

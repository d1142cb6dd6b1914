"""The workers of a Dask client: submitting tasks to them, and waiting for results although workers are lost."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed import CancelledError, Client, Future, KilledWorker, wait

from gigagp.engines import dask_tasks
from gigagp.errors import GigaGPError, WorkerLost
from gigagp.version import __version__

_ATTEMPTS = 5  # how often a task is submitted whose workers died more often than the scheduler allows
_PATIENCE = 60  # seconds without any worker after which we give up
_NOTICE_SECONDS = 0.5  # seconds in which a client notices that its scheduler is gone
_LOOK_SECONDS = 2  # seconds of waiting for a result after which we look at the workers
_TELL_SECONDS = 5  # seconds in which workers should do what they are told
_IDLE_LOOKS = 2  # consecutive looks at idle workers after which a task counts as forgotten by the scheduler
_START = "start some, and repeat the call: with fit(..., checkpoint=folder) it continues where it stopped"
_MEMORY = "give workers more of it, or use more workers or smaller leaves"


TaskKey = tuple[str, int]


class ForgottenTask(Exception):
    """The scheduler no longer runs a task: where all workers are lost at once, tasks bound to one wait forever."""


class DaskCluster:
    """The workers of a Dask client, as they come and go."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._run = uuid.uuid4().hex[:8]  # part of the keys of all tasks, which tells them from those of others
        self._count = 0
        self._last: list[Future] = []

    def ask_workers(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """The function's value on each worker; workers that are lost meanwhile are left out."""
        with self.scheduler_errors():
            replies: dict[str, Any] = self.client.run(function, *arguments, on_error="return")
        return {worker: reply for worker, reply in replies.items() if not isinstance(reply, OSError)}

    def tell_workers(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on each worker, as far as workers answer within some seconds."""
        if self.client.status == "running":
            with suppress(Exception, CancelledError):  # of a scheduler that is gone
                self.client.sync(_within, _TELL_SECONDS, self.client.run, function, *arguments, on_error="ignore")

    @contextmanager
    def scheduler_errors(self) -> Iterator[None]:
        """Turn all errors that a lost scheduler may cause into one WorkerLost."""
        try:
            yield
        except GigaGPError:
            raise
        except (Exception, CancelledError) as error:
            if isinstance(error, OSError):
                time.sleep(_NOTICE_SECONDS)
            if self.client.status == "running":
                raise
            raise WorkerLost(
                "the Dask scheduler is gone; start it and its workers, and repeat the call: with "
                "fit(..., checkpoint=folder) it continues where it stopped"
            ) from error

    def threads(self) -> dict[str, int]:
        """The number of threads of each worker; there is at least one worker."""
        threads: dict[str, int] = self.client.nthreads()
        if not threads:
            self.check_workers()
            threads = self.client.nthreads()
        return threads

    def running(self) -> set[str]:
        """Workers that accept tasks; a worker that is still starting does not."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {worker for worker, state in workers.items() if state.get("status") == "running"}

    def check_workers(self) -> None:
        """Wait for a worker, and check that every worker has this version of the package."""
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise WorkerLost(f"the Dask cluster has had no worker for {_PATIENCE} s; {_START}") from None
        versions = self.ask_workers(dask_tasks.version)
        wrong = [f"{worker} has {version or 'none'}" for worker, version in versions.items() if version != __version__]
        if wrong:
            raise WorkerLost(
                f"every worker needs gigagp {__version__}: {shortened(wrong)}; install it there "
                f"(pip install gigagp=={__version__}) and start those workers again"
            )

    def submit(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Future:
        self._count += 1
        key = f"{name}-{self._run}-{self._count}"
        return self.client.submit(function, *arguments, key=key, pure=False, **options)

    def keys(self, name: str, count: int) -> list[TaskKey]:
        """New keys for tasks of a graph.

        They form a task group of Dask of their own. If the tasks of all steps formed one large group, Dask would place
        them on any idle worker, regardless of where their shards are.
        """
        self._count += 1
        return [(f"{name}-{self._run}-{self._count}", number) for number in range(count)]

    def submit_graph(self, graph: dict[TaskKey, Any], keys: list[TaskKey]) -> list[Future]:
        """The results of some tasks of a graph, whose tasks are (function, arguments ...) and name each other by key.

        All tasks travel in one message, and the previous results are released only afterwards: Dask's client waits
        10 ms between two messages.
        """
        self._last = self.client.get(graph, keys, sync=False)
        return self._last

    def forget(self) -> None:
        """Release the last results of a graph."""
        self._last = []

    def results(
        self, futures: list[Future], name: str, resubmit: Callable[[], list[Future]], experts: Callable[[str], str]
    ) -> list[Any]:
        """The results of tasks, which are submitted again where their workers die.

        experts : key of a task -> the experts that it computes, for error messages
        """
        failures = 0
        while failures < _ATTEMPTS:
            try:
                return self._wait(futures)
            except KilledWorker as killed:
                failures += 1
                if failures == _ATTEMPTS:
                    self.check_workers()  # a worker that joined late may lack the package
                    raise WorkerLost(
                        f"workers died repeatedly while they computed {name!r}{experts(str(killed.task))}, the last at "
                        f"{killed.last_worker.address}; the usual cause is a lack of memory: {_MEMORY}"
                    ) from None
            except CancelledError:
                failures += 1
                if self.client.status != "running":
                    raise
            except MemoryError as error:
                where = ", ".join(getattr(error, "__notes__", ()))
                raise WorkerLost(f"a worker ran out of memory in {name!r} {where}: {_MEMORY}") from error
            except ForgottenTask:
                pass
            futures = resubmit()
        raise WorkerLost(f"the scheduler cancelled {name!r} repeatedly; see its log")

    def _wait(self, futures: list[Future]) -> list[Any]:
        """The results of tasks, as long as there are workers that may compute them."""
        last_seen, idle_looks, seconds = time.monotonic(), 0, _LOOK_SECONDS
        while True:
            with suppress(TimeoutError):
                wait(futures, timeout=_LOOK_SECONDS)
            for future in futures:
                if future.status == "error":
                    future.result()  # raises it
            if all(future.done() for future in futures):
                results: list[Any] | None = self.client.sync(_within, seconds, self.client.gather, futures)
                if results is not None:  # otherwise the machine is busy, or a lost result is computed again
                    return results
                last_seen, idle_looks, seconds = time.monotonic(), 0, 2 * seconds
                continue
            processing: dict[str, tuple[str, ...]] = self.client.processing()
            if processing:
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > _PATIENCE:
                raise WorkerLost(f"all workers are lost, and no new one has joined for {_PATIENCE} s; {_START}")
            ours = any(self._run in str(key) for keys in processing.values() for key in keys)
            idle_looks = idle_looks + 1 if not ours and any(not keys for keys in processing.values()) else 0
            if idle_looks == _IDLE_LOOKS:
                raise ForgottenTask


async def _within(seconds: float, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The value of a method of a client; None where it does not arrive within some seconds.

    The call is then left to itself. A cancelled one, as by a timeout of Dask's own functions, would cancel every later
    one of the client as well: Dask joins requests that wait to be sent.
    """
    waiting = asyncio.ensure_future(method(*arguments, **options, asynchronous=True))
    await asyncio.wait([waiting], timeout=seconds)
    if waiting.done():
        return waiting.result()
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # an error is no longer of interest
    return None


def shortened(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

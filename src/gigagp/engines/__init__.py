"""Where the work is done: serial defines correct, the others must match it bit for bit."""

import os
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral

from gigagp.engines.base import Engine
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.serial import SerialEngine
from gigagp.engines.threads import ThreadsEngine
from gigagp.errors import InvalidParameter, choose

__all__ = ["Engine", "SerialEngine", "ThreadsEngine", "one_blas_thread", "open_engine"]


def open_engine(engine: str | Engine, n_jobs: int | None) -> AbstractContextManager[Engine]:
    """The engine of that name, closed at the end; n_jobs=None or -1 means every core this process may use.

    An engine given as an object stays open: it is its owner's to close.
    """
    if isinstance(engine, Engine):
        return nullcontext(engine)
    makers = {"serial": SerialEngine, "threads": lambda: ThreadsEngine(_workers(n_jobs))}
    made: Engine = choose("engine", engine, makers)()
    return made


def _workers(n_jobs: int | None) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if n_jobs is None:
        return cores
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise InvalidParameter(
            f"n_jobs must be a positive number of workers, -1 for all cores, or None; got {n_jobs!r}"
        )
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + n_jobs)

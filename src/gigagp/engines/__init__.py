"""Where the work is done: serial defines correct, the others must match it bit for bit."""

from contextlib import AbstractContextManager, nullcontext
from numbers import Integral

import joblib

from gigagp.engines.base import Engine
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.serial import SerialEngine
from gigagp.engines.threads import ThreadsEngine
from gigagp.errors import InvalidParameter, choose

__all__ = ["Engine", "SerialEngine", "ThreadsEngine", "check_workers", "one_blas_thread", "open_engine"]


def open_engine(engine: str | Engine, n_jobs: int | None) -> AbstractContextManager[Engine]:
    """The engine of that name, closed at the end; n_jobs=None or -1 means every core this process may use.

    An engine given as an object stays open: it is its owner's to close.
    """
    if isinstance(engine, Engine):
        return nullcontext(engine)
    makers = {"serial": SerialEngine, "threads": lambda: ThreadsEngine(_workers(n_jobs))}
    made: Engine = choose("engine", engine, makers)()
    return made


def check_workers(n_jobs: int | None) -> None:
    """Refuse a number of workers that means nothing."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise InvalidParameter(
            f"n_jobs must be a positive number of workers, -1 for all cores, or None; got {n_jobs!r}"
        )


def _workers(n_jobs: int | None) -> int:
    check_workers(n_jobs)
    cores = int(joblib.cpu_count())  # those this process may use: affinity and container limits count
    if n_jobs is None:
        return cores
    return int(n_jobs) if n_jobs > 0 else max(1, cores + 1 + int(n_jobs))

"""Where the work is done: serial defines correct, the others must match it bit for bit."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from numbers import Integral
from typing import Any

import joblib

from gigagp.engines.base import Engine, OverLeaves
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.serial import SerialEngine
from gigagp.engines.threads import ThreadsEngine
from gigagp.errors import InvalidParameter, choose

__all__ = [
    "Engine",
    "OverLeaves",
    "Place",
    "SerialEngine",
    "ThreadsEngine",
    "check_workers",
    "is_client",
    "one_blas_thread",
    "open_engine",
]


# What a user may give: a name, the address of a Dask scheduler, a Dask client, or an engine.
Place = Any


def open_engine(engine: Place, n_jobs: int | None) -> AbstractContextManager[Engine]:
    """The engine of that name, closed at the end; n_jobs=None or -1 means every core this process may use.

    An engine given as an object, or a Dask client, stays open: it is its owner's to close.
    """
    if isinstance(engine, Engine):
        return nullcontext(engine)
    if is_client(engine):
        wrapped: Engine = _dask().DaskEngine(engine, n_jobs=_workers(n_jobs))
        return wrapped
    makers = {
        "serial": SerialEngine,
        "threads": lambda: ThreadsEngine(_workers(n_jobs)),
        "processes": lambda: _processes(_workers(n_jobs)),
        "dask": lambda: _dask().DaskEngine.on_this_machine(_workers(n_jobs)),
    }
    if isinstance(engine, str) and "://" in engine:
        makers[engine] = lambda: _dask().DaskEngine.at(engine, _workers(n_jobs))
    try:
        maker = choose("engine", engine, makers)
    except InvalidParameter as error:
        more = "or the address of a Dask scheduler, such as tcp://host:8786, or a Dask client"
        raise InvalidParameter(f"{error}; {more}") from None
    made: Engine = maker()
    return made


def is_client(engine: Place) -> bool:
    """Whether this is a Dask client; Dask is not imported to find out."""
    found = sys.modules.get("distributed")
    return found is not None and isinstance(engine, found.Client)


def _processes(workers: int) -> Engine:
    from gigagp.engines.processes import ProcessesEngine  # noqa: PLC0415 joblib's pool takes time to load

    return ProcessesEngine(workers)


def _dask() -> Any:
    try:
        from gigagp.engines import dask  # noqa: PLC0415 most users have no cluster
    except ImportError as error:
        raise InvalidParameter(
            f"the Dask engine needs dask and distributed ({error}): pip install 'gigagp[dask]'"
        ) from None
    return dask


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

"""Engines: where experts are computed. The serial engine defines what is correct; the others match it bit for bit."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gigagp.engines.base import Engine, OverLeaves, own_workspace
from gigagp.engines.blas_threads import one_blas_thread
from gigagp.engines.serial import SerialEngine
from gigagp.engines.threads import ThreadsEngine
from gigagp.engines.workers import check_workers, worker_count
from gigagp.errors import InvalidParameter, choose

__all__ = [
    "Engine",
    "OverLeaves",
    "Place",
    "SerialEngine",
    "ThreadsEngine",
    "check_workers",
    "is_client",
    "is_of_this_machine",
    "one_blas_thread",
    "open_engine",
    "own_workspace",
]


# What a user may give: a name, the address of a Dask scheduler, a Dask client, or an engine.
Place = Any


def open_engine(engine: Place, n_jobs: int | None) -> AbstractContextManager[Engine]:
    """The engine of that name, closed at the end; n_jobs=None or -1 means every core this process may use.

    An engine given as an object, or a Dask client, stays open: it is its owner's to close.
    """
    check_workers(n_jobs)
    if isinstance(engine, Engine):
        return nullcontext(engine)
    if is_client(engine):
        wrapped: Engine = _dask().DaskEngine(engine, n_jobs=worker_count(n_jobs))
        return wrapped
    makers = {
        "serial": SerialEngine,
        "threads": lambda: ThreadsEngine(worker_count(n_jobs)),
        "processes": lambda: _processes(worker_count(n_jobs)),
        "dask": lambda: _dask().DaskEngine.on_this_machine(worker_count(n_jobs)),
    }
    if isinstance(engine, str) and "://" in engine:
        makers[engine] = lambda: _dask().DaskEngine.at(engine, worker_count(n_jobs))
    try:
        maker = choose("engine", engine, makers)
    except InvalidParameter as error:
        more = "or the address of a Dask scheduler, such as tcp://host:8786, or a Dask client"
        raise InvalidParameter(f"{error}; {more}") from None
    opened: Engine = maker()
    return opened


def is_of_this_machine(engine: Place) -> bool:
    """Whether all workers of an engine are processes of this machine for certain."""
    return engine in ("serial", "threads", "processes") if isinstance(engine, str) else isinstance(engine, SerialEngine)


def is_client(engine: Place) -> bool:
    """Whether this is a Dask client; Dask is not imported to find out."""
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(engine, distributed.Client)


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

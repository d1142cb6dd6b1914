"""The number of workers, n_jobs, as every engine, the estimator and the command line interpret it."""

from __future__ import annotations

from numbers import Integral

import joblib

from gigagp.errors import InvalidParameter


def check_workers(n_jobs: int | None, name: str = "n_jobs") -> None:
    """Accept a positive number, -1 (every core) or None (the default, every core too); refuse anything else."""
    if n_jobs is None:
        return
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs < -1 or n_jobs == 0:
        raise InvalidParameter(
            f"{name} must be a positive number of workers, -1 for all cores, or None; got {n_jobs!r}"
        )


def worker_count(n_jobs: int | None, name: str = "n_jobs") -> int:
    """The number of workers that n_jobs means."""
    check_workers(n_jobs, name)
    if n_jobs is None or n_jobs == -1:
        return int(joblib.cpu_count())  # the cores this process may use: affinity and container limits count
    return int(n_jobs)

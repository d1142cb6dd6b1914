"""The one place where BLAS threads are capped: parallelism is over experts, one BLAS thread each."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0  # how many contexts are open: the cap is the process's, so the first sets it and the last lifts it
_limit: Any = None


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Knows the libraries of the process; looks again when modules have been loaded, for they may bring a BLAS."""
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside this context, every BLAS the process has loaded uses one thread. Contexts may overlap, in any threads."""
    global _inside, _limit  # noqa: PLW0603 a cap on the process has one state
    with _lock:
        if _inside == 0:
            _limit = _controller(len(sys.modules)).limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()

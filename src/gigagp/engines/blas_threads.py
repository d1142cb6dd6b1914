"""The one place where BLAS threads are capped: parallelism is over experts, one BLAS thread each."""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0  # how many contexts are open: the cap is the process's, so the first sets it and the last lifts it
_limit: Any = None


class _LibraryInfo(ctypes.Structure):
    """What `dl_iterate_phdr` says of a shared library; only `loaded` is read."""

    _fields_: ClassVar = [
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("loaded", ctypes.c_ulonglong),  # how many libraries the process has ever loaded
    ]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LibraryInfo), ctypes.c_size_t, ctypes.c_void_p)


def _loaded_libraries() -> int:
    """A number that grows whenever a library is loaded: of libraries or, where the system has no such, of modules."""
    iterate = getattr(ctypes.CDLL(None), "dl_iterate_phdr", None) if sys.platform == "linux" else None
    if iterate is None:
        return len(sys.modules)
    loaded = 0

    @_Callback
    def read_first(info: Any, size: int, data: Any) -> int:
        nonlocal loaded
        loaded = info.contents.loaded
        return 1  # the first library is enough

    iterate(read_first, None)
    return loaded


@lru_cache(maxsize=1)
def _controller(libraries: int) -> ThreadpoolController:
    """Knows the libraries of the process; it takes some milliseconds to look through them for a BLAS.

    It is made anew when libraries have been loaded, not whenever modules have: predictions import modules of Numba.
    """
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Inside this context, every BLAS the process has loaded uses one thread. Contexts may overlap, in any threads."""
    global _inside, _limit  # noqa: PLW0603 a cap on the process has one state
    with _lock:
        if _inside == 0:
            _limit = _controller(_loaded_libraries()).limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()

"""The one place where BLAS threads are capped: parallelism is over experts, one BLAS thread each."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Inside this context, every BLAS of the process uses one thread."""
    return _controller().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]

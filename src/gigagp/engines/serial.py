"""One worker, here and now. This engine defines what is correct."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gigagp.engines.base import Engine, own_workspace
from gigagp.linalg.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")


class SerialEngine(Engine):
    """The caller's own thread."""

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        return (function(task, own_workspace()) for task in tasks)

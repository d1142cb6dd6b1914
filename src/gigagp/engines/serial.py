"""One worker, here and now. This engine defines what is correct."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gigagp.engines.base import Engine
from gigagp.linalg.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")


class SerialEngine(Engine):
    """The caller's own thread."""

    def __init__(self) -> None:
        self._work = Workspace()

    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T]) -> Iterator[R]:
        return (function(task, self._work) for task in tasks)

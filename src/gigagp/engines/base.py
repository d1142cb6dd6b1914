"""What an engine does: map a function over the subtrees and add what comes back, in the tree's order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

from gigagp.linalg.workspace import Workspace
from gigagp.tree import Node, Tree, V

T = TypeVar("T")
R = TypeVar("R")

# Units of work a sum is cut into: enough to keep many workers even, and independent of their number.
_UNITS = 64


_own = threading.local()


def own_workspace() -> Workspace:
    """The workspace of the thread that asks."""
    if not hasattr(_own, "work"):
        _own.work = Workspace()
    work: Workspace = _own.work
    return work


class Engine(ABC):
    """A place to compute. Results never depend on the engine or on its number of workers."""

    @abstractmethod
    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T]) -> Iterator[R]:
        """function(task, workspace) for each task, in order; the workspace belongs to the worker that runs it."""

    def sum(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        """The sum of leaf_value over all leaves, formed on the workers below a cut of the tree and here above it."""
        units = tree.cut(_UNITS)
        size = -(-len(units) // (2 * _UNITS))
        bundles = [units[i : i + size] for i in range(0, len(units), size)]

        def add_up(bundle: list[Node], work: Workspace) -> list[V]:
            return [unit.sum(lambda leaf: leaf_value(leaf, work)) for unit in bundle]

        results = (value for values in self.map(add_up, bundles) for value in values)
        return tree.root.sum(lambda _: next(results), units[0].depth)

    def close(self) -> None:  # noqa: B027 most engines hold nothing
        """Give back what the engine holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

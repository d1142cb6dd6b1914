"""What an engine does: map a function over tasks, and sum over the leaves of a tree in the tree's order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from gigagp.arrays import Array
from gigagp.data.mirrors import Mirror
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.errors import tell_expert
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Node, Tree, V

T = TypeVar("T")
R = TypeVar("R")

# Units of work a sum is cut into: enough to keep many workers even, and independent of their number.
_UNITS = 64
_TOGETHER = 64  # leaves in one call: enough for Python to cost little, few enough for their values to be small
_BUNDLES = 4  # bundles per worker into which the remaining units would be divided

# (leaf, inputs, targets, workspace) -> what the leaf says of its rows; where rows differ in noise, their row noise is a
# fifth argument
LeafValue = Callable[..., V]

_own = threading.local()


def own_workspace() -> Workspace:
    """The workspace of the thread that asks."""
    if not hasattr(_own, "work"):
        _own.work = Workspace()
    work: Workspace = _own.work
    return work


@dataclass(frozen=True, eq=False)
class OverLeaves(Generic[V]):
    """A function of the rows of each leaf: its data, which do not change, and its arguments, which do at every step."""

    store: ExpertStore
    lists: RowLists
    leaves: Array | None  # the leaf at each place of the tree; None: they are the same
    value: LeafValue[V]

    def __call__(self, place: int, work: Workspace) -> V:
        leaf = self.leaf(place)
        return _of_leaf(self.value, leaf, self.store, self.lists.rows(leaf), work)

    def each(self, places: range, work: Workspace) -> Iterator[V]:
        """The values of consecutive places, in order."""
        if not isinstance(self.lists, Runs):
            yield from (self(place, work) for place in places)
            return
        leaves = (
            np.arange(places.start, places.stop) if self.leaves is None else self.leaves[places.start : places.stop]
        )
        starts, ends = self.lists.starts[leaves], self.lists.starts[leaves + 1]
        yield from each_run(self.value, leaves, self.store, starts, ends, work)

    def leaf(self, place: int) -> int:
        return place if self.leaves is None else int(self.leaves[place])


def each_run(
    value: LeafValue[V], leaves: Array, store: ExpertStore, starts: Array, ends: Array, work: Workspace
) -> Iterator[V]:
    """The value of each leaf, in order; the rows of leaf i are starts[i] .. ends[i] of the store.

    A value may have a method `several`, which takes many leaves in one call and returns None for those that must be
    taken alone.
    """
    several = getattr(value, "several", None)
    if several is None:
        for leaf, first, end in zip(leaves.tolist(), starts.tolist(), ends.tolist(), strict=True):
            yield _of_leaf(value, leaf, store, slice(first, end), work)
        return
    for begin in range(0, len(leaves), _TOGETHER):
        part = slice(begin, begin + _TOGETHER)
        results = several(store.X, store.y, starts[part], ends[part], work, *_row_noise(store, slice(None)))
        store.touched(int((ends[part] - starts[part]).sum()), places=len(results))
        for leaf, first, end, result in zip(leaves[part].tolist(), starts[part], ends[part], results, strict=True):
            yield _of_leaf(value, leaf, store, slice(int(first), int(end)), work) if result is None else result


def _of_leaf(value: LeafValue[V], leaf: int, store: ExpertStore, rows: slice | Array, work: Workspace) -> V:
    X, y = store.gather(rows)
    try:
        return value(leaf, X, y, work, *_row_noise(store, rows))
    except Exception as error:
        tell_expert(error, leaf)
        raise


def _row_noise(store: ExpertStore, rows: slice | Array) -> tuple[Array, ...]:
    """The last argument of a leaf's value, which is passed only where rows differ in noise."""
    row_noise = store.noise_of(rows)
    return () if row_noise is None else (row_noise,)


@dataclass(frozen=True, eq=False)
class _AddUp(Generic[V]):
    """The sums below some nodes, which are neighbours."""

    of_leaf: Callable[[int, Workspace], V]
    name = "sum"

    def __call__(self, nodes: list[Node], work: Workspace) -> list[V]:
        if not isinstance(self.of_leaf, OverLeaves):
            return [node.sum(lambda leaf: self.of_leaf(leaf, work)) for node in nodes]
        values = self.of_leaf.each(range(nodes[0].leaves.start, nodes[-1].leaves.stop), work)
        return [node.sum(lambda _: next(values)) for node in nodes]


class Engine(ABC):
    """A place to compute. Results never depend on the engine or on its number of workers."""

    reads_files = False  # whether its workers need the expert store to be in a folder
    one_machine = True  # whether its workers are on the machine of this process
    workers = 1

    @abstractmethod
    def map(self, function: Callable[[T, Workspace], R], tasks: Iterable[T], together: int = 1) -> Iterator[R]:
        """function(task, workspace) for each task, in order; the workspace belongs to the worker that runs it.

        `together`: tasks are so short that workers should get so many at a time.
        """

    def sum(self, tree: Tree, leaf_value: Callable[[int, Workspace], V]) -> V:
        """The sum of leaf_value over all leaves, formed on the workers below a cut of the tree and here above it."""
        units = tree.cut(_UNITS)
        results = (value for values in self.map(_AddUp(leaf_value), self._bundles(tree, units)) for value in values)
        return tree.root.sum(lambda _: next(results), units[0].depth)

    def _bundles(self, tree: Tree, units: list[Node]) -> Iterator[list[Node]]:
        """Consecutive units for one worker at a time: large bundles first, single units last.

        Leaves of one bundle are computed in one call, and with small bundles at the end workers finish together.
        """
        most = max(1, _TOGETHER * len(units) // tree.n_leaves)
        while units:
            size = min(most, -(-len(units) // (_BUNDLES * self.workers)))
            yield units[:size]
            units = units[size:]

    @property
    def local(self) -> Engine:
        """An engine of this process, for work on what only this process has."""
        return self

    @property
    def slots(self) -> int:
        """How many tasks are computed at the same time."""
        return self.workers

    def sees(self, folder: Path) -> bool:
        """Whether all workers see a folder of this machine."""
        return True

    def that_reads(self, paths: list[tuple[str, int]] | None) -> Engine:
        """This engine if its workers can read local files, given with their sizes; else one of this process.

        paths : None where rows are in the memory of this process
        """
        return self.local if self.reads_files and paths is None else self

    def use_folder(self, folder: Path | Mirror) -> None:  # noqa: B027 engines of this process need none
        """Pass large values to workers through this folder, or its address; refuse one that a worker does not see."""

    def close(self) -> None:  # noqa: B027 most engines hold nothing
        """Give back what the engine holds."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a place to compute, not a value: a cloned model computes in the same place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

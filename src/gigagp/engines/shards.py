"""A shard: some subtrees of the hierarchy and the rows of their leaves, in the memory of one worker.

Loading it is a pure function of files (`ShardFiles.load`), so that any worker can load it again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore, frozen
from gigagp.engines.base import LeafValue, OverLeaves, each_run
from gigagp.engines.transport import File, store_of_rows
from gigagp.linalg.workspace import Workspace
from gigagp.tree import Node, Tree, V

Levels = tuple[Array, ...]  # of a tree


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows leaf by leaf, read-only, and the subtrees above the leaves. `checksum` is that of the rows."""

    X: Array
    y: Array
    row_noise: Array | None
    starts: Array
    leaves: Array
    subtrees: tuple[Levels, ...]
    checksum: int

    def sums(self, value: LeafValue[V], work: Workspace) -> list[V]:
        """The sum over each of the subtrees."""
        values = each_run(value, self.leaves, self._store, self.starts[:-1], self.starts[1:], work)
        return [root.sum(lambda _: next(values)) for root in self._roots]

    @cached_property
    def _store(self) -> ExpertStore:
        return ExpertStore(self.X, self.y, self.row_noise)  # read-only, also where a shard came from another worker

    @cached_property
    def _roots(self) -> tuple[Node, ...]:
        return tuple(Tree(levels).root for levels in self.subtrees)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # without what is cached

    def __sizeof__(self) -> int:  # what the scheduler counts
        noise = 0 if self.row_noise is None else self.row_noise.nbytes
        return int(self.X.nbytes + self.y.nbytes + noise + self.starts.nbytes)


def sums_below(subtrees: tuple[Levels, ...], of_leaf: Callable[[int], V]) -> list[V]:
    """The sum over each subtree; their leaves are numbered through."""
    totals, before = [], 0
    for levels in subtrees:
        tree = Tree(levels)
        totals.append(tree.root.sum(lambda place, before=before: of_leaf(before + place)))  # type: ignore[misc]
        before += tree.n_leaves
    return totals


@dataclass(frozen=True, eq=False)
class ShardFiles:
    """The files and positions of the rows of a shard."""

    files: tuple[File, ...]
    starts: Array  # of each leaf and the end: in the file where rows are consecutive, else in `rows`
    rows: Array | None
    leaves: Array
    subtrees: tuple[Levels, ...]

    @classmethod
    def of(cls, files: tuple[File, ...], over: OverLeaves[Any], nodes: list[Node]) -> ShardFiles:
        places = np.concatenate([np.arange(node.leaves.start, node.leaves.stop) for node in nodes])
        leaves = places if over.leaves is None else over.leaves[places]
        subtrees, lists = tuple(node.alone().levels for node in nodes), over.lists
        if isinstance(lists, Runs) and bool((np.diff(leaves) == 1).all()):
            starts, rows = lists.starts[leaves[0] : leaves[-1] + 2], None
        else:
            parts = [lists[int(leaf)] for leaf in leaves]
            starts, rows = np.append(0, np.cumsum([len(part) for part in parts])), np.concatenate(parts)
        return cls(files, starts, rows, leaves, subtrees)

    def load(self) -> Shard:
        """The rows, read from the files; a file that is missing or has changed is an error."""
        rows = slice(int(self.starts[0]), int(self.starts[-1])) if self.rows is None else self.rows
        store = store_of_rows(self.files, rows)
        X, y = (np.array(part) for part in store.gather(rows))
        of_rows = store.noise_of(rows)
        row_noise = None if of_rows is None else frozen(np.array(of_rows))
        store.release()
        checksum = 0
        for part in (X, y) if row_noise is None else (X, y, row_noise):
            checksum = zlib.crc32(part.reshape(-1).view(np.uint8).data, checksum)
        starts = self.starts - self.starts[0]
        return Shard(frozen(X), frozen(y), row_noise, starts, self.leaves, self.subtrees, checksum)

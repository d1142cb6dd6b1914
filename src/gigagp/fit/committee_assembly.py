"""Makes committees of experts from leaves and their rows: bounding boxes of leaves, and points from outside a leaf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.fit.plan import Plan
from gigagp.linalg import row_codes
from gigagp.model.boxes import extents
from gigagp.model.committee import Committee
from gigagp.model.neighbour_search import BlockTree
from gigagp.model.routing import Router
from gigagp.model.sharing import share_nearest
from gigagp.partition.base import StoredPartition, run_means
from gigagp.partition.kdtree import block_starts

_ROWS_AT_ONCE = 1 << 16  # rows read at a time


@dataclass(frozen=True, eq=False)
class Extents:
    """Mean, minimum and maximum of every column in each leaf; minimum and maximum also in each block of rows.

    Rows in memory also have codes (`linalg.row_codes`). Rows in files have none: their codes might exceed the memory.
    """

    means: Array
    lows: Array
    highs: Array
    block_starts: Array | None = None
    block_lows: Array | None = None
    block_highs: Array | None = None
    codes: Array | None = None

    @classmethod
    def of(cls, store: ExpertStore, lists: RowLists) -> Extents:
        if isinstance(lists, Runs):
            return cls._of_runs(store, lists)
        shape = (len(lists), store.X.shape[1])
        result = cls(np.empty(shape), np.empty(shape), np.empty(shape))
        for leaf in range(len(lists)):
            X, _ = store.read(lists, leaf)
            whole = np.array([0, len(X)])
            result.means[leaf] = run_means(X, whole)[0]
            result.lows[leaf], result.highs[leaf] = (side[0] for side in extents(X, whole))
        return result

    @classmethod
    def _of_runs(cls, store: ExpertStore, cells: Runs) -> Extents:
        starts = block_starts(cells.starts)
        first = np.searchsorted(starts, cells.starts)  # block of each cell
        means = np.empty((len(cells), store.X.shape[1]))
        lows, highs = (np.empty((len(starts) - 1, store.X.shape[1])) for _ in range(2))
        codes: list[Array] = []
        step = max(1, _ROWS_AT_ONCE * len(cells) // len(store.y))
        for begin in range(0, len(cells), step):
            here = slice(begin, min(begin + step, len(cells)))
            origin, end = cells.starts[here.start], cells.starts[here.stop]
            X, _ = store.gather(slice(origin, end))
            means[here] = run_means(X, cells.starts[here.start : here.stop + 1] - origin)
            blocks = slice(first[here.start], first[here.stop])
            borders = starts[blocks.start : blocks.stop + 1] - origin
            lows[blocks], highs[blocks] = extents(X, borders)
            if not store.mapped:
                codes.append(row_codes.encode(X, borders, lows[blocks], highs[blocks]))
        return cls(
            means, np.minimum.reduceat(lows, first[:-1]), np.maximum.reduceat(highs, first[:-1]), starts, lows, highs,
            None if store.mapped else row_codes.join(codes),
        )  # fmt: skip

    @cached_property
    def _blocks(self) -> BlockTree | None:
        """The tree of the blocks of rows, in the units of the columns."""
        if self.block_starts is None or self.block_lows is None or self.block_highs is None:
            return None
        return BlockTree.of(self.block_starts, self.block_lows, self.block_highs, self.codes)

    def router(self, metric: Array, local: bool, categories: tuple[int, ...] = ()) -> Router:
        """The search for the nearest experts: by boxes of cells where experts are local."""
        if not local:
            return Router(self.means * metric, metric, categories=categories)
        blocks = None if self._blocks is None else self._blocks.scaled(metric)
        return Router(self.means * metric, metric, (self.lows * metric, self.highs * metric), blocks, categories)


def committees(plan: Plan, stored: StoredPartition, sides: Extents, theta: Array) -> Callable[[float], Committee]:
    """The committee at theta, for any sharing among local experts."""
    store, cells = stored.store, stored.cells
    local = plan.partitioner.local and isinstance(cells, Runs)
    router = sides.router(plan.metric(theta, store.X.shape[1]), local, plan.categories)
    whole = Committee(
        plan.kernel, theta, store, stored.experts, stored.tree, router, student=plan.student, inducing=plan.inducing
    )
    if not (local and isinstance(cells, Runs)):
        return lambda sharing: whole
    return cache(lambda sharing: replace(whole, experts=share_nearest(store, cells, router, sharing)))

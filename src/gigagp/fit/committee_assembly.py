"""Makes committees of experts from leaves and their rows: bounding boxes of leaves, and points from outside a leaf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine, SerialEngine
from gigagp.fit.plan import Plan
from gigagp.linalg.workspace import Workspace
from gigagp.model.block_tree import BlockTree, TreeBuilder
from gigagp.model.boxes import extents
from gigagp.model.committee import Committee
from gigagp.model.routing import Router
from gigagp.model.sharing import share_nearest
from gigagp.partition.base import StoredPartition, run_means
from gigagp.partition.kdtree import block_starts, blocks_of_cells

_ROWS_AT_ONCE = 1 << 16  # rows read at a time


@dataclass(frozen=True, eq=False)
class Extents:
    """Mean, minimum and maximum of every column in each leaf, and the tree of boxes around blocks of rows.

    Rows in memory also have codes (`linalg.row_codes`). Rows in files have none: their codes might exceed the memory.
    """

    means: Array
    lows: Array
    highs: Array
    blocks: BlockTree | None = None

    @classmethod
    def of(cls, store: ExpertStore, lists: RowLists, engine: Engine | None = None) -> Extents:
        """Those of the rows of a store; `engine` : whose workers on this machine read them."""
        if isinstance(lists, Runs):
            return cls._of_runs(store, lists, SerialEngine() if engine is None else engine.local)
        shape = (len(lists), store.X.shape[1])
        result = cls(np.empty(shape), np.empty(shape), np.empty(shape))
        for leaf in range(len(lists)):
            X, _ = store.read(lists, leaf)
            whole = np.array([0, len(X)])
            result.means[leaf] = run_means(X, whole)[0]
            result.lows[leaf], result.highs[leaf] = (side[0] for side in extents(X, whole))
        return result

    @classmethod
    def _of_runs(cls, store: ExpertStore, cells: Runs, engine: Engine) -> Extents:
        starts = block_starts(cells.starts)
        first = np.append(0, np.cumsum(blocks_of_cells(cells.starts)))  # block of each cell
        shape, dtype = (len(cells), store.X.shape[1]), store.X.dtype
        means, lows, highs = np.empty(shape), np.empty(shape, dtype), np.empty(shape, dtype)
        builder = TreeBuilder(len(starts) - 1, shape[1], dtype)

        def of_cells(here: slice, work: Workspace) -> tuple[Array, Array]:
            """Boxes of the blocks of some cells; means and boxes of these cells are written to their places."""
            origin, end = cells.starts[here.start], cells.starts[here.stop]
            X, _ = store.gather(slice(origin, end))
            means[here] = run_means(X, cells.starts[here.start : here.stop + 1] - origin)
            boxes = extents(X, starts[first[here.start] : first[here.stop] + 1] - origin)
            blocks = first[here] - first[here.start]
            lows[here], highs[here] = np.minimum.reduceat(boxes[0], blocks), np.maximum.reduceat(boxes[1], blocks)
            return boxes

        step = max(1, _ROWS_AT_ONCE * len(cells) // len(store.y))
        parts = (slice(begin, min(begin + step, len(cells))) for begin in range(0, len(cells), step))
        for boxes in engine.map(of_cells, parts):
            builder.add(*boxes)
        tree = builder.finish(starts)
        return cls(means, lows, highs, tree if store.mapped else tree.with_codes(store.X))

    def router(self, metric: Array, local: bool, categories: tuple[int, ...] = ()) -> Router:
        """The search for the nearest experts: by boxes of cells where experts are local."""
        boxes = (self.lows, self.highs) if local else None
        return Router(self.means, metric, boxes, self.blocks if local else None, categories, change=metric)


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


def communication_rows(experts: RowLists, n: int, rng: np.random.Generator) -> Array:
    """A random sample of all rows, as large as an expert: the communication expert of GRBCM."""
    return np.sort(rng.choice(n, int(experts.sizes.mean()), replace=False, shuffle=False))

"""Local experts: the cells of a KD-tree, in the metric of a first rough theta.

Evidence comes from the disjoint cells alone; for prediction an expert reads its whole cell and, with sharing, the
outside points nearest to its centre. (Evidence from overlapping cells counts points twice and was measured to give a
worse theta; see docs/architecture.md.)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.linalg.compiled import compiled
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import DEFAULT_BRANCHING, Groups, Partition, Partitioner, Shape, check_leaf, count_leaves
from gigagp.partition.kdtree import cell_starts, kd_order
from gigagp.tree import Tree

DEFAULT_LEAF = 256
# Outside points are looked for in the nearest cells: so many, and so many more for each cell's worth of points wanted.
_NEAREST_CELLS, _MORE_CELLS = 24, 8


class LocalPartition(Partitioner):
    """Each expert holds a neighbourhood. Cells here; `share_nearest` adds the outside points once theta is trained."""

    local = True

    def check(self, n: int, shape: Shape) -> None:
        if shape.levels is not None:
            check_leaf(n / (shape.branching or DEFAULT_BRANCHING) ** shape.levels, replace(shape, sharing=None), n)

    def split(self, X: Array, shape: Shape, rng: np.random.Generator) -> Partition:
        n = len(X)
        if shape.levels is not None:
            self.check(n, shape)
            levels, branching = int(shape.levels), int(shape.branching or DEFAULT_BRANCHING)
            n_leaves = branching**levels
            tree = Tree.regular(levels, branching)
        else:
            n_leaves = count_leaves(n, n, int(shape.leaf_size or DEFAULT_LEAF))
            tree = Tree.balanced(n_leaves)
        starts = cell_starts(n, n_leaves)
        cells = Groups.consecutive(starts)
        return Partition(kd_order(X, starts), cells, cells, tree)


@compiled
def centres(X: Array, metric: Array, starts: Array) -> Array:
    """The mean of each cell's points, in the kernel's metric."""
    cells, D = len(starts) - 1, X.shape[1]
    out = np.zeros((cells, D))
    for c in range(cells):
        for i in range(starts[c], starts[c + 1]):
            for d in range(D):
                out[c, d] += X[i, d]
        for d in range(D):
            out[c, d] *= metric[d] / (starts[c + 1] - starts[c])
    return out


@compiled
def _distances(X: Array, metric: Array, centre: Array, starts: Array, near: Array, rows: Array, squares: Array) -> None:
    """Row numbers of the cells `near` and their squared distances to a centre."""
    at = 0
    for c in near:
        for i in range(starts[c], starts[c + 1]):
            total = 0.0
            for d in range(X.shape[1]):
                t = X[i, d] * metric[d] - centre[d]
                total += t * t
            rows[at] = i
            squares[at] = total
            at += 1


def share_nearest(X: Array, metric: Array, cells: Groups, sharing: float, engine: Engine) -> Groups:
    """Each cell and the (sharing - 1) times its size outside points nearest to its centre, by index.

    X holds the rows in storage order, so that a cell is a run of it.
    """
    sizes = cells.sizes
    wanted = np.minimum(np.round((sharing - 1) * sizes), sizes.sum() - sizes).astype(int)
    if len(cells) == 1 or wanted.max() == 0:
        return cells
    middle = centres(X, metric, cells.starts)
    ask = min(len(cells), _NEAREST_CELLS + int(_MORE_CELLS * wanted.max() / sizes.min()))
    _, near = cKDTree(middle).query(middle, ask)

    def gather(c: int, work: Workspace) -> Array:
        others = near[c][near[c] != c]
        rows = np.empty(sizes[others].sum(), np.int64)
        squares = np.empty(len(rows))
        _distances(X, metric, middle[c], cells.starts, others, rows, squares)
        if wanted[c] < len(rows):
            rows = rows[np.argpartition(squares, wanted[c])[: wanted[c]]]
        return np.concatenate([cells[c], np.sort(rows)])

    return Groups.of(list(engine.map(gather, range(len(cells)))))

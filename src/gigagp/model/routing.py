"""Which experts answer a query: the k nearest, in the kernel's metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from gigagp.arrays import Array
from gigagp.model.boxes import Boxes
from gigagp.model.neighbour_search import BlockTree


@dataclass(frozen=True, eq=False)
class Route:
    """For each query the experts asked, nearest first, (q, k), and their partition-of-unity weights."""

    experts: Array
    closeness: Array


class Router:
    """Finds nearest experts through a tree: time hardly grows with their number.

    The distance to an expert is that to the box around its cell's points, or, where experts have no cells, to its
    centre. Centres and boxes are in the kernel's metric, of which `metric` are the factors.
    """

    travels_once = True  # to each worker

    def __init__(
        self, centres: Array, metric: Array, boxes: tuple[Array, Array] | None = None, blocks: BlockTree | None = None
    ) -> None:
        self.centres, self.metric, self.by_cells = centres, metric, boxes is not None
        self.blocks = blocks  # of the rows within cells, for the search for the nearest rows
        self.boxes = Boxes(*(boxes or (centres, centres)), centres)

    @cached_property
    def index(self) -> cKDTree:
        """For experts without cells, and built when first needed."""
        return cKDTree(self.centres)

    def nearest(self, Z: Array, k: int) -> Route:
        """The k nearest experts of each query, and 1 - (d_j / d_{k+1})^2, which is 1 where there is no (k+1)-th."""
        n = len(self.centres)
        k = min(k, n)
        points = Z.astype(float) * self.metric
        if k == n:
            return Route(np.tile(np.arange(n), (len(Z), 1)), np.ones((len(Z), n)))
        distances, experts = (self.boxes.nearest if self.by_cells else self.index.query)(points, k + 1)
        limit = np.maximum(distances[:, -1:], np.finfo(float).tiny)
        closeness = 1 - (distances[:, :k] / limit) ** 2
        # Where all k + 1 are equally far, or on the spot, none is nearer than another.
        tied = closeness.sum(axis=1) <= 1e-12
        closeness[tied] = 1.0
        return Route(experts[:, :k], closeness)

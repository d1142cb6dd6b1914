"""Which experts answer a query: the k nearest, in the kernel's metric."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from gigagp.arrays import Array
from gigagp.linalg.categories import limits_of
from gigagp.model.block_tree import BlockTree
from gigagp.model.boxes import Boxes


@dataclass(frozen=True, eq=False)
class Route:
    """The experts of each query, nearest first, (q, k), and their partition-of-unity weights."""

    experts: Array
    closeness: Array


class Router:
    """Finds the nearest experts with a tree: the time hardly grows with their number.

    The distance to an expert is the distance to the box around its cell's points or, where experts have no cells, to
    its centre. Centres and boxes are in the kernel's metric: multiplied by `metric`, one factor per column.

    categories : numbers of the columns that are categories, in which different levels are equally far from each other
    change : where centres and boxes are not in the metric, the factors that bring them there
    """

    travels_once = True  # to each worker

    def __init__(
        self, centres: Array, metric: Array, boxes: tuple[Array, Array] | None = None,
        blocks: BlockTree | None = None, categories: tuple[int, ...] = (), change: Array | None = None,
    ) -> None:  # fmt: skip
        self.metric, self.by_cells = metric, boxes is not None
        self._places = (centres, *(boxes or ()))
        self._change = change  # factors by which centres and boxes are multiplied when they are needed, or None
        self.blocks = blocks  # boxes around blocks of rows within cells, for the search for the nearest rows
        self.categories, self.limits = categories, limits_of(metric, categories)

    def _in_metric(self, place: Array) -> Array:
        return place if self._change is None else place * self._change

    @cached_property
    def centres(self) -> Array:
        """The centres of the experts; computed when first needed, because neighbourhoods do without."""
        return self._in_metric(self._places[0])

    @cached_property
    def sides(self) -> tuple[Array, Array]:
        """Lows and highs of the boxes around cells; the centres where experts have no cells."""
        if not self.by_cells:
            return self.centres, self.centres
        return self._in_metric(self._places[1]), self._in_metric(self._places[2])

    def places(self) -> Iterator[tuple[str, Array]]:
        """Centres and, where experts have cells, lows and highs of their boxes, by name; computed in turn, not kept."""
        for name, place in zip(("centres", "lows", "highs"), self._places, strict=False):
            yield name, self._in_metric(place)

    @cached_property
    def boxes(self) -> Boxes:
        """The boxes of all cells and a tree of them, built when first needed: neighbourhoods do without."""
        return Boxes(*self.sides, self.centres, self.limits)

    @cached_property
    def search_metric(self) -> Array:
        """The metric as the search for the nearest rows reads it: factors and, where there are any, limits."""
        return np.stack([self.metric, self.limits]) if len(self.limits) else self.metric[None, :].copy()

    def in_metric(self, metric: Array) -> Router:
        """The router to the same experts in another metric; both metrics are positive."""
        change = metric / self.metric
        change = change if self._change is None else change * self._change
        boxes = (self._places[1], self._places[2]) if self.by_cells else None
        return Router(self._places[0], metric, boxes, self.blocks, self.categories, change)

    def with_blocks(self, blocks: BlockTree) -> Router:
        """The same router to experts, with other boxes around blocks of rows."""
        other = copy.copy(self)
        other.blocks = blocks
        return other

    @cached_property
    def index(self) -> cKDTree:
        """For experts without cells, and built when first needed."""
        centres = self.centres.copy()
        centres[:, list(self.categories)] = 0.0  # the mean of levels has no meaning
        return cKDTree(centres)

    def nearest(self, Z: Array, k: int) -> Route:
        """The k nearest experts of each query, and 1 - (d_j / d_{k+1})^2, which is 1 where there is no (k+1)-th."""
        n = len(self._places[0])
        k = min(k, n)
        points = Z.astype(float) * self.metric
        if k == n:
            return Route(np.tile(np.arange(n), (len(Z), 1)), np.ones((len(Z), n)))
        if not self.by_cells:
            points[:, list(self.categories)] = 0.0
        distances, experts = (self.boxes.nearest if self.by_cells else self.index.query)(points, k + 1)
        limit = np.maximum(distances[:, -1:], np.finfo(float).tiny)
        closeness = 1 - (distances[:, :k] / limit) ** 2
        # Where all k + 1 experts are at the same distance, which may be zero, they get equal weights.
        tied = closeness.sum(axis=1) <= 1e-12
        closeness[tied] = 1.0
        return Route(experts[:, :k], closeness)


def first_expert(route: Route) -> Array:
    """Which of each query's experts counts as the first (GRBCM): the one with the lowest number."""
    return np.asarray(route.experts == route.experts.min(axis=1, keepdims=True))


class QueriesByExpert:
    """A route sorted by expert: for each expert that answers any query, the rows of these queries and their slots.

    An expert is in slot j of a query if it is the j-th nearest. Pairs of query and slot are sorted by expert.
    """

    def __init__(self, leaves: Array, starts: Array, rows: Array, slots: Array) -> None:
        self.leaves, self._starts, self._rows, self._slots = leaves, starts, rows, slots

    @classmethod
    def of(cls, route: Route) -> QueriesByExpert:
        q, k = route.experts.shape
        flat = route.experts.ravel()
        order = np.argsort(flat, kind="stable")
        leaves, first = np.unique(flat[order], return_index=True)
        rows, slots = np.divmod(order, k)
        return cls(leaves, np.append(first, q * k), rows, slots)

    def __len__(self) -> int:
        return len(self.leaves)

    def span(self, i: int) -> slice:
        """Where the pairs of the i-th expert are among all pairs."""
        return slice(self._starts[i], self._starts[i + 1])

    def positions(self, k: int) -> Array:
        """Where each pair is among all pairs: entry q k + j is the position of slot j of query q."""
        positions = np.empty(len(self._rows), np.int64)
        positions[self._rows * k + self._slots] = np.arange(len(self._rows))
        return positions

    def __getitem__(self, i: int) -> tuple[int, Array, Array]:
        """The i-th expert's leaf, the rows of its queries, and its slots there."""
        here = self.span(i)
        return int(self.leaves[i]), self._rows[here], self._slots[here]

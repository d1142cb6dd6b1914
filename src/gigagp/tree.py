"""The hierarchy of experts: the order in which their evidence and messages are added, and on which compute unit.

Nodes only add, and addition is associative: depth and width never change the model (section 3.4). They determine only
where sums are formed. The order of the additions is fixed by the tree alone, so that every engine, with any number
of workers, gives the same bits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter


class Addable(Protocol):
    """Values that nodes of the tree add."""

    def __add__(self, other: Self, /) -> Self: ...


V = TypeVar("V", bound=Addable)
Nested = int | Sequence["Nested"]


@dataclass(frozen=True, eq=False)
class Tree:
    """Levels from the root down: node j at depth d has the children `levels[d][j] .. levels[d][j + 1]` at depth d + 1.

    All leaves are at the same depth; a leaf that would be higher is moved down by nodes with one child.
    """

    levels: tuple[Array, ...]

    travels_once = True  # to each worker

    @classmethod
    def regular(cls, levels: int, branching: int) -> Tree:
        """`levels` levels of `branching` children each: branching^levels leaves."""
        return cls(tuple(np.arange(branching**d + 1) * branching for d in range(levels)))

    @classmethod
    def balanced(cls, n_leaves: int, branching: int = 8) -> Tree:
        """A tree over any number of leaves in which no node has more than `branching` children."""
        counts = [n_leaves]
        while counts[0] > branching:
            counts.insert(0, -(-counts[0] // branching))
        above = [1, *counts[:-1]]
        return cls(tuple(np.arange(n + 1) * below // n for n, below in zip(above, counts, strict=True)))

    @classmethod
    def nested(cls, shape: Sequence[Nested]) -> Tree:
        """From nested lists, an integer n standing for n leaves: [2, [3, 1]] is a root over two leaves and a node."""
        depth = _depth(shape)
        widths: list[list[int]] = [[] for _ in range(depth)]
        _widths(shape, 0, depth, widths)
        return cls(tuple(np.concatenate([[0], np.cumsum(w)]) for w in widths))

    @property
    def n_leaves(self) -> int:
        return int(self.levels[-1][-1]) if self.levels else 1

    @property
    def depth(self) -> int:
        return len(self.levels)

    @property
    def root(self) -> Node:
        return Node(self, 0, 0)

    def width(self, depth: int) -> int:
        """How many nodes there are at a depth."""
        return 1 if depth == 0 else int(self.levels[depth - 1][-1])

    def cut(self, at_least: int) -> list[Node]:
        """The nodes of the highest level that has `at_least` of them (the leaves if none has): units of work."""
        depth = next((d for d in range(self.depth + 1) if self.width(d) >= at_least), self.depth)
        return [Node(self, depth, j) for j in range(self.width(depth))]

    def __repr__(self) -> str:
        widths = " -> ".join(f"{self.width(d):,}" for d in range(self.depth + 1))
        return f"Tree({self.depth} levels: {widths} leaves)"


@dataclass(frozen=True, eq=False)
class Node:
    """A node or a leaf. The evidence and the message of a node are the sums of those of its children."""

    tree: Tree
    depth: int
    index: int

    @property
    def is_leaf(self) -> bool:
        return self.depth == self.tree.depth

    @property
    def children(self) -> tuple[Node, ...]:
        if self.is_leaf:
            return ()
        first, end = self.tree.levels[self.depth][self.index : self.index + 2]
        return tuple(Node(self.tree, self.depth + 1, j) for j in range(first, end))

    @property
    def leaves(self) -> range:
        """The leaves below (or the leaf itself), always consecutive."""
        first, end = self.index, self.index + 1
        for level in self.tree.levels[self.depth :]:
            first, end = int(level[first]), int(level[end])
        return range(first, end)

    def alone(self) -> Tree:
        """The subtree below, as a tree of its own."""
        first, end, levels = self.index, self.index + 1, []
        for level in self.tree.levels[self.depth :]:
            part = level[first : end + 1]
            first, end = int(part[0]), int(part[-1])
            levels.append(part - first)
        return Tree(tuple(levels))

    def sum(self, leaf_value: Callable[[int], V], depth: int | None = None) -> V:
        """The sum over the leaves below, or over the nodes at `depth`, added node by node, left to right."""
        return _sum(self.tree.levels, self.depth, self.index, self.tree.depth if depth is None else depth, leaf_value)

    def evidence(self, of_leaf: Callable[[int], V]) -> V:
        """Eq. 5: the evidence of a node is the sum of its children's."""
        return self.sum(of_leaf)

    def message(self, of_leaf: Callable[[int], V]) -> V:
        """Eq. 7: the product of the children's Gaussians, as a sum of their natural parameters."""
        return self.sum(of_leaf)


def _sum(levels: tuple[Array, ...], depth: int, index: int, bottom: int, value: Callable[[int], V]) -> V:
    """The sum over the nodes at depth `bottom` below a node."""
    if depth == bottom:
        return value(index)
    first, end = levels[depth][index : index + 2].tolist()
    if depth + 1 == bottom:
        total = value(first)
        for child in range(first + 1, end):
            total = total + value(child)
        return total
    total = _sum(levels, depth + 1, first, bottom, value)
    for child in range(first + 1, end):
        total = total + _sum(levels, depth + 1, child, bottom, value)
    return total


@dataclass(frozen=True)
class Owned:
    """A subtree and the compute unit that holds it."""

    node: Node
    worker: int


@dataclass(frozen=True)
class SumAt:
    """The sum at a node, the unit that forms it, and the units whose parts it receives."""

    node: Node
    worker: int
    receives_from: tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """Compute units divided among subtrees."""

    owned: tuple[Owned, ...]
    sums: tuple[SumAt, ...]

    def leaves_of(self, worker: int) -> list[int]:
        return [leaf for o in self.owned if o.worker == worker for leaf in o.node.leaves]


def divide(tree: Tree, workers: int) -> Division:
    """The paper's division of compute units (section 3.4, figure "arch").

    From the root down, the units of a node are divided into one group per child, in proportion to the leaves below;
    where children outnumber units, neighbours share one. It ends at a leaf or at a single unit, which then owns the
    subtree. A node's sum is formed on the first unit of its group.
    """
    if workers < 1:
        raise InvalidParameter(f"workers must be at least 1; got {workers}")
    owned: list[Owned] = []
    sums: list[SumAt] = []

    def assign(node: Node, group: range) -> None:
        if node.is_leaf or len(group) == 1:
            owned.append(Owned(node, group[0]))
            return
        parts = list(_share_out([len(c.leaves) for c in node.children], group))
        for child, part in zip(node.children, parts, strict=True):
            assign(child, part)
        others = dict.fromkeys(p[0] for p in parts if p[0] != group[0])
        sums.append(SumAt(node, group[0], tuple(others)))

    assign(tree.root, range(workers))
    return Division(tuple(owned), tuple(sums))


def _share_out(weights: list[int], group: range) -> Iterator[range]:
    """A run of `group` for each weight (the leaves below a child); no unit idles while there are leaves for it."""
    if len(group) <= len(weights):
        for unit in _unit_per_child(weights, len(group)):
            yield range(group[unit], group[unit] + 1)
        return
    units = [1] * len(weights)
    # The child with most leaves per unit gets the next unit, if it has a leaf for it.
    waiting = [(-float(weight), child) for child, weight in enumerate(weights) if weight > 1]
    heapq.heapify(waiting)
    for _ in range(min(len(group), sum(weights)) - len(weights)):
        _, child = heapq.heappop(waiting)
        units[child] += 1
        if units[child] < weights[child]:
            heapq.heappush(waiting, (-weights[child] / units[child], child))
    start = group[0]
    for count in units:
        yield range(start, start + count)
        start += count


def _unit_per_child(weights: list[int], units: int) -> list[int]:
    """The unit of each child where children outnumber units: neighbours together, even loads, no unit idle."""
    total, before, unit = sum(weights), 0, 0
    unit_of_child = []
    for child, weight in enumerate(weights):
        remaining = len(weights) - child
        full = child > 0 and (before + weight / 2) * units >= (unit + 1) * total
        if child > 0 and unit < units - 1 and (full or remaining <= units - 1 - unit):
            unit += 1
        unit_of_child.append(unit)
        before += weight
    return unit_of_child


def _depth(shape: Nested) -> int:
    if isinstance(shape, int):
        if shape < 1:
            raise InvalidParameter(f"a node of a tree must have children: a number n means n leaves; got {shape}")
        return 0
    if not shape:
        raise InvalidParameter("a node of a tree must have children; got an empty list")
    return 1 + max(_depth(child) for child in shape)


def _widths(shape: Nested, depth: int, bottom: int, widths: list[list[int]]) -> None:
    if isinstance(shape, int):
        if depth < bottom:
            widths[depth].append(1)
            _widths(shape, depth + 1, bottom, widths)
        return
    flat = [leaf for child in shape for leaf in ([1] * child if isinstance(child, int) else [child])]
    widths[depth].append(len(flat))
    for child in flat:
        _widths(child, depth + 1, bottom, widths)

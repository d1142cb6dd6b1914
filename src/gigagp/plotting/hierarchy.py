"""The tree, and how its leaves are divided among workers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from gigagp.arrays import Array
from gigagp.plotting import style
from gigagp.tree import Division, Node, Tree, divide

_MAX_WIDTH = 128  # nodes of the widest level that is drawn; deeper levels are only counted
_MAX_NAMED_WORKERS = 12  # workers in the legend


def tree_of_workers(tree: Tree, workers: int = 4, ax: Axes | None = None) -> Axes:
    """The tree with each node in the colour of the worker that computes its sum (the paper's section 3.4).

    Thick lines are sums that one worker sends to another.
    """
    division = divide(tree, workers)
    owner = _owners(division)
    depth = max(d for d in range(tree.depth + 1) if d == 0 or tree.width(d) <= _MAX_WIDTH)
    ax = style.axes(ax, 5.6, 4.0)
    places = _places(tree, depth)
    for level in range(depth):
        lines: list[list[tuple[float, int]]] = []
        crossing: list[list[tuple[float, int]]] = []
        for node in _nodes(tree, level):
            for child in node.children:
                line = [(places[level][node.index], -level), (places[level + 1][child.index], -level - 1)]
                moves = owner(node) != owner(child)
                (crossing if moves else lines).append(line)
        ax.add_collection(LineCollection(lines, colors=style.MUTED, linewidths=0.8, alpha=0.6, zorder=1))
        ax.add_collection(LineCollection(crossing, colors=style.INK, linewidths=1.5, zorder=2))
    used = sorted({owned.worker for owned in division.owned})
    for worker in used:
        points = [
            (places[level][node.index], -level)
            for level in range(depth + 1)
            for node in _nodes(tree, level)
            if owner(node) == worker
        ]
        label = (
            f"worker {worker + 1}: {len(division.leaves_of(worker)):,} leaves" if worker < _MAX_NAMED_WORKERS else None
        )
        size = 7 if tree.width(depth) <= 64 else 4
        ax.plot(
            *np.array(points).reshape(-1, 2).T, "o", color=style.CYCLE[worker % len(style.CYCLE)], markersize=size,
            markeredgewidth=0, zorder=3, label=label,
        )  # fmt: skip
    if len(used) > _MAX_NAMED_WORKERS:
        ax.plot([], [], " ", label=f"and {len(used) - _MAX_NAMED_WORKERS:,} more")
    ax.set_yticks([-level for level in range(depth + 1)], [_level(tree, level) for level in range(depth + 1)])
    ax.set_ylim(-depth - 0.35, 0.35)
    ax.set_xlim(-0.03, 1.03)
    ax.set_xticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    style.legend_below(ax, 0.05)
    style.note(ax, f"{tree.n_leaves:,} leaves below, not drawn" if depth < tree.depth else "")
    return ax


def _nodes(tree: Tree, depth: int) -> list[Node]:
    return [Node(tree, depth, index) for index in range(tree.width(depth))]


def _places(tree: Tree, depth: int) -> list[Array]:
    """Horizontal positions of the nodes per level: the last level evenly spaced, others above their children."""
    n = tree.width(depth)
    places = [np.full(1, 0.5) if n == 1 else np.linspace(0, 1, n)]
    for level in reversed(range(depth)):
        starts = tree.levels[level]
        places.insert(0, (places[0][starts[:-1]] + places[0][starts[1:] - 1]) / 2)
    return places


def _owners(division: Division) -> Callable[[Node], int]:
    """A function that returns the worker that computes the sum of a node."""
    forms = {(s.node.depth, s.node.index): s.worker for s in division.sums}
    of_leaf = {o.node.leaves[0]: o.worker for o in division.owned}
    starts = np.array(sorted(of_leaf))

    def owner(node: Node) -> int:
        first = node.leaves[0]
        inside = of_leaf[int(starts[np.searchsorted(starts, first, side="right") - 1])]
        return forms.get((node.depth, node.index), inside)

    return owner


def _level(tree: Tree, depth: int) -> str:
    count = tree.width(depth)
    if depth == tree.depth:
        return f"{count:,} leaves" if count > 1 else "1 leaf"
    return "root" if depth == 0 else f"{count:,} nodes"

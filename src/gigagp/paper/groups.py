"""The paper's figure "arch": a tree of experts, and the compute units divided among its subtrees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from gigagp.paper import drawing
from gigagp.tree import Division, Node, Tree, divide

UNITS = 8


@dataclass(frozen=True)
class Groups:
    """A tree, its division, and where its parts stand: units are columns of width 1."""

    tree: Tree
    units: int
    division: Division

    def span(self, node: Node) -> tuple[int, int]:
        """The first and the last unit that hold leaves below a node."""
        holders = [unit for unit in range(self.units) if set(self.division.leaves_of(unit)) & set(node.leaves)]
        return min(holders), max(holders)

    def place(self, node: Node) -> float:
        """Across: a leaf within its unit, a node above the middle of its leaves."""
        return sum(self._leaf(leaf) for leaf in node.leaves) / len(node.leaves)

    def _leaf(self, leaf: int) -> float:
        for unit in range(self.units):
            leaves = self.division.leaves_of(unit)
            if leaf in leaves:
                return unit + (leaves.index(leaf) + 0.5) / len(leaves)
        raise LookupError(leaf)


def run(units: int = UNITS) -> Groups:
    """Three levels of unequal width."""
    tree = Tree.nested([[[2, 2], [2, 2]], [[3, 3]], [[1, 1], [2]]])
    return Groups(tree, units, divide(tree, units))


def table(groups: Groups) -> list[tuple[int, int]]:
    """Unit and number of leaves."""
    return [(unit, len(groups.division.leaves_of(unit))) for unit in range(groups.units)]


def draw(groups: Groups, path: Path) -> None:
    figure, axes = drawing.grid(1, 1, (9, 4.2))
    ax, tree = axes[0, 0], groups.tree
    for unit in range(groups.units):
        ax.add_patch(Rectangle((unit + 0.04, -0.3), 0.92, tree.depth + 0.7, color="#e3edf7", zorder=0))
        ax.text(unit + 0.5, -0.4, f"unit {unit + 1}", ha="center", va="top", fontsize=9, color="#1f5fa8")
    colour = 0
    for depth in range(tree.depth + 1):
        for index in range(tree.width(depth)):
            node = Node(tree, depth, index)
            if not node.is_leaf:
                _node(ax, groups, node, drawing.FAMILY[colour % len(drawing.FAMILY)])
                colour += 1
            else:
                ax.plot(groups.place(node), 0, "o", color="black", markersize=7, zorder=3)
    ax.set_xlim(-0.1, groups.units + 0.1)
    ax.set_ylim(-0.7, tree.depth + 0.45)
    drawing.bare(ax)
    drawing.save(figure, path)


def _node(ax: Axes, groups: Groups, node: Node, colour: str) -> None:
    """A node, the lines to its children, and the units that its part of the work is divided among."""
    height, (first, last) = groups.tree.depth - node.depth, groups.span(node)
    shape = FancyBboxPatch(
        (first + 0.1, height - 0.2), last - first + 0.8, 0.4, boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=colour, alpha=0.25, edgecolor=colour, zorder=1,
    )  # fmt: skip
    ax.add_patch(shape)
    for child in node.children:
        ends = (groups.place(node), groups.place(child)), (height, height - 1)
        ax.plot(*ends, color="#555555", linewidth=0.9, zorder=2)
    ax.plot(groups.place(node), height, "o", color=colour, markersize=11, zorder=3)

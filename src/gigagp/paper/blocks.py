"""The paper's figure "kernel matrix": what experts keep of the full GP's covariances.

A partition keeps the blocks on the diagonal (in the order of the experts); rows in two experts make larger blocks, and
in the data's own order the cut between experts blurs. Cells of neighbours, which go past the paper, keep what is large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from gigagp.arrays import Array
from gigagp.kernels import SquaredExponential
from gigagp.paper import drawing, page
from gigagp.paper.record import Record, Results
from gigagp.partition import Partition, Partitioner, Shape, partitioner
from gigagp.progress import Listener, silent

POINTS = 64
EXPERTS = 4
LENGTH = 0.12  # length-scale; the points span 0 to 1
WAYS = (
    ("stratified", 1, "a partition: each row in one expert"),
    ("stratified", 2, "sharing: each row in two experts"),
    ("local", 1, "cells of neighbours (past the paper)"),
)


@dataclass(frozen=True)
class Settings:
    """The seed of the random partitions."""

    seed: int = 0


FULL = QUICK = Settings()


@dataclass(frozen=True, eq=False)
class Approximation:
    """The covariances that one partition keeps of the full matrix K."""

    title: str
    blocks: list[Array]  # rows of each expert
    in_experts: Array  # K in the order of the experts, zero where no expert sees a pair
    in_data: Array  # K in the data's order, zero where no expert sees a pair

    @property
    def pairs(self) -> float:
        """Share of the pairs of rows that some expert sees."""
        return float(np.mean(self.in_data > 0))


@dataclass(frozen=True, eq=False)
class Blocks:
    """The covariance matrix of the full GP, and what each partition keeps of it."""

    K: Array
    ways: list[Approximation]

    def covariance(self, way: Approximation) -> float:
        """Share of the summed squared covariances between different rows that some expert sees."""
        off = ~np.eye(len(self.K), dtype=bool)
        return float(np.sum(way.in_data[off] ** 2) / np.sum(self.K[off] ** 2))


def blocks(seed: int = 0) -> Blocks:
    """Compute the matrices for sorted points in one dimension."""
    x = np.linspace(0, 1, POINTS)[:, None]
    kernel = SquaredExponential(1.0, LENGTH).bind(1)
    K = kernel.cross(kernel.theta, x, x)
    return Blocks(K, [_approximation(K, x, partitioner(name), sharing, title, seed) for name, sharing, title in WAYS])


def run(record: Record, data: Path, settings: Settings, tell: Listener = silent) -> Blocks:
    """Computed at every call because it takes no time. The data folder is not used."""
    computed: list[Blocks] = []

    def work() -> Results:
        computed.append(blocks(settings.seed))
        return {"lines": [list(line) for line in table(computed[0])]}

    record.step("blocks", work, again=True)
    return computed[0]


def write(record: Record, results: Blocks, settings: Settings, paths: page.Paths) -> str:
    draw(results, paths.picture())
    head = ["division", "pairs of rows that some expert sees", "squared covariances"]
    lines = page.table(head, [[title, f"{pairs:.0%}", f"{squares:.0%}"] for title, pairs, squares in table(results)])
    text = [
        f"{POINTS} points on a line under {EXPERTS} experts: the full GP's matrix of covariances, and what is left of "
        "it in the order of the experts and in the data's own. A partition keeps blocks on the diagonal; rows in two "
        "experts make the blocks larger, and in the data's order the cut between experts blurs. Cells of neighbours, "
        "which go past the paper, keep what is large.",
        f"![The matrix of covariances and what experts keep of it]({paths.picture().name})",
        lines,
    ]
    page.write(paths, "The blocks figure", text, record, f"seed {settings.seed}")
    return lines


def table(results: Blocks) -> list[tuple[str, float, float]]:
    """Per partition: title, share of pairs in a common expert, share of squared covariances."""
    return [(way.title, way.pairs, results.covariance(way)) for way in results.ways]


def _approximation(K: Array, x: Array, how: Partitioner, sharing: int, title: str, seed: int) -> Approximation:
    shape = Shape(levels=1, branching=EXPERTS, sharing=sharing)
    blocks = _rows(how.split(x, shape, np.random.default_rng(seed)))
    order = np.concatenate(blocks)
    expert = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    in_experts = np.where(expert[:, None] == expert[None], K[np.ix_(order, order)], 0.0)
    same_expert = np.zeros(K.shape, bool)
    for block in blocks:
        same_expert[np.ix_(block, block)] = True
    return Approximation(title, blocks, in_experts, np.where(same_expert, K, 0.0))


def _rows(parts: Partition) -> list[Array]:
    """The rows of each expert, sorted."""
    return [np.sort(parts.order[parts.cells[leaf]]) for leaf in range(parts.n_leaves)]


def draw(results: Blocks, path: Path) -> None:
    """K on the left, and one row per partition on the right."""
    figure, axes = drawing.grid(len(results.ways), 3, (9.2, 8.6))
    full = axes[1, 0]
    _matrix(full, results.K)
    full.set_title("the full GP's covariances", fontsize=10)
    full.set_xlabel(f"{len(results.K)} rows, every pair", fontsize=9)
    for ax in (axes[0, 0], axes[2, 0]):
        drawing.bare(ax)
    for row, way in zip(axes, results.ways, strict=True):
        _matrix(row[1], way.in_experts)
        edges = np.cumsum([0, *(len(b) for b in way.blocks)]) - 0.5
        for start, end, colour in zip(edges[:-1], edges[1:], drawing.FAMILY, strict=False):
            row[1].plot([start, end, end, start, start], [start, start, end, end, start], color=colour, linewidth=2)
        row[1].set_title(way.title, fontsize=10)
        row[1].set_xlabel(f"{len(way.in_experts)} rows, in the order of the experts", fontsize=9)
        _matrix(row[2], way.in_data)
        row[2].set_title("in the data's order", fontsize=10)
        row[2].set_xlabel(f"{way.pairs:.0%} of pairs, {results.covariance(way):.0%} of squares", fontsize=9)
    drawing.save(figure, path)


def _matrix(ax: Axes, matrix: Array) -> None:
    ax.imshow(np.ma.masked_less_equal(matrix, 0), cmap="Blues", vmin=-0.15, vmax=1, interpolation="nearest")
    ax.set_facecolor("#fbf3ea")  # pairs without a common expert
    ax.set_xticks([])
    ax.set_yticks([])

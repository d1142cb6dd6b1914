"""Which family of kernels: each is trained on the same few experts and judged by the rows these leave out.

The evidence of a cell says how well a kernel explains the cell; what counts is how well an expert, with the points it
shares, predicts a row it has not seen. That is known in closed form for every row of every expert (leave one out), on
the same rows for every family, so small differences show.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.fit_report import Candidate
from gigagp.kernels.base import Kernel
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import RowLists


@dataclass(frozen=True, eq=False)
class _LeftOut:
    """For the own rows of a cell: what is left unexplained, in deviations, and the log of the variance."""

    kernel: Kernel
    theta: Array
    store: ExpertStore
    cells: RowLists
    experts: RowLists

    name = "leave one out"

    def __call__(self, leaf: int, work: Workspace) -> tuple[Array, Array]:
        rows, own = self.experts[leaf], self.cells[leaf]
        X, y = self.store.gather(rows)
        said = expert.leave_one_out(self.kernel, self.theta, X, y, work, leaf)
        at = np.isin(rows, own)
        return ((y - said.mean) / np.sqrt(said.variance))[at].astype(float), np.log(said.variance[at]).astype(float)


def score_left_out(
    kernel: Kernel, theta: Array, store: ExpertStore, cells: RowLists, experts: RowLists, leaves: Array, engine: Engine
) -> float:
    """Mean negative log density of the leaves' own rows, left out, with variances scaled to fit.

    Up to a constant, the same for every kernel.
    """
    said = list(engine.map(_LeftOut(kernel, theta, store, cells, experts), leaves.tolist(), 4))
    z, log_variance = (np.concatenate([part[i] for part in said]) for i in (0, 1))
    return float(0.5 * log_variance.mean() + 0.5 * np.log(np.mean(z * z)))


def chosen_among(candidates: list[Candidate]) -> list[Candidate]:
    """The same, with the best marked."""
    best = min(candidates, key=lambda c: c.score)
    return [replace(c, chosen=c is best) for c in candidates]

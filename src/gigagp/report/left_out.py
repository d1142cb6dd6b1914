"""The model's own rows as experts predict them when they leave them out: scores without new data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.estimator import HGPRegressor
from gigagp.inference import Committee
from gigagp.linalg.workspace import Workspace
from gigagp.partition.base import RowLists
from gigagp.plotting.rows import unscaled_inputs, unscaled_target
from gigagp.report.scored import Scored

_WORK = 2e11  # flops spent on it
_LEAST = 4  # experts


@dataclass(frozen=True, eq=False)
class _LeaveOut:
    """Inputs, targets, means and variances of a cell's own rows, each predicted from all the expert's others."""

    committee: Committee
    cells: RowLists

    name = "leave one out"

    def __call__(self, leaf: int, work: Workspace) -> tuple[Array, Array, Array, Array]:
        c = self.committee
        store: ExpertStore = c.store
        rows = c.experts[leaf]
        X, y = store.gather(rows)
        said = expert.leave_one_out(c.kernel, c.theta, X, y, work, leaf)
        own = np.isin(rows, self.cells[leaf])
        return X[own], y[own], said.mean[own], said.variance[own]


def score_left_out(model: HGPRegressor, scored: Scored, seed: int) -> int:
    """Score rows of some experts, picked at random; how many experts that were."""
    sizes = model._committee.experts.sizes.astype(float)
    order = np.random.default_rng(seed).permutation(len(sizes))
    affordable = int(np.searchsorted(np.cumsum(sizes[order] ** 3), _WORK))
    leaves = np.sort(order[: max(_LEAST, affordable)])
    scale = float(model._target_scaling.scale[0])
    with model._at_work() as engine:
        ask = _LeaveOut(model._committee, model._cells)
        for leaf, (X, y, mean, variance) in zip(leaves, engine.map(ask, leaves.tolist(), 4), strict=True):
            scored.add(
                unscaled_inputs(model, X), unscaled_target(model, y), unscaled_target(model, mean),
                np.sqrt(variance.astype(float)) * scale, np.full(len(y), leaf),
            )  # fmt: skip
    return len(leaves)

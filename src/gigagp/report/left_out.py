"""The model's own rows as experts predict them when they leave them out: scores without new data."""

from __future__ import annotations

import numpy as np

from gigagp.estimator import HGPRegressor
from gigagp.left_out import Asked, ask_one
from gigagp.plotting.rows import unscaled_inputs, unscaled_target
from gigagp.report.scored import Scored

_WORK = 2e11  # flops spent on it
_LEAST = 4  # experts


def score_left_out(model: HGPRegressor, scored: Scored, seed: int) -> int:
    """Score rows of some experts, picked at random; how many experts that were."""
    committee = model._committee
    sizes = committee.experts.sizes.astype(float)
    order = np.random.default_rng(seed).permutation(len(sizes))
    affordable = int(np.searchsorted(np.cumsum(sizes[order] ** 3), _WORK))
    leaves = np.sort(order[: max(_LEAST, affordable)])
    scale, calibration = float(model._target_scaling.scale[0]), model._calibration()
    asked = [Asked(leaf, model._cells[leaf]) for leaf in leaves.tolist()]
    with model._at_work() as engine:
        for each, said in zip(asked, ask_one(committee, asked, engine), strict=True):
            X, _ = committee.store.gather(each.rows)
            std = np.sqrt(calibration.calibrated(said.variance)) * scale
            truth, mean = unscaled_target(model, said.y), unscaled_target(model, said.mean)
            scored.add(unscaled_inputs(model, X), truth, mean, std, np.full(len(truth), each.leaf))
    return len(leaves)

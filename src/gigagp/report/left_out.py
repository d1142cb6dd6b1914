"""The model's own rows as it predicts them when they are held out: scores without new data."""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model import mixture, neighbourhood
from gigagp.model.held_out import Rows, by_own_expert
from gigagp.plotting.rows import unscaled_inputs, unscaled_target
from gigagp.report.scored import Scored

_WORK = 2e11  # multiplications spent on it
_LEAST_EXPERTS = 4
_MOST_ROWS = 20_000


def score_left_out(model: HGPRegressor, scored: Scored, seed: int) -> str:
    """Score rows of the model, picked at random; says how they were predicted."""
    rng = np.random.default_rng(seed)
    predictor = model.predictor_
    near, exact = predictor.neighbourhood, predictor.mixture
    if exact is not None:
        with predictor.engine() as engine:
            prediction = mixture.predict_held_out(exact, engine)
        X, y = exact.store.X, exact.store.y
        _add(model, scored, X, y, *predictor.in_units(prediction), np.zeros(len(y), int))
        return " Each row is predicted by all others. Give data that the model has not seen for scores of new rows."
    if near is None:
        return _by_experts(model, scored, rng)
    rows_in_all = len(near.store.y)
    count = int(min(rows_in_all, _MOST_ROWS, max(1_000, _WORK / near.work)))
    rows = np.sort(rng.choice(rows_in_all, count, replace=False))
    X, y = near.store.gather(rows)
    with predictor.engine() as engine:
        prediction = neighbourhood.predict(near, np.ascontiguousarray(X), engine, held_out=rows)
    leaf = np.searchsorted(near.cells.starts, rows, side="right") - 1
    _add(model, scored, X, y, *predictor.in_units(prediction), leaf)
    return (
        " Each row is predicted from its neighbours without itself, as a new query would be. Give data that the model "
        "has not seen for scores of another kind of rows, such as later ones."
    )


def _by_experts(model: HGPRegressor, scored: Scored, rng: np.random.Generator) -> str:
    predictor, committee = model.predictor_, model.model_.committee
    sizes = committee.experts.sizes.astype(float)
    order = rng.permutation(len(sizes))
    affordable = int(np.searchsorted(np.cumsum(sizes[order] ** 3), _WORK))
    leaves = np.sort(order[: max(_LEAST_EXPERTS, affordable)])
    tasks = [Rows(leaf, model.model_.cells[leaf]) for leaf in leaves.tolist()]
    with predictor.engine() as engine:
        for task, prediction in zip(tasks, by_own_expert(committee, tasks, engine), strict=True):
            X, y = committee.store.gather(task.rows)
            _add(model, scored, X, y, *predictor.in_units(prediction), np.full(len(y), task.leaf))
    return (
        f" {len(leaves):,} of {model.n_leaves_:,} experts predict each of their rows from all their others. Give data "
        "that the model has not seen for scores of the whole model."
    )


def _add(model: HGPRegressor, scored: Scored, X: Array, y: Array, mean: Array, std: Array | None, leaf: Array) -> None:
    assert std is not None
    scored.add(unscaled_inputs(model, X), unscaled_target(model, y.astype(float)), mean, std, leaf)

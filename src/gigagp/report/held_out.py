"""Scores without new data: training rows, each predicted without itself."""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model import mixture, neighbourhood
from gigagp.model.held_out import Rows, by_own_expert, with_row_noise
from gigagp.plotting.rows import unscaled_inputs, unscaled_target
from gigagp.report.scoring import ScoreCollector

_WORK_BUDGET = 2e11  # multiplications
_MIN_EXPERTS = 4
_MIN_ROWS = 1_000
_MAX_ROWS = 20_000


def score_held_out_rows(model: HGPRegressor, scores: ScoreCollector, seed: int) -> str:
    """Score held-out training rows, drawn at random; returns a remark on how they were predicted."""
    rng = np.random.default_rng(seed)
    predictor = model.predictor_
    near, exact = predictor.neighbourhood, predictor.mixture
    if exact is not None:
        with predictor.engine() as engine:
            total = len(exact.store.y)
            rows = np.sort(rng.permutation(total)[: max(_MIN_ROWS, int(_WORK_BUDGET / total**2))])
            prediction = predictor.with_noise(mixture.predict_held_out(exact, rows, engine), exact.store.X[rows])
        X, y = exact.store.gather(rows)
        ends = model.model_.cells.sizes.cumsum()
        leaf = np.searchsorted(ends, rows, side="right") if total == ends[-1] else np.zeros(len(rows), int)
        _add(model, scores, X, y, *predictor.in_units(prediction), leaf)
        return " Each row is predicted from all others. For scores of new rows, pass data that the model has not seen."
    if near is None:
        return _score_by_own_experts(model, scores, rng)
    total = len(near.store.y)
    count = int(min(total, _MAX_ROWS, max(_MIN_ROWS, _WORK_BUDGET / near.work)))
    rows = np.sort(rng.choice(total, count, replace=False))
    X, y = near.store.gather(rows)
    leaf, own = np.searchsorted(near.cells.starts, rows, side="right") - 1, model.model_.likelihood
    with predictor.engine() as engine:
        if own is not None:
            law = own.distribution(own.predict(near, np.ascontiguousarray(X), engine, rows), near)
            scores.add(unscaled_inputs(model, X), y.astype(float), law, leaf)
        else:
            prediction = neighbourhood.predict(near, np.ascontiguousarray(X), engine, held_out=rows)
            prediction = predictor.with_noise(with_row_noise(prediction, near.noise, near.store, rows), X)
            _add(model, scores, X, y, *predictor.in_units(prediction), leaf)
    return (
        " Each row is predicted from its neighbours without itself, as a new query would be. For scores of other kinds "
        "of rows, such as later ones, pass data that the model has not seen."
    )


def _score_by_own_experts(model: HGPRegressor, scores: ScoreCollector, rng: np.random.Generator) -> str:
    """Some experts predict their own rows, each without itself."""
    predictor, committee = model.predictor_, model.model_.committee
    sizes = committee.experts.sizes.astype(float)
    order = rng.permutation(len(sizes))
    affordable = int(np.searchsorted(np.cumsum(sizes[order] ** 3), _WORK_BUDGET))
    leaves = np.sort(order[: max(_MIN_EXPERTS, affordable)])
    tasks = [Rows(leaf, model.model_.cells[leaf]) for leaf in leaves.tolist()]
    with predictor.engine() as engine:
        for task, prediction in zip(tasks, by_own_expert(committee, tasks, engine), strict=True):
            X, y = committee.store.gather(task.rows)
            noisy = with_row_noise(prediction, committee.noise, committee.store, task.rows)
            _add(model, scores, X, y, *predictor.in_units(noisy), np.full(len(y), task.leaf))
    return (
        f" {len(leaves):,} of {model.n_leaves_:,} experts predict each of their rows from their other rows. For scores "
        "of the whole model, pass data that the model has not seen."
    )


def _add(
    model: HGPRegressor, scores: ScoreCollector, X: Array, y: Array, mean: Array, std: Array | None, leaf: Array
) -> None:
    assert std is not None
    inputs, target, trend = unscaled_inputs(model, X), unscaled_target(model, y.astype(float)), model.model_.trend
    added = 0.0 if trend is None else trend.values(inputs)
    law = model.predictor_.distribution(mean + added, std)
    scores.add(inputs, target + added, law, leaf)

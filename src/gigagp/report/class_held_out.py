"""Scores of a model of classes without new data: training rows, each predicted without itself."""

from __future__ import annotations

import numpy as np

from gigagp.estimators.classifier import HGPClassifier
from gigagp.model import laplace_neighbourhood
from gigagp.plotting.rows import unscaled_inputs
from gigagp.report.class_scoring import ClassScoreCollector

_WORK_BUDGET = 1e11  # multiplications
_MIN_ROWS = 1_000
_MAX_ROWS = 20_000


def score_held_out_classes(model: HGPClassifier, scores: ClassScoreCollector, seed: int) -> str:
    """Score held-out training rows, drawn at random; returns a remark on how they were predicted."""
    near, classes = model.predictor_.neighbourhood, model.model_.classes
    assert near is not None
    assert classes is not None
    total = len(near.store.y)
    work = laplace_neighbourhood.work(near, classes.classes)
    count = int(min(total, _MAX_ROWS, max(_MIN_ROWS, _WORK_BUDGET / work)))
    rows = np.sort(np.random.default_rng(seed).choice(total, count, replace=False))
    X, y = near.store.gather(rows)
    X = np.ascontiguousarray(X)
    with model.predictor_.engine() as engine:
        latents = laplace_neighbourhood.predict(near, classes.classes, X, engine, held_out=rows)
    prior = laplace_neighbourhood.prior_variance(near)
    p = np.exp(classes.calibration.log_probabilities(classes.classes, latents, prior))
    leaf = np.searchsorted(near.cells.starts, rows, side="right") - 1
    scores.add(unscaled_inputs(model, X), y.astype(int), p, leaf)
    return (
        " Each row is predicted from its neighbours without itself, as a new query would be. For scores of other kinds "
        "of rows, such as later ones, pass data that the model has not seen."
    )

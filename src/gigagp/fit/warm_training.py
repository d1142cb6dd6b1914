"""Trains a model again on the rows that it has now, from the theta that it has: a warm training.

Scalings, kernel families and the number of neighbours stay. Theta of each of the averaged kernels is trained as in a
fit, on groups of neighbouring rows, but starts where it is, so that no rough theta, no other starts and no other
families are tried. The rows are then sorted in the new metric, and the calibration is learnt from held-out rows.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import Runs
from gigagp.engines import Engine, one_blas_thread, open_engine
from gigagp.fit import settings
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import NumberScoring, Scorer
from gigagp.fit.plan import NoLog, Plan
from gigagp.fit.settings import FitSettings
from gigagp.fit.settling import settled
from gigagp.fit.theta_training import first_groups
from gigagp.fit.training import Precision, Trace, TrainingResult, bound_warnings, train_on_groups
from gigagp.kernels.base import Kernel
from gigagp.linalg.row_noise import FACTOR
from gigagp.model.calibration import Calibration
from gigagp.model.model import Model
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.partition import Shape, partitioner
from gigagp.partition.base import StoredPartition
from gigagp.progress import Event, Listener

_JUDGING_NEIGHBOURS = 32  # neighbours of the held-out predictions that judge theta
_FEWEST_CELLS = 2  # a single cell has no groups of neighbouring rows


def can_be_trained(model: Model) -> bool:
    """Whether a warm training is possible: the model predicts from neighbours, in several cells."""
    cells = len(model.cells) if model.online is None else len(settled(model).cells)
    return model.neighbourhood is not None and model.latents is None and cells >= _FEWEST_CELLS


def trained_again(model: Model, options: FitSettings, seed: np.random.SeedSequence, tell: Listener) -> Model:
    """The model with theta and calibration learnt from its present rows; its predictions before are where it starts."""
    model = settled(model)
    near = model.neighbourhood
    assert near is not None
    assert isinstance(model.cells, Runs)
    start, trace, rng = time.perf_counter(), Trace(tell=tell), np.random.default_rng(seed)
    stored = StoredPartition(model.store, model.cells, model.cells, model.committee.tree)
    plan = _plan(model, near.kernel, near.theta, options)
    with one_blas_thread(), open_engine(options.engine, options.n_jobs) as engine:
        trace.begin("training")
        scorer = Scorer.drawn(len(model.store.y), _scoring(plan), engine, rng)
        results = [
            _trained(_plan(model, each.kernel, each.theta, options), stored, each.theta, scorer, engine, rng, trace)
            for each in near.members
        ]
        trained = _with_thetas(model, near, [result.theta for result in results])
        trained = settled(trained, plan.metric(results[0].theta, model.store.X.shape[1]))
        seconds = {"training": time.perf_counter() - start}
        tell(Event("training", 0, None, seconds["training"], finished=True))
        calibration, begin = Calibration.none(), time.perf_counter()
        if settings.switch("calibrate", options.calibrate):
            assert trained.neighbourhood is not None
            score = scorer.calibrate(trained.neighbourhood)
            calibration = score.calibration.refined(score.prediction, score.y)
        seconds["choice of prediction"] = time.perf_counter() - begin
        tell(Event("choice of prediction", 0, None, seconds["choice of prediction"], finished=True))
    names = plan.names if model.inputs.directions is None else model.inputs.directions.named(plan.names)
    report = replace(
        trained.report, calibration=calibration, seconds=seconds,
        stages=tuple(stage for result in results for stage in result.stages),
        evidence_trace=tuple(trace.evidence), theta_trace=trace.thetas(len(results[0].theta)),
        jitter=trace.jitter, jittered_experts=trace.jittered,
        warnings=tuple(bound_warnings(results[0].theta, plan.bounds, names)),
    )  # fmt: skip
    return replace(trained, report=report, prequential=None)


def _plan(model: Model, kernel: Kernel, theta: Array, options: FitSettings) -> Plan:
    """What training needs to know, for one of the averaged kernels."""
    y, row_noise = np.asarray(model.store.y, float), model.store.row_noise
    variance = 1.0 if settings.switch("standardize", options.standardize) else max(float(y.var()), 1e-300)
    unit = 1.0 if row_noise is None else float(1 / np.median(row_noise[:, FACTOR]))
    low, high = (bound * variance * unit for bound in settings.noise_bounds(options.noise_bounds))
    noise = float(np.exp(theta[-1]))
    if noise < low * (1 - 1e-6):  # it was fixed, because rows have no noise but the known one
        low = high = noise
    return Plan(
        kernel=kernel.with_theta(theta[:-1]), noise_start=noise, noise_bounds=(low, high),
        partitioner=partitioner("local"), shape=Shape(), training="auto",
        precision=Precision.of(settings.precision(options.dtype).name), student=model.committee.student,
        exact_search=settings.switch("exact_neighbours", options.exact_neighbours),
        target_variance=max(float(y.var()), np.finfo(float).tiny), categories=model.committee.router.categories,
        gaussian_errors=options.likelihood == "gaussian",
    )  # fmt: skip


def _scoring(plan: Plan) -> NumberScoring:
    return NumberScoring(plan.target_variance, gaussian=plan.gaussian_errors)


def _trained(
    plan: Plan, stored: StoredPartition, theta: Array, scorer: Scorer, engine: Engine, rng: np.random.Generator,
    trace: Trace,
) -> TrainingResult:  # fmt: skip
    groups = Groups(plan, stored, engine, rng)
    return train_on_groups(
        lambda theta, count: groups.evidence(plan.kernel, theta, count, NoLog()),
        lambda theta: scorer.score(groups.model(plan.kernel, theta, _JUDGING_NEIGHBOURS)).score,
        theta, plan.bounds, trace, plan.precision, first_groups(plan, len(theta)),
    )  # fmt: skip


def _with_thetas(model: Model, near: Neighbourhood, thetas: list[Array]) -> Model:
    """The model with other values of theta, one per averaged kernel; its rows are still sorted as before."""
    members = []
    for each, theta in zip(near.members, thetas, strict=True):
        metric = each.kernel.metric(theta[:-1])
        assert metric is not None
        metric = np.broadcast_to(metric, (model.store.X.shape[1],)).astype(float)
        members.append(replace(each, theta=theta, router=each.router.in_metric(metric)))
    return replace(
        model, neighbourhood=replace(members[0], others=tuple(members[1:])),
        committee=replace(model.committee, theta=thetas[0]), report=replace(model.report, theta=thetas[0]),
    )  # fmt: skip

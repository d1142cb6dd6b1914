"""Tables of few rows: a mixture of exact GPs on all rows, whose weights and calibration come from held-out predictions.

Every family of kernels is trained from several starts under a weak prior of theta. How well a family predicts is
judged by leave-one-out predictions of all rows, in closed form. Where rows are few, theta has adapted to each of them;
the predictions of a row are then made at a theta that was trained without the row's fold (cross-fitting), and each
family is represented by samples of theta from a Laplace approximation of its posterior, instead of by its mode. Both
corrections vanish as rows grow. The weights maximise the held-out log density of the mixture (stacking, Yao et al.
2018, "Using stacking to average Bayesian predictive distributions").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.fit.plan import Family, Plan
from gigagp.fit.theta_posterior import Mode, Posterior
from gigagp.fit.training import NEAR, Precision, Trace
from gigagp.linalg.workspace import Workspace
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.mixture import HeldOut, Member, Mixture, log_losses, mixed

_EVALUATION_WORK = 8.1e9  # cube of the rows up to which exact GPs are trained on all of them: some 2,000
_FEW_ROWS = 512  # up to which theta is cross-fitted and sampled; of more rows, so many train every family first
_FOLDS = 6
_ALL_ROWS_PRECISION = Precision(change=1e-5, slope=2e-3)  # from a theta of some of the rows
_PRIOR_WEIGHT = 5.0  # rows that all families together count in the weights, equally
_LEAST_WEIGHT = 0.02  # families of less do not predict
_FAMILIES_WORK = 6e9  # sum of the cubes of the rows over families that are trained on all rows, where these are many
_LEAST_FAMILIES = 2
_CLEAR_WEIGHT = 0.1  # which such a family must have
_SAMPLE_ROWS, _MOST_PAIRS = 600, 3  # theta is sampled in so many pairs of samples, as long as their rows are fewer
_STACKING_STEPS = 300


@dataclass(frozen=True, eq=False)
class Fitted:
    """The mixture, the distribution of its errors, its most important family at its mode, and how it was found."""

    mixture: Mixture
    calibration: Calibration
    family: Family
    theta: Array
    stages: tuple[Stage, ...]
    candidates: tuple[Candidate, ...]


def is_small(plan: Plan, rows: int) -> bool:
    """Whether a mixture of exact GPs on all rows is affordable, and the user has asked for nothing else."""
    shape = plan.shape
    open_shape = all(each is None for each in (shape.levels, shape.branching, shape.leaf_size, shape.sharing))
    open_answer = plan.method == "auto" and plan.rule is None and plan.nearest == "auto"
    open_answer = open_answer and plan.neighbours is None and not plan.exact_search
    open_training = plan.train and plan.training == "auto" and plan.student and bool(plan.families)
    return float(rows) ** 3 <= _EVALUATION_WORK and open_shape and open_answer and open_training


@dataclass(frozen=True, eq=False)
class _Represented:
    """A family, its held-out predictions, and the thetas that stand for it with their own held-out predictions."""

    mode: Mode
    predictions: HeldOut
    thetas: list[Array]
    errors: list[Array]


def fit_mixture(plan: Plan, store: ExpertStore, engine: Engine, trace: Trace, rng: np.random.Generator) -> Fitted:
    """Train all families, weigh them by held-out predictions, and calibrate the mixture."""
    X, y = np.ascontiguousarray(store.X, float), np.ascontiguousarray(store.y, float)
    n, workers = len(y), engine.local
    posteriors = [Posterior.of(family, plan, rng) for family in plan.families]
    some = np.sort(rng.permutation(n)[:_FEW_ROWS])
    X_some, y_some = np.ascontiguousarray(X[some]), y[some]
    modes = list(
        workers.map(lambda p, work: p.mode(X_some, y_some, p.starts, plan.precision.no_finer(NEAR), work), posteriors)
    )
    passed_over: dict[str, float] = {}  # scores of families that are not trained on all rows
    if n <= _FEW_ROWS:
        folds = rng.permutation(n) % min(_FOLDS, n)
        pairs = int(np.clip(_SAMPLE_ROWS // n, 1, _MOST_PAIRS))
        draws = [rng.standard_normal((pairs, len(mode.theta))) for mode in modes]
        families = list(
            workers.map(lambda each, work: _sampled(*each, X, y, folds, work), zip(modes, draws, strict=True))
        )
    else:
        losses = list(workers.map(lambda mode, work: mode.losses(X, y, work), modes))
        promising = _most_promising(losses)
        passed_over = {mode.posterior.name: float(loss.mean()) for mode, loss in zip(modes, losses, strict=True)}
        near = plan.precision.no_finer(_ALL_ROWS_PRECISION)
        families = list(workers.map(lambda i, work: _on_all_rows(modes[i], X, y, near, work), promising))
    return _weighed(families, passed_over, plan, store, y, trace)


def _most_promising(losses: list[Array]) -> list[int]:
    """The few families that predict held-out rows best together, and the one that does so alone."""
    weights = stacking_weights(-np.column_stack(losses))
    count = max(_LEAST_FAMILIES, int(_FAMILIES_WORK / float(len(losses[0])) ** 3))
    best = {i for i in np.argsort(-weights, kind="stable")[:count].tolist() if weights[i] >= _CLEAR_WEIGHT}
    return sorted(best | {int(np.argmin([loss.mean() for loss in losses]))})


def _on_all_rows(mode: Mode, X: Array, y: Array, precision: Precision, work: Workspace) -> _Represented:
    """The family trained on all rows, from a theta of some of them."""
    then = mode.posterior.mode(X, y, [mode.theta], precision, work)
    found = then.held_out(X, y, work)
    return _Represented(mode.followed_by(then), found, [then.theta], [found.errors])


def _sampled(mode: Mode, draws: Array, X: Array, y: Array, folds: Array, work: Workspace) -> _Represented:
    """The family by samples of theta. Their spread widens held-out predictions as it widens those of queries."""
    thetas = mode.samples(X, y, draws, work)
    each = [mode.held_out(X, y, work, theta) for theta in thetas]
    crossed, at_mode = mode.cross_fitted(X, y, folds, work), mode.held_out(X, y, work)
    means = np.array([found.mean for found in each])
    total = np.mean([found.variance for found in each], axis=0) + means.var(axis=0)
    widened = replace(crossed, variance=crossed.variance + np.maximum(total - at_mode.variance, 0.0))
    return _Represented(mode, widened, thetas, [found.errors for found in each])


def _weighed(
    families: list[_Represented], passed_over: dict[str, float], plan: Plan, store: ExpertStore, y: Array, trace: Trace
) -> Fitted:
    """The mixture of families as held-out predictions weigh them, with its calibration."""
    losses = np.column_stack([family.predictions.losses(y) for family in families])
    weights = stacking_weights(-losses)
    weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    scores = losses.mean(axis=0)
    best = int(np.argmin(np.where(weights > 0, scores, np.inf)))
    members = tuple(
        Member(family.mode.posterior.family.kernel, theta, weight / len(family.thetas), errors)
        for family, weight in zip(families, weights.tolist(), strict=True)
        for theta, errors in zip(family.thetas, family.errors, strict=True)
        if weight > 0
    )
    mixture = Mixture(members, store)
    prediction = mixed([family.predictions for family in families], weights, mixture.noise)
    calibration = Calibration.none()
    if plan.calibrate:
        calibration = Calibration.learnt(prediction, y, Setting(mixture.noise, mixture.prior, plan.target_variance))
    order = [family for i, family in enumerate(families) if i != best] + [families[best]]
    for family in order:
        trace.add(family.mode.trace)
    names = [family.mode.posterior.name for family in families]
    tried = {name: score for name, score in passed_over.items() if name not in names} | dict(
        zip(names, scores.tolist(), strict=True)
    )
    assert prediction.variance is not None
    own = float(log_losses(y, prediction.mean, prediction.variance + mixture.noise).mean())
    shares = " + ".join(f"{w:.0%} {name}" for name, w in zip(names, weights, strict=True) if w > 0)
    candidates = (
        *(Candidate("kernel", name, score, name == names[best]) for name, score in tried.items()),
        Candidate("prediction", f"exact GPs ({shares})", calibration.score if calibration.rows else own, chosen=True),
    )
    stages = tuple(stage for family in order for stage in family.mode.stages)
    mode = families[best].mode
    return Fitted(mixture, calibration, mode.posterior.family, mode.theta, stages, candidates)


def stacking_weights(log_densities: Array) -> Array:
    """Weights of columns that maximise the mean log density of their mixture, rows being observations.

    Found by expectation maximisation; a Dirichlet prior that counts as a few rows keeps weights equal where the rows
    do not tell the columns apart.
    """
    columns = log_densities.shape[1]
    densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    weights = np.full(columns, 1 / columns)
    for _ in range(_STACKING_STEPS):
        shares = densities * weights
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + _PRIOR_WEIGHT / columns
        weights = counts / counts.sum()
    return weights

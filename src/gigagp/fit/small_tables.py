"""Tables of few rows: a mixture of exact GPs on all rows, whose weights and calibration come from held-out predictions.

Every family of kernels is trained under a weak prior of theta: one from several starts, the others from its mode and
from a start of their own. How well a family predicts is judged by leave-one-out predictions of all rows, in closed
form. Where rows are few, theta has adapted to each of them; the predictions of a row are then made at a theta that was
trained without the row's fold (cross-fitting), and each family is represented by samples of theta from a Laplace
approximation of its posterior, instead of by its mode. Both corrections vanish as rows grow. The weights maximise the
held-out log density of the mixture (stacking, Yao et al. 2018, "Using stacking to average Bayesian predictive
distributions").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp.arrays import Array
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.fit.plan import Family, Plan
from gigagp.fit.theta_posterior import Laplace, Mode, Posterior
from gigagp.fit.training import NEAR, Trace
from gigagp.linalg.workspace import Workspace
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.mixture import HeldOut, Member, Mixture, held_out, log_losses, mixed

_EVALUATION_WORK = 8.1e9  # cube of the rows up to which exact GPs are trained on all of them: some 2,000
_FEW_ROWS = 512  # up to which theta is cross-fitted and sampled; of more rows, so many train every family first
_FOLDS = 6
_LEADER = 1  # number of the family that climbs from several starts: Matern 5/2, neither the smoothest nor the roughest
_LEADERS_STARTS = 2  # of the starts, the first ones, are climbed from by that family alone
_GAIN = 0.01  # nats of log density that another step must promise when a family is trained from nearby
_PRIOR_WEIGHT = 5.0  # rows that all families together count in the weights, equally
_LEAST_WEIGHT = 0.02  # families of less do not predict
_FAMILIES_WORK = 6e9  # sum of the cubes of the rows over families that are trained on all rows, where these are many
_LEAST_FAMILIES = 2
_CLEAR_WEIGHT = 0.1  # which such a family must have
_SAMPLE_ROWS = 600  # rows times pairs of samples of theta, on average over families
_MOST_PAIRS = 3  # of samples of theta, on average over families
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
    some = np.sort(rng.permutation(n)[:_FEW_ROWS])
    modes = _modes(plan, np.ascontiguousarray(X[some]), y[some], workers, rng)
    passed_over: dict[str, float] = {}  # scores of families that are not trained on all rows
    if n <= _FEW_ROWS:
        folds = rng.permutation(n) % min(_FOLDS, n)
        judged = list(workers.map(lambda mode, work: _judged(mode, X, y, folds, work), modes))
        draws = [
            rng.standard_normal((pairs, len(each.mode.theta)))
            for each, pairs in zip(judged, _pairs_of_samples(judged, y), strict=True)
        ]
        families = list(workers.map(lambda each, work: _sampled(*each, X, y), zip(judged, draws, strict=True)))
    else:
        losses = list(workers.map(lambda mode, work: mode.left_out(X, y).losses, modes))
        promising = _most_promising(losses)
        passed_over = {mode.posterior.name: float(loss.mean()) for mode, loss in zip(modes, losses, strict=True)}
        families = list(workers.map(lambda i, work: _on_all_rows(modes[i], some, X, y, work), promising))
    return _weighed(families, passed_over, plan, store, y, trace)


def _modes(plan: Plan, X: Array, y: Array, workers: Engine, rng: np.random.Generator) -> list[Mode]:
    """Every family at its mode, given some rows: one by climbs from all starts, the others from there and from some."""
    posteriors = [Posterior.of(family, plan, rng) for family in plan.families]
    leader = posteriors[min(_LEADER, len(posteriors) - 1)]
    precision = plan.precision.no_finer(NEAR)
    first = Mode.highest(
        list(workers.map(lambda start, work: leader.mode(X, y, start, precision, work), leader.starts))
    )
    laplace = next(iter(workers.map(lambda mode, work: mode.laplace(X, y, work), [first])))

    def follow(posterior: Posterior, work: Workspace) -> Mode:
        if posterior is leader:
            return first
        start, covariance = posterior.after(first, laplace.covariance(len(y)))
        near = posterior.mode_near(X, y, start, covariance, _GAIN, work)
        starts = posterior.starts[_LEADERS_STARTS:]
        return Mode.highest([near, *(posterior.mode(X, y, start, precision, work) for start in starts)])

    return list(workers.map(follow, posteriors))


def _most_promising(losses: list[Array]) -> list[int]:
    """The few families that predict held-out rows best together, and the one that does so alone."""
    weights = stacking_weights(-np.column_stack(losses))
    count = max(_LEAST_FAMILIES, int(_FAMILIES_WORK / float(len(losses[0])) ** 3))
    best = {i for i in np.argsort(-weights, kind="stable")[:count].tolist() if weights[i] >= _CLEAR_WEIGHT}
    return sorted(best | {int(np.argmin([loss.mean() for loss in losses]))})


def _on_all_rows(mode: Mode, some: Array, X: Array, y: Array, work: Workspace) -> _Represented:
    """The family trained on all rows, from a theta of some of them."""
    covariance = mode.laplace(np.ascontiguousarray(X[some]), y[some], work).covariance(len(y))
    then = mode.posterior.mode_near(X, y, mode.theta, covariance, _GAIN, work)
    predictions = held_out(mode.posterior.family.kernel, then.theta, X, y)
    return _Represented(mode.followed_by(then), predictions, [then.theta], [predictions.errors])


@dataclass(frozen=True, eq=False)
class _Judged:
    """A family at its mode, how theta varies there, and the predictions of each row without its fold."""

    mode: Mode
    laplace: Laplace
    predictions: HeldOut


def _judged(mode: Mode, X: Array, y: Array, folds: Array, work: Workspace) -> _Judged:
    laplace = mode.laplace(X, y, work)
    return _Judged(mode, laplace, mode.cross_fitted(X, y, folds, laplace, work))


def _pairs_of_samples(families: list[_Judged], y: Array) -> list[int]:
    """By how many pairs of samples each family's theta is represented: as many as its weight is of all."""
    weights = stacking_weights(-np.column_stack([family.predictions.losses(y) for family in families]))
    average = float(np.clip(_SAMPLE_ROWS / len(y), 1, _MOST_PAIRS))
    return [max(1, round(average * len(families) * weight)) for weight in weights.tolist()]


def _sampled(family: _Judged, draws: Array, X: Array, y: Array) -> _Represented:
    """The family by samples of theta. Their spread widens held-out predictions as it widens those of queries."""
    mode, crossed = family.mode, family.predictions
    thetas = mode.samples(family.laplace, draws)
    each = [mode.left_out(X, y, theta) for theta in thetas]
    means, variances = (np.array([getattr(sample, name) for sample in each]) for name in ("mean", "variance"))
    total = variances.mean(axis=0) + means.var(axis=0)
    widened = replace(crossed, variance=crossed.variance + np.maximum(total - mode.left_out(X, y).variance, 0.0))
    return _Represented(mode, widened, thetas, [sample.errors for sample in each])


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

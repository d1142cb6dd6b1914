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
from gigagp.data.store import ExpertStore, Targets, join_targets, split_targets
from gigagp.engines import Engine
from gigagp.fit.held_out_scores import HeldOutScore, crps_losses
from gigagp.fit.plan import Family, Plan
from gigagp.fit.theta_posterior import Laplace, Mode, Posterior
from gigagp.fit.training import NEAR, Trace
from gigagp.linalg.workspace import Workspace
from gigagp.model.calibration import LEAST_ROWS, Calibration, Setting
from gigagp.model.fit_report import Candidate, Stage
from gigagp.model.leave_one_out import HeldOut, held_out, log_losses
from gigagp.model.mixture import Member, Mixture, mixed

_EVALUATION_WORK = 8.1e9  # cube of the rows up to which exact GPs are trained on all of them: some 2,000
_FEW_ROWS = 512  # rows up to which theta is cross-fitted and sampled; of more, this many train every family first
_FOLDS = 6  # of the cross-fit
_LEADER = 1  # index of the family that climbs from several starts: Matern 5/2, neither the smoothest nor the roughest
_LEADERS_STARTS = 2  # number of starts, the first ones, that only this family is trained from
_GAIN = 0.01  # expected gain of another step, in nats, below which the ascent from a nearby theta ends
_PRIOR_WEIGHT = 5.0  # rows that the uniform prior of the weights counts as
_LEAST_WEIGHT = 0.02  # families of smaller weight do not predict
_FAMILIES_WORK = 6e9  # sum of the cubes of the rows over families that are trained on all rows, where these are many
_LEAST_FAMILIES = 2  # that are trained on all rows, if their weight is clear
_CLEAR_WEIGHT = 0.1  # least weight of a family that is trained on all rows, where not all of them are
_SAMPLE_ROWS = 600  # rows times pairs of samples of theta, on average over families
_MOST_PAIRS = 3  # pairs of samples of theta, on average over families
# Fitted to held-out predictions: the weights of five families, three coefficients, floor, scale and tails. Without this
# correction 95% intervals covered 91.8, 93.2 and 94.1% of other rows on 60, 100 and 150 rows of twelve tables, with it
# 93.3, 94.0 and 94.7% (trials, means over tables).
_CALIBRATION_PARAMETERS = 10
_STACKING_STEPS = 300  # of expectation maximisation


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The mixture, its held-out predictions, its best family with the mode of theta, and what happened in the fit."""

    mixture: Mixture
    held_out: HeldOutScore
    family: Family
    theta: Array
    stages: tuple[Stage, ...]
    candidates: tuple[Candidate, ...]


def is_small(plan: Plan, rows: int) -> bool:
    """Whether exact GPs can be trained on all rows, and no setting of the user excludes them."""
    return float(rows) ** 3 <= _EVALUATION_WORK and plan.noise != "inputs" and may_be_exact(plan)


def may_be_exact(plan: Plan) -> bool:
    """Whether the user's settings allow exact GPs on all rows to answer queries."""
    shape = plan.shape
    open_shape = all(each is None for each in (shape.levels, shape.branching, shape.leaf_size, shape.sharing))
    open_answer = plan.method == "auto" and plan.rule is None and plan.nearest == "auto"
    open_answer = open_answer and plan.neighbours is None and not plan.exact_search
    open_training = plan.train and plan.training == "auto" and plan.student and bool(plan.families)
    return open_shape and open_answer and open_training


@dataclass(frozen=True, eq=False)
class _FamilyFit:
    """A family, its held-out predictions, and the thetas that represent it with their held-out errors."""

    mode: Mode
    predictions: HeldOut
    thetas: list[Array]
    errors: list[Array]


def fit_mixture(plan: Plan, store: ExpertStore, engine: Engine, trace: Trace, rng: np.random.Generator) -> MixtureFit:
    """Train all families, weigh them by held-out predictions, and calibrate the mixture."""
    X, y = np.ascontiguousarray(store.X, float), np.ascontiguousarray(store.y, float)
    n, workers = len(y), engine.local
    targets = y if store.row_noise is None else join_targets(y, store.row_noise.astype(float))
    some = np.sort(rng.permutation(n)[:_FEW_ROWS])
    modes = _modes(plan, np.ascontiguousarray(X[some]), targets[some], workers, rng)
    other_scores: dict[str, float] = {}  # scores of families that are not trained on all rows
    if n <= _FEW_ROWS:
        folds = rng.permutation(n) % min(_FOLDS, n)
        cross_fits = list(workers.map(lambda mode, work: _cross_fit(mode, X, targets, folds, work), modes))
        draws = [
            rng.standard_normal((pairs, len(each.mode.theta)))
            for each, pairs in zip(cross_fits, _pairs_of_samples(cross_fits, y), strict=True)
        ]
        families = list(
            workers.map(lambda each, work: _sampled(*each, X, targets), zip(cross_fits, draws, strict=True))
        )
    else:
        affordable = max(_LEAST_FAMILIES, int(_FAMILIES_WORK / float(n) ** 3))
        if affordable < len(modes):
            losses = list(workers.map(lambda mode, work: mode.leave_one_out(X, targets).losses, modes))
            other_scores = {mode.posterior.name: float(loss.mean()) for mode, loss in zip(modes, losses, strict=True)}
            modes = [modes[i] for i in _most_promising(losses, affordable)]
        families = list(workers.map(lambda mode, work: _on_all_rows(mode, some, X, targets, work), modes))
    return _weighted_mixture(families, other_scores, plan, store, y, trace)


def _modes(plan: Plan, X: Array, y: Targets, workers: Engine, rng: np.random.Generator) -> list[Mode]:
    """The mode of every family on some rows: of one from all starts, of the others from its mode and some starts."""
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


def _most_promising(losses: list[Array], count: int) -> list[int]:
    """Indices of at most so many families that predict held-out rows best together, and of the best single one."""
    weights = stacking_weights(-np.column_stack(losses))
    best = {i for i in np.argsort(-weights, kind="stable")[:count].tolist() if weights[i] >= _CLEAR_WEIGHT}
    return sorted(best | {int(np.argmin([loss.mean() for loss in losses]))})


def _on_all_rows(mode: Mode, some: Array, X: Array, y: Targets, work: Workspace) -> _FamilyFit:
    """A family trained on all rows, from the mode on some of them."""
    covariance = mode.laplace(np.ascontiguousarray(X[some]), y[some], work).covariance(len(y))
    new_mode = mode.posterior.mode_near(X, y, mode.theta, covariance, _GAIN, work)
    predictions = held_out(mode.posterior.family.kernel, new_mode.theta, X, *split_targets(y))
    return _FamilyFit(mode.followed_by(new_mode), predictions, [new_mode.theta], [predictions.errors])


@dataclass(frozen=True, eq=False)
class _CrossFit:
    """A family at its mode, the covariance of theta there, and predictions of each row without its fold."""

    mode: Mode
    laplace: Laplace
    predictions: HeldOut


def _cross_fit(mode: Mode, X: Array, y: Targets, folds: Array, work: Workspace) -> _CrossFit:
    laplace = mode.laplace(X, y, work)
    return _CrossFit(mode, laplace, mode.cross_fitted(X, y, folds, laplace, work))


def _pairs_of_samples(families: list[_CrossFit], y: Array) -> list[int]:
    """The number of pairs of samples of each family's theta, in proportion to its weight."""
    weights = stacking_weights(-np.column_stack([family.predictions.losses(y) for family in families]))
    average = float(np.clip(_SAMPLE_ROWS / len(y), 1, _MOST_PAIRS))
    return [max(1, round(average * len(families) * weight)) for weight in weights.tolist()]


def _sampled(family: _CrossFit, draws: Array, X: Array, y: Targets) -> _FamilyFit:
    """A family represented by samples of theta, whose spread widens its predictions of held-out rows and of queries."""
    mode, predictions = family.mode, family.predictions
    thetas = mode.samples(family.laplace, draws)
    each = [mode.leave_one_out(X, y, theta) for theta in thetas]
    means, variances = (np.array([getattr(sample, name) for sample in each]) for name in ("mean", "variance"))
    total = variances.mean(axis=0) + means.var(axis=0)
    widened = replace(
        predictions, variance=predictions.variance + np.maximum(total - mode.leave_one_out(X, y).variance, 0.0)
    )
    return _FamilyFit(mode, widened, thetas, [sample.errors for sample in each])


def _weighted_mixture(
    families: list[_FamilyFit], other_scores: dict[str, float], plan: Plan, store: ExpertStore, y: Array, trace: Trace
) -> MixtureFit:
    """The mixture of families, weighted by held-out predictions, with its calibration."""
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
    prediction = mixed([family.predictions for family in families], weights, mixture.noise, mixture.row_noise)
    calibration = Calibration.none()
    if plan.calibrate:
        setting = Setting(mixture.noise, mixture.prior, plan.target_variance).at_rows(prediction.noise)
        calibration = (
            Calibration.learnt(prediction, y, setting, parameters=_CALIBRATION_PARAMETERS)
            if len(y) >= LEAST_ROWS
            else Calibration.assumed(prediction, y, setting)
        )
    order = [family for i, family in enumerate(families) if i != best] + [families[best]]
    for family in order:
        trace.add(family.mode.trace)
    names = [family.mode.posterior.name for family in families]
    family_scores = {name: score for name, score in other_scores.items() if name not in names} | dict(
        zip(names, scores.tolist(), strict=True)
    )
    assert prediction.variance is not None
    noise = mixture.noise if prediction.noise is None else prediction.noise
    own = float(log_losses(y, prediction.mean, prediction.variance + noise).mean())
    shares = " + ".join(f"{w:.0%} {name}" for name, w in zip(names, weights, strict=True) if w > 0)
    candidates = (
        *(Candidate("kernel", name, score, name == names[best]) for name, score in family_scores.items()),
        Candidate("prediction", f"exact GPs ({shares})", calibration.score if calibration.rows else own, chosen=True),
    )
    stages = tuple(stage for family in order for stage in family.mode.stages)
    mode = families[best].mode
    held_out_score = HeldOutScore(
        np.arange(len(y)), y, prediction, calibration, crps_losses(calibration, prediction, y)
    )
    return MixtureFit(mixture, held_out_score, mode.posterior.family, mode.theta, stages, candidates)


def stacking_weights(log_densities: Array) -> Array:
    """Weights of columns that maximise the mean log density of their mixture, rows being observations.

    Computed by expectation maximisation. A Dirichlet prior that counts as a few rows keeps weights equal where the
    rows do not distinguish the columns.
    """
    columns = log_densities.shape[1]
    densities = np.exp(log_densities - log_densities.max(axis=1, keepdims=True))
    weights = np.full(columns, 1 / columns)
    for _ in range(_STACKING_STEPS):
        shares = densities * weights
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + _PRIOR_WEIGHT / columns
        weights = counts / counts.sum()
    return weights

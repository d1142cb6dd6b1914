"""Tables of few rows: a mixture of exact GPs on all rows, whose weights and calibration come from held-out predictions.

Every family of kernels is trained from several starts under a weak prior of theta. How well a family predicts is
judged by leave-one-out predictions of all rows, in closed form. Where rows are few, theta has adapted to each of them;
the predictions of a row are then made at a theta that was trained without the row's fold (cross-fitting), and each
family is represented by samples of theta from a Laplace approximation of its posterior, instead of by its mode. Both
corrections vanish as rows grow. The weights maximise the held-out log density of the mixture (stacking, Yao et al.
2018, "Using stacking to average Bayesian predictive distributions").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert
from gigagp.answers import Answers
from gigagp.arrays import Array
from gigagp.calibration import Calibration, Setting
from gigagp.data.store import ExpertStore
from gigagp.engines import Engine
from gigagp.expert import Evidence
from gigagp.fit_report import Candidate, Stage
from gigagp.linalg.workspace import Workspace
from gigagp.mixture import HeldOut, Member, Mixture, held_out
from gigagp.plan import Family, Plan
from gigagp.theta_prior import ThetaPrior
from gigagp.training import NEAR, Objective, Precision, Trace, maximise

_EVALUATION_WORK = 1.6e10  # cube of the rows up to which exact GPs are trained on all of them: about half a second
_FEW_ROWS = 512  # up to which theta is cross-fitted and sampled; of more rows, so many train every family first
_FOLDS = 6
_STARTS = ((0.0, 1.0), (-1.2, 1.0), (1.2, 0.2))  # shift of log-length-scales, factor of the noise
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the first start, in log-parameters
_FOLD_PRECISION = Precision(change=1e-6, slope=1e-3)
_FOLD_ITERATIONS = 20  # from a theta that is not far
_PRIOR_WEIGHT = 5.0  # rows that all families together count in the weights, equally
_LEAST_WEIGHT = 0.02  # families of less do not predict
_FAMILIES = 3  # that are trained on all rows, where these are many
_CLEAR_WEIGHT = 0.1  # which such a family must have
_SAMPLE_ROWS, _MOST_PAIRS = 600, 3  # theta is sampled in so many pairs of samples, as long as their rows are fewer
_STACKING_STEPS = 300
_STEP = 0.01  # in log-parameters, for the curvature of the posterior


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
class _Posterior:
    """The posterior of one family's theta, given any rows."""

    family: Family
    start: Array
    bounds: Array
    prior: ThetaPrior
    starts: tuple[Array, ...]

    @classmethod
    def of(cls, family: Family, plan: Plan, rng: np.random.Generator) -> _Posterior:
        """Starts have short and long length-scales, much and little noise; the user may ask for more of them."""
        own = replace(plan, kernel=family.kernel)
        start = family.start(plan.start)
        scales, noise = (np.array([what in name for name in own.names]) for what in ("lengthscale", "noise_variance"))
        shifts = [shift * scales + np.log(factor) * noise for shift, factor in _STARTS]
        shifts += list(_RESTART_SPREAD * rng.standard_normal((plan.restarts, len(start))))
        prior = ThetaPrior.around(own.names, start, plan.target_variance)
        return cls(family, start, own.bounds, prior, tuple(start + shift for shift in shifts))

    @property
    def name(self) -> str:
        return type(self.family.kernel).__name__

    def log_density(self, X: Array, y: Array, work: Workspace) -> Objective:
        """The evidence and the log prior together, as a function of theta."""

        def posterior(theta: Array, leaves: Array | None) -> Evidence:
            seen = expert.evidence(self.family.kernel, theta, X, y, work)
            value, gradient = seen.value + self.prior.log_density(theta), seen.gradient + self.prior.gradient(theta)
            return Evidence.of(value, gradient, seen.points, seen.jitter)

        return posterior

    def mode(self, X: Array, y: Array, starts: Iterable[Array], precision: Precision, work: Workspace) -> _Mode:
        """The highest end of climbs from some starts."""
        trace = Trace()
        density = self.log_density(X, y, work)
        ends = [maximise(self.name, density, None, start, self.bounds, trace, precision) for start in starts]
        best = max(ends, key=lambda end: end.stage.evidence_per_point)
        return _Mode(self, best.theta, (*(end.stage for end in ends if end is not best), best.stage), trace)


@dataclass(frozen=True, eq=False)
class _Mode:
    """A family at the mode of its posterior, the optimisations that led there, and all their evaluations."""

    posterior: _Posterior
    theta: Array
    stages: tuple[Stage, ...]
    trace: Trace

    def held_out(self, X: Array, y: Array, work: Workspace, theta: Array | None = None) -> HeldOut:
        """Every row predicted by all others, at this theta or another."""
        return held_out(self.posterior.family.kernel, self.theta if theta is None else theta, X, y, work)

    def cross_fitted(self, X: Array, y: Array, folds: Array, work: Workspace) -> HeldOut:
        """Held-out predictions of each fold at a theta that was trained without that fold."""
        found = self.held_out(X, y, work)
        mean, variance, misfit = found.mean.copy(), found.variance.copy(), found.misfit.copy()
        for fold in range(folds.max() + 1):
            out, rest = folds == fold, folds != fold
            density = self.posterior.log_density(np.ascontiguousarray(X[rest]), y[rest], work)
            theta = maximise(
                "fold", density, None, self.theta, self.posterior.bounds, Trace(), _FOLD_PRECISION, _FOLD_ITERATIONS
            ).theta  # fmt: skip
            here = self.held_out(X, y, work, theta)
            mean[out], variance[out], misfit[out] = here.mean[out], here.variance[out], here.misfit[out]
        return HeldOut(mean, variance, misfit, found.errors)

    def samples(self, X: Array, y: Array, draws: Array, work: Workspace) -> list[Array]:
        """Thetas of the Laplace approximation around the mode, one on either side for each standard normal draw.

        The curvature is found in units of the prior's deviations, where it is at least one: along directions in which
        the rows say nothing, theta varies as the prior does.
        """
        density, spread = self.posterior.log_density(X, y, work), self.posterior.prior.spread
        curvature = np.empty((len(spread), len(spread)))
        for i, step in enumerate(_STEP * np.eye(len(spread))):
            slopes = [density(self.theta + side * step, None).gradient for side in (1, -1)]
            curvature[i] = (slopes[1] - slopes[0]) / (2 * _STEP)
        curvature *= np.outer(spread, spread)
        values, directions = np.linalg.eigh(0.5 * (curvature + curvature.T))
        deviations = draws / np.sqrt(np.maximum(values, 1.0)) @ directions.T * spread
        return [
            np.clip(self.theta + side * deviation, *self.posterior.bounds.T)
            for deviation in deviations
            for side in (1, -1)
        ]


@dataclass(frozen=True, eq=False)
class _Represented:
    """A family, its held-out predictions, and the thetas that stand for it with their own held-out predictions."""

    mode: _Mode
    predictions: HeldOut
    thetas: list[Array]
    errors: list[Array]


def fit_mixture(plan: Plan, store: ExpertStore, engine: Engine, trace: Trace, rng: np.random.Generator) -> Fitted:
    """Train all families, weigh them by held-out predictions, and calibrate the mixture."""
    X, y = np.ascontiguousarray(store.X, float), np.ascontiguousarray(store.y, float)
    n, workers = len(y), engine.local
    posteriors = [_Posterior.of(family, plan, rng) for family in plan.families]
    some = np.sort(rng.permutation(n)[:_FEW_ROWS])
    X_some, y_some = np.ascontiguousarray(X[some]), y[some]
    modes = list(
        workers.map(lambda p, work: p.mode(X_some, y_some, p.starts, plan.precision.no_finer(NEAR), work), posteriors)
    )
    if n <= _FEW_ROWS:
        folds = rng.permutation(n) % min(_FOLDS, n)
        pairs = int(np.clip(_SAMPLE_ROWS // n, 1, _MOST_PAIRS))
        draws = [rng.standard_normal((pairs, len(mode.theta))) for mode in modes]
        families = list(
            workers.map(lambda each, work: _sampled(*each, X, y, folds, work), zip(modes, draws, strict=True))
        )
    else:
        modes = _most_promising(modes, X, y, workers)
        near = plan.precision.no_finer(NEAR)
        modes = list(workers.map(lambda m, work: _continued(m, m.posterior.mode(X, y, [m.theta], near, work)), modes))
        families = list(workers.map(lambda mode, work: _at_mode(mode, X, y, work), modes))
    return _weighed(families, plan, store, y, trace)


def _most_promising(modes: list[_Mode], X: Array, y: Array, engine: Engine) -> list[_Mode]:
    """The few families that predict held-out rows best together, at a theta of some of the rows."""
    losses = [found.losses(y) for found in engine.map(lambda mode, work: mode.held_out(X, y, work), modes)]
    weights = stacking_weights(-np.column_stack(losses))
    best = np.argsort(-weights, kind="stable")[:_FAMILIES]
    return [modes[i] for i in sorted(best) if weights[i] >= min(_CLEAR_WEIGHT, weights.max())]


def _continued(first: _Mode, then: _Mode) -> _Mode:
    """The later of two modes, with the optimisations of both."""
    trace = replace(then.trace, evidence=first.trace.evidence + then.trace.evidence)
    return replace(
        then, stages=first.stages + then.stages, trace=replace(trace, theta=first.trace.theta + then.trace.theta)
    )


def _at_mode(mode: _Mode, X: Array, y: Array, work: Workspace) -> _Represented:
    found = mode.held_out(X, y, work)
    return _Represented(mode, found, [mode.theta], [found.errors])


def _sampled(mode: _Mode, draws: Array, X: Array, y: Array, folds: Array, work: Workspace) -> _Represented:
    """The family by samples of theta. Their spread widens held-out predictions as it widens those of queries."""
    thetas = mode.samples(X, y, draws, work)
    each = [mode.held_out(X, y, work, theta) for theta in thetas]
    crossed, at_mode = mode.cross_fitted(X, y, folds, work), mode.held_out(X, y, work)
    means = np.array([found.mean for found in each])
    total = np.mean([found.variance for found in each], axis=0) + means.var(axis=0)
    widened = replace(crossed, variance=crossed.variance + np.maximum(total - at_mode.variance, 0.0))
    return _Represented(mode, widened, thetas, [found.errors for found in each])


def _weighed(families: list[_Represented], plan: Plan, store: ExpertStore, y: Array, trace: Trace) -> Fitted:
    """The mixture of families as held-out predictions weigh them, with its calibration."""
    losses = np.column_stack([family.predictions.losses(y) for family in families])
    weights = stacking_weights(-losses)
    weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
    weights /= weights.sum()
    best = int(np.argmax(weights))
    members = tuple(
        Member(family.mode.posterior.family.kernel, theta, weight / len(family.thetas), errors)
        for family, weight in zip(families, weights.tolist(), strict=True)
        for theta, errors in zip(family.thetas, family.errors, strict=True)
        if weight > 0
    )
    mixture = Mixture(members, store)
    calibration = Calibration.none()
    if plan.calibrate:
        answers = _mixed([family.predictions for family in families], weights, mixture.noise)
        calibration = Calibration.learnt(answers, y, Setting(mixture.noise, mixture.prior, plan.target_variance))
    order = [family for i, family in enumerate(families) if i != best] + [families[best]]
    for family in order:
        trace.add(family.mode.trace)
    candidates = tuple(
        Candidate("kernel", f"{family.mode.posterior.name} (weight {weight:.2f})", float(loss), i == best)
        for i, (family, weight, loss) in enumerate(zip(families, weights, losses.mean(axis=0), strict=True))
    )
    stages = tuple(stage for family in order for stage in family.mode.stages)
    mode = families[best].mode
    return Fitted(mixture, calibration, mode.posterior.family, mode.theta, stages, candidates)


def _mixed(parts: list[HeldOut], weights: Array, noise: float) -> Answers:
    """Held-out predictions of the mixture, by the law of total variance."""
    means, variances, misfits = (
        np.array([getattr(part, name) for part in parts]) for name in ("mean", "variance", "misfit")
    )
    mean = weights @ means
    variance = weights @ (variances + (means - mean) ** 2) - noise
    return Answers(mean, np.maximum(variance, 0.0), np.sqrt(weights @ misfits))


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

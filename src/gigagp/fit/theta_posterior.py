"""The posterior of one family's theta given some rows: its mode, samples around it, and held-out predictions.

The log density is the evidence of an exact GP plus the log prior (`theta_prior`), up to a constant. Where rows differ
in noise, `y` has the row noise beside the target (`data.store.Targets`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.data.store import Targets, split_targets
from gigagp.expert import Evidence
from gigagp.fit.plan import Family, Plan
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.fit.training import NEAR, Objective, Precision, Trace, maximise
from gigagp.linalg.workspace import Workspace
from gigagp.model.fit_report import Stage
from gigagp.model.leave_one_out import HeldOut, LeaveOneOut

_STARTS = ((0.0, 1.0), (-1.2, 1.0), (1.2, 0.2))  # shift of log-length-scales, factor of the noise
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the first start, in log-parameters
_FOLD_GAIN = 0.05  # expected gain of another step, in nats, below which training without a fold ends
_STEP = 0.01  # of log-parameters, in the differences that give the curvature of the posterior
_MOST_STEPS = 30  # of an ascent by `climb`
_LONGEST_STEP = 1.5  # largest change of a log-parameter in one step
_MOST_CUTS = 4  # times that a step is shortened which does not increase the density enough
_CUT = 0.3  # factor by which a step is shortened
_LEAST_ASCENT = 1e-3  # least increase of the density, as a share of what the slope predicts


@dataclass(frozen=True, eq=False)
class Climb:
    """The end of an ascent by `climb`."""

    theta: Array
    stage: Stage


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of one family's theta, given any rows."""

    family: Family
    start: Array
    bounds: Array
    prior: ThetaPrior
    starts: tuple[Array, ...]

    @classmethod
    def of(cls, family: Family, plan: Plan, rng: np.random.Generator) -> Posterior:
        """With starts of short and long length-scales, much and little noise, and `plan.restarts` random ones."""
        own = replace(plan, kernel=family.kernel)
        start = family.start(plan.start)
        scales, noise = (np.array([what in name for name in own.names]) for what in ("lengthscale", "noise_variance"))
        shifts = [shift * scales + np.log(factor) * noise for shift, factor in _STARTS]
        shifts += list(_RESTART_SPREAD * rng.standard_normal((plan.restarts, len(start))))
        prior = ThetaPrior.around(own.names, start, plan.target_variance, plan.noise_unit)
        return cls(family, start, own.bounds, prior, tuple(start + shift for shift in shifts))

    @property
    def name(self) -> str:
        return type(self.family.kernel).__name__

    def log_density(self, X: Array, y: Targets, work: Workspace) -> Objective:
        """The evidence and the log prior together, as a function of theta."""
        target, row_noise = split_targets(y)

        def posterior(theta: Array, leaves: Array | None) -> Evidence:
            total = expert.evidence(self.family.kernel, theta, X, target, work, row_noise=row_noise)
            value = total.value + self.prior.log_density(theta)
            gradient = total.gradient + self.prior.gradient(theta)
            return Evidence.of(value, gradient, total.points, total.jitter)

        return posterior

    def after(self, other: Mode, covariance: Array) -> tuple[Array, Array]:
        """This family's theta and its covariance, as expected from the mode of another family.

        Parameters that the other family does not have are as at the start, with the covariance of the prior.
        """
        start = self.family.start(other.posterior.family.plain(other.theta))
        common = np.append(np.arange(len(other.theta) - 1), len(start) - 1)
        expected = np.diag(self.prior.spread**2)
        expected[np.ix_(common, common)] = covariance
        return start, expected

    def mode(self, X: Array, y: Targets, start: Array, precision: Precision, work: Workspace) -> Mode:
        """The mode that L-BFGS-B reaches from a start."""
        trace = Trace()
        end = maximise(self.name, self.log_density(X, y, work), None, start, self.bounds, trace, precision)
        return Mode(self, end.theta, (end.stage,), trace)

    def mode_near(self, X: Array, y: Targets, start: Array, covariance: Array, gain: float, work: Workspace) -> Mode:
        """The mode near a theta, from an approximate covariance of theta there; see `climb`.

        Where the posterior is too unlike a Gaussian for that, L-BFGS-B continues.
        """
        trace = Trace()
        near = climb(self.name, self.log_density(X, y, work), start, covariance, self.bounds, trace, gain)
        mode = Mode(self, near.theta, (near.stage,), trace)
        return mode if near.stage.converged else mode.followed_by(self.mode(X, y, near.theta, NEAR, work))


@dataclass(frozen=True, eq=False)
class Laplace:
    """A Gaussian approximation of theta's posterior, given some number of rows.

    The curvature of minus the log density is kept in units of the prior's deviations, where the prior's own is one in
    every direction: along those in which the rows say nothing, theta varies as the prior does.

    values, directions : eigenvalues of the curvature, none below one, and its eigenvectors, as columns
    """

    values: Array
    directions: Array
    spread: Array
    rows: int

    def root(self, rows: int | None = None) -> Array:
        """R with R R^T the covariance of theta, given as many rows as here or another number of such rows."""
        factor = 1.0 if rows is None else rows / self.rows
        values = 1 + factor * (self.values - 1)
        return np.asarray(self.spread[:, None] * self.directions / np.sqrt(values))

    def covariance(self, rows: int) -> Array:
        root = self.root(rows)
        return np.asarray(root @ root.T)


@dataclass(frozen=True, eq=False)
class Mode:
    """A family at the mode of its posterior, the optimisations that led there, and all their evaluations."""

    posterior: Posterior
    theta: Array
    stages: tuple[Stage, ...]
    trace: Trace

    @staticmethod
    def highest(ends: list[Mode]) -> Mode:
        """The end of the highest density, with the optimisations of all; its own is the last."""
        best = max(ends, key=lambda end: end.stages[-1].evidence_per_point)
        first, *others = [*(end for end in ends if end is not best), best]
        for end in others:
            first = first.followed_by(end)
        return first

    def followed_by(self, other: Mode) -> Mode:
        """A mode that was reached from this one, with the optimisations of both."""
        trace = Trace()
        trace.add(self.trace)
        trace.add(other.trace)
        return replace(other, stages=self.stages + other.stages, trace=trace)

    def leave_one_out(self, X: Array, y: Targets, theta: Array | None = None) -> LeaveOneOut:
        """Every row predicted by all others, at this theta or another."""
        theta = self.theta if theta is None else theta
        return LeaveOneOut.of(self.posterior.family.kernel, theta, X, *split_targets(y))

    def laplace(self, X: Array, y: Targets, work: Workspace) -> Laplace:
        """The curvature around the mode, by differences of gradients."""
        density, spread = self.posterior.log_density(X, y, work), self.posterior.prior.spread
        here = density(self.theta, None).gradient
        steps = _STEP * np.eye(len(spread))
        curvature = np.array([here - density(self.theta + step, None).gradient for step in steps]) / _STEP
        curvature *= np.outer(spread, spread)
        values, directions = np.linalg.eigh(0.5 * (curvature + curvature.T))
        return Laplace(np.maximum(values, 1.0), directions, spread, len(y))

    def cross_fitted(self, X: Array, y: Targets, folds: Array, laplace: Laplace, work: Workspace) -> HeldOut:
        """Held-out predictions of each fold at a theta that was trained without that fold."""
        mean, variance, misfit = (np.empty(len(y)) for _ in range(3))
        for fold in range(folds.max() + 1):
            out, rest = np.flatnonzero(folds == fold), folds != fold
            density = self.posterior.log_density(np.ascontiguousarray(X[rest]), y[rest], work)
            covariance = laplace.covariance(int(rest.sum()))
            end = climb("fold", density, self.theta, covariance, self.posterior.bounds, Trace(), _FOLD_GAIN)
            here = self.leave_one_out(X, y, end.theta)
            mean[out], variance[out], misfit[out] = here.mean[out], here.variance[out], here.misfit(out)
        return HeldOut(mean, variance, misfit, self.leave_one_out(X, y).errors)

    def samples(self, laplace: Laplace, draws: Array) -> list[Array]:
        """Thetas around the mode, one on either side for each standard normal draw."""
        deviations = draws @ laplace.root().T
        return [
            np.clip(self.theta + side * deviation, *self.posterior.bounds.T)
            for deviation in deviations
            for side in (1, -1)
        ]


def climb(
    name: str, density: Objective, start: Array, covariance: Array, bounds: Array, trace: Trace, gain: float
) -> Climb:
    """Quasi-Newton ascent to the mode of a density, from nearby.

    The covariance of theta there, which is minus the inverse of the curvature, is given approximately and is improved
    on the way by BFGS. The ascent ends where the expected gain of another step, half of g^T C g, is below `gain`.
    Along a parameter at a bound theta does not move outwards; the others then follow their covariance given it.
    """
    low, high = bounds.T
    theta = np.clip(start, low, high)
    total = density(theta, None)
    trace.record(theta, total)
    C, steps, evaluations, message, done = covariance, 0, 1, "too many steps", False
    while steps < _MOST_STEPS:
        gradient = total.gradient
        fixed = (theta <= low) & (gradient < 0) | (theta >= high) & (gradient > 0)
        slope = np.where(fixed, 0.0, gradient)
        step = _conditional(C, fixed) @ slope
        promise = float(slope @ step)
        if promise < 2 * gain:
            message, done = f"another step promises less than {gain:g} nats", True
            break
        step *= min(1.0, _LONGEST_STEP / float(np.abs(step).max()))
        for _ in range(_MOST_CUTS):
            following = np.clip(theta + step, low, high)
            next_total = density(following, None)
            trace.record(following, next_total)
            evaluations += 1
            if next_total.value > total.value + _LEAST_ASCENT * float(slope @ (following - theta)):
                break
            step *= _CUT
        else:
            message = "the curvature is not as expected"
            break
        C = _bfgs(C, following - theta, total.gradient - next_total.gradient)
        theta, total, steps = following, next_total, steps + 1
    stage = Stage(name, total.experts, total.points, steps, evaluations, total.value / total.points, message, done)
    return Climb(theta, stage)


def _conditional(C: Array, fixed: Array) -> Array:
    """The covariance of the other parameters given the fixed ones, which have rows and columns of zeros."""
    if not fixed.any():
        return C
    between = C[:, fixed]
    conditional = C - between @ np.linalg.solve(C[np.ix_(fixed, fixed)], between.T)
    conditional[fixed] = 0.0
    conditional[:, fixed] = 0.0
    return np.asarray(conditional)


def _bfgs(C: Array, step: Array, change: Array) -> Array:
    """The inverse curvature after a step over which minus the gradient has changed so much."""
    product = float(step @ change)
    if product <= 1e-8 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return C
    E = np.eye(len(step)) - np.outer(step, change) / product
    return np.asarray(E @ C @ E.T + np.outer(step, step) / product)

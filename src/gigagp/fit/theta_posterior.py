"""The posterior of one family's theta given some rows: its mode, samples around it, and held-out predictions.

The log density is the evidence of an exact GP plus the log prior (`theta_prior`), up to a constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.expert import Evidence
from gigagp.fit.plan import Family, Plan
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.fit.training import Objective, Precision, Trace, maximise
from gigagp.linalg.workspace import Workspace
from gigagp.model.fit_report import Stage
from gigagp.model.mixture import HeldOut, held_out, log_losses

_STARTS = ((0.0, 1.0), (-1.2, 1.0), (1.2, 0.2))  # shift of log-length-scales, factor of the noise
_RESTART_SPREAD = 1.5  # standard deviation of restarts around the first start, in log-parameters
_FOLD_PRECISION = Precision(change=1e-6, slope=1e-3)
_FOLD_ITERATIONS = 20  # from a theta that is not far
_STEP = 0.01  # in log-parameters, for the curvature of the posterior


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

    def mode(self, X: Array, y: Array, starts: Iterable[Array], precision: Precision, work: Workspace) -> Mode:
        """The highest end of climbs from some starts."""
        trace = Trace()
        density = self.log_density(X, y, work)
        ends = [maximise(self.name, density, None, start, self.bounds, trace, precision) for start in starts]
        best = max(ends, key=lambda end: end.stage.evidence_per_point)
        return Mode(self, best.theta, (*(end.stage for end in ends if end is not best), best.stage), trace)


@dataclass(frozen=True, eq=False)
class Mode:
    """A family at the mode of its posterior, the optimisations that led there, and all their evaluations."""

    posterior: Posterior
    theta: Array
    stages: tuple[Stage, ...]
    trace: Trace

    def followed_by(self, other: Mode) -> Mode:
        """A mode that was found from this one, with the optimisations of both."""
        trace = Trace()
        trace.add(self.trace)
        trace.add(other.trace)
        return replace(other, stages=self.stages + other.stages, trace=trace)

    def losses(self, X: Array, y: Array, work: Workspace) -> Array:
        """Negative log densities of all rows, each predicted by the others."""
        every = np.arange(len(y))
        mean, variance, _ = expert.left_out(self.posterior.family.kernel, self.theta, X, y, X, every, work)
        return log_losses(y, mean, variance + np.exp(self.theta[-1]))

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

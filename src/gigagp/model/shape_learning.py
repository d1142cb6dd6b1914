"""Learns the shape of the distribution of errors: the weights of a mixture of Gaussians, from errors in deviations.

There are three sets of components. The symmetric one has zero-mean Gaussians of many widths, like a Student-t. The
skewed one adds Gaussians with centres on both sides, so that one tail may be heavier than the other and the median may
differ from the mean. The detailed one adds narrow Gaussians, for errors that cluster, as they do where targets repeat.
A larger set is used if it increases the density of errors that its weights were not learnt from, by two-fold
cross-validation, and if its mean can be made zero.

The mean of the shape is zero, because the mean of y is that of the GP, although the mean of the errors may differ from
zero. This is a constraint of the M-step of expectation maximisation. A second constraint keeps the variance, because a
few errors that are very far away on one side would otherwise be the most probable way to obtain a mean of zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from gigagp.arrays import Array

# Widths of the components with centre zero, in deviations: narrow ones for targets that repeat exactly, and a few very
# wide ones, so that a row that is unlike all its neighbours is improbable but not impossible.
_WIDTHS = 2.0 ** np.concatenate([np.arange(-10, -4), np.arange(-4, 7.5, 0.5), np.arange(9, 25, 2)])
_WIDEST_COMMON = 2.0**7  # deviations: wider components have the prior's weight alone
_SMALLEST_CENTRE = -8.0  # log2 of the smallest centre other than zero, in deviations
_LARGEST_CENTRE = 4.0  # log2 of the largest centre
_SKEWED_STEP = 0.5  # octaves between the centres of the skewed set
_SKEWED_WIDTH = 1 / 2  # of a component of the skewed set, as a share of its centre
_DETAILED_STEP = 0.25  # octaves between the centres that the detailed set adds
_DETAILED_WIDTH = 1 / 6  # of such a component, as a share of its centre
_BINS = 2.0 ** np.arange(-14, 10, 0.1)  # ends of bins of absolute errors in deviations
_BIN_CENTRES = 2.0 ** (np.append(np.arange(-14, 10, 0.1), 10.0) - 0.05)
_PRIOR_ROWS = 20.0  # rows that the prior counts as
_LEAST_PRIOR_DOF = 4.0  # of the prior: with heavier tails the prior would make the deviation arbitrary
_HEAVY_SHARE = 0.01  # of the prior that is a Student-t of so few degrees of freedom, however light the tails seem
_START_WEIGHT = 1e-6  # of a component with centre zero, at least
_START_WEIGHT_ASIDE = 1e-3  # of a component with another centre
_LEAST_COUNT = 1e-6  # rows of a component with another centre, so that the mean can always be zero
_EM_STEPS = 500  # of expectation maximisation, at most
_EM_CHANGE = 1e-4  # of a weight, at which it has converged
_EM_CHANGE_COMPARED = 1e-3  # of a weight, at which sets of components can be compared
_STANDARD_ERRORS = 2.0  # by which the gain of a larger set must exceed zero
_LARGEST_MEAN = 1e-6  # of a shape, in its deviations, that counts as zero
_LEAST_WEIGHT = 1e-40  # components of less are dropped
_NEWTON_STEPS = 50  # at most, for the constraints; a few are usual
_NEWTON_DECREMENT = 1e-14  # of the dual function, at which the constraints hold
_SHORTEST_STEP = 1e-10  # of Newton's
_ARMIJO = 1e-4  # of the decrease that the gradient promises, at least
_FAR_LEVEL = 0.99  # quantile of absolute errors
_BEYOND = 10.0  # times that quantile: larger errors are so rare that a few thousand rows do not determine their size


@dataclass(frozen=True, eq=False)
class Components:
    """Gaussians N(centres[j], widths[j]^2), with weights once these have been learnt."""

    centres: Array
    widths: Array
    weights: Array

    @property
    def variance(self) -> float:
        return float(np.sum(self.weights * (self.centres**2 + self.widths**2)))

    @property
    def has_mean_zero(self) -> bool:
        return bool(abs(self.weights @ self.centres) < _LARGEST_MEAN * self.variance**0.5)

    @property
    def used(self) -> Components:
        """Those whose weight matters."""
        large = self.weights > _LEAST_WEIGHT
        return Components(self.centres[large], self.widths[large], self.weights[large] / self.weights[large].sum())


def _component_sets() -> list[tuple[Array, Array]]:
    """Centres and widths of the symmetric, the skewed and the detailed set, each a part of the next."""
    centres, widths = np.zeros(len(_WIDTHS)), _WIDTHS
    sets = [(centres, widths)]
    for step, width in ((_SKEWED_STEP, _SKEWED_WIDTH), (_DETAILED_STEP, _DETAILED_WIDTH)):
        sides = 2.0 ** np.arange(_SMALLEST_CENTRE, _LARGEST_CENTRE + step, step)
        centres = np.concatenate([centres, sides, -sides])
        widths = np.concatenate([widths, width * sides, width * sides])
        sets.append((centres, widths))
    return sets


_SETS = _component_sets()


@dataclass(frozen=True, eq=False)
class _Histogram:
    """Numbers of errors in narrow bins, so that learning takes no longer for many rows than for few."""

    errors: Array  # the middle of each bin that has errors
    counts: Array

    @classmethod
    def of(cls, z: Array) -> _Histogram:
        places = np.searchsorted(_BINS, np.abs(z))
        errors, counts = [], []
        for sign, side in ((-1.0, z < 0), (1.0, z >= 0)):
            numbers = np.bincount(places[side], minlength=len(_BIN_CENTRES))
            errors.append(sign * _BIN_CENTRES[numbers > 0])
            counts.append(numbers[numbers > 0].astype(float))
        return cls(np.concatenate(errors), np.concatenate(counts))

    def log_density(self, components: Components) -> Array:
        """ln p of the error in the middle of each bin, up to a constant."""
        logs, top = self._logs(components.centres, components.widths)
        return np.asarray(np.log(np.exp(logs - top) @ components.weights) + top[:, 0])

    def learnt(self, centres: Array, widths: Array, prior: Array, change: float = _EM_CHANGE) -> Components:
        """The components with weights by expectation maximisation."""
        weights = prior + np.where(centres != 0, _START_WEIGHT_ASIDE, _START_WEIGHT * (widths <= _WIDEST_COMMON))
        return self._improved(Components(centres, widths, weights / weights.sum()), prior, change)

    def balanced(self, components: Components, prior: Array) -> Components:
        """The components with weights that make the mean zero at the same variance, and are otherwise as probable.

        The mean is not zero afterwards where that would need a large weight of components that no error is near.
        """
        return self._improved(components, prior, _EM_CHANGE, balance=True)

    def _improved(self, components: Components, prior: Array, change: float, balance: bool = False) -> Components:
        centres, widths, weights = components.centres, components.widths, components.weights
        logs, top = self._logs(centres, widths)
        densities = np.exp(logs - top)
        pseudo_rows = _PRIOR_ROWS * prior + _LEAST_COUNT * (centres != 0)
        for _ in range(_EM_STEPS):
            rows = weights * (densities.T @ (self.counts / (densities @ weights))) + pseudo_rows
            following = _balanced(rows, centres, widths) if balance else rows / rows.sum()
            converged = np.abs(following - weights).max() < change
            weights = following
            if converged:
                break
        return Components(centres, widths, weights)

    def _logs(self, centres: Array, widths: Array) -> tuple[Array, Array]:
        """ln of each component's density in each bin, up to a constant, and the largest one of each bin."""
        logs = -0.5 * ((self.errors[:, None] - centres) / widths) ** 2 - np.log(widths)
        return logs, logs.max(axis=1, keepdims=True)


def heavy_tailed() -> Components:
    """A Student-t with the heaviest tails of a prior, where there are no errors to learn from."""
    return Components(*_SETS[0], _student_weights(_LEAST_PRIOR_DOF))


def learn_symmetric(z: Array, dof: float) -> Components:
    """The symmetric shape of errors z in deviations; its prior is a Student-t with these degrees of freedom."""
    return _Histogram.of(bounded(z)).learnt(*_SETS[0], _prior(dof, _SETS[0][0]))


def learn_shape(z: Array, dof: float) -> Components:
    """The shape of errors z in deviations. The next larger set of components is used as long as it clearly gains.

    Errors must be in random order: one half of them is every second one.
    """
    z = bounded(z)
    halves = [_Histogram.of(z[::2]), _Histogram.of(z[1::2])]

    def halves_learnt(number: int) -> list[Components]:
        prior = _prior(dof, _SETS[number][0])
        return [half.learnt(*_SETS[number], prior, _EM_CHANGE_COMPARED) for half in halves]

    best, learnt = 0, halves_learnt(0)
    for number in range(1, len(_SETS)):
        larger = halves_learnt(number)
        if not _gains(halves, larger, learnt):
            break
        best, learnt = number, larger
    every = _Histogram.of(z)
    while best > 0:
        prior = _prior(dof, _SETS[best][0])
        components = every.balanced(every.learnt(*_SETS[best], prior), prior)
        if components.has_mean_zero:
            return components
        best -= 1
    return every.learnt(*_SETS[0], _prior(dof, _SETS[0][0]))


def bounded(z: Array) -> Array:
    """The errors, the largest ones limited: single outliers would otherwise determine the deviation."""
    limit = _BEYOND * np.quantile(np.abs(z), _FAR_LEVEL)
    return np.asarray(np.clip(z, -limit, limit))


def _gains(halves: list[_Histogram], larger: list[Components], smaller: list[Components]) -> bool:
    """Whether each half's errors clearly have a higher density under the components that the other half has learnt."""
    gains = np.concatenate(
        [half.log_density(larger[1 - i]) - half.log_density(smaller[1 - i]) for i, half in enumerate(halves)]
    )
    counts = np.concatenate([half.counts for half in halves])
    mean = float(np.average(gains, weights=counts))
    variance = float(np.average((gains - mean) ** 2, weights=counts))
    return bool(mean > _STANDARD_ERRORS * (variance / counts.sum()) ** 0.5)


def _prior(dof: float, centres: Array) -> Array:
    """The prior of the weights: a Student-t, and a small share of one with heavy tails; zero off the centre."""
    heavy = _student_weights(_LEAST_PRIOR_DOF)
    central = (1 - _HEAVY_SHARE) * _student_weights(max(dof, _LEAST_PRIOR_DOF)) + _HEAVY_SHARE * heavy
    return np.append(central, np.zeros(len(centres) - len(central)))


def _student_weights(dof: float) -> Array:
    """The Student-t of variance one as a mixture of Gaussians of these widths: dof / width^2 is chi-squared."""
    edges = np.sqrt(_WIDTHS[1:] * _WIDTHS[:-1])
    scaled = (dof - 2) / edges**2
    above = np.concatenate([[1.0], chi2.cdf(scaled, dof), [0.0]])  # the share of widths beyond each edge
    return np.maximum(-np.diff(above), 0.0)


def _balanced(rows: Array, centres: Array, widths: Array) -> Array:
    """The weights w that maximise sum rows ln w, with sum one, mean zero, and the variance of rows / sum rows.

    With p = rows / sum rows and the functions g of a component whose mean must be zero, they are p / (1 + m g), m being
    the Lagrange multipliers, which minimise the convex dual function -sum p ln(1 + m g) (Owen 2001, section 2.9). The
    widest components, whose weights are those of the prior, are left as they are.
    """
    p = rows / rows.sum()
    common = (widths <= _WIDEST_COMMON) & (p > 0)
    squares = centres**2 + widths**2
    variance = float((p * squares)[common].sum())
    g = np.column_stack([centres / variance**0.5, squares / variance - 1 / p[common].sum()])
    g[~common] = 0.0

    def dual(m: Array) -> float:
        factors = 1 + g @ m
        return float(-(p @ np.log(factors))) if (factors > 0).all() else np.inf

    m = np.zeros(2)
    for _ in range(_NEWTON_STEPS):
        shares = p / (1 + g @ m)
        gradient = -(shares @ g)
        curvature = (g * (shares / (1 + g @ m))[:, None]).T @ g
        step = -np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        decrement, length, value = float(gradient @ step), 1.0, dual(m)
        while dual(m + length * step) > value + _ARMIJO * length * decrement and length > _SHORTEST_STEP:
            length /= 2
        if length <= _SHORTEST_STEP:
            break  # Rounding prevents further progress, as it does where nearly all errors are zero.
        m = m + length * step
        if -decrement < _NEWTON_DECREMENT:
            break
    weights = p / (1 + g @ m)
    return np.asarray(weights / weights.sum())

"""Calibration: the distribution of y, given the GP's prediction of f, learnt from held-out predictions.

With v the variance of f at a query, s^2 the noise, t the variance of the target and k that of the prior,

    v'  = 1 / (1 / v + 1 / (t - s^2) - 1 / k)         the variance of f if the prior's were the target's
    rho = v' / (t - s^2)                              from 0 at the data to 1 far from them
    ln(variance / (v' + s^2)) = (1 - rho) (c_0 + c_1 ln misfit^2 + c_2 ln(v' / s^2))

and a floor, times 1 - rho, is added. The misfit says how large the errors near the query are in predicted deviations
(`linalg.neighbourhood`). Far from all data the variance of y is thus that of the target, whatever the noise of the
nearest rows, and the transition is continuous. Where rows differ in noise, s^2 is the row's own in v' + s^2, the mean
of all rows in t - s^2, and a typical row's elsewhere, so that what rows of one noise teach holds for queries of
another. The shape of the errors is common to all queries (`distribution`).
Coefficients are estimated by maximum likelihood under a Student-t, then a symmetric shape by expectation maximisation.
Candidates of a choice are compared with this shape. That of the chosen model may then become skewed or detailed
(`Calibration.refined`, `shape_learning`). In tables of fewer than 50 rows tails are assumed (`Calibration.assumed`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, gammaln, ndtri

from gigagp.arrays import Array
from gigagp.model.distribution import Shape
from gigagp.model.latent import LatentPrediction
from gigagp.model.shape_learning import Components, bounded, heavy_tailed, learn_shape, learn_symmetric

LEAST_ROWS = 50  # held-out rows from which a calibration is learnt
_STUDENT_STEPS = 60  # of L-BFGS, at most
_LEAST_PROGRESS = 1e-6  # of the mean loss by a step of L-BFGS: less cannot be told from chance with any number of rows
_ROUNDS = 2  # of alternately learning the shape and the common factor
_LEAST_MISFIT = 0.03  # added to a misfit before its logarithm is taken: nearby errors of zero prove little
_LEAST_RATIO = 1e-6  # added to a ratio of variances before its logarithm is taken
_SMALLEST_VARIANCE = 1e-12  # of f, as a share of the target's
_LEAST_SHARE = 0.05  # of the target's variance that is left for f when nearly all of it is noise
# Priors of the coefficients c_0, c_1, c_2: means and deviations.
_COEFFICIENTS = np.array([0.0, 1.0, 0.0])
_SPREADS = np.array([3.0, 1.0, 0.3])
_TAIL_MEAN = 1.5  # prior of ln(degrees of freedom - 2)
_TAIL_SPREAD = 1.5
_BOUNDS = [(-20.0, 20.0), (-5.0, 5.0), (-2.0, 2.0), (-20.0, 1.0), (-4.0, 5.0)]
_START_FLOOR = -9.0  # ln of the floor, in units of the target's variance


@dataclass(frozen=True)
class Setting:
    """The variances of a model that its calibration uses: of noise, prior and target, in the model's units."""

    noise: float
    prior: float | None  # None for a kernel that is not stationary: it has no distance from the data
    target: float = 1.0
    row_noise: float | None = None  # noise of a typical training row; None where all rows have the same noise
    mean_noise: float | None = None  # the mean of the rows' noise; None where all rows have the same noise

    @property
    def typical(self) -> float:
        """The noise of a typical training row."""
        return self.noise if self.row_noise is None else min(self.row_noise, (1 - _LEAST_SHARE) * self.target)

    @property
    def average(self) -> float:
        """The mean noise of the training rows, which is the part of the target's variance that is noise."""
        return self.typical if self.mean_noise is None else min(self.mean_noise, (1 - _LEAST_SHARE) * self.target)

    @property
    def signal(self) -> float:
        """The part of the target's variance that is not noise."""
        return max(self.target - self.average, _LEAST_SHARE * self.target)

    def at_rows(self, noise: Array | None) -> Setting:
        """With the typical and the mean noise of rows that have these noise variances.

        A row whose noise exceeds the target's variance counts as one that consists of noise alone.
        """
        if noise is None or len(noise) == 0:
            return self
        mean = float(np.minimum(noise, self.target).mean())
        return replace(self, row_noise=float(np.median(noise)), mean_noise=mean)

    def remoteness(self, variance: Array) -> tuple[Array, Array]:
        """v', the variance of f with the target's as prior, and rho: zero at the data and one far from all of them."""
        if self.prior is None:
            return variance, np.zeros_like(variance)
        latent = np.clip(variance, _SMALLEST_VARIANCE * self.signal, self.prior)
        v = 1 / (1 / latent + (1 / self.signal - 1 / self.prior))
        return v, np.clip(v / self.signal, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How the variance of y follows from a latent prediction, and the shape of its distribution.

    Without rows nothing has been learnt: y is Gaussian, and the model adds the noise itself.
    """

    coefficients: Array
    floor: float
    shape: Shape
    setting: Setting | None
    rows: int = 0  # held-out rows that it was learnt from
    score: float = np.nan  # mean negative log density of these rows

    @classmethod
    def none(cls) -> Calibration:
        return cls(_COEFFICIENTS * 0, 0.0, Shape.gaussian(), None)

    @classmethod
    def learnt(
        cls, prediction: LatentPrediction, y: Array, setting: Setting, gaussian: bool = False, parameters: int = 0
    ) -> Calibration:
        """From held-out predictions and the targets of these rows; the shape stays Gaussian where it must.

        parameters : how many have been fitted to these rows, so that other rows have larger errors
        """
        errors, n = y - prediction.mean, len(y)
        if n < LEAST_ROWS or not (np.isfinite(errors).all() and errors.any()):
            return cls.none()
        base, rho, F = _features(prediction, setting)
        coefficients, floor, dof = _student(errors, base, rho, F, setting, prediction.reliability(setting.typical))
        calibration, unbiased = cls(coefficients, floor, Shape.gaussian(), setting, n), n / (n - parameters)
        for _ in range(_ROUNDS):  # the variance of a heavy-tailed t is uncertain: begin with that of the errors
            z = bounded(errors / np.sqrt(calibration.variance(prediction)))
            calibration = calibration._scaled(float(np.mean(z**2)))
            if gaussian:
                return calibration._scaled(unbiased)._scored(prediction, y)
            components = learn_symmetric(errors / np.sqrt(calibration.variance(prediction)), dof)
            calibration = calibration._scaled(components.variance)  # since the shape is scaled to variance one
        return calibration._with_shape(components)._scaled(unbiased)._scored(prediction, y)

    @classmethod
    def assumed(cls, prediction: LatentPrediction, y: Array, setting: Setting) -> Calibration:
        """For held-out rows that are too few to learn from: heavy tails, with the quartiles of the predicted Gaussian.

        On 18, 30 and 45 rows of twelve tables (trials, means over tables) 95% intervals of the Gaussian covered 90.0,
        92.6 and 92.9% of other rows, and these 94.6, 96.2 and 96.4%; the log density increased by .07 or more.
        """
        errors = y - prediction.mean
        if not (np.isfinite(errors).all() and errors.any()):
            return cls.none()
        components = heavy_tailed().used
        shape = Shape.of(components.weights, components.widths)
        factor = float(ndtri(0.75) / shape.quantile(np.array([0.75]))[0]) ** 2
        own = replace(setting, prior=None)  # the variances of the GP, whatever the target's
        return cls(_COEFFICIENTS * 0, 0.0, shape, own, len(y))._scaled(factor)._scored(prediction, y)

    def refined(self, prediction: LatentPrediction, y: Array) -> Calibration:
        """With a skewed or a detailed shape, where the errors of these held-out rows clearly have one.

        Candidates of a choice are compared without it: a detailed shape rewards errors that cluster more than errors
        that are small. On keggundirected (splits 3 and 4, trials) choices by refined calibrations led to models with
        RMSE .1240 and .1163 instead of .1216 and .1144.
        """
        if self.rows < LEAST_ROWS or self.shape.is_gaussian:
            return self
        assert self.setting is not None
        errors = y - prediction.mean
        base, rho, F = _features(prediction, self.setting)
        reliability = prediction.reliability(self.setting.typical)
        dof = _student(errors, base, rho, F, self.setting, reliability)[2]
        z = errors / np.sqrt(self.variance(prediction))
        z /= np.mean(bounded(z) ** 2) ** 0.5  # components and priors are those of errors with variance one
        components = learn_shape(z, dof)
        if not components.centres.any():
            return self
        # The deviation may have been learnt from other rows, so that only its ratio between the shapes is used.
        scaled = self._scaled(components.variance / learn_symmetric(z, dof).variance)
        return scaled._with_shape(components)._scored(prediction, y)

    def _with_shape(self, components: Components) -> Calibration:
        used = components.used
        return replace(self, shape=Shape.of(used.weights, used.widths, used.centres))

    def _scored(self, prediction: LatentPrediction, y: Array) -> Calibration:
        return replace(self, score=float(self.losses(prediction, y).mean()))

    def _scaled(self, factor: float) -> Calibration:
        """The calibration with variances near the data multiplied by a factor."""
        shift = np.array([np.log(factor), 0.0, 0.0])
        return replace(self, coefficients=self.coefficients + shift, floor=self.floor * factor)

    def variance(self, prediction: LatentPrediction, latent: bool = False) -> Array:
        """The variance of y at each query, or with `latent` that of f."""
        assert prediction.variance is not None
        assert prediction.misfit is not None
        assert self.setting is not None
        base, rho, F = _features(prediction, self.setting)
        total = base * np.exp((1 - rho) * (F * self.coefficients).sum(axis=1))  # not by BLAS: its bits depend on n
        if latent:
            of_f: Array = total * (base - _noise(prediction, self.setting)) / base
            return of_f
        of_y: Array = total + (1 - rho) * self.floor
        return of_y

    def losses(self, prediction: LatentPrediction, y: Array) -> Array:
        """The negative log density of each target."""
        deviation = np.sqrt(self.variance(prediction))
        return np.asarray(np.log(deviation) - self.shape.log_density((y - prediction.mean) / deviation))

    def crps(self, prediction: LatentPrediction, y: Array) -> Array:
        """The continuous ranked probability score of each target."""
        deviation = np.sqrt(self.variance(prediction))
        return np.asarray(deviation * self.shape.crps((y - prediction.mean) / deviation))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Calibration):
            return NotImplemented
        arrays = ((c.coefficients, *c.shape.arrays) for c in (self, other))
        same = all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))
        return same and (self.floor, self.setting, self.rows) == (other.floor, other.setting, other.rows)

    def __hash__(self) -> int:
        return hash((self.floor, self.rows))

    def __repr__(self) -> str:
        if not self.rows:
            return "none"
        if self.rows < LEAST_ROWS:
            return f"heavy tails, assumed since {self.rows} held-out rows are few, NLPD {self.score:.3f}"
        c0, c1, c2 = self.coefficients
        low, high = self.shape.quantile(np.array([0.025, 0.975]))
        wide = float(high - low) / (2 * 1.96)
        return (
            f"from {self.rows:,} held-out rows, NLPD {self.score:.3f}: variance times {np.exp(c0):.3g} "
            f"misfit^{2 * c1:.2f} (v/noise)^{c2:.2f}, 95% intervals {wide:.3g} times as wide as a Gaussian's"
        )


def _noise(prediction: LatentPrediction, setting: Setting) -> Any:
    """The noise variance of y at each query, or at all of them."""
    return setting.noise if prediction.noise is None else prediction.noise


def _features(prediction: LatentPrediction, setting: Setting) -> tuple[Array, Array, Array]:
    """v' + noise, rho and the columns that the coefficients multiply."""
    assert prediction.variance is not None
    assert prediction.misfit is not None
    signal = setting.signal
    v, rho = setting.remoteness(prediction.variance)
    ratio = np.log(v / setting.typical + _LEAST_RATIO)
    misfit = 2 * np.log(prediction.misfit + _LEAST_MISFIT)
    # Far away the variance is the target's: the noise is part of it.
    base = v + _noise(prediction, setting) + rho * (setting.target - setting.average - signal)
    return base, rho, np.column_stack([np.ones_like(v), misfit, ratio])


def _student(
    errors: Array, base: Array, rho: Array, F: Array, setting: Setting, reliability: Array | None
) -> tuple[Array, float, float]:
    """Coefficients, floor and degrees of freedom by maximum a posteriori, with Student-t errors."""
    n, squares = len(errors), errors**2
    scale = setting.target
    # One row in n may have an error of average size, however small the others are.
    least = float((squares if reliability is None else squares * reliability).mean()) / n

    def loss(p: Array) -> tuple[float, Array]:
        c, floor, tail = p[:3], scale * np.exp(p[3]), np.exp(p[4])
        dof = 2 + tail
        main = base * np.exp(np.clip((1 - rho) * (F @ c), -60, 60))
        total = main + (1 - rho) * (floor + least)
        t = squares / (tail * total)  # the squared scale of the t is total * tail / dof
        value = (
            0.5 * np.log(total * tail * np.pi)
            + 0.5 * (dof + 1) * np.log1p(t)
            + gammaln(dof / 2)
            - gammaln((dof + 1) / 2)
        )
        by_log_total = 0.5 - 0.5 * (dof + 1) * t / (1 + t)
        by_main = by_log_total * main / total * (1 - rho)
        by_floor = by_log_total * (1 - rho) * floor / total
        by_tail = tail * (
            0.5 / tail
            + 0.5 * np.log1p(t)
            - 0.5 * (dof + 1) * t / (1 + t) / tail
            + 0.5 * digamma(dof / 2)
            - 0.5 * digamma((dof + 1) / 2)
        )
        away = (c - _COEFFICIENTS) / _SPREADS
        strange = (p[4] - _TAIL_MEAN) / _TAIL_SPREAD
        penalty = 0.5 * (np.sum(away**2) + strange**2) / n
        gradient = np.append(F.T @ by_main, [by_floor.sum(), by_tail.sum()]) / n
        gradient += np.append(away / _SPREADS, [0.0, strange / _TAIL_SPREAD]) / n
        return float(value.mean() + penalty), gradient

    start = np.append(_COEFFICIENTS, [_START_FLOOR, _TAIL_MEAN])
    options = {"maxiter": _STUDENT_STEPS, "ftol": _LEAST_PROGRESS}
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=_BOUNDS, options=options).x
    return best[:3], float(scale * np.exp(best[3])) + least, float(2 + np.exp(best[4]))

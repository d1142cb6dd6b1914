"""From the latent function to the distribution of y: a likelihood with its dispersion, corrected by held-out rows.

With mu and v the mean and variance of f at a query, m and k those of the prior, and rho = v / k, which is zero at the
data and one far from them, the f whose distribution is integrated out has

    mean      mu + (1 - rho) offset + rho (m_far - m)
    variance  (1 - rho) (spread v + extra misfit^(2 c)) + rho v_far

m_far and v_far are such that far from all rows y has the mean and the variance of all targets (`likelihoods.far`). The
misfit says how much the neighbours vary around f (`laplace_neighbourhood`): where targets vary more in some regions
than in others, one dispersion is not enough. offset, spread, extra, c and a factor of the dispersion, where there is
one, maximise the likelihood of held-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.likelihoods import Likelihood, SingleLatent
from gigagp.likelihoods.far import FarLatent, far_latent
from gigagp.likelihoods.marginal import log_marginal
from gigagp.model import laplace_neighbourhood
from gigagp.model.laplace_neighbourhood import LatentFunctions
from gigagp.model.likelihood_distribution import LikelihoodDistribution
from gigagp.model.neighbourhood import Neighbourhood

_LEAST_ROWS = 20  # held-out rows from which the parameters are learnt
_PRIOR_ROWS = 8.0  # rows that the prior of the parameters counts as: few held-out rows change them little
_NEARLY_NONE = 1e-6  # dispersion with which targets vary only because f does
_START_EXTRA = 1e-3  # extra variance of f
_LEAST_MISFIT = 0.03  # added to a misfit before its power is taken
# Of ln spread, the offset, ln(extra / _START_EXTRA), c, and the logarithm of the factor of the dispersion.
_BOUNDS = ((-4.0, 4.0), (-2.0, 2.0), (-9.0, 9.0), (0.0, 3.0), (-5.0, 3.0))
_START = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
_STEP = 1e-4  # of the parameters, in numerical derivatives


@dataclass(frozen=True)
class LikelihoodCalibration:
    """The corrections, how many held-out rows they were learnt from, and the mean loss -ln p(y) of these."""

    spread: float = 1.0
    offset: float = 0.0
    extra: float = 0.0
    power: float = 0.0  # c
    dispersion: float = 1.0  # factor
    rows: int = 0
    score: float = np.nan


@dataclass(frozen=True, eq=False)
class LikelihoodModel:
    """A likelihood, the moments of all targets, and the calibration. The rows and theta are the neighbourhood's."""

    latents: SingleLatent
    target_mean: float
    target_variance: float
    rows: float  # number of targets, or the sum of their weights
    calibration: LikelihoodCalibration = field(default_factory=LikelihoodCalibration)

    @property
    def likelihood(self) -> Likelihood:
        return self.latents.likelihood

    @classmethod
    def of(cls, likelihood: Likelihood, mean: float, variance: float, rows: float) -> LikelihoodModel:
        """The model before calibration. The prior mean of f is that of targets that vary only because f does."""
        far = far_latent(likelihood, mean, variance, rows, _NEARLY_NONE)
        return cls(SingleLatent(likelihood, far.mean), mean, variance, rows)

    @cached_property
    def prior_variance(self) -> float:
        """The variance of f if targets varied only because f does: where training starts."""
        return self._far(_NEARLY_NONE).variance

    def _far(self, d: float) -> FarLatent:
        return far_latent(self.likelihood, self.target_mean, self.target_variance, self.rows, d)

    def predict(self, model: Neighbourhood, Z: Array, engine: Engine, held_out: Array | None = None) -> LatentFunctions:
        """Mean and variance of f at scaled queries, before calibration."""
        return laplace_neighbourhood.predict(model, self.latents, Z, engine, held_out)

    def distribution(self, latents: LatentFunctions, model: Neighbourhood) -> LikelihoodDistribution:
        """The distribution of y at queries with these predictions."""
        own, prior = self.calibration, laplace_neighbourhood.prior_variance(model)
        d = model.noise * own.dispersion
        mean, variance = corrected(own, latents, prior, self.latents.mean, self._far(d))
        return LikelihoodDistribution(self.likelihood, mean, np.sqrt(variance), d)

    def calibrated(self, latents: LatentFunctions, y: Array, weights: Array, model: Neighbourhood) -> LikelihoodModel:
        """The model with the calibration that maximises the likelihood of held-out rows, and a weak prior."""
        if len(y) < _LEAST_ROWS:
            return self
        y, dispersed = y.astype(float), self.likelihood.has_dispersion
        far, prior = self._far(model.noise), laplace_neighbourhood.prior_variance(model)

        def with_parameters(p: Array) -> LikelihoodCalibration:
            spread, extra, dispersion = np.exp(p[[0, 2, 4]]).tolist()
            factor = dispersion if dispersed else 1.0
            return LikelihoodCalibration(spread, float(p[1]), _START_EXTRA * extra, float(p[3]), factor)

        def losses(own: LikelihoodCalibration) -> Array:
            mean, variance = corrected(own, latents, prior, self.latents.mean, far)
            return -weights * log_marginal(self.likelihood, model.noise * own.dispersion, y, mean, variance)

        def loss(p: Array) -> float:
            prior_loss = 0.5 * _PRIOR_ROWS / len(y) * np.square(p - _START).sum()
            return float(losses(with_parameters(p)).mean() + prior_loss)

        best = minimize(loss, _START, method="L-BFGS-B", bounds=_BOUNDS, options={"eps": _STEP}).x
        own = with_parameters(np.asarray(best))
        return replace(self, calibration=replace(own, rows=len(y), score=float(losses(own).mean())))


def corrected(
    own: LikelihoodCalibration, latents: LatentFunctions, prior: float, prior_mean: float, far: FarLatent
) -> tuple[Array, Array]:
    """Mean and variance of f after calibration.

    prior, prior_mean : variance and mean of f before any row is known
    """
    mu, v = latents.mean[:, 0], latents.variance[:, 0]
    rho = np.minimum(v / prior, 1.0)
    mean = mu + (1 - rho) * own.offset + rho * (far.mean - prior_mean)
    extra = own.extra * (latents.misfit[:, 0] + _LEAST_MISFIT) ** (2 * own.power)
    return mean, (1 - rho) * (own.spread * v + extra) + rho * far.variance

"""Yes or no: y is 1 with probability pi = 1 / (1 + exp(-f)), and else 0.

d ln p / df = y - pi, d^2 ln p / df^2 = -pi (1 - pi), d^3 ln p / df^3 = -pi (1 - pi) (1 - 2 pi)
(Rasmussen & Williams 2006, eqs. 3.15 and 3.16).
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Derivatives, Likelihood


class Bernoulli(Likelihood):
    """ln p(y | f) = y f - ln(1 + exp(f)).

    A target between 0 and 1 is the share of successes in several trials, whose number is the weight of the row: the
    formula is then the log-likelihood of one trial. The predicted distribution is always that of one trial.
    """

    name = "Bernoulli"
    discrete = True
    lowest = 0.0
    averages = True
    requirement = "0 or 1, or shares between them"
    compiled = pointwise.BERNOULLI

    def is_possible(self, y: Array) -> Array:
        return np.asarray((y >= 0) & (y <= 1))

    def log_density(self, y: Array, f: Array, d: float) -> Array:
        return np.asarray(y * f - np.logaddexp(0, f))

    def derivatives(self, y: Array, f: Array, d: float) -> Derivatives:
        pi, other = expit(f), expit(-f)
        return Derivatives(y * other - (1 - y) * pi, pi * other, pi * other * (pi - other))

    def mean(self, f: Array) -> Array:
        return np.asarray(expit(f))

    def latent(self, mean: Array) -> Array:
        return np.asarray(logit(mean))

    def variance(self, f: Array, d: float) -> Array:
        return np.asarray(expit(f) * expit(-f))

    def cdf(self, y: Array, f: Array, d: float) -> Array:
        return np.where(y < 0, 0.0, np.where(y < 1, expit(-f), 1.0))

    def partial_mean(self, y: Array, f: Array, d: float) -> Array:
        return np.where(y < 1, 0.0, expit(f))

    def sample(self, f: Array, d: float, rng: np.random.Generator) -> Array:
        return np.asarray(rng.random(np.shape(f)) < expit(f), float)

"""The average of predictions by several models, weighted for each query by their predicted precision.

With means mu_m and variances v_m of f, priors k_m, noises s_m^2 and misfits e_m of the models, k the mean of the k_m
and s^2 the mean of the s_m^2,

    v'_m = 1 / (1 / v_m + 1 / k - 1 / k_m)           the variance of f if the prior's were k
    d_m = (v'_m + s_m^2) e_m^2,   w_m = (1 / d_m) / sum_j (1 / d_j)
    mean = sum_m w_m mu_m,        variance of f = sum_m w_m v'_m

and the misfit is such that (variance + s^2) misfit^2 is sum_m w_m (d_m + (mu_m - mean)^2), the variance of the mixture
of the models, which grows where they disagree. A model whose neighbours are predicted well, by each other, counts more.
Far from all data the variance is k, whatever the weights are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.model.latent import LatentPrediction

_LEAST_MISFIT = 1e-4  # added to a misfit before predictions are weighted by it: errors of zero nearby prove little
_LEAST_VARIANCE = 1e-14  # of f, as a share of the prior's


@dataclass(frozen=True, eq=False)
class Part:
    """What one model predicts, the noise variance of a typical row, and the prior variance of f."""

    prediction: LatentPrediction
    noise: float
    prior: float


def average(parts: list[Part], noise: float, prior: float) -> LatentPrediction:
    """The average of the models' predictions; each query's depends on that query alone, to the bit.

    noise, prior : of the average
    """
    variances = [_with_prior(part, prior) for part in parts]
    spreads = _spreads(parts, variances)
    weights = _weights(spreads)
    means = [part.prediction.mean for part in parts]
    mean = _sum([w * each for w, each in zip(weights, means, strict=True)])
    variance = _sum([w * v for w, v in zip(weights, variances, strict=True)])
    total = _sum([w * (d + (each - mean) ** 2) for w, d, each in zip(weights, spreads, means, strict=True)])
    return LatentPrediction(mean, variance, np.sqrt(total / (variance + noise)))


def weights_of(parts: list[Part], prior: float) -> list[Array]:
    """The weight of each model at each query."""
    return _weights(_spreads(parts, [_with_prior(part, prior) for part in parts]))


def _spreads(parts: list[Part], variances: list[Array]) -> list[Array]:
    return [
        (v + part.noise) * (_misfit(part.prediction) + _LEAST_MISFIT) ** 2
        for part, v in zip(parts, variances, strict=True)
    ]


def _weights(spreads: list[Array]) -> list[Array]:
    precision = _sum([1 / spread for spread in spreads])
    return [1 / spread / precision for spread in spreads]


def _with_prior(part: Part, prior: float) -> Array:
    """The variance of f that the model would predict with this prior variance."""
    assert part.prediction.variance is not None
    v = np.clip(part.prediction.variance, _LEAST_VARIANCE * part.prior, part.prior)
    changed: Array = 1 / (1 / v + (1 / prior - 1 / part.prior))
    return changed


def _misfit(prediction: LatentPrediction) -> Array:
    assert prediction.misfit is not None
    return prediction.misfit


def _sum(terms: list[Array]) -> Array:
    """The sum in the order of the terms, whatever the number of queries is."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total

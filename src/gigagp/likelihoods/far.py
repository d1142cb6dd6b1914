"""The latent function far from all rows: the Gaussian f for which y has the mean and the variance of all targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from gigagp.likelihoods.base import Likelihood

_Z = np.linspace(-8.0, 8.0, 129)  # nodes of averages over a Gaussian f
_WEIGHTS = np.exp(-0.5 * _Z**2) / np.exp(-0.5 * _Z**2).sum()
_LARGEST_VARIANCE = 16.0  # of f
_ROWS_ADDED = 0.5  # rows, where all targets are at the end of what is possible, so that its link is infinite


@dataclass(frozen=True)
class FarLatent:
    """Mean and variance of f far from all rows."""

    mean: float
    variance: float


def far_latent(likelihood: Likelihood, mean: float, variance: float, rows: float, d: float) -> FarLatent:
    """The Gaussian f for which y has this mean and variance; its variance is zero where y given one f varies more.

    mean, variance : of the targets
    rows : their number
    """
    if not np.isfinite(_link(likelihood, mean)):
        mean = (mean * rows + _ROWS_ADDED) / (rows + 2 * _ROWS_ADDED)
    centre = _link(likelihood, mean)

    def at(v: float) -> FarLatent:
        """The f of this variance for which y has the right mean."""
        f, reach = np.sqrt(v) * _Z, 10.0 + v

        def excess(shift: float) -> float:
            return float(_WEIGHTS @ likelihood.mean(centre + shift + f)) - mean

        good = excess(-reach) < 0 < excess(reach)
        return FarLatent(centre + float(brentq(excess, -reach, reach)) if good else centre, v)

    def missing(v: float) -> float:
        far = at(v)
        f = far.mean + np.sqrt(v) * _Z
        total = _WEIGHTS @ (likelihood.variance(f, d) + (likelihood.mean(f) - mean) ** 2)
        return float(total) - variance

    if missing(0.0) >= 0 or missing(1e-3) <= missing(0.0):  # the last: a label's variance does not depend on f's
        return at(0.0)
    return at(_LARGEST_VARIANCE) if missing(_LARGEST_VARIANCE) <= 0 else at(brentq(missing, 0.0, _LARGEST_VARIANCE))


def _link(likelihood: Likelihood, mean: float) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(likelihood.latent(np.array(mean, float)))

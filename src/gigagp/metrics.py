"""Scores of predictions and of their uncertainty."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from gigagp.arrays import Array

_LEVELS = ndtr(np.linspace(-8, 8, 3201))  # levels at which a quantile function is inverted


def rmse(y: Array, mean: Array) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((np.asarray(y) - np.asarray(mean)) ** 2)))


def nlpd(y: Array, mean: Array, std: Array) -> float:
    """Mean negative log density of y under N(mean, std^2)."""
    std = np.asarray(std)
    z = (np.asarray(y) - np.asarray(mean)) / std
    return float(np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi)))


def coverage(y: Array, mean: Array, std: Array, level: float = 0.95) -> float:
    """Share of y inside the central interval of the given level; about `level` for a calibrated model."""
    reach = ndtri(0.5 + level / 2) * np.asarray(std)
    return inside(y, np.asarray(mean) - reach, np.asarray(mean) + reach)


def inside(y: Array, low: Array, high: Array) -> float:
    """Share of y between two bounds, such as quantiles."""
    return float(np.mean((np.asarray(y) >= np.asarray(low)) & (np.asarray(y) <= np.asarray(high))))


def inside_level(low: Array, high: Array, level: float) -> Array:
    """How much of each target lies inside its central interval of the given level: 1, 0, or a share of it.

    low, high : predicted probabilities of a value below the target, and of one of at most the target; equal where
        targets are continuous (Czado, Gneiting & Held 2009)
    """
    first, last = 0.5 - level / 2, 0.5 + level / 2
    width = np.maximum(high - low, 0.0)
    common = np.minimum(high, last) - np.maximum(low, first)
    whole = (low >= first) & (high <= last)
    share = np.clip(common, 0.0, None) / np.where(width > 0, width, 1.0)
    return np.where(width > 0, np.minimum(share, 1.0), whole.astype(float))


def pit(y: Array, mean: Array, std: Array, quantile: Callable[[Array], Array] | None = None) -> Array:
    """Probability integral transform: the predicted probability of a target below y, per row.

    The values of a calibrated model are uniform between 0 and 1.

    quantile : quantile function of (y - mean) / std; default that of the Gaussian
    """
    z = (np.asarray(y) - np.asarray(mean)) / np.asarray(std)
    return np.asarray(ndtr(z) if quantile is None else np.interp(z, quantile(_LEVELS), _LEVELS))


def crps(y: Array, mean: Array, std: Array) -> float:
    """Mean continuous ranked probability score of N(mean, std^2), in y's units (Gneiting & Raftery 2007, eq. 21)."""
    return float(np.mean(crps_of_rows(y, mean, std)))


def crps_of_rows(y: Array, mean: Array, std: Array) -> Array:
    """The continuous ranked probability score of each row."""
    std = np.asarray(std)
    z = (np.asarray(y) - np.asarray(mean)) / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray(std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))


def kl_divergence(mean: Array, std: Array, other_mean: Array, other_std: Array) -> Array:
    """KL(N(mean, std^2) || N(other_mean, other_std^2)) per query."""
    ratio = (np.asarray(std) / np.asarray(other_std)) ** 2
    shift = (np.asarray(mean) - np.asarray(other_mean)) / np.asarray(other_std)
    return np.asarray(0.5 * (ratio - 1 - np.log(ratio) + shift**2))


def likelihood_ratio(mean: Array, std: Array, other_mean: Array, other_std: Array) -> float:
    """The paper's likelihood ratio exp(-KL) (appendix) of another predictive to a reference, averaged over queries.

    The reference comes first. The value is 1 if both predictives are equal.
    """
    return float(np.mean(np.exp(-kl_divergence(mean, std, other_mean, other_std))))

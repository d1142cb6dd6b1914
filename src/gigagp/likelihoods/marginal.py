"""ln p(y) of a target whose latent f is Gaussian: f is integrated out numerically, around the mode of the integrand.

Gauss-Hermite nodes at fixed places would miss the integrand where the target says more about f than the prediction
does: counts of 1,000 determine f to 3%. Centred at the mode and scaled by the curvature there, few nodes suffice
(Liu & Pierce 1994).
"""

from __future__ import annotations

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods import pointwise
from gigagp.likelihoods.base import Likelihood
from gigagp.likelihoods.pointwise import derivatives, log_constant, log_density, newton_start
from gigagp.linalg.compiled import compiled_strict

_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(20)
_LOG_WEIGHTS = np.log(_WEIGHTS) + _NODES**2
_MOST_STEPS = 40  # of Newton's method
_LONGEST_STEP = 3.0  # of Newton's method, in f
_CONVERGED = 1e-6  # change of f; the nodes need not be centred exactly
_LEAST_VARIANCE = 1e-12
_HALF_LOG_PI = 0.5 * np.log(np.pi)


def log_marginal(likelihood: Likelihood, d: float, y: Array, mean: Array, variance: Array) -> Array:
    """ln of the integral of p(y | f) N(f; mean, variance) over f, for each target.

    Where targets are averages of trials (`averages`), the mean of this over the trials.
    """
    y, mean, variance = (np.ascontiguousarray(a, float) for a in np.broadcast_arrays(y, mean, variance))
    variance = np.maximum(variance, _LEAST_VARIANCE)
    if likelihood.averages:
        below, share = np.floor(y), y - np.floor(y)
        if share.any():
            parts = [log_marginal(likelihood, d, below + step, mean, variance) for step in (0, 1)]
            return np.where(share > 0, (1 - share) * parts[0] + share * parts[1], parts[0])
    if likelihood.compiled == pointwise.PYTHON:
        return _by_calls(likelihood, d, y, mean, variance)
    out = np.empty(len(y))
    _log_marginal(likelihood.compiled, d, y, mean, variance, _NODES, _LOG_WEIGHTS, out)
    return out


@compiled_strict
def _log_marginal(
    kind: int, d: float, y: Array, mean: Array, variance: Array, nodes: Array, log_weights: Array, out: Array
) -> None:
    terms = np.empty(len(nodes))
    for i in range(len(y)):
        m, v = mean[i], variance[i]
        f = newton_start(kind, y[i], m)
        slope, curvature, _ = derivatives(kind, d, y[i], f)
        f = (m / v + curvature * f + slope) / (1 / v + curvature)
        for _ in range(_MOST_STEPS):
            slope, curvature, _ = derivatives(kind, d, y[i], f)
            step = (slope - (f - m) / v) / (curvature + 1 / v)
            f += min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
            if abs(step) < _CONVERGED:
                break
        _, curvature, _ = derivatives(kind, d, y[i], f)
        width = np.sqrt(2 / (curvature + 1 / v))
        top = -np.inf
        for j in range(len(nodes)):
            place = f + width * nodes[j]
            terms[j] = log_density(kind, d, y[i], place) - 0.5 * (place - m) * (place - m) / v + log_weights[j]
            top = max(top, terms[j])
        total = 0.0
        for j in range(len(nodes)):
            total += np.exp(terms[j] - top)
        out[i] = log_constant(kind, d, y[i]) + top + np.log(total * width) - 0.5 * np.log(2 * v) - _HALF_LOG_PI


def _by_calls(likelihood: Likelihood, d: float, y: Array, mean: Array, variance: Array) -> Array:
    """`_log_marginal` for a likelihood that is written in Python: each call is for all targets."""
    f = likelihood.newton_start(y, mean)
    slope, curvature, _ = likelihood.derivatives(y, f, d)
    f = (mean / variance + curvature * f + slope) / (1 / variance + curvature)
    for _ in range(_MOST_STEPS):
        slope, curvature, _ = likelihood.derivatives(y, f, d)
        step = (slope - (f - mean) / variance) / (curvature + 1 / variance)
        f = f + np.where(np.abs(step) < _CONVERGED, 0.0, np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))
        if (np.abs(step) < _CONVERGED).all():
            break
    width = np.sqrt(2 / (likelihood.derivatives(y, f, d).curvature + 1 / variance))
    place = f[:, None] + width[:, None] * _NODES
    y, mean, v = y[:, None] + 0 * place, mean[:, None], variance[:, None]
    terms = likelihood.log_density(y, place, d) - 0.5 * (place - mean) ** 2 / v + _LOG_WEIGHTS
    top = terms.max(axis=1)
    total = np.exp(terms - top[:, None]).sum(axis=1) * width
    return np.asarray(top + np.log(total) - 0.5 * np.log(2 * variance) - _HALF_LOG_PI)

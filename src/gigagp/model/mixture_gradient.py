"""Gradients of the predictions of a mixture of exact GPs with respect to the queries."""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.engines import Engine
from gigagp.expert import Factor
from gigagp.linalg.tiny import tiny_is_zero
from gigagp.linalg.workspace import Workspace
from gigagp.model import expert_gradient
from gigagp.model.duals import Dual
from gigagp.model.latent import LatentPrediction
from gigagp.model.leave_one_out import PRIOR_ERRORS, closeness
from gigagp.model.mixture import Member, Mixture, factors_of

_POWER = 8  # of the correlations by which errors near a query count


def predict(model: Mixture, Z: Array, engine: Engine) -> LatentPrediction:
    """Mean and variance of f and misfit at scaled queries as duals: with their derivatives by the scaled query."""
    Z = np.ascontiguousarray(Z, float)
    tasks = zip(model.members, factors_of(model, engine), strict=True)
    parts = list(engine.local.map(lambda task, work: _by_member(*task, Z, work), tasks))
    weights = [member.weight for member in model.members]
    mean: Any = _sum([w * mu for w, (mu, _, _) in zip(weights, parts, strict=True)])
    square = _sum([w * mu * mu for w, (mu, _, _) in zip(weights, parts, strict=True)])
    variance: Any = _sum([w * v for w, (_, v, _) in zip(weights, parts, strict=True)])
    misfit = _sum([w * h * h for w, (_, _, h) in zip(weights, parts, strict=True)])
    return LatentPrediction(mean, variance + np.maximum(square - mean * mean, 0.0), np.sqrt(misfit))


def _sum(terms: list[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


@tiny_is_zero
def _by_member(member: Member, factor: Factor, Z: Array, work: Workspace) -> tuple[Dual, Dual, Dual]:
    """Mean and variance of f and the misfit, by one member."""
    kernel, theta, p, q = member.kernel, member.theta, len(factor.X), len(Z)
    mean, variance = expert_gradient.posterior(kernel, theta, factor, Z, work)
    prior = member.prior(factor.X)
    K = np.ascontiguousarray(kernel.cross(theta[:-1], factor.X, Z)[:p, :q])
    close = closeness(K, prior)
    near, total = np.empty(q), np.empty(q)
    expert.weighted_sum(member.errors, close, p, q, near)
    expert.weighted_sum(np.ones(p), close, p, q, total)
    misfit = (PRIOR_ERRORS + near) / (PRIOR_ERRORS + total)
    # d misfit / d k_i = (e_i - misfit) d c_i^8 / d k_i / (a + sum c^8)
    by_k = _POWER * (K / prior) ** (_POWER - 1) / prior
    by_k *= (member.errors[:, None] - misfit) / (PRIOR_ERRORS + total)
    return mean, variance, Dual(misfit, kernel.query_gradient(theta[:-1], factor.X, Z, by_k))

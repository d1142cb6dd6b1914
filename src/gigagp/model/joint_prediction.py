"""Committee prediction under a joint rule, which needs the covariances between the experts of a query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.combine import JointRule, Prediction
from gigagp.engines import Engine
from gigagp.linalg import cholesky
from gigagp.linalg.gemm import FULL, multiply
from gigagp.linalg.row_noise import variances
from gigagp.linalg.workspace import Workspace
from gigagp.model.committee import Committee, mean_scale

_ENTRIES_AT_ONCE = 1 << 24  # entries of one task's working arrays


def predict_jointly(
    committee: Committee, Z: Array, prior: Array, rule: JointRule, k: int, engine: Engine
) -> Prediction:
    """Queries with the same experts are predicted together, with the covariances between those experts."""
    route = committee.router.nearest(Z, k)
    sets, member = np.unique(np.sort(route.experts, axis=1), axis=0, return_inverse=True)
    order = np.argsort(member.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(member.ravel(), minlength=len(sets)))
    points = int(committee.experts.sizes.max())
    at_once = max(1, _ENTRIES_AT_ONCE // (k * points))
    groups = [
        (leaves, order[a : min(a + at_once, end)])
        for leaves, start, end in zip(sets, [0, *ends[:-1]], ends, strict=True)
        for a in range(start, end, at_once)
    ]
    tasks = ((leaves, Z[rows], prior[rows].astype(float)) for leaves, rows in groups)
    mean, variance, scale = np.empty(len(Z)), np.empty(len(Z)), np.empty(len(Z))
    predictions = engine.map(_PredictJointly(committee, rule), tasks)
    for (leaves, rows), (prediction, log_scales) in zip(groups, predictions, strict=True):
        mean[rows], variance[rows] = prediction.mean, prediction.variance
        position = np.searchsorted(leaves, route.experts[rows])
        scale[rows] = mean_scale(log_scales[position], route.closeness[rows])
    return Prediction(mean.astype(Z.dtype), variance.astype(Z.dtype), scale if committee.student else None)


@dataclass(frozen=True, eq=False)
class _PredictJointly:
    committee: Committee
    rule: JointRule
    name = "joint prediction"

    def __call__(self, task: tuple[Array, Array, Array], work: Workspace) -> tuple[Prediction, Array]:
        leaves, Z, prior = task
        means, covariances, scales = _joint(self.committee, leaves, Z, work)
        return self.rule.combine(means, covariances, prior), np.log(scales)


def _joint(committee: Committee, leaves: Array, Z: Array, work: Workspace) -> tuple[Array, Array, Array]:
    """Means (q, k) of the experts, the covariances (q, k, k) of those means under the prior, scales of the experts.

    Computed in double precision always: experts that share data make the covariances nearly singular.
    """
    kernel, theta, q = committee.kernel, committee.theta, len(Z)
    Z = Z.astype(float)
    data, weights, scales = [], [], []  # per expert: its rows, inputs and noise, V_i = C_i k_i, its scale
    means, mean, dots = np.empty((q, len(leaves))), np.empty(q), np.empty(q)
    for i, leaf in enumerate(leaves):
        rows = committee.experts.rows(int(leaf))
        X, y = (part.astype(float) for part in committee.store.gather(rows))
        row_noise = committee.store.noise_of(rows)
        factor = expert.factor(kernel, theta, X, y, work, int(leaf), row_noise=row_noise)
        noise = np.full(len(y), committee.noise) if row_noise is None else variances(committee.noise, row_noise)
        V = np.ascontiguousarray(kernel.cross(theta[:-1], X, Z)[: len(X), :q])
        expert.weighted_sum(factor.alpha, V, len(X), q, mean)
        means[:, i] = mean
        cholesky.solve_lower(factor.U, factor.D, V, len(X), q)
        cholesky.solve_lower_transposed(factor.U, factor.D, V, len(X), q)
        data.append((committee.experts[int(leaf)], X, noise))
        weights.append(V)
        scales.append(factor.scale)
    covariances = np.empty((q, len(leaves), len(leaves)))
    for i, (rows_i, X_i, noise_i) in enumerate(data):
        for j, (rows_j, X_j, _) in enumerate(data[: i + 1]):
            K = np.ascontiguousarray(kernel.cross(theta[:-1], X_i, X_j)[: len(X_i), : len(X_j)])
            _, a, b = np.intersect1d(rows_i, rows_j, assume_unique=True, return_indices=True)
            K[a, b] += noise_i[a]  # the same observation has the same noise in both
            product = np.empty((len(X_i), q))
            multiply(1.0, K, 0, 0, False, weights[j], 0, 0, 0.0, product, 0, 0, len(X_i), q, len(X_j), FULL)
            expert.column_dots(weights[i], product, len(X_i), q, dots)
            covariances[:, i, j] = covariances[:, j, i] = dots
    return means, covariances, np.array(scales)

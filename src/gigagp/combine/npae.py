"""Nested pointwise aggregation of experts: the best linear combination of their means."""

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.combine.base import JointRule, Prediction

# Added to the diagonal of the experts' correlation matrix: experts with the same data are linearly dependent.
_JITTER = 1e-9


class NPAE(JointRule):
    """a_i = k_i C_i k_i^T, A_ij = k_i C_i K_ij C_j k_j^T (C_i = (K_i + noise I)^-1, K_ij with the noise of shared
    points); mean a^T A^-1 m, variance kappa - a^T A^-1 a. Rulliere et al. 2018.

    It needs the covariance between every two experts of a query, so that the experts cannot send messages that are
    added: use it with a few experts per query.
    """

    name = "npae"
    laws = frozenset({"exact_with_one_leaf", "returns_to_prior", "invariant_to_tree"})

    def combine(self, means: Array, covariances: Array, prior: Array) -> Prediction:
        """`covariances` is A, whose diagonal is a."""
        a = np.diagonal(covariances, axis1=1, axis2=2)
        scale = np.sqrt(np.maximum(a, np.finfo(float).tiny))  # distant experts have tiny a; correlations have one scale
        correlations = covariances / (scale[:, :, None] * scale[:, None, :]) + _JITTER * np.eye(means.shape[1])
        weights: Any = np.linalg.solve(correlations, (a / scale)[:, :, None])[:, :, 0] / scale
        return Prediction(_row_dots(weights, means), prior - _row_dots(weights, a))


def _row_dots(A: Array, B: Array) -> Array:
    """Row sums of A * B, columns in order: NumPy's sums may be grouped by the number of rows."""
    total = A[:, 0] * B[:, 0]
    for j in range(1, A.shape[1]):
        total += A[:, j] * B[:, j]
    return np.asarray(total)

"""Derivatives of the posterior of one expert with respect to the queries."""

from __future__ import annotations

import numpy as np

from gigagp import expert
from gigagp.arrays import Array
from gigagp.expert import QUERY_BLOCK, Factor
from gigagp.kernels.base import Kernel
from gigagp.linalg import cholesky
from gigagp.linalg.workspace import Workspace
from gigagp.model.duals import Dual


def posterior(kernel: Kernel, theta: Array, factor: Factor, Z: Array, work: Workspace) -> tuple[Dual, Dual]:
    """Mean and variance of f at each row of Z, with their derivatives by that row.

    With u = (K + noise I)^-1 k the derivatives are alpha^T dk and dk_** - 2 u^T dk.
    """
    mean, variance = expert.posterior(kernel, theta, factor, Z, work)
    by_mean, by_variance = np.empty(Z.shape), np.empty(Z.shape)
    for start in range(0, len(Z), QUERY_BLOCK):
        block = Z[start : start + QUERY_BLOCK]
        here = slice(start, start + len(block))
        alpha = np.broadcast_to(factor.alpha[:, None], (len(factor.alpha), len(block)))
        by_mean[here] = kernel.query_gradient(theta[:-1], factor.X, block, alpha)
        u = solved(kernel, theta, factor, block)
        pulled = kernel.query_gradient(theta[:-1], factor.X, block, u)
        by_variance[here] = kernel.diagonal_gradient(theta[:-1], block) - 2 * pulled
    return Dual(mean, by_mean), Dual(variance, by_variance)


def solved(kernel: Kernel, theta: Array, factor: Factor, Z: Array) -> Array:
    """(K + noise I)^-1 k(X, z) of each query; of a sparse expert, the vector that takes its place."""
    p, q = len(factor.X), len(Z)
    V = np.ascontiguousarray(kernel.cross(theta[:-1], factor.X, Z)[:p, :q])
    cholesky.solve_lower(factor.U, factor.D, V, p, q)
    if factor.returned is not None:
        W = V.copy()
        cholesky.solve_lower(factor.returned.U, factor.returned.D, W, p, q)
        cholesky.solve_lower_transposed(factor.returned.U, factor.returned.D, W, p, q)
        V -= W
    cholesky.solve_lower_transposed(factor.U, factor.D, V, p, q)
    return V

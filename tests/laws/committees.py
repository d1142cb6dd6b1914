"""Small committees built by hand, and plain NumPy to compare them with."""

from __future__ import annotations

import numpy as np

from gigagp.data.store import ExpertStore
from gigagp.kernels import SquaredExponential
from gigagp.model.committee import Committee
from gigagp.model.routing import Router
from gigagp.partition import IndexLists
from gigagp.tree import Tree

VARIANCE = 1.3
LENGTHSCALE = 0.8
NOISE = 0.05


def committee(
    leaves: int, points: int, columns: int = 2, shared: int = 0, seed: int = 0, local: bool = False
) -> Committee:
    """Experts on random rows, or on neighbours along the first column; each has `shared` in common with the next."""
    rng = np.random.default_rng(seed)
    n = leaves * points
    X = rng.uniform(-2, 2, (n, columns))
    if local:
        X = X[np.argsort(X[:, 0])]
    y = np.sin(2 * X).sum(axis=1) + np.sqrt(NOISE) * rng.standard_normal(n)
    kernel = SquaredExponential(VARIANCE, [LENGTHSCALE] * columns)
    own = np.arange(n).reshape(leaves, points)
    experts = IndexLists.of([np.concatenate([own[i], own[(i + 1) % leaves][:shared]]) for i in range(leaves)])
    metric = np.full(columns, 1 / LENGTHSCALE)
    centres = np.array([X[experts[leaf]].mean(axis=0) for leaf in range(leaves)]) * metric
    return Committee(
        kernel=kernel,
        theta=np.append(kernel.theta, np.log(NOISE)),
        store=ExpertStore.in_memory(X, y, np.arange(n)),
        experts=experts,
        tree=Tree.balanced(leaves),
        router=Router(centres, metric),
        communication=np.sort(rng.permutation(n)[:points]),
    )


def k(X, Z):
    """Eq. 1."""
    square = ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)
    return VARIANCE * np.exp(-0.5 * square / LENGTHSCALE**2)


def posterior(X, y, Z):
    """Eq. 3 and 4 by a plain inverse."""
    C = np.linalg.inv(k(X, X) + NOISE * np.eye(len(X)))
    cross = k(X, Z)
    return cross.T @ C @ y, VARIANCE - np.einsum("pq,pr,rq->q", cross, C, cross)


def opinions(c: Committee, Z, rows=None):
    """Mean and variance of every expert (experts, q), or of experts on the given lists of rows."""
    lists = [c.experts[leaf] for leaf in range(len(c.experts))] if rows is None else rows
    posteriors = [posterior(c.store.X[r], c.store.y[r], Z) for r in lists]
    return np.array([mean for mean, _ in posteriors]), np.array([variance for _, variance in posteriors])

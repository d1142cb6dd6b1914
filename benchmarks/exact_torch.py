"""Exact GPs in torch, for peers that must not lean on GigaGP: evidence with its gradient, theta, posteriors.

Everything works on batches of small GPs or on one large one. theta is (log variance, log length-scales, log noise
variance), as in GigaGP; the families are stationary kernels with one length-scale a column.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from gigagp.arrays import Array
from svgp import start_theta

ROUGH_ROWS = 1000
NEIGHBOURHOODS, NEIGHBOURHOOD_ROWS = 32, 256
LOG_BOUNDS = {"variance": (1e-3, 1e3), "lengthscale": (1e-3, 1e3), "noise": (1e-6, 1e1)}

Profile = Callable[[Any], tuple[Any, Any]]  # r^2 -> k, -2 dk/dr^2


def _se(r2: Any) -> tuple[Any, Any]:
    k = torch.exp(-r2 / 2)
    return k, k


def _matern52(r2: Any) -> tuple[Any, Any]:
    r = torch.sqrt(5 * r2)
    decay = torch.exp(-r)
    return (1 + r + r * r / 3) * decay, 5 / 3 * (1 + r) * decay


def _matern32(r2: Any) -> tuple[Any, Any]:
    r = torch.sqrt(3 * r2)
    decay = torch.exp(-r)
    return (1 + r) * decay, 3 * decay


def _matern12(r2: Any) -> tuple[Any, Any]:
    r = torch.sqrt(r2)
    decay = torch.exp(-r)
    return decay, decay / r.clamp(min=1e-6)


FAMILIES: dict[str, Profile] = {
    "squared exponential": _se, "Matern 5/2": _matern52, "Matern 3/2": _matern32, "Matern 1/2": _matern12,
}  # fmt: skip


@dataclass(frozen=True)
class Learnt:
    """A family, its theta, the log evidence it reached, and whether the clock ended the search."""

    family: str
    theta: Array
    evidence: float
    capped: bool


class _OutOfTime(Exception):
    """Ends a search whose time is up."""


def _apart(a: Any, b: Any) -> Any:
    """Squared distances of all rows of a to all rows of b, batch by batch."""
    squares = (a * a).sum(-1).unsqueeze(-1) + (b * b).sum(-1).unsqueeze(-2)
    return squares.sub_(2 * a @ b.transpose(-1, -2)).clamp_(min=0)


def _apart_within(a: Any) -> Any:
    """Squared distances among the rows of a; zero, not rounding, from a row to itself."""
    apart = _apart(a, a)
    apart.diagonal(dim1=-2, dim2=-1).zero_()
    return apart


def evidence(family: str, theta: Array, X: Any, y: Any) -> tuple[float, Array]:
    """Sum of the log marginal likelihoods of a batch of GPs, X (b, n, d) and y (b, n), and its gradient in theta."""
    variance, noise = float(np.exp(theta[0])), float(np.exp(theta[-1]))
    x = X * torch.from_numpy(np.exp(-theta[1:-1]))
    k, slope = FAMILIES[family](_apart_within(x))
    K = variance * k
    K.diagonal(dim1=-2, dim2=-1).add_(noise)
    L = torch.linalg.cholesky(K)
    del K
    logdet = 2 * L.diagonal(dim1=-2, dim2=-1).log().sum()
    W = torch.cholesky_inverse(L).neg_()
    del L
    alpha = -(W @ y.unsqueeze(-1))
    W.add_(alpha @ alpha.transpose(-1, -2)).div_(2)  # the gradient in K
    value = -0.5 * ((alpha.squeeze(-1) * y).sum() + logdet + y.numel() * np.log(2 * np.pi))
    trace = W.diagonal(dim1=-2, dim2=-1).sum()
    by_variance = variance * (W * k).sum()
    M = W.mul_(slope).mul_(variance)
    by_scale = 2 * ((M.sum(-1).unsqueeze(-1) * x * x) - (M @ x) * x).sum((0, 1))
    gradient = np.concatenate([[by_variance.item()], by_scale.numpy(), [noise * trace.item()]])
    return value.item(), gradient


def learn(family: str, start: Array, X: Any, y: Any, deadline: float, steps: int = 100) -> Learnt:
    """theta that maximises the evidence of a batch, by L-BFGS-B from `start`, or the best one seen by the deadline."""
    best = Learnt(family, start, -np.inf, False)

    def loss(theta: Array) -> tuple[float, Array]:
        nonlocal best
        if time.perf_counter() > deadline:
            raise _OutOfTime
        try:
            value, gradient = evidence(family, theta, X, y)
        except torch.linalg.LinAlgError:
            return 1e12, np.zeros_like(theta)
        if value > best.evidence:
            best = Learnt(family, theta.copy(), value, False)
        return -value / y.numel(), -gradient / y.numel()

    one, scale, nugget = (tuple(np.log(LOG_BOUNDS[k])) for k in ("variance", "lengthscale", "noise"))
    bounds = [one, *[scale] * (len(start) - 2), nugget]
    try:
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "ftol": 1e-7})
    except _OutOfTime:
        return Learnt(best.family, best.theta, best.evidence, True)
    return best


def rough_theta(X: Array, y: Array, deadline: float) -> Learnt:
    """theta of a Matern 5/2, from the exact evidence of 1,000 random rows."""
    some = np.random.default_rng(0).permutation(len(X))[:ROUGH_ROWS]
    return learn("Matern 5/2", start_theta(X.shape[1]), *_batch(X[some][None], y[some][None]), deadline, steps=40)


def local_theta(X: Array, y: Array, deadline: float) -> Learnt:
    """The family and theta of the largest evidence over 32 neighbourhoods of 256 rows around random rows.

    The neighbourhoods are in the metric of a first rough theta, from 1,000 random rows.
    """
    rng = np.random.default_rng(1)
    rough = rough_theta(X, y, deadline)
    scale = np.exp(-rough.theta[1:-1])
    centres = rng.permutation(len(X))[:NEIGHBOURHOODS]
    rows = nearest(cKDTree(X * scale), X[centres] * scale, NEIGHBOURHOOD_ROWS)
    near = _batch(X[rows], y[rows])
    found = []
    for left, family in zip(range(len(FAMILIES), 0, -1), FAMILIES, strict=True):
        now = time.perf_counter()
        found.append(learn(family, rough.theta, *near, now + (deadline - now) / left, steps=25))
    return max(found, key=lambda learnt: learnt.evidence)


def _batch(X: Array, y: Array) -> tuple[Any, Any]:
    return torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(np.ascontiguousarray(y))


def nearest(tree: cKDTree, Z: Array, count: int) -> Array:
    """Row numbers of the `count` nearest rows of each query."""
    rows = tree.query(Z, k=list(range(1, min(count, tree.n) + 1)), workers=torch.get_num_threads())[1]
    return np.asarray(rows)


def posteriors(learnt: Learnt, X: Array, y: Array, Z: Array) -> tuple[Array, Array]:
    """Mean and deviation of y at one query for each GP of a batch: X (b, n, d), y (b, n), Z (b, d), in scaled units."""
    variance, noise = np.exp(learnt.theta[0]), np.exp(learnt.theta[-1])
    profile = FAMILIES[learnt.family]
    x, targets = _batch(X, y)
    K = variance * profile(_apart_within(x))[0]
    K.diagonal(dim1=-2, dim2=-1).add_(noise)
    k = variance * profile(_apart(x, torch.from_numpy(Z).unsqueeze(-2)))[0]
    V = torch.linalg.solve_triangular(
        torch.linalg.cholesky(K), torch.cat([k, targets.unsqueeze(-1)], dim=-1), upper=False
    )
    mean = (V[..., 0] * V[..., 1]).sum(-1)
    latent = (variance - (V[..., 0] ** 2).sum(-1)).clamp(min=0)
    return mean.numpy(), torch.sqrt(latent + noise).numpy()


class One:
    """One exact GP, factored, that answers blocks of queries."""

    def __init__(self, learnt: Learnt, X: Array, y: Array) -> None:
        self._variance, self._noise = np.exp(learnt.theta[0]), np.exp(learnt.theta[-1])
        self._scale, self._profile = torch.from_numpy(np.exp(-learnt.theta[1:-1])), FAMILIES[learnt.family]
        self._x = torch.from_numpy(X) * self._scale
        K = self._variance * self._profile(_apart_within(self._x))[0]
        K.diagonal().add_(self._noise)
        self._L = torch.linalg.cholesky(K)
        self._alpha = torch.cholesky_solve(torch.from_numpy(y).unsqueeze(-1), self._L)

    def say(self, Z: Array) -> tuple[Array, Array]:
        k = self._variance * self._profile(_apart(self._x, torch.from_numpy(Z) * self._scale))[0]
        mean = (k.T @ self._alpha).squeeze(-1)
        V = torch.linalg.solve_triangular(self._L, k, upper=False)
        latent = (self._variance - (V * V).sum(0)).clamp(min=0)
        return mean.numpy(), torch.sqrt(latent + self._noise).numpy()

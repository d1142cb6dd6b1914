"""Exact GPs in torch, for peers that must not lean on GigaGP: evidence with its gradient, theta, posteriors.

Everything works on batches of small GPs or on one large one. theta is (log variance, log length-scales, log noise
variance), as in GigaGP; the families are stationary kernels with one length-scale per column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from deadline import Deadline
from gigagp.arrays import Array
from svgp import start_theta

ROUGH_ROWS = 1000
NEIGHBOURHOODS = 32
NEIGHBOURHOOD_ROWS = 256
BLOCK = 1024  # rows of a large matrix that are computed together
GAUSSIAN_ERROR = (2 / np.pi) ** 0.5  # mean absolute value of a standard Gaussian
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


def learn(family: str, start: Array, X: Any, y: Any, deadline: Deadline, steps: int = 100) -> Learnt:
    """theta that maximises the evidence of a batch, by L-BFGS-B from `start`, or the best one seen by the deadline."""
    best = Learnt(family, start, -np.inf, False)

    def loss(theta: Array) -> tuple[float, Array]:
        nonlocal best
        if deadline.passed:
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


def rough_theta(X: Array, y: Array, deadline: Deadline) -> Learnt:
    """theta of a Matern 5/2, from the exact evidence of 1,000 random rows."""
    some = np.random.default_rng(0).permutation(len(X))[:ROUGH_ROWS]
    return learn("Matern 5/2", start_theta(X.shape[1]), *_batch(X[some][None], y[some][None]), deadline, steps=40)


def local_theta(X: Array, y: Array, deadline: Deadline) -> Learnt:
    """The family and theta of the largest evidence over 32 neighbourhoods of 256 rows around random rows.

    The neighbourhoods are in the metric of a first rough theta, from 1,000 random rows.
    """
    rng = np.random.default_rng(1)
    rough = rough_theta(X, y, deadline)
    scale = np.exp(-rough.theta[1:-1])
    centres = rng.permutation(len(X))[:NEIGHBOURHOODS]
    rows = nearest(cKDTree(X * scale), X[centres] * scale, NEIGHBOURHOOD_ROWS)
    near = _batch(X[rows], y[rows])
    trials = []
    for left, family in zip(range(len(FAMILIES), 0, -1), FAMILIES, strict=True):
        trials.append(learn(family, rough.theta, *near, deadline.sooner(1 / left), steps=25))
    return max(trials, key=lambda learnt: learnt.evidence)


def _batch(X: Array, y: Array) -> tuple[Any, Any]:
    return torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(np.ascontiguousarray(y))


def nearest(tree: cKDTree, Z: Array, count: int) -> Array:
    """Row numbers of the `count` nearest rows of each query."""
    rows = tree.query(Z, k=list(range(1, min(count, tree.n) + 1)), workers=torch.get_num_threads())[1]
    return np.asarray(rows)


def posteriors(learnt: Learnt, X: Array, y: Array, Z: Array) -> tuple[Array, Array, Array]:
    """Mean and deviation of y at one query for each GP of a batch, and its misfit, as ours has it.

    X (b, n, d), y (b, n) and Z (b, d) are in scaled units. The misfit is the mean absolute error of the rows, each
    predicted by the others in closed form, in predicted deviations, relative to that of a Gaussian.
    """
    variance, noise = np.exp(learnt.theta[0]), np.exp(learnt.theta[-1])
    profile = FAMILIES[learnt.family]
    x, targets = _batch(X, y)
    K = variance * profile(_apart_within(x))[0]
    K.diagonal(dim1=-2, dim2=-1).add_(noise)
    k = variance * profile(_apart(x, torch.from_numpy(Z).unsqueeze(-2)))[0]
    identity = torch.eye(K.shape[-1], dtype=K.dtype).expand_as(K)
    T = torch.linalg.solve_triangular(torch.linalg.cholesky(K), identity, upper=False)
    a, b = T @ k, T @ targets.unsqueeze(-1)
    mean = (a * b).sum((-1, -2))
    latent = (variance - (a * a).sum((-1, -2))).clamp(min=0)
    alpha, precision = (T.transpose(-1, -2) @ b).squeeze(-1), (T * T).sum(-2)
    misfit = (alpha.abs() / precision.sqrt()).mean(-1) / GAUSSIAN_ERROR
    return mean.numpy(), torch.sqrt(latent + noise).numpy(), misfit.numpy()


class One:
    """One exact GP, factored, that predicts blocks of queries."""

    def __init__(self, learnt: Learnt, X: Array, y: Array) -> None:
        self._variance, self._noise = np.exp(learnt.theta[0]), np.exp(learnt.theta[-1])
        self._scale, self._profile = torch.from_numpy(np.exp(-learnt.theta[1:-1])), FAMILIES[learnt.family]
        self._x, self._y = torch.from_numpy(X) * self._scale, torch.from_numpy(y)
        K = torch.empty((len(X), len(X)), dtype=self._x.dtype)
        for rows in torch.arange(len(X)).split(BLOCK):  # a whole matrix of temporary values would not fit beside K
            K[rows] = self._variance * self._profile(_apart(self._x[rows], self._x))[0]
        K.diagonal().fill_(self._variance + self._noise)
        self._L = torch.linalg.cholesky(K)
        self._alpha = torch.cholesky_solve(self._y.unsqueeze(-1), self._L).squeeze(-1)

    def predict(self, Z: Array) -> tuple[Array, Array]:
        """Mean and deviation of y at the queries."""
        k = self._variance * self._profile(_apart(self._x, torch.from_numpy(Z) * self._scale))[0]
        V = torch.linalg.solve_triangular(self._L, k, upper=False)
        latent = (self._variance - (V * V).sum(0)).clamp(min=0)
        return (k.T @ self._alpha).numpy(), torch.sqrt(latent + self._noise).numpy()

    def leave_one_out(self, rows: Array) -> tuple[Array, Array]:
        """Mean and deviation of y of each of these rows, from all others (Rasmussen & Williams 2006, eq. 5.12)."""
        precision = torch.empty(len(rows), dtype=self._x.dtype)
        for places in torch.arange(len(rows)).split(BLOCK):
            identity = torch.zeros((len(self._x), len(places)), dtype=self._x.dtype)
            identity[torch.from_numpy(rows)[places], torch.arange(len(places))] = 1
            V = torch.linalg.solve_triangular(self._L, identity, upper=False)
            precision[places] = (V * V).sum(0)
        mean = self._y[rows] - self._alpha[rows] / precision
        return mean.numpy(), precision.rsqrt().numpy()

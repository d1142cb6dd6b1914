"""The sparse GP of the paper's timing figure: FITC (Snelson & Ghahramani 2006), in torch.

y ~ N(0, Q + diag(K - Q) + noise I), Q = K_fu K_uu^-1 K_uf; the inducing inputs are a random tenth of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from gigagp.arrays import Array

Evidence = Callable[[Array], tuple[float, Array]]  # theta -> log marginal likelihood and its gradient


def evidence(X: Array, y: Array, share: float = 0.1, threads: int | None = None) -> Evidence:
    """For theta = (log variance, log length-scales, log noise variance) of a squared exponential."""
    torch = import_module("torch")
    if threads is not None:
        torch.set_num_threads(threads)
    n, m = len(y), max(1, round(share * len(y)))
    chosen = np.random.default_rng(0).permutation(n)[:m]
    F, U, targets = torch.from_numpy(X), torch.from_numpy(X[chosen]), torch.from_numpy(y)
    tiny = 1e-8 * torch.eye(m, dtype=torch.float64)

    def value_and_gradient(theta: Array) -> tuple[float, Array]:
        t = torch.tensor(theta, requires_grad=True)
        variance, noise = t[0].exp(), t[-1].exp()
        f, u = F * torch.exp(-t[1:-1]), U * torch.exp(-t[1:-1])

        def covariance(a: Any) -> Any:
            apart = (u * u).sum(1)[:, None] + (a * a).sum(1) - 2 * u @ a.T
            return variance * torch.exp(-apart / 2)

        L = torch.linalg.cholesky(covariance(u) + variance * tiny)
        V = torch.linalg.solve_triangular(L, covariance(f), upper=False)  # Q = V^T V
        diagonal = variance - (V * V).sum(0) + noise
        A = V / diagonal.sqrt()
        r = targets / diagonal.sqrt()
        B = torch.linalg.cholesky(A @ A.T + torch.eye(m, dtype=torch.float64))
        c = torch.linalg.solve_triangular(B, (A @ r)[:, None], upper=False)
        logdet = 2 * B.diagonal().log().sum() + diagonal.log().sum()
        value = -0.5 * (r @ r - (c * c).sum() + logdet + n * np.log(2 * np.pi))
        value.backward()
        return value.item(), t.grad.numpy()

    return value_and_gradient

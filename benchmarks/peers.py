"""The peers, one small adapter each, with the settings their own documentation or papers advise.

All take standardised inputs and targets. theta is (log variance, log length-scales, log noise variance) of a squared
exponential with one length-scale a column, as in GigaGP. Peers may use every core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gigagp import HGPRegressor
from gigagp.arrays import Array
from gigagp.kernels import SquaredExponential

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
LML = Callable[[Array], tuple[float, Array]]  # theta -> log marginal likelihood and its gradient


@dataclass(frozen=True)
class Said:
    """What a model says at the held-out inputs, and the seconds it took to learn and to say it."""

    mean: Array
    std: Array  # of y
    fit_seconds: float
    predict_seconds: float


def available(name: str, *modules: str) -> bool:
    """Whether the peer can be imported; otherwise a clear line."""
    for module in modules:
        try:
            import_module(module)
        except ImportError:
            print(f"skipped: {name}: {module} is not installed (pip install .[bench])", flush=True)
            return False
    return True


class ScikitLearn:
    """Exact GP of scikit-learn: Constant * RBF + White, its analytic gradient (an n x n x D tensor)."""

    name = "scikit-learn"

    @staticmethod
    def available() -> bool:
        return available("scikit-learn", "sklearn")

    @staticmethod
    def gradient_gb(n: int, d: int) -> float:
        """GB it asks for: n x n for each of the parameters, three times over (measured)."""
        return 3 * 8 * n * n * (d + 2) / 1e9

    @staticmethod
    def lml(X: Array, y: Array) -> LML:
        kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
        model = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
        model.kernel_, model.X_train_, model.y_train_ = kernel, X, y  # what fit would store, without its prediction
        return lambda theta: model.log_marginal_likelihood(theta, eval_gradient=True, clone_kernel=False)


class GPyTorchExact:
    """Exact GP of GPyTorch by Cholesky in float64, gradient by autograd.

    Cholesky at every size (settings.max_cholesky_size), as its documentation advises where exact values are wanted;
    conjugate gradients, its default above 800 points, are slower at these sizes on a CPU and give noisy values.
    """

    name = "GPyTorch exact"

    @staticmethod
    def available() -> bool:
        return available("GPyTorch", "torch", "gpytorch")

    @staticmethod
    def lml(X: Array, y: Array, threads: int = CORES) -> LML:
        torch, gpytorch = _torch()
        inputs, targets, n = torch.from_numpy(X), torch.from_numpy(y), len(y)

        class Model(gpytorch.models.ExactGP):
            def __init__(self) -> None:
                super().__init__(inputs, targets, gpytorch.likelihoods.GaussianLikelihood().double())
                self.mean_module = gpytorch.means.ZeroMean()
                rbf = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
                self.covar_module = gpytorch.kernels.ScaleKernel(rbf)

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        model = Model().double()
        model.train()
        likelihood = model.likelihood
        likelihood.noise_covar.register_constraint("raw_noise", gpytorch.constraints.Positive())
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        scale, rbf, noise = model.covar_module, model.covar_module.base_kernel, likelihood.noise_covar

        def value_and_gradient(theta: Array) -> tuple[float, Array]:
            values = torch.from_numpy(np.exp(theta))
            scale.outputscale, rbf.lengthscale, noise.noise = values[0], values[1:-1], values[-1]
            model.zero_grad()
            torch.set_num_threads(threads)
            with gpytorch.settings.max_cholesky_size(n + 1):
                value = n * mll(model(inputs), targets)
                value.backward()
            raws = (scale.raw_outputscale, rbf.raw_lengthscale, noise.raw_noise)
            slopes = torch.cat([(raw.grad / torch.sigmoid(raw.detach())).ravel() for raw in raws])
            return value.item(), (slopes * values).numpy()

        return value_and_gradient


class SVGP:
    """GPyTorch's stochastic variational GP, 1024 inducing inputs, float32.

    As in GPyTorch's tutorial on natural gradients: rate 0.1 for the variational distribution, in the triangular
    parametrisation (its documentation calls the other one unstable), Adam at 0.01 for inducing inputs and parameters.
    Minibatches of 1024. Rates fall tenfold for the last quarter of the time, which begins earlier if progress stops.
    Inducing inputs start at random rows, length-scales where ours do. In trials of 18 s on 1e5 robot arm rows this was
    ahead of Adam for everything and of the other parametrisation.
    """

    name = "SVGP-1024"
    inducing, batch, rate, natural_rate = 1024, 1024, 0.01, 0.1

    @staticmethod
    def available() -> bool:
        return available("SVGP", "torch", "gpytorch")

    def run(
        self, X: Array, y: Array, Z: Array, cap: float, watch: Callable[[float, Array, Array], bool] | None = None
    ) -> Said:
        """Train for `cap` seconds. watch(seconds, mean, std) sees the held-out predictions now and then.

        The seconds spent on watching are not counted. When watch returns True, NLPD has stopped falling: the rates
        are lowered then and there, and a quarter of the time remains.
        """
        torch, gpytorch = _torch()
        torch.manual_seed(0)
        start = time.perf_counter()
        model, likelihood = self._model(X, torch, gpytorch)
        inputs, targets, queries = (torch.from_numpy(a.astype(np.float32)) for a in (X, y, Z))
        mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
        optimisers = (
            gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=self.natural_rate),
            torch.optim.Adam([*model.hyperparameters(), *likelihood.parameters()], lr=self.rate),
        )
        watching, looked = 0.0, 0.0
        slowed, ended, deadline = False, False, cap
        while not ended:
            for rows in torch.randperm(len(y)).split(self.batch):
                model.train()
                for optimiser in optimisers:
                    optimiser.zero_grad()
                loss = -mll(model(inputs[rows]), targets[rows])
                loss.backward()
                for optimiser in optimisers:
                    optimiser.step()
                spent = time.perf_counter() - start - watching
                flat = spent > 0.75 * cap
                if watch is not None and spent - looked > cap / 60:
                    looked = spent
                    flat |= watch(spent, *self._say(model, likelihood, queries, torch))
                    watching = time.perf_counter() - start - spent
                if flat and not slowed:
                    slowed, deadline = True, min(cap, spent + cap / 4)
                    for optimiser in optimisers:
                        optimiser.param_groups[0]["lr"] /= 10
                ended = spent > deadline
                if ended:
                    break
        fitted = time.perf_counter() - start - watching
        start = time.perf_counter()
        mean, std = self._say(model, likelihood, queries, torch)
        predicted = time.perf_counter() - start
        if watch is not None:
            watch(fitted, mean, std)
        return Said(mean, std, fitted, predicted)

    def _model(self, X: Array, torch: ModuleType, gpytorch: ModuleType) -> tuple[Any, Any]:
        count, d = min(self.inducing, len(X)), X.shape[1]
        chosen = X[np.random.default_rng(0).permutation(len(X))[:count]].astype(np.float32)

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self) -> None:
                q = gpytorch.variational.TrilNaturalVariationalDistribution(count)
                Z = torch.from_numpy(chosen)
                super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True))
                self.mean_module = gpytorch.means.ConstantMean()
                rbf = gpytorch.kernels.RBFKernel(ard_num_dims=d)
                rbf.lengthscale = d**0.5
                self.covar_module = gpytorch.kernels.ScaleKernel(rbf)
                self.covar_module.outputscale = 1.0

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = 0.1
        return Model(), likelihood

    @staticmethod
    def _say(model: Any, likelihood: Any, queries: Any, torch: ModuleType) -> tuple[Array, Array]:
        model.eval()
        means, variances = [], []
        with torch.no_grad():
            for block in queries.split(2048):
                said = model(block)
                means.append(said.mean)
                variances.append(said.variance + likelihood.noise)
        return torch.cat(means).double().numpy(), torch.cat(variances).double().sqrt().numpy()


class GPBoost:
    """GPBoost's Vecchia approximation: 20 neighbours, random ordering, squared exponential with one range a column.

    All are its defaults for large data except the kernel, which is ours: on 2,000 robot arm rows it was faster and
    more accurate than Matern 5/2. Neighbours are chosen by correlation, again during the fit, its default with ARD.
    """

    name = "GPBoost Vecchia"

    @staticmethod
    def available() -> bool:
        return available("GPBoost", "gpboost")

    @staticmethod
    def run(X: Array, y: Array, Z: Array) -> Said:
        gpboost = import_module("gpboost")
        start = time.perf_counter()
        model = gpboost.GPModel(
            gp_coords=X, cov_function="gaussian_ard", likelihood="gaussian", gp_approx="vecchia",
            num_neighbors=20, vecchia_ordering="random", seed=0,
        )  # fmt: skip
        model.fit(y=y)
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        said = model.predict(gp_coords_pred=Z, predict_var=True, predict_response=True)
        return Said(said["mu"], np.sqrt(said["var"]), fitted, time.perf_counter() - start)


class NearestNeighbours:
    """A nearest-neighbour GP in 30 lines: each query gets an exact GP on its 64 nearest training rows.

    theta comes from one exact GP on 2,000 random rows; neighbours are found by a KD-tree in its metric.
    """

    name = "nearest neighbours"
    neighbours, sample, block = 64, 2000, 2048

    @staticmethod
    def available() -> bool:
        return True

    def run(self, X: Array, y: Array, Z: Array) -> Said:
        start = time.perf_counter()
        d = X.shape[1]
        some = np.random.default_rng(0).permutation(len(X))[: self.sample]
        one = HGPRegressor(SquaredExponential(1.0, [d**0.5] * d), leaf_size=self.sample, standardize=False)
        theta = one.fit(X[some], y[some]).theta_
        scale = np.exp(-theta[1:-1])
        tree = cKDTree(X * scale)
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        parts = [self._say(tree, y, Z[a : a + self.block] * scale, theta) for a in range(0, len(Z), self.block)]
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Said(mean, np.sqrt(variance), fitted, time.perf_counter() - start)

    def _say(self, tree: cKDTree, y: Array, Z: Array, theta: Array) -> tuple[Array, Array]:
        variance, noise = np.exp(theta[0]), np.exp(theta[-1])
        rows = tree.query(Z, k=min(self.neighbours, tree.n), workers=-1)[1]
        near = tree.data[rows]
        squares = np.einsum("qmd,qmd->qm", near, near)
        apart = squares[:, :, None] + squares[:, None, :] - 2 * near @ near.transpose(0, 2, 1)
        K = variance * np.exp(-np.maximum(apart, 0) / 2) + noise * np.eye(rows.shape[1])
        k = variance * np.exp(-((near - Z[:, None, :]) ** 2).sum(axis=2) / 2)
        weights = np.linalg.solve(K, k[:, :, None])[:, :, 0]
        mean = np.einsum("qm,qm->q", weights, y[rows])
        return mean, np.maximum(variance - np.einsum("qm,qm->q", weights, k), 0) + noise


class FITC:
    """A sparse GP with as many inducing inputs as a tenth of the rows (Snelson & Ghahramani 2006), in torch.

    y ~ N(0, Q + diag(K - Q) + noise I), Q = K_fu K_uu^-1 K_uf; the inducing inputs are a random tenth of the rows.
    """

    name = "FITC, 10% inducing"

    @staticmethod
    def available() -> bool:
        return available("FITC", "torch")

    @staticmethod
    def lml(X: Array, y: Array, share: float = 0.1) -> LML:
        torch = import_module("torch")
        torch.set_num_threads(CORES)
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


def _torch() -> tuple[ModuleType, ModuleType]:
    torch, gpytorch = import_module("torch"), import_module("gpytorch")
    torch.set_num_threads(CORES)
    return torch, gpytorch

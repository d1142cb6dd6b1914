"""The peers, one small adapter each, with the settings their own documentation or papers advise.

All take standardised inputs and targets. theta is (log variance, log length-scales, log noise variance) of a squared
exponential with one length-scale a column, as in GigaGP. Peers may use every core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from types import ModuleType
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import fitc
import svgp
from gigagp.arrays import Array
from gigagp.model.distribution import PredictiveDistribution
from svgp import Watch

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
LML = Callable[[Array], tuple[float, Array]]  # theta -> log marginal likelihood and its gradient


@dataclass(frozen=True)
class Said:
    """What a model says at the held-out inputs, and the seconds it took to learn and to say it."""

    mean: Array
    std: Array  # of y
    fit_seconds: float
    predict_seconds: float
    quantiles: Array | None = None  # one row a query; without them those of N(mean, std^2)
    capped: bool = False  # whether time ran out, in training or in answering
    evaluation_seconds: float | None = None  # of one evidence with its gradient, where that was measured
    choosing: float | None = None  # the part of our fit that went into choosing what was left open
    distribution: PredictiveDistribution | None = None  # None for N(mean, std^2)


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


class SVGP(svgp.SVGP):
    """GPyTorch's stochastic variational GP, 1024 inducing inputs (see svgp.py).

    With the squared exponential length-scales start where ours do; with Matern 5/2 from the exact evidence of 1,000
    random rows, within a quarter of the time.
    """

    name = "SVGP-1024"

    def __init__(self, smooth: bool = True) -> None:
        super().__init__(smooth=smooth)

    @staticmethod
    def available() -> bool:
        return available("SVGP", "torch", "gpytorch")

    def run(self, X: Array, y: Array, Z: Array, cap: float, watch: Watch | None = None) -> Said:
        """Train for `cap` seconds and predict; see `learn`."""
        _torch()
        start = time.perf_counter()
        theta = None if self._smooth else import_module("exact_torch").rough_theta(X, y, start + cap / 4).theta
        begun = time.perf_counter() - start
        said = self.learn(X, y, Z, cap - begun, theta, watch)
        return Said(said.mean, said.std, begun + said.fit_seconds, said.predict_seconds, capped=said.capped)


class SGPR:
    """GPyTorch's sparse GP (Titsias 2009), 512 inducing inputs that are learnt, Matern 5/2, float64.

    As in GPyTorch's tutorial, Adam on the collapsed bound of all rows; the rate is 0.05. theta starts from the exact
    evidence of 1,000 random rows, inducing inputs at random rows. An evaluation holds several n x 512 matrices.
    """

    name = "SGPR-512"
    inducing, rate, most_rows = 512, 0.05, 100_000
    patience, gain = 20, 1e-3  # it has converged when so many steps gain less, per row

    @staticmethod
    def available() -> bool:
        return available("SGPR", "torch", "gpytorch")

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Said:
        torch, gpytorch = _torch()
        torch.manual_seed(0)
        start = time.perf_counter()
        model, likelihood = self._model(X, y, torch, gpytorch, start + cap / 4)
        inputs, targets, queries = (torch.from_numpy(a) for a in (X, y, Z))
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.rate)
        losses: list[float] = []
        model.train()
        with gpytorch.settings.max_cholesky_size(self.inducing + 1):
            while time.perf_counter() - start < cap and not self._flat(losses):
                optimiser.zero_grad()
                loss = -mll(model(inputs), targets)
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
            fitted = time.perf_counter() - start
            start = time.perf_counter()
            model.eval()
            with torch.no_grad(), gpytorch.settings.fast_pred_var():
                said = [likelihood(model(block)) for block in queries.split(1024)]
                mean, variance = torch.cat([s.mean for s in said]), torch.cat([s.variance for s in said])
        predicted = time.perf_counter() - start
        return Said(mean.numpy(), variance.sqrt().numpy(), fitted, predicted, capped=not self._flat(losses))

    def _flat(self, losses: list[float]) -> bool:
        before, lately = losses[: -self.patience], losses[-self.patience :]
        return bool(before) and min(before) - min(lately) < self.gain

    def _model(self, X: Array, y: Array, torch: ModuleType, gpytorch: ModuleType, deadline: float) -> tuple[Any, Any]:
        exact = import_module("exact_torch")
        chosen = np.random.default_rng(0).permutation(len(X))[: self.inducing]
        theta = exact.rough_theta(X, y, deadline).theta
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        matern = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=X.shape[1])
        base = gpytorch.kernels.ScaleKernel(matern).double()
        matern.lengthscale = torch.from_numpy(np.exp(theta[1:-1]))
        base.outputscale, likelihood.noise = float(np.exp(theta[0])), max(float(np.exp(theta[-1])), 2e-4)

        class Model(gpytorch.models.ExactGP):
            def __init__(self) -> None:
                super().__init__(torch.from_numpy(X), torch.from_numpy(y), likelihood)
                self.mean_module = gpytorch.means.ConstantMean()
                Z = torch.from_numpy(X[chosen])
                self.covar_module = gpytorch.kernels.InducingPointKernel(base, Z, likelihood)

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        return Model().double(), likelihood


class GPBoost:
    """GPBoost's Vecchia approximation: 20 neighbours, random ordering, one range a column.

    All are its defaults for large data; neighbours are chosen by correlation, again during the fit, its default with
    ARD. smooth: squared exponential, which on 2,000 robot arm rows was faster and more accurate than Matern 5/2.

    A fit cannot be interrupted, and one of all rows takes minutes. So that a cap can be kept, parameters are learnt
    from 1,000 random rows first, then from up to four times as many and on, each time starting where the last one
    ended, as the cap allows. Predictions use all rows, or 50,000 of them: its search is quadratic.
    """

    name = "GPBoost Vecchia"
    first_rows, most_rows, steps, growth = 1000, 50_000, 20, 4
    exponent = 1.35  # of a step's time in the rows, measured from 2,000 to 36,000

    def __init__(self, smooth: bool = True) -> None:
        kernel = {"cov_function": "gaussian_ard"} if smooth else {"cov_function": "matern_ard", "cov_fct_shape": 2.5}
        self._settings = kernel | {
            "likelihood": "gaussian", "gp_approx": "vecchia", "num_neighbors": 20, "vecchia_ordering": "random",
            "seed": 0,
        }  # fmt: skip

    @staticmethod
    def available() -> bool:
        return available("GPBoost", "gpboost")

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Said:
        gpboost = import_module("gpboost")
        start = time.perf_counter()
        order = np.random.default_rng(0).permutation(len(X))[: self.most_rows]
        X, y = X[order], y[order]
        theta = np.concatenate([[0.1, 1.0], np.full(X.shape[1], X.shape[1] ** 0.5)])
        rows, steps, capped = min(self.first_rows, len(X)), self.steps // 2, True
        while capped:
            begun = time.perf_counter()
            model = gpboost.GPModel(gp_coords=X[:rows], **self._settings)
            model.fit(y=y[:rows], params={"maxit": steps, "init_cov_pars": theta})
            theta = model.get_cov_pars(format_pandas=False).ravel()
            ended = time.perf_counter()
            taken = model._get_num_optim_iter()
            capped = rows < len(X) or taken >= steps
            left, step = start + cap - ended, (ended - begun) / max(taken, 1)
            fits = rows * (left / (self.steps * step)) ** (1 / self.exponent) if left > 0 else 0
            more = int(min(self.growth * rows, len(X), max(fits, rows)))
            steps = 1000 if more == len(X) else self.steps
            steps = int(min(steps, max(left, 0) / (step * (more / rows) ** self.exponent)))
            if steps < self.steps // 2:
                break
            rows = more
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        model = gpboost.GPModel(gp_coords=X, **self._settings)
        said = model.predict(y=y, gp_coords_pred=Z, cov_pars=theta, predict_var=True, predict_response=True)
        return Said(said["mu"], np.sqrt(said["var"]), fitted, time.perf_counter() - start, capped=capped)


class NearestNeighbours:
    """A nearest-neighbour GP: each query gets an exact GP on its nearest training rows, by Cholesky, in batches.

    Family and theta maximise the exact evidence of neighbourhoods (`exact_torch.local_theta`); neighbours are found by
    a KD-tree in the metric of theta. Half of the cap is for theta, half for the answers, which are given in turn.
    """

    name = "nearest neighbours"
    entries = 2**21  # of the covariance matrices of a block of queries

    def __init__(self, counts: Sequence[int] = (64,)) -> None:
        self._counts = counts

    @staticmethod
    def available() -> bool:
        return available("nearest neighbours", "torch")

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Said:
        return next(self.each(X, y, Z, cap))

    def each(self, X: Array, y: Array, Z: Array, cap: float) -> Iterator[Said]:
        """What is said with each count of neighbours, with one theta."""
        torch, exact = import_module("torch"), import_module("exact_torch")
        torch.set_num_threads(CORES)
        start = time.perf_counter()
        learnt = exact.local_theta(X, y, start + cap / 2)
        scale = np.exp(-learnt.theta[1:-1])
        tree = cKDTree(X * scale)
        fitted = time.perf_counter() - start
        for count in self._counts:

            def say(block: Array, count: int = count) -> tuple[Array, Array]:
                torch.set_num_threads(1)
                scaled = block * scale
                rows = exact.nearest(tree, scaled, count)
                return exact.posteriors(learnt, tree.data[rows], y[rows], scaled)

            start = time.perf_counter()
            mean, std = answered(say, Z, max(1, self.entries // count**2), start + cap / 2, threads=CORES)
            capped = learnt.capped or len(mean) < len(Z)
            yield Said(mean, std, fitted, time.perf_counter() - start, capped=capped)


class ExactSubset:
    """One exact GP on at most 10,000 rows, a random subset where there are more.

    theta starts where the neighbourhoods' evidence put it (as for nearest neighbours) and is refined by the exact
    evidence of all its rows until the cap. Queries are answered in turn for as long again.
    """

    name = "exact GP"
    most_rows = 10_000

    @staticmethod
    def available() -> bool:
        return available("exact GP", "torch")

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Said:
        torch, exact = import_module("torch"), import_module("exact_torch")
        torch.set_num_threads(CORES)
        start = time.perf_counter()
        rows = np.random.default_rng(0).permutation(len(X))[: self.most_rows]
        learnt = exact.local_theta(X, y, start + cap / 2)
        X, y = X[rows], y[rows]
        batch = torch.from_numpy(X[None]), torch.from_numpy(y[None])
        begun = time.perf_counter()
        exact.evidence(learnt.family, learnt.theta, *batch)
        evaluation = time.perf_counter() - begun
        learnt = exact.learn(learnt.family, learnt.theta, *batch, start + cap - evaluation)
        model = exact.One(learnt, X, y)
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        mean, std = answered(model.say, Z, 1000, start + cap, threads=1)
        predicted = time.perf_counter() - start
        capped = learnt.capped or len(mean) < len(Z)
        return Said(mean, std, fitted, predicted, capped=capped, evaluation_seconds=evaluation)


class BoostedTrees:
    """scikit-learn's histogram gradient boosting: one model for the mean, one for each quantile of `levels`.

    Defaults, but up to 800 trees with early stopping on a tenth of the rows. Each model has an equal share of the cap.
    The deviation is that of a Gaussian with the same outermost interval.
    """

    name = "boosted trees"
    first_trees, most_trees = 50, 800
    jitter = 1e-3  # on the targets of quantile models: with ties at the start's value they find no first split

    def __init__(self, levels: Sequence[float]) -> None:
        self._levels = levels

    @staticmethod
    def available() -> bool:
        return True

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Said:
        start = time.perf_counter()
        share = cap / (1 + len(self._levels))
        mean_model, capped = self._grown(X, y, share)
        models = [mean_model]
        untied = y + self.jitter * np.random.default_rng(0).standard_normal(len(y))
        for level in self._levels:
            model, cut = self._grown(X, untied, share, loss="quantile", quantile=level)
            models.append(model)
            capped |= cut
        fitted = time.perf_counter() - start
        start = time.perf_counter()
        mean, *values = (model.predict(Z) for model in models)
        quantiles = np.sort(np.stack(values, axis=1), axis=1)  # separate models may cross
        width = ndtri(self._levels[-1]) - ndtri(self._levels[0])
        std = np.maximum((quantiles[:, -1] - quantiles[:, 0]) / width, 1e-3)
        return Said(mean, std, fitted, time.perf_counter() - start, quantiles=quantiles, capped=capped)

    def _grown(self, X: Array, y: Array, seconds: float, **loss: Any) -> tuple[Any, bool]:
        """A model whose trees are doubled until early stopping, and whether time ran out before."""
        start = time.perf_counter()
        model = HistGradientBoostingRegressor(**loss, warm_start=True, early_stopping=True, random_state=0)
        trees = self.first_trees
        while True:
            model.set_params(max_iter=trees).fit(X, y)
            if model.n_iter_ < trees or trees >= self.most_trees:
                return model, False
            if 2 * (time.perf_counter() - start) > seconds:  # as many again take as long again
                return model, True
            trees *= 2


def answered(
    say: Callable[[Array], tuple[Array, Array]], Z: Array, block: int, deadline: float, threads: int
) -> tuple[Array, Array]:
    """Means and deviations of the first queries: all, or those of the blocks begun before the deadline."""

    def in_time(first: int) -> tuple[Array, Array] | None:
        return say(Z[first : first + block]) if first == 0 or time.perf_counter() < deadline else None

    with ThreadPoolExecutor(threads) as pool:
        parts = list(takewhile(lambda part: part is not None, pool.map(in_time, range(0, len(Z), block))))
    mean, std = (np.concatenate(part) for part in zip(*parts, strict=True))
    return mean, std


class FITC:
    """A sparse GP with as many inducing inputs as a tenth of the rows (see fitc.py)."""

    name = "FITC, 10% inducing"

    @staticmethod
    def available() -> bool:
        return available("FITC", "torch")

    @staticmethod
    def lml(X: Array, y: Array) -> LML:
        return fitc.evidence(X, y, threads=CORES)


def _torch() -> tuple[ModuleType, ModuleType]:
    torch, gpytorch = import_module("torch"), import_module("gpytorch")
    torch.set_num_threads(CORES)
    return torch, gpytorch

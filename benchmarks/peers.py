"""The Gaussian-process peers, one small adapter each, with the settings their own documentation or papers advise.

All take standardised inputs and targets. theta is (log variance, log length-scales, log noise variance) of a kernel
with one length-scale per column, as in GigaGP. Peers may use every core that the process may use. A cap is in seconds
by the clock that the peer is given.

Each `run` also predicts some held-out training rows where it is given their numbers, so that its distribution can be
recalibrated. Prediction of a held-out row never uses its own target; parameters that are shared by all rows (theta) are
learnt with it, as ours are. SVGP, whose inducing values are learnt from all rows, is trained without them.
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
from typing import Any, Protocol

import numpy as np
from scipy.spatial import cKDTree
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import fitc
import svgp
from deadline import WALL, Clock, Deadline
from gigagp.arrays import Array
from svgp import Watch

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
NO_ROWS = np.empty(0, int)
LML = Callable[[Array], tuple[float, Array]]  # theta -> log marginal likelihood and its gradient


class Distribution(Protocol):
    """Distributions of y at some inputs."""

    def log_pdf(self, y: Array) -> Array: ...
    def crps(self, y: Array) -> Array: ...
    def interval(self, level: float) -> tuple[Array, Array]: ...


@dataclass(frozen=True)
class Answer:
    """Mean and standard deviation of y at some inputs.

    The misfit is how large the errors of rows near each input are, in predicted deviations, where the method has it.
    """

    mean: Array
    std: Array
    misfit: Array | None = None


@dataclass(frozen=True)
class Prediction:
    """What a method predicts at the test inputs, and what its recalibration needs."""

    answer: Answer
    fit_seconds: float
    predict_seconds: float
    distribution: Distribution | None = None  # None for N(mean, std^2)
    held_out: Answer | None = None  # predictions of held-out training rows
    noise: float | None = None  # variance of the noise; None for a method that does not separate it
    prior: float | None = None  # variance of f far from all data; None for a method that has none
    capped: bool = False  # whether time ran out, in training or in prediction
    choosing: float | None = None  # share of our fit that was spent on choosing what was left open


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
    longest = 1800.0  # seconds; it has no end of its own

    def __init__(self, smooth: bool = True, clock: Clock = WALL) -> None:
        super().__init__(smooth=smooth, clock=clock)

    @staticmethod
    def available() -> bool:
        return available("SVGP", "torch", "gpytorch")

    def run(
        self, X: Array, y: Array, Z: Array, cap: float, watch: Watch | None = None, held_out: Array = NO_ROWS
    ) -> Prediction:
        """Train for `cap` seconds without the held-out rows, and predict; see `learn`."""
        _torch()
        start, deadline = time.perf_counter(), Deadline.after(min(cap, self.longest), self.clock)
        inputs, targets = np.delete(X, held_out, axis=0), np.delete(y, held_out)
        rough = (
            None if self._smooth else import_module("exact_torch").rough_theta(inputs, targets, deadline.sooner(0.25))
        )
        rough_seconds = time.perf_counter() - start
        theta = None if rough is None else rough.theta
        result = self.learn(inputs, targets, np.concatenate([Z, X[held_out]]), deadline.left, theta, watch)
        n = len(Z)
        answer = Answer(result.mean[:n], result.std[:n])
        second = Answer(result.mean[n:], result.std[n:]) if len(held_out) else None
        return Prediction(
            answer, rough_seconds + result.fit_seconds, result.predict_seconds, held_out=second, noise=result.noise,
            prior=result.prior, capped=result.capped,
        )  # fmt: skip


class GPBoost:
    """GPBoost's Vecchia approximation: 20 neighbours, random ordering, one range per column.

    All are its defaults for large data; neighbours are chosen by correlation, again during the fit, its default with
    ARD. smooth: squared exponential, which on 2,000 robot arm rows was faster and more accurate than Matern 5/2.

    A fit cannot be interrupted, and one of all rows takes minutes. So that a cap can be kept, parameters are learnt
    from 1,000 random rows first, then from up to four times as many and on, each time starting where the last one
    ended, as the cap allows. Predictions use all rows, or 50,000 of them: its search is quadratic.
    """

    name = "GPBoost Vecchia"
    first_rows = 1000
    most_rows = 50_000
    steps = 20  # of the optimiser on each subset
    growth = 4  # of subsets, at most
    exponent = 1.35  # of a step's time in the rows, measured from 2,000 to 36,000

    def __init__(self, smooth: bool = True, clock: Clock = WALL) -> None:
        self._clock = clock
        kernel = {"cov_function": "gaussian_ard"} if smooth else {"cov_function": "matern_ard", "cov_fct_shape": 2.5}
        self._settings = kernel | {
            "likelihood": "gaussian", "gp_approx": "vecchia", "num_neighbors": 20, "vecchia_ordering": "random",
            "seed": 0,
        }  # fmt: skip

    @staticmethod
    def available() -> bool:
        return available("GPBoost", "gpboost")

    def run(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array = NO_ROWS) -> Prediction:
        start = time.perf_counter()
        order = np.random.default_rng(0).permutation(len(X))[: self.most_rows]
        theta, capped = self._learn(X[order], y[order], cap)
        fit_seconds = time.perf_counter() - start
        start = time.perf_counter()
        answer = self._answer(X[order], y[order], Z, theta)
        predict_seconds = time.perf_counter() - start
        others = order[~np.isin(order, held_out)]
        second = self._answer(X[others], y[others], X[held_out], theta) if len(held_out) else None
        noise, prior = float(theta[0]), float(theta[1])
        return Prediction(
            answer, fit_seconds, predict_seconds, held_out=second, noise=noise, prior=prior, capped=capped
        )

    def _answer(self, X: Array, y: Array, Z: Array, theta: Array) -> Answer:
        model = import_module("gpboost").GPModel(gp_coords=X, **self._settings)
        result = model.predict(y=y, gp_coords_pred=Z, cov_pars=theta, predict_var=True, predict_response=True)
        return Answer(result["mu"], np.sqrt(result["var"]))

    def _learn(self, X: Array, y: Array, cap: float) -> tuple[Array, bool]:
        """Variances of noise and function and the ranges, and whether time ran out."""
        gpboost = import_module("gpboost")
        deadline = Deadline.after(cap, self._clock)
        theta = np.concatenate([[0.1, 1.0], np.full(X.shape[1], X.shape[1] ** 0.5)])
        rows, steps, capped = min(self.first_rows, len(X)), self.steps // 2, True
        while capped:
            start = self._clock()
            model = gpboost.GPModel(gp_coords=X[:rows], **self._settings)
            model.fit(y=y[:rows], params={"maxit": steps, "init_cov_pars": theta})
            theta = model.get_cov_pars(format_pandas=False).ravel()
            seconds = self._clock() - start
            iterations = model._get_num_optim_iter()
            capped = rows < len(X) or iterations >= steps
            left, step = deadline.left, seconds / max(iterations, 1)
            affordable = rows * (left / (self.steps * step)) ** (1 / self.exponent) if left > 0 else 0
            next_rows = int(min(self.growth * rows, len(X), max(affordable, rows)))
            steps = 1000 if next_rows == len(X) else self.steps
            steps = int(min(steps, max(left, 0) / (step * (next_rows / rows) ** self.exponent)))
            if steps < self.steps // 2:
                break
            rows = next_rows
        return theta, capped


class NearestNeighbours:
    """A nearest-neighbour GP: each query gets an exact GP on its nearest training rows, by Cholesky, in batches.

    Family and theta maximise the exact evidence of neighbourhoods (`exact_torch.local_theta`); neighbours are found by
    a KD-tree in the metric of theta. Half of the cap is for theta, half for the predictions with each count.
    """

    name = "nearest neighbours"
    entries = 2**21  # of the covariance matrices of a block of queries

    def __init__(self, counts: Sequence[int] = (64,), clock: Clock = WALL) -> None:
        self._counts, self._clock = counts, clock

    @staticmethod
    def available() -> bool:
        return available("nearest neighbours", "torch")

    def run(self, X: Array, y: Array, Z: Array, cap: float) -> Prediction:
        return next(self.each(X, y, Z, cap))

    def each(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array = NO_ROWS) -> Iterator[Prediction]:
        """The predictions with each count of neighbours, with one theta."""
        torch, exact = import_module("torch"), import_module("exact_torch")
        torch.set_num_threads(CORES)
        start = time.perf_counter()
        learnt = exact.local_theta(X, y, Deadline.after(cap / 2, self._clock))
        scale = np.exp(-learnt.theta[1:-1])
        tree = cKDTree(X * scale)
        fit_seconds = time.perf_counter() - start
        noise, prior = float(np.exp(learnt.theta[-1])), float(np.exp(learnt.theta[0]))
        for count in self._counts:
            block = max(1, self.entries // count**2)

            def at_queries(place: slice, count: int = count) -> tuple[Array, ...]:
                torch.set_num_threads(1)
                scaled = Z[place] * scale
                rows = exact.nearest(tree, scaled, count)
                return exact.posteriors(learnt, tree.data[rows], y[rows], scaled)

            def at_held_out(place: slice, count: int = count) -> tuple[Array, ...]:
                torch.set_num_threads(1)
                these = held_out[place]
                rows = exact.nearest(tree, tree.data[these], count + 1)
                rows = np.take_along_axis(rows, np.argsort(rows == these[:, None], axis=1, kind="stable"), 1)[:, :-1]
                return exact.posteriors(learnt, tree.data[rows], y[rows], tree.data[these])

            second = Answer(*in_blocks(at_held_out, len(held_out), block)) if len(held_out) else None
            start = time.perf_counter()
            answer = Answer(*in_blocks(at_queries, len(Z), block, Deadline.after(cap / 2, self._clock)))
            yield Prediction(
                answer, fit_seconds, time.perf_counter() - start, held_out=second, noise=noise, prior=prior,
                capped=learnt.capped or len(answer.mean) < len(Z),
            )  # fmt: skip


class ExactGP:
    """One exact GP on all rows, where these are not too many.

    theta starts where the evidence of neighbourhoods put it (as for nearest neighbours) and is refined by the exact
    evidence of 5,000 random rows, or without a cap of all rows. Held-out rows are predicted in closed form.
    """

    name = "exact GP"
    most_rows = 15_000  # memory
    refining_rows = 5_000

    def __init__(self, clock: Clock = WALL) -> None:
        self._clock = clock

    @staticmethod
    def available() -> bool:
        return available("exact GP", "torch")

    def run(self, X: Array, y: Array, Z: Array, cap: float, held_out: Array = NO_ROWS) -> Prediction:
        torch, exact = import_module("torch"), import_module("exact_torch")
        torch.set_num_threads(CORES)
        start, deadline = time.perf_counter(), Deadline.after(cap, self._clock)
        count = self.refining_rows if np.isfinite(cap) else len(X)
        some = np.sort(np.random.default_rng(0).permutation(len(X))[:count])
        learnt = exact.local_theta(X, y, deadline.sooner(0.5))
        batch = torch.from_numpy(X[some][None]), torch.from_numpy(y[some][None])
        learnt = exact.learn(learnt.family, learnt.theta, *batch, deadline)
        model = exact.One(learnt, X, y)
        fit_seconds = time.perf_counter() - start
        start = time.perf_counter()
        answer = Answer(*in_blocks(lambda place: model.predict(Z[place]), len(Z), 1000, threads=1))
        predict_seconds = time.perf_counter() - start
        second = Answer(*model.leave_one_out(held_out)) if len(held_out) else None
        noise, prior = float(np.exp(learnt.theta[-1])), float(np.exp(learnt.theta[0]))
        return Prediction(
            answer, fit_seconds, predict_seconds, held_out=second, noise=noise, prior=prior, capped=learnt.capped
        )


def in_blocks(
    predict: Callable[[slice], tuple[Array, ...]], queries: int, block: int, deadline: Deadline | None = None,
    threads: int = CORES,
) -> tuple[Array, ...]:  # fmt: skip
    """The predictions at the first queries: all, or those of the blocks that began before the deadline."""

    def in_time(first: int) -> tuple[Array, ...] | None:
        late = deadline is not None and first > 0 and deadline.passed
        return None if late else predict(slice(first, min(first + block, queries)))

    with ThreadPoolExecutor(threads) as pool:
        parts = list(takewhile(lambda part: part is not None, pool.map(in_time, range(0, queries, block))))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


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

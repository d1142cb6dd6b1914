"""GPyTorch's stochastic variational GP, which the paper's airline table compares with (Hensman et al. 2013)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from gigagp.arrays import Array

Watch = Callable[[float, Array, Array], bool]  # seconds, means, deviations -> whether to slow down


def missing(*modules: str) -> str | None:
    """The first of the modules that would have to be installed, if there is one."""
    for module in modules:
        try:
            import_module(module)
        except ImportError:
            return module
    return None


@dataclass(frozen=True)
class Answers:
    """Mean and deviation of y at the queries, seconds to learn and to answer, and whether the time ran out.

    noise and prior are the learnt variances of the noise and of the function far from all data.
    """

    mean: Array
    std: Array
    fit_seconds: float
    predict_seconds: float
    capped: bool
    noise: float
    prior: float


def start_theta(columns: int) -> Array:
    """Log variance, length-scales and noise variance of standardised rows from which ours starts as well."""
    return np.concatenate([[0.0], np.full(columns, np.log(columns) / 2), [np.log(0.1)]])


class SVGP:
    """A sparse GP learnt from minibatches, float32, of standardised rows.

    As in GPyTorch's tutorial on natural gradients: rate 0.1 for the variational distribution, in the triangular
    parametrisation (its documentation calls the other one unstable), Adam at 0.01 for inducing inputs and parameters.
    Minibatches of 1024. Rates fall tenfold for the last quarter of the time, which begins earlier if progress stops.
    Inducing inputs start at random rows. smooth: squared exponential, otherwise Matern 5/2. In trials of 18 s on 1e5
    robot arm rows this was ahead of Adam for everything and of the other parametrisation. The cap is in seconds by the
    clock.
    """

    batch, rate, natural_rate = 1024, 0.01, 0.1

    def __init__(
        self, inducing: int = 1024, smooth: bool = True, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.inducing, self._smooth, self.clock = inducing, smooth, clock

    def learn(
        self, X: Array, y: Array, Z: Array, cap: float, theta: Array | None = None, watch: Watch | None = None
    ) -> Answers:
        """Train for `cap` seconds, from theta on. watch(seconds, mean, std) sees held-out predictions now and then.

        The seconds spent on watching are not counted. When watch returns True, NLPD has stopped falling: the rates
        are lowered then and there, and a quarter of the time remains.
        """
        torch, gpytorch = import_module("torch"), import_module("gpytorch")
        torch.manual_seed(0)
        theta = start_theta(X.shape[1]) if theta is None else theta
        with gpytorch.settings.cholesky_max_tries(6):  # float32 needs more jitter than its default three tries add
            return self._learn(X, y, Z, cap, theta, watch, torch, gpytorch)

    def _learn(
        self, X: Array, y: Array, Z: Array, cap: float, theta: Array, watch: Watch | None, torch: ModuleType,
        gpytorch: ModuleType,
    ) -> Answers:  # fmt: skip
        start = self.clock()
        model, likelihood = self._model(X, theta, torch, gpytorch)
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
                spent = self.clock() - start - watching
                flat = spent > 0.75 * cap
                if watch is not None and spent - looked > cap / 60:
                    looked = spent
                    flat |= watch(spent, *self._predict(model, likelihood, queries, torch))
                    watching = self.clock() - start - spent
                if flat and not slowed:
                    slowed, deadline = True, min(cap, spent + cap / 4)
                    for optimiser in optimisers:
                        optimiser.param_groups[0]["lr"] /= 10
                ended = spent > deadline
                if ended:
                    break
        fitted = self.clock() - start - watching
        start = self.clock()
        mean, std = self._predict(model, likelihood, queries, torch)
        predicted = self.clock() - start
        if watch is not None:
            watch(fitted, mean, std)
        noise, prior = likelihood.noise.item(), model.covar_module.outputscale.item()
        return Answers(mean, std, fitted, predicted, deadline >= cap, noise, prior)

    def _model(self, X: Array, theta: Array, torch: ModuleType, gpytorch: ModuleType) -> tuple[Any, Any]:
        count, d = min(self.inducing, len(X)), X.shape[1]
        chosen = X[np.random.default_rng(0).permutation(len(X))[:count]].astype(np.float32)
        kernels = gpytorch.kernels
        kernel = kernels.RBFKernel(ard_num_dims=d) if self._smooth else kernels.MaternKernel(nu=2.5, ard_num_dims=d)

        class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                q = gpytorch.variational.TrilNaturalVariationalDistribution(count)
                Z = torch.from_numpy(chosen)
                super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True))
                self.mean_module = gpytorch.means.ConstantMean()
                kernel.lengthscale = torch.from_numpy(np.exp(theta[1:-1]))
                self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
                self.covar_module.outputscale = float(np.exp(theta[0]))

            def forward(self, x: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = 0.1  # not theta's: it is overconfident until the variational distribution has caught up
        return Model().float(), likelihood

    @staticmethod
    def _predict(model: Any, likelihood: Any, queries: Any, torch: ModuleType) -> tuple[Array, Array]:
        model.eval()
        means, variances = [], []
        with torch.no_grad():
            for block in queries.split(2048):
                prediction = model(block)
                means.append(prediction.mean)
                variances.append(prediction.variance + likelihood.noise)
        return torch.cat(means).double().numpy(), torch.cat(variances).double().sqrt().numpy()

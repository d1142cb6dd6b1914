"""Peers of HGPClassifier that are not scikit-learn estimators: GPBoost and a variational GP of GPyTorch.

Both have `fit` and `predict_proba`, standardise their inputs, and have the settings that their documentation advises.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any, Self

import numpy as np
from scipy.special import ndtr
from sklearn.preprocessing import StandardScaler

from gigagp.arrays import Array


class GPBoostClassifier:
    """A GP with a Matérn 3/2 kernel, one length-scale per column, by Vecchia's and Laplace's approximations.

    Two classes only. The mean is a constant, which GPBoost learns as the coefficient of a column of ones.
    """

    def __init__(self, neighbours: int = 20) -> None:
        self.neighbours = neighbours

    def fit(self, X: Array, y: Array) -> Self:
        gpboost = import_module("gpboost")
        self._scaling = StandardScaler().fit(X)
        self._columns = np.ptp(X, axis=0) > 0  # a column without variation has no length-scale
        self._model = gpboost.GPModel(
            gp_coords=self._inputs(X), likelihood="bernoulli_logit", cov_function="matern_ard", cov_fct_shape=1.5,
            gp_approx="vecchia", num_neighbors=self.neighbours, seed=0,
        )  # fmt: skip
        self._model.fit(y=y.astype(float), X=np.ones((len(y), 1)))
        return self

    def _inputs(self, X: Array) -> Array:
        return np.ascontiguousarray(self._scaling.transform(X)[:, self._columns])

    def predict_proba(self, X: Array) -> Array:
        predicted = self._model.predict(
            gp_coords_pred=self._inputs(X), X_pred=np.ones((len(X), 1)), predict_response=True
        )
        second = np.clip(predicted["mu"], 1e-12, 1 - 1e-12)
        return np.column_stack([1 - second, second])


class SVGPClassifier:
    """GPyTorch's stochastic variational GP (Hensman et al. 2015): probit likelihood, Matérn 3/2, minibatches of 1024.

    Natural gradients for the variational distribution and Adam for inducing inputs and kernel, as in `svgp`. More than
    two classes have one latent function each and a softmax likelihood. `cap` is in seconds.
    """

    batch, rate, natural_rate, samples = 1024, 0.01, 0.1, 64

    def __init__(self, inducing: int = 512, cap: float = 60.0) -> None:
        self.inducing, self.cap = inducing, cap

    def fit(self, X: Array, y: Array) -> Self:
        torch, gpytorch = import_module("torch"), import_module("gpytorch")
        torch.manual_seed(0)
        self._scaling = StandardScaler().fit(X)
        inputs = torch.from_numpy(self._scaling.transform(X).astype(np.float32))
        number = int(y.max()) + 1
        self._latents = 1 if number == 2 else number
        targets = torch.from_numpy(y.astype(np.float32 if number == 2 else np.int64))
        model = _latent_model(inputs, self.inducing, self._latents, torch, gpytorch)
        if number == 2:
            likelihood = gpytorch.likelihoods.BernoulliLikelihood()
        else:
            likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=number, mixing_weights=False)
        mll = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
        optimisers = (
            gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=self.natural_rate),
            torch.optim.Adam(model.hyperparameters(), lr=self.rate),
        )
        start, slowed = time.perf_counter(), False
        model.train()
        with gpytorch.settings.cholesky_max_tries(6):
            while time.perf_counter() - start < self.cap:
                for rows in torch.randperm(len(y)).split(self.batch):
                    for optimiser in optimisers:
                        optimiser.zero_grad()
                    loss = -mll(model(inputs[rows]), targets[rows])
                    loss.backward()
                    for optimiser in optimisers:
                        optimiser.step()
                    spent = time.perf_counter() - start
                    if spent > 0.75 * self.cap and not slowed:
                        slowed = True
                        for optimiser in optimisers:
                            optimiser.param_groups[0]["lr"] /= 10
                    if spent > self.cap:
                        break
        self._model, self._likelihood, self._torch = model.eval(), likelihood.eval(), torch
        return self

    def predict_proba(self, X: Array) -> Array:
        torch = self._torch
        queries = torch.from_numpy(self._scaling.transform(X).astype(np.float32))
        parts = []
        with torch.no_grad():
            for block in queries.split(2048):
                f = self._model(block)
                if self._latents == 1:
                    second = ndtr((f.mean / (1 + f.variance).sqrt()).double().numpy())
                    parts.append(np.column_stack([1 - second, second]))
                else:
                    draws = f.rsample(torch.Size([self.samples]))
                    parts.append(draws.softmax(-1).mean(0).double().numpy())
        p = np.clip(np.concatenate(parts), 1e-7, 1 - 1e-7)
        return np.asarray(p / p.sum(axis=1, keepdims=True))


def _latent_model(inputs: Any, inducing: int, latents: int, torch: Any, gpytorch: Any) -> Any:
    """A sparse GP with one or several latent functions; inducing inputs start at random rows."""
    count, columns = min(inducing, len(inputs)), inputs.shape[1]
    batch = torch.Size([] if latents == 1 else [latents])
    start = inputs[torch.randperm(len(inputs))[:count]]
    start = start if latents == 1 else start.repeat(latents, 1, 1)

    class Latent(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            q = gpytorch.variational.TrilNaturalVariationalDistribution(count, batch_shape=batch)
            strategy = gpytorch.variational.VariationalStrategy(self, start, q, learn_inducing_locations=True)
            if latents > 1:
                strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
            kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=columns)
            kernel.lengthscale = float(columns) ** 0.5
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Latent().float()

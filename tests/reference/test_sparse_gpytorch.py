"""The bound of a sparse leaf and its gradient against GPyTorch's."""

from importlib import import_module

import numpy as np
import pytest

from gigagp import sparse
from gigagp.kernels import Matern32, SquaredExponential
from gigagp.linalg.workspace import Workspace

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # gpytorch uses what torch deprecates


@pytest.mark.parametrize("kernel", [SquaredExponential(1.3, 0.5), Matern32(0.8, 0.7)], ids=repr)
def test_bound_and_gradient_are_those_of_gpytorch(kernel):
    torch, gpytorch = import_module("torch"), import_module("gpytorch")
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(80)
    kernel = kernel.bind(2)
    theta = np.append(kernel.theta, np.log(0.05))
    ours = sparse.evidence(kernel, theta, X, y, 12, Workspace())

    family = gpytorch.kernels.RBFKernel if isinstance(kernel, SquaredExponential) else gpytorch.kernels.MaternKernel
    smoothness = {} if isinstance(kernel, SquaredExponential) else {"nu": 1.5}
    base = gpytorch.kernels.ScaleKernel(family(ard_num_dims=2, **smoothness))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    u = torch.tensor(X[sparse.inducing_rows(80, 12)])

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(torch.tensor(X), torch.tensor(y), likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(base, u, likelihood)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().double()
    base.outputscale, base.base_kernel.lengthscale = np.exp(theta[0]), torch.tensor(np.exp(theta[1:3]))
    likelihood.noise = np.exp(theta[3])
    model.train()
    likelihood.train()
    with gpytorch.settings.fast_computations(False, False, False), gpytorch.settings.max_cholesky_size(1000):
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        value = mll(model(torch.tensor(X)), torch.tensor(y)) * len(y)
        value.backward()
    assert ours.value == pytest.approx(value.item(), rel=1e-6)
    raw = (base.raw_outputscale, base.base_kernel.raw_lengthscale, likelihood.noise_covar.raw_noise)
    constraints = (
        base.raw_outputscale_constraint, base.base_kernel.raw_lengthscale_constraint,
        likelihood.noise_covar.raw_noise_constraint,
    )  # fmt: skip
    theirs = []
    for parameter, constraint in zip(raw, constraints, strict=True):
        flat = parameter.detach().clone().requires_grad_(True)
        transformed = constraint.transform(flat)
        (slope,) = torch.autograd.grad(transformed.sum(), flat)
        theirs.append((parameter.grad / slope * transformed.detach()).reshape(-1).numpy())
    np.testing.assert_allclose(ours.gradient, np.concatenate(theirs), rtol=1e-5, atol=1e-5)

"""One expert is the exact GP: scikit-learn's GaussianProcessRegressor at the same theta, to eight digits."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from gigagp import expert, kernels
from gigagp.linalg.workspace import Workspace

NOISE = 0.05


def dot_product():
    return sk.DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")


# Ours, scikit-learn's without noise (for D columns), and where our parameters stand among theirs.
PAIRS = {
    "squared exponential": (
        lambda D: kernels.SquaredExponential(1.5, scales(D)),
        lambda D: sk.ConstantKernel(1.5) * sk.RBF(scales(D)),
    ),
    "squared exponential, one length-scale": (
        lambda D: kernels.SquaredExponential(1.5, 0.8, ard=False),
        lambda D: sk.ConstantKernel(1.5) * sk.RBF(0.8),
    ),
    "matern 1/2": (
        lambda D: kernels.Matern12(1.5, scales(D)),
        lambda D: sk.ConstantKernel(1.5) * sk.Matern(scales(D), nu=0.5),
    ),
    "matern 3/2": (
        lambda D: kernels.Matern32(1.5, scales(D)),
        lambda D: sk.ConstantKernel(1.5) * sk.Matern(scales(D), nu=1.5),
    ),
    "matern 5/2": (
        lambda D: kernels.Matern52(1.5, scales(D)),
        lambda D: sk.ConstantKernel(1.5) * sk.Matern(scales(D), nu=2.5),
    ),
    "rational quadratic": (
        lambda D: kernels.RationalQuadratic(1.5, 0.8, 0.6, ard=False),
        lambda D: sk.ConstantKernel(1.5) * sk.RationalQuadratic(0.8, 0.6),
        (0, 2, 1),  # theirs are in alphabetical order
    ),
    "linear": (
        lambda D: kernels.Linear(0.7, ard=False) + kernels.Constant(0.3),
        lambda D: sk.ConstantKernel(0.7) * dot_product() + sk.ConstantKernel(0.3),
    ),
    "sum": (
        lambda D: kernels.SquaredExponential(1.5, scales(D)) + kernels.Matern32(0.4, 0.2, ard=False),
        lambda D: sk.ConstantKernel(1.5) * sk.RBF(scales(D)) + sk.ConstantKernel(0.4) * sk.Matern(0.2, nu=1.5),
    ),
    "product": (
        lambda D: kernels.Linear(0.7, ard=False) * kernels.SquaredExponential(1.2, scales(D)),
        lambda D: sk.ConstantKernel(0.7) * dot_product() * (sk.ConstantKernel(1.2) * sk.RBF(scales(D))),
    ),
}
PERIODIC = (
    lambda D: kernels.Periodic(1.5, 0.9, 1.3),
    lambda D: sk.ConstantKernel(1.5) * sk.ExpSineSquared(0.9, 1.3),
)  # theirs takes the sine of the whole distance, ours of each column: the same with one column
CASES = [(name, p, D) for name in PAIRS for p, D in [(2, 1), (17, 3), (60, 8), (190, 4)]]
CASES += [("periodic", p, 1) for p in (2, 17, 60, 190)]


def scales(D):
    return np.linspace(0.6, 2.0, D)


class Both:
    """The same model, data and queries on either side."""

    def __init__(self, name, p, D):
        ours, theirs, *order = {**PAIRS, "periodic": PERIODIC}[name]
        rng = np.random.default_rng([p, D])
        self.X, self.Z = rng.standard_normal((p, D)), rng.standard_normal((23, D))
        self.Z[0] = self.X[0]
        self.y = np.sin(2 * self.X[:, 0]) + 0.2 * rng.standard_normal(p)
        self.kernel = ours(D).bind(D)
        self.theta = np.append(self.kernel.theta, np.log(NOISE))
        self.order = [*(order[0] if order else range(len(self.theta) - 1)), len(self.theta) - 1]
        model = GaussianProcessRegressor(theirs(D) + sk.WhiteKernel(NOISE), alpha=0, optimizer=None)
        self.sklearn = model.fit(self.X, self.y)
        np.testing.assert_allclose(model.kernel_.theta[self.order], self.theta, rtol=1e-14)

    def factor(self):
        return expert.factor(self.kernel, self.theta, self.X, self.y, Workspace())


@pytest.mark.parametrize(("name", "p", "D"), CASES)
def test_evidence_and_gradient(name, p, D):
    both = Both(name, p, D)
    got = expert.evidence(both.kernel, both.theta, both.X, both.y, Workspace())
    value, gradient = both.sklearn.log_marginal_likelihood(both.sklearn.kernel_.theta, eval_gradient=True)
    assert got.value == pytest.approx(value, rel=1e-8)
    wanted = gradient[both.order]
    np.testing.assert_allclose(got.gradient, wanted, rtol=1e-8, atol=1e-8 * np.abs(wanted).max())
    assert got.jitter == 0


@pytest.mark.parametrize(("name", "p", "D"), CASES)
def test_mean_and_standard_deviation(name, p, D):
    both = Both(name, p, D)
    mean, variance = expert.posterior(both.kernel, both.theta, both.factor(), both.Z, Workspace())
    wanted_mean, wanted_std = both.sklearn.predict(both.Z, return_std=True)
    np.testing.assert_allclose(mean, wanted_mean, rtol=1e-8, atol=1e-8 * np.abs(wanted_mean).max())
    np.testing.assert_allclose(np.sqrt(variance + NOISE), wanted_std, rtol=1e-8)
    latent = wanted_std**2 - NOISE
    np.testing.assert_allclose(variance, latent, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("queries", [1, 511, 512, 513, 1100])
def test_queries_in_any_number_are_answered_in_blocks(queries):
    both = Both("matern 5/2", 60, 8)
    Z = np.random.default_rng(0).standard_normal((queries, 8))
    mean, variance = expert.posterior(both.kernel, both.theta, both.factor(), Z, Workspace())
    wanted_mean, wanted_std = both.sklearn.predict(Z, return_std=True)
    np.testing.assert_allclose(mean, wanted_mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(np.sqrt(variance + NOISE), wanted_std, rtol=1e-8)


def test_single_precision_is_near():
    both = Both("squared exponential", 190, 4)
    X, y, Z = (a.astype(np.float32) for a in (both.X, both.y, both.Z))
    work = Workspace()
    got = expert.evidence(both.kernel, both.theta, X, y, work)
    value, gradient = both.sklearn.log_marginal_likelihood(both.theta, eval_gradient=True)
    assert got.value == pytest.approx(value, rel=1e-4)
    np.testing.assert_allclose(got.gradient, gradient, atol=1e-3 * np.abs(gradient).max())
    mean, variance = expert.posterior(
        both.kernel, both.theta, expert.factor(both.kernel, both.theta, X, y, work), Z, work
    )
    assert mean.dtype == variance.dtype == np.float32
    wanted_mean, wanted_std = both.sklearn.predict(both.Z, return_std=True)
    np.testing.assert_allclose(mean, wanted_mean, atol=1e-3)
    np.testing.assert_allclose(np.sqrt(variance + NOISE), wanted_std, rtol=1e-3)

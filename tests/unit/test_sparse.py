"""Sparse experts: the bound and its gradient against the dense formula and the exact GP, predictions, held-out rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gigagp import expert, sparse
from gigagp.errors import NotPositiveDefinite
from gigagp.kernels import Constant, Linear, Matern12, Matern32, Periodic, RationalQuadratic, SquaredExponential
from gigagp.linalg.workspace import Workspace

KERNELS = [
    SquaredExponential(1.3, 0.9),
    SquaredExponential(1.3, 0.9, ard=False),
    Matern12(0.8, 1.5),
    RationalQuadratic(1.1, 0.7, 0.8),
    Periodic(1.0, 1.2, 3.0),
    (SquaredExponential() + Linear(0.3)) * Constant(0.4) + Matern32(1.0, 0.8),
]
WORK = Workspace()


def leaf(kernel, p=90, columns=2, noise=0.05, seed=0):
    rng = np.random.default_rng([seed, p])
    X = rng.uniform(-2, 2, (p, columns))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(p)
    kernel = kernel.bind(columns)
    return kernel, np.append(kernel.theta, np.log(noise)), X, y


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


def dense_bound(kernel, theta, X, y, inducing):
    """ln N(y | 0, Q + noise I) - tr(K - Q) / (2 noise), with no algebra of ours."""
    u, noise = X[sparse.inducing_rows(len(X), inducing)], np.exp(theta[-1])
    K_uu = symmetric(kernel.gram(theta[:-1], u)[: len(u), : len(u)])
    K_uu += 1e-8 * np.mean(np.diagonal(K_uu)) * np.eye(len(u))
    K_uf = kernel.cross(theta[:-1], u, X)
    Q = K_uf.T @ np.linalg.solve(K_uu, K_uf)
    fit = multivariate_normal.logpdf(y, np.zeros(len(y)), (Q + Q.T) / 2 + noise * np.eye(len(y)))
    return fit - (kernel.diagonal(theta[:-1], X).sum() - np.trace(Q)) / (2 * noise)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("inducing", [1, 17, 40])
def test_bound_is_that_of_the_dense_formula(kernel, inducing):
    kernel, theta, X, y = leaf(kernel)
    value = sparse.evidence(kernel, theta, X, y, inducing, WORK).value
    assert value == pytest.approx(dense_bound(kernel, theta, X, y, inducing), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("inducing", [1, 23, 90])
def test_gradient_is_that_of_the_bound(kernel, inducing):
    kernel, theta, X, y = leaf(kernel)
    gradient = sparse.evidence(kernel, theta, X, y, inducing, WORK).gradient
    step = 1e-5
    for i in range(len(theta)):
        shift = np.zeros_like(theta)
        shift[i] = step
        above, below = (sparse.evidence(kernel, theta + s, X, y, inducing, WORK).value for s in (shift, -shift))
        assert gradient[i] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_bound_grows_with_the_inducing_points_up_to_the_exact_evidence(kernel):
    kernel, theta, X, y = leaf(kernel)
    exact = expert.evidence(kernel, theta, X, y, WORK).value
    bounds = [sparse.evidence(kernel, theta, X, y, m, WORK).value for m in (2, 5, 10, 20, 40, 80, 90)]
    assert all(np.diff(bounds) >= -1e-6)
    assert bounds[-1] <= exact + 1e-6
    assert bounds[-1] == pytest.approx(exact, rel=1e-5)


def test_all_rows_as_inducing_points_predict_as_the_exact_gp():
    kernel, theta, X, y = leaf(SquaredExponential(1.2, 0.6))
    Z = np.random.default_rng(1).uniform(-3, 3, (700, 2))
    mean, variance = expert.posterior(kernel, theta, sparse.factor(kernel, theta, X, y, len(X), WORK), Z, WORK)
    exact = expert.posterior(kernel, theta, expert.factor(kernel, theta, X, y, WORK), Z, WORK)
    np.testing.assert_allclose(mean, exact[0], atol=5e-5)
    np.testing.assert_allclose(variance, exact[1], atol=5e-5)


def test_prediction_is_that_of_the_dense_formula():
    kernel, theta, X, y = leaf(Matern32(1.2, 0.9))
    u, noise = X[sparse.inducing_rows(len(X), 20)], np.exp(theta[-1])
    Z = np.random.default_rng(1).uniform(-3, 3, (50, 2))
    K_uu = symmetric(kernel.gram(theta[:-1], u)) + 1e-8 * 1.2 * np.eye(20)
    K_uf, K_uz = kernel.cross(theta[:-1], u, X), kernel.cross(theta[:-1], u, Z)
    S = K_uu + K_uf @ K_uf.T / noise
    mean, variance = expert.posterior(kernel, theta, sparse.factor(kernel, theta, X, y, 20, WORK), Z, WORK)
    np.testing.assert_allclose(mean, K_uz.T @ np.linalg.solve(S, K_uf @ y) / noise, rtol=1e-6, atol=1e-8)
    removed = np.sum(K_uz * (np.linalg.solve(K_uu, K_uz) - np.linalg.solve(S, K_uz)), axis=0)
    np.testing.assert_allclose(variance, 1.2 - removed, rtol=1e-6)


def test_held_out_rows_are_predicted_without_their_targets():
    kernel, theta, X, y = leaf(SquaredExponential(1.2, 0.6), p=40)
    own = np.array([3, 17, -1])
    Z = np.vstack([X[3], X[17], [0.1, 0.2]])
    mean, variance, _ = sparse.held_out(kernel, theta, X, y, Z, own, 15, WORK)
    others = expert.posterior(kernel, theta, sparse.factor(kernel, theta, X, y, 15, WORK), Z, WORK)
    assert mean[2] == others[0][2]
    assert variance[2] == others[1][2]
    u, noise = X[sparse.inducing_rows(40, 15)], np.exp(theta[-1])
    K_uu = symmetric(kernel.gram(theta[:-1], u)) + 1e-8 * 1.2 * np.eye(15)
    for i, row in enumerate((3, 17)):
        rest = np.delete(np.arange(40), row)
        K_uf, k = kernel.cross(theta[:-1], u, X[rest]), kernel.cross(theta[:-1], u, X[row][None])[:, 0]
        S = K_uu + K_uf @ K_uf.T / noise
        assert mean[i] == pytest.approx(k @ np.linalg.solve(S, K_uf @ y[rest]) / noise, rel=1e-5)
        expected = 1.2 - k @ np.linalg.solve(K_uu, k) + k @ np.linalg.solve(S, k)
        assert variance[i] == pytest.approx(expected, rel=1e-5)


def test_inducing_rows_are_nested_and_spread_over_the_leaf():
    for p in (1, 2, 7, 100, 129):
        order = sparse.inducing_rows(p, p)
        assert sorted(order) == list(range(p))
        np.testing.assert_array_equal(sparse.inducing_rows(p, 5), order[:5])
    assert np.diff(np.sort(sparse.inducing_rows(1000, 30))).max() <= 65


def test_single_precision_predicts_nearly_as_double():
    kernel, theta, X, y = leaf(SquaredExponential(1.2, 0.9), p=60)
    Z = np.random.default_rng(1).uniform(-2, 2, (20, 2))
    double = expert.posterior(kernel, theta, sparse.factor(kernel, theta, X, y, 20, WORK), Z, WORK)
    X, y, Z = (a.astype(np.float32) for a in (X, y, Z))
    single = expert.posterior(kernel, theta, sparse.factor(kernel, theta, X, y, 20, WORK), Z, WORK)
    assert single[0].dtype == np.float32
    np.testing.assert_allclose(single[0], double[0], atol=2e-3)
    np.testing.assert_allclose(single[1], double[1], atol=2e-3)


def test_a_kernel_that_is_not_positive_definite_is_an_error_that_names_the_leaf():
    class Negative(SquaredExponential):
        def gram(self, theta, X, out=None):
            return -super().gram(theta, X, out)

    kernel, theta, X, y = leaf(Negative())
    with pytest.raises(NotPositiveDefinite, match="expert 3"):
        sparse.evidence(kernel, theta, X, y, 10, WORK, 3)

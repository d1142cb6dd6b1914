"""Noise that differs between rows, compared with scikit-learn's GaussianProcessRegressor(alpha=array)."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from gigagp import expert
from gigagp.combine import rule
from gigagp.data.row_lists import IndexLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.fit.training import summed_evidence
from gigagp.kernels import Linear, SquaredExponential
from gigagp.linalg.row_noise import variances
from gigagp.linalg.workspace import Workspace
from gigagp.model import committee_prediction, mixture, neighbourhood
from gigagp.model.boxes import extents
from gigagp.model.committee import Committee
from gigagp.model.held_out import Rows, by_own_expert
from gigagp.model.mixture import Member, Mixture
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.routing import Router
from gigagp.tree import Tree

NOISE = 0.05
THETA = np.log([1.3, 0.8, 1.1, NOISE])
KERNEL = SquaredExponential(1.0, [1.0, 1.0])
COMPOSED = (SquaredExponential(1.3, [0.8, 1.1]) + Linear([1.0, 1.0])).bind(2)
SAME = ConstantKernel(1.3) * RBF([0.8, 1.1]) + DotProduct(1e-9)  # the same kernel in scikit-learn


def table(n=60, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)
    row_noise = np.column_stack([rng.uniform(0.2, 4.0, n), rng.uniform(0.0, 0.3, n)])
    return X.astype(dtype), y.astype(dtype), row_noise.astype(dtype)


def exact_gp(X, y, row_noise, kernel=None):
    kernel = ConstantKernel(1.3) * RBF([0.8, 1.1]) if kernel is None else kernel
    return GaussianProcessRegressor(kernel, alpha=variances(NOISE, row_noise), optimizer=None).fit(X, y)


def test_evidence_of_a_composed_kernel_is_that_of_scikit_learn():
    X, y, row_noise = table()
    theta = np.append(COMPOSED.theta, np.log(NOISE))
    value = exact_gp(X, y, row_noise, SAME).log_marginal_likelihood_value_
    assert expert.evidence(COMPOSED, theta, X, y, Workspace(), row_noise=row_noise).value == pytest.approx(
        value, rel=1e-9
    )


@pytest.mark.parametrize("n", [1, 60, 800])
def test_evidence_and_gradient_are_those_of_scikit_learn(n):
    """Leaves of 800 rows are computed in steps, smaller ones in one compiled call."""
    X, y, row_noise = table(n)
    reference = exact_gp(X, y, row_noise)
    value, gradient = reference.log_marginal_likelihood(reference.kernel_.theta, eval_gradient=True)
    total = expert.evidence(KERNEL, THETA, X, y, Workspace(), row_noise=row_noise)
    assert total.value == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(total.gradient[:-1], gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kernel", [KERNEL, COMPOSED], ids=["compiled", "composed"])
@pytest.mark.parametrize("dof", [np.inf, 30.0], ids=["gaussian", "student"])
def test_gradient_for_the_noise_is_that_of_finite_differences(kernel, dof):
    X, y, row_noise = table()
    theta = np.append(kernel.theta, np.log(NOISE))

    def value(last):
        shifted = np.append(theta[:-1], last)
        return expert.evidence(kernel, shifted, X, y, Workspace(), dof=dof, row_noise=row_noise).value

    slope = (value(theta[-1] + 1e-5) - value(theta[-1] - 1e-5)) / 2e-5
    total = expert.evidence(kernel, theta, X, y, Workspace(), dof=dof, row_noise=row_noise)
    assert total.gradient[-1] == pytest.approx(slope, rel=1e-7)


def test_single_precision():
    X, y, row_noise = table(dtype=np.float32)
    value = exact_gp(X.astype(float), y.astype(float), row_noise).log_marginal_likelihood_value_
    assert expert.evidence(KERNEL, THETA, X, y, Workspace(), row_noise=row_noise).value == pytest.approx(
        value, rel=1e-4
    )


def test_a_failed_factorisation_gets_jitter():
    """Copies of one row without noise of their own need jitter; a row of much noise must not enlarge it."""
    X, y, row_noise = np.zeros((3, 2)), np.ones(3), np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 1e9]])
    total = expert.evidence(KERNEL, THETA, X, y, Workspace(), row_noise=row_noise)
    assert 0 < total.jitter < 1e-6
    assert np.isfinite(total.gradient).all()


def test_equal_row_noise_is_the_common_noise():
    X, y, _ = table()
    ones = np.column_stack([np.ones(60), np.zeros(60)])
    a, b = (expert.evidence(KERNEL, THETA, X, y, Workspace(), row_noise=noise) for noise in (None, ones))
    assert a.value == pytest.approx(b.value, rel=1e-13)
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-10)


def test_leaves_in_one_call_have_the_bits_of_single_leaves():
    X, y, row_noise = table(200)
    starts = np.array([0, 50, 100, 170, 200])
    store, cells, engine = ExpertStore(X, y, row_noise), Runs(starts), SerialEngine()
    together = summed_evidence(KERNEL, store, cells, Tree.balanced(4), engine)(THETA, None)
    lists = IndexLists.of([np.arange(a, b) for a, b in pairwise(starts)])
    singly = summed_evidence(KERNEL, store, lists, Tree.balanced(4), engine)(THETA, None)
    assert together.sums.tobytes() == singly.sums.tobytes()


def test_posterior_is_that_of_scikit_learn():
    X, y, row_noise = table()
    Z = table(40, seed=1)[0]
    mean, std = exact_gp(X, y, row_noise).predict(Z, return_std=True)
    factor = expert.factor(KERNEL, THETA, X, y, Workspace(), row_noise=row_noise)
    ours, variance = expert.posterior(KERNEL, THETA, factor, Z, Workspace())
    np.testing.assert_allclose(ours, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(variance, std**2, rtol=1e-7)


def test_weight_two_has_the_posterior_of_the_row_given_twice():
    """Also with a known variance: both copies have it, so that two of them together have half of it."""
    X, y, row_noise = table()
    twice = np.append(np.arange(60), np.arange(20))
    halved = row_noise.copy()
    halved[:20] /= 2
    Z = table(40, seed=1)[0]
    given_twice = expert.factor(KERNEL, THETA, X[twice], y[twice], Workspace(), row_noise=row_noise[twice])
    weighted = expert.factor(KERNEL, THETA, X, y, Workspace(), row_noise=halved)
    for a, b in zip(
        expert.posterior(KERNEL, THETA, given_twice, Z, Workspace()),
        expert.posterior(KERNEL, THETA, weighted, Z, Workspace()), strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_held_out_rows_are_predicted_as_without_them():
    X, y, row_noise = table(30)
    store = ExpertStore(X, y, row_noise)
    router = Router(X.mean(axis=0)[None], np.ones(2))
    committee = Committee(KERNEL, THETA, store, Runs(np.array([0, 30])), Tree.balanced(1), router)
    prediction = by_own_expert(committee, [Rows(0, np.arange(30))], SerialEngine())[0]
    for i in (0, 7, 29):
        rest = np.delete(np.arange(30), i)
        mean, std = exact_gp(X[rest], y[rest], row_noise[rest]).predict(X[i : i + 1], return_std=True)
        assert prediction.mean[i] == pytest.approx(mean[0], rel=1e-8)
        assert prediction.variance[i] == pytest.approx(std[0] ** 2, rel=1e-7)


def near(X, y, row_noise, kernel=KERNEL, theta=THETA, neighbours=200, **options):
    starts = np.array([0, len(y)])
    metric = np.exp(-theta[1:3])
    router = Router(X.mean(axis=0)[None] * metric, metric, tuple(side * metric for side in extents(X, starts)))
    return Neighbourhood(kernel, theta, ExpertStore(X, y, row_noise), Runs(starts), router, neighbours, True, **options)


@pytest.mark.parametrize("composed", [False, True])
def test_a_neighbourhood_of_all_rows_is_the_exact_gp(composed):
    X, y, row_noise = table()
    Z = table(40, seed=1)[0]
    theta = np.append(COMPOSED.theta, np.log(NOISE))
    model = near(X, y, row_noise, COMPOSED, theta) if composed else near(X, y, row_noise)
    ours = neighbourhood.predict(model, Z, SerialEngine())
    mean, std = exact_gp(X, y, row_noise, SAME if composed else None).predict(Z, return_std=True)
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours.variance, std**2, rtol=1e-7)
    only_mean = neighbourhood.predict(model, Z, SerialEngine(), with_variance=False).mean
    np.testing.assert_allclose(only_mean, mean, rtol=1e-8, atol=1e-10)


def test_equal_row_noise_leaves_a_neighbourhood_as_it_is():
    """Also where a few nearest rows predict on their own: the joined noise is the mean of the neighbours'."""
    X, y, _ = table(300)
    Z = table(40, seed=1)[0]
    ones = np.column_stack([np.full(300, 2.0), np.zeros(300)])
    theta = np.append(THETA[:-1], np.log(NOISE / 2))
    plain = neighbourhood.predict(near(X, y, None, neighbours=40, inner=12), Z, SerialEngine())
    noisy = neighbourhood.predict(near(X, y, ones, theta=theta, neighbours=40, inner=12), Z, SerialEngine())
    for name in ("mean", "variance", "misfit"):
        np.testing.assert_allclose(getattr(noisy, name), getattr(plain, name), rtol=1e-9)


def test_mixture_and_its_held_out_predictions():
    X, y, row_noise = table(40)
    Z = table(20, seed=1)[0]
    model = Mixture((Member(KERNEL, THETA, 1.0, np.ones(40)),), ExpertStore(X, y, row_noise))
    mean, std = exact_gp(X, y, row_noise).predict(Z, return_std=True)
    ours = mixture.predict(model, Z, SerialEngine())
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(ours.variance, std**2, rtol=1e-6)
    held_out = mixture.predict_held_out(model, np.arange(len(model.store.y)), SerialEngine())
    np.testing.assert_allclose(held_out.noise, variances(NOISE, row_noise))
    for i in (0, 39):
        rest = np.delete(np.arange(40), i)
        mean, std = exact_gp(X[rest], y[rest], row_noise[rest]).predict(X[i : i + 1], return_std=True)
        assert held_out.mean[i] == pytest.approx(mean[0], rel=1e-7)
        assert held_out.variance[i] == pytest.approx(std[0] ** 2, rel=1e-5)


@pytest.mark.parametrize("name", ["gpoe", "bcm", "grbcm", "npae"])
def test_a_committee_of_one_expert_is_the_exact_gp(name):
    X, y, row_noise = table(50)
    Z = table(20, seed=1)[0]
    router = Router(X.mean(axis=0)[None], np.ones(2))
    committee = Committee(
        KERNEL, THETA, ExpertStore(X, y, row_noise), Runs(np.array([0, 50])), Tree.balanced(1), router,
        communication=np.arange(50),
    )  # fmt: skip
    combination = rule(name, "blend")
    ours = committee_prediction.predict(committee, Z, combination, 1, SerialEngine())
    mean, std = exact_gp(X, y, row_noise).predict(Z, return_std=True)
    np.testing.assert_allclose(ours.mean, mean, rtol=1e-6, atol=1e-8)
    noise = NOISE if combination.target == "y" else 0.0
    np.testing.assert_allclose(ours.variance - noise, std**2, rtol=1e-5)


def test_npae_counts_the_noise_of_shared_rows_once():
    """Two experts with the same rows are as good as one."""
    X, y, row_noise = table(50)
    Z = table(20, seed=1)[0]
    lists = IndexLists.of([np.arange(50), np.arange(50)])
    centres = np.stack([X.mean(axis=0), X.mean(axis=0) + 1])
    one = Committee(
        KERNEL, THETA, ExpertStore(X, y, row_noise), Runs(np.array([0, 50])), Tree.balanced(1),
        Router(centres[:1], np.ones(2)),
    )  # fmt: skip
    two = replace(one, experts=lists, tree=Tree.balanced(2), router=Router(centres, np.ones(2)))
    a, b = (committee_prediction.predict(c, Z, rule("npae", "blend"), None, SerialEngine()) for c in (one, two))
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a.variance, b.variance, rtol=1e-4)

"""Experts with a scale of their own: the evidence is SciPy's multivariate t, and noise may differ between places."""

import warnings
from copy import copy

import numpy as np
import pytest
from scipy.stats import multivariate_t
from sklearn.exceptions import ConvergenceWarning

from gigagp import HGPRegressor, expert, metrics
from gigagp.errors import InvalidParameter
from gigagp.kernels import Constant, Linear, Matern32, SquaredExponential
from gigagp.linalg.workspace import Workspace

KERNELS = [SquaredExponential(1.3, 0.9), Matern32(0.8, 1.5), SquaredExponential() + Linear(0.2), Constant(0.4)]


def leaf(kernel, p, kind=np.float64):
    rng = np.random.default_rng(p)
    X = rng.standard_normal((p, 3))
    y = 3 * np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(p)
    kernel = kernel.bind(3)
    return kernel, np.append(kernel.theta, np.log(0.1)), X.astype(kind), y.astype(kind)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("p", [1, 7, 60])
@pytest.mark.parametrize("dof", [3.0, 256.0])
def test_evidence_is_the_density_of_a_multivariate_t(kernel, p, dof):
    kernel, theta, X, y = leaf(kernel, p)
    K = kernel.cross(theta[:-1], X, X)[:p, :p] + 0.1 * np.eye(p)
    wanted = multivariate_t(np.zeros(p), (dof - 2) / dof * K, df=dof).logpdf(y)
    got = expert.evidence(kernel, theta, X, y, Workspace(), dof=dof)
    assert got.value == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("p", [7, 60, 800])  # 800: leaves that are taken in steps
def test_its_gradient_is_its_slope(kernel, p):
    kernel, theta, X, y = leaf(kernel, p)
    work = Workspace()
    got = expert.evidence(kernel, theta, X, y, work, dof=20.0).gradient
    for i in range(len(theta)):
        step = np.zeros(len(theta))
        step[i] = 1e-5
        ends = [expert.evidence(kernel, theta + s, X, y, work, dof=20.0).value for s in (step, -step)]
        assert got[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kernel", KERNELS[:3], ids=repr)
def test_many_degrees_of_freedom_are_gaussian(kernel):
    kernel, theta, X, y = leaf(kernel, 40)
    gaussian = expert.evidence(kernel, theta, X, y, Workspace())
    nearly = expert.evidence(kernel, theta, X, y, Workspace(), dof=1e9)
    assert nearly.value == pytest.approx(gaussian.value, rel=1e-5)
    assert nearly.gradient == pytest.approx(gaussian.gradient, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("factor", [0.5, 1.0, 30.0])
def test_the_scale_of_an_expert_is_that_of_its_targets(factor):
    kernel, theta, X, _ = leaf(SquaredExponential(1.0, 0.7), 500)
    K = kernel.cross(theta[:-1], X, X)[:500, :500] + 0.1 * np.eye(500)
    y = factor * np.linalg.cholesky(K) @ np.random.default_rng(0).standard_normal(500)
    assert expert.factor(kernel, theta, X, y, Workspace()).scale == pytest.approx(factor**2, rel=0.2)


def test_a_leaf_of_zeros_has_a_scale():
    kernel, theta, X, y = leaf(SquaredExponential(), 50)
    scale = expert.factor(kernel, theta, X, 0 * y, Workspace()).scale
    assert 0 < scale < 0.1


@pytest.fixture(scope="module")
def uneven():
    """A wave whose noise is ten times as large on the right."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 1))
    noise = np.where(X[:, 0] > 0, 0.5, 0.05)
    return X, np.sin(6 * X[:, 0]) + noise * rng.standard_normal(6000), noise


@pytest.mark.slow
def test_noise_may_differ_from_place_to_place(uneven):
    X, y, noise = uneven
    far = np.abs(X[:, 0]) > 0.3
    models = {
        kind: HGPRegressor(experts=kind, method="committee", calibrate=False, random_state=0)  # which has the scales
        for kind in ("gaussian", "student")
    }
    stds = {kind: model.fit(X, y).predict(X, return_std=True)[1] for kind, model in models.items()}
    assert np.abs(np.log(stds["student"] / noise))[far].max() < 0.35
    assert stds["gaussian"][far].max() < 2 * stds["gaussian"][far].min()


@pytest.fixture(scope="module")
def of_uneven(uneven):
    X, y, _ = uneven
    model = HGPRegressor(leaf_size=300, sharing=1, combine="blend", calibrate=False, random_state=0)
    return model.fit(X[:1500], y[:1500])


@pytest.mark.parametrize("combine", ["healed_blend", "blend", "gpoe", "rbcm", "npae"])
@pytest.mark.parametrize("k", [1, 3, None])
def test_every_rule_has_the_scale(of_uneven, combine, k):
    model = copy(of_uneven).set_params(combine=combine, experts_per_query=k)
    ends = np.array([[-0.9], [0.9]])
    std, latent = (model.predict(ends, return_std=True, latent=latent)[1] for latent in (False, True))
    assert (latent < std).all()
    quiet, loud = std**2 - latent**2
    if k is None:  # all experts are asked everywhere: one scale
        assert loud == pytest.approx(quiet)
    else:
        assert loud > 10 * quiet


@pytest.mark.slow
@pytest.mark.full_choices
def test_heavy_tails_do_not_spoil_theta():
    """A few wild targets make one Gaussian theta fit them: its length-scales differ from sample to sample."""
    lengthscales, errors = {"gaussian": [], "student": []}, {"gaussian": [], "student": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = np.stack([rng.uniform(-1, 1, 4000), rng.integers(0, 400, 4000) / 100], axis=1)
        truth = np.sin(4 * X[:, 0]) + X[:, 1] / 4
        y = truth + 0.1 * rng.standard_t(1.2, 4000)
        model = HGPRegressor(Matern32(), sharing=2, combine="blend", experts_per_query=4, random_state=0)
        for kind in ("gaussian", "student"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a parameter at its bound
                model.set_params(experts=kind).fit(X, y)
            lengthscales[kind].append(np.exp(model.theta_[2]))
            errors[kind].append(metrics.rmse(truth, model.predict(X)))
    assert max(lengthscales["gaussian"]) > 5 * min(lengthscales["gaussian"])
    assert min(lengthscales["student"]) > 1
    assert max(lengthscales["student"]) < 1.2 * min(lengthscales["student"])
    assert max(errors["student"]) < 0.5 * max(errors["gaussian"])


def test_one_leaf_and_the_papers_partitions_have_no_scales(uneven):
    X, y, _ = uneven
    assert not HGPRegressor(random_state=0).fit(X[:200], y[:200]).model_.committee.student
    assert not HGPRegressor(partition="random", random_state=0).fit(X[:2000], y[:2000]).model_.committee.student


def test_other_words_are_refused(uneven):
    with pytest.raises(InvalidParameter, match=r"experts.*student"):
        HGPRegressor(experts="laplace").fit(*uneven[:2])


def test_the_log_marginal_likelihood_is_what_training_maximised(uneven):
    """The scale of each expert is integrated out in both."""
    X, y, _ = uneven
    model = HGPRegressor(SquaredExponential(), leaf_size=100, training="full", method="committee", random_state=0)
    model.fit(X[:600], y[:600])
    per_point = model.log_marginal_likelihood() / 600
    assert model.report_.stages[-1].evidence_per_point == pytest.approx(per_point, rel=1e-10)
    _, gradient = model.log_marginal_likelihood(eval_gradient=True)
    assert np.abs(gradient).max() / 600 < 1e-3

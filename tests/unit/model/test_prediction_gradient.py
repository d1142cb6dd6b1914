"""Gradients of predictions are the derivatives of what `predict` returns, by central differences."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from gigagp import HGPRegressor
from gigagp.combine import RULES
from gigagp.errors import InvalidParameter
from gigagp.kernels import Constant, Kernel, Linear, Matern32, Periodic
from gigagp.model.trend import LinearTrend

SCALES = np.array([1.0, 20.0, 0.05])  # the columns have different units


def table(n=500, seed=0):
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-2, 2, (n, 3))
    y = 300 + 40 * (np.sin(2 * Z[:, 0]) * np.cos(Z[:, 1]) + 0.3 * Z[:, 2]) + 4 * rng.standard_normal(n)
    return Z * SCALES, y


def queries(n=6, seed=3):
    return np.random.default_rng(seed).uniform(-1.8, 1.8, (n, 3)) * SCALES


def differences(model, X, steps, latent):
    """Central differences of the mean and the standard deviation."""
    result = np.empty((2, *X.shape))
    for d, step in enumerate(steps):
        shift = np.zeros(X.shape[1])
        shift[d] = step
        after, before = (model.predict(X + sign * shift, return_std=True, latent=latent) for sign in (1, -1))
        for i in range(2):
            result[i, :, d] = (after[i] - before[i]) / (2 * step)
    return result


def check(model, X, steps=SCALES * 1e-6, tolerance=1e-4, latent=False):
    """Compare with central differences of `predict`; the neighbours may change at one query of all.

    Where a neighbour comes or goes within a step, a difference is wrong; a step of a third is tried too.
    """
    got = model.predict_gradient(X, latent=latent)
    mean, std = model.predict(X, return_std=True, latent=latent)
    np.testing.assert_allclose(got.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(got.std, std, rtol=1e-7)
    tried = [differences(model, X, np.asarray(steps) * factor, latent) for factor in (1, 1 / 3)]
    for i, gradient in enumerate((got.mean_gradient, got.std_gradient)):
        largest = np.abs(tried[0][i]).max(axis=0)
        assert largest.max() > 0
        errors = np.min([np.abs(gradient - each[i]) for each in tried], axis=0)
        wrong = (errors > tolerance * (largest + 1e-9)).any(axis=1)
        assert wrong.sum() <= 1, (gradient[wrong], [each[i][wrong] for each in tried])


def fitted(data=None, **settings):
    settings = {"random_state": 0, "n_jobs": 1, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gradients need no good theta
        return HGPRegressor(**settings).fit(*(data or table()))


@pytest.fixture(scope="module")
def near():
    return fitted(kernel="matern52", method="neighbourhood", neighbours=30)


def with_neighbourhood(model, **changes):
    """A copy of a model whose neighbourhood is changed."""
    other = HGPRegressor(**model.get_params())
    other._take(replace(model.model_, neighbourhood=replace(model.model_.neighbourhood, **changes)))
    return other


@pytest.mark.parametrize("latent", [False, True])
def test_gradients_of_a_neighbourhood(near, latent):
    check(near, queries(), latent=latent)


def test_gradients_without_calibration(near):
    check(HGPRegressor.of_model(near.model_, {**near.get_params(), "calibrate": False}, ""), queries())


def test_gradients_where_few_neighbours_answer_too(near):
    check(with_neighbourhood(near, inner=8), queries())


def test_gradients_of_averaged_kernels(near):
    own = near.model_.neighbourhood
    kernel = Matern32().bind(3)
    metric = own.router.metric * [0.7, 1.0, 1.5]
    theta = np.concatenate([[0.3], -np.log(metric), [own.theta[-1] + 0.2]])
    other = replace(own, kernel=kernel, theta=theta, router=own.router.in_metric(metric))
    check(with_neighbourhood(near, others=(other,)), queries())


@pytest.mark.parametrize("name", ["squared-exponential", "matern12", "matern32", "rational-quadratic", "composed"])
def test_gradients_of_neighbourhoods_with_every_kernel(near, name):
    kernel = name
    if name == "composed":
        kernel = Matern32(columns=[0, 1]) * Periodic(columns=2, period=0.07) + Linear() + Constant()
    check(fitted(table(200), kernel=kernel, method="neighbourhood", neighbours=20), queries(4))


def test_gradients_where_all_rows_are_neighbours():
    check(fitted(table(60), kernel="matern32", method="neighbourhood", neighbours=100), queries(4))


@pytest.mark.parametrize("name", [name for name in RULES if name != "npae"])
def test_gradients_of_committees(name):
    model = fitted(table(200), kernel="matern32", method="committee", leaf_size=25, combine=name, calibrate=False)
    check(model, queries(5), tolerance=1e-4)


def test_gradients_of_all_experts_of_a_sparse_committee():
    check(
        fitted(table(200), kernel="matern52", leaf="sparse", inducing=16, leaf_size=50, experts_per_query=None),
        queries(5),
        tolerance=1e-4,
    )


def test_a_joint_rule_has_no_gradients():
    model = fitted(table(100), kernel="matern32", method="committee", leaf_size=25, combine="npae", experts_per_query=2)
    with pytest.raises(InvalidParameter, match="NPAE"):
        model.predict_gradient(queries(2))


def test_gradients_of_a_mixture():
    model = fitted(table(80))
    assert model.model_.mixture is not None
    check(model, queries())


def test_gradients_with_noise_that_depends_on_the_inputs():
    check(fitted(kernel="matern52", method="neighbourhood", neighbours=30, noise="inputs"), queries())


def test_gradients_of_places_on_a_sphere():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(-170, 170, 300), rng.uniform(-80, 80, 300)])
    y = np.sin(np.radians(X[:, 0])) * np.cos(np.radians(X[:, 1])) + 0.3 * rng.standard_normal(300)
    model = fitted((X, y), kernel="matern52", method="neighbourhood", neighbours=20, sphere=(0, 1))
    check(model, X[:5] + 0.7, steps=[1e-4, 1e-4])


def test_gradients_with_a_linear_mean():
    model = fitted(table(200), kernel="matern52", method="neighbourhood", neighbours=20, mean="linear")
    assert isinstance(model.model_.trend, LinearTrend)
    check(model, 2 * queries())


def test_gradients_of_a_table_with_categories():
    X, y = table(200)
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "high", "low"), "c": X[:, 2]})
    model = fitted((frame, y), kernel="matern52", method="neighbourhood", neighbours=20)
    got = model.predict_gradient(frame[:4])
    steps = {"a": 1e-5, "c": 1e-6}
    for d, (name, step) in zip((0, 2), steps.items(), strict=True):
        after, before = (model.predict(frame[:4].assign(**{name: frame[name][:4] + s})) for s in (step, -step))
        np.testing.assert_allclose(got.mean_gradient[:, d], (after - before) / (2 * step), rtol=1e-4, atol=1e-3)
    assert (got.mean_gradient[:, 1] == 0).all()


def test_a_kernel_without_gradients_says_what_is_missing():
    class Own(Kernel):
        def gram(self, theta, X, out=None):
            raise NotImplementedError

        def pullback(self, theta, X, W, K):
            raise NotImplementedError

    one = np.ones((1, 1))
    with pytest.raises(InvalidParameter, match="query_gradient"):
        Own().query_gradient(np.empty(0), one, one, one)
    with pytest.raises(InvalidParameter, match="diagonal_gradient"):
        Own().diagonal_gradient(np.empty(0), one)


def test_gradients_of_targets_that_are_not_gaussian_are_refused():
    X, _ = table(60)
    counts = np.random.default_rng(0).poisson(3.0, 60).astype(float)
    model = fitted((X, counts), likelihood="poisson", kernel="matern52")
    with pytest.raises(InvalidParameter, match="likelihood"):
        model.predict_gradient(X[:2])


def test_gradients_do_not_depend_on_the_batch(near):
    X = queries(9)
    together = near.predict_gradient(X)
    one = near.predict_gradient(X[4:5])
    np.testing.assert_array_equal(one.mean_gradient[0], together.mean_gradient[4])

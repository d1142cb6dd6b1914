"""The metric of a periodic kernel is on its circle: neighbours are near in phase, however many periods apart."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, ExpSineSquared, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern

from gigagp import HGPRegressor, load
from gigagp.kernels import Linear, Matern32, OnColumns, Periodic
from gigagp.model.neighbourhood import nearest_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
PERIOD = 1.7


def made(rows, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 60, rows), rng.uniform(-2, 2, rows)])
    phase = 2 * np.pi * X[:, 0] / PERIOD
    return X, np.sin(phase) * np.exp(-(X[:, 1] ** 2)) + 0.2 * X[:, 1] + 0.05 * rng.standard_normal(rows)


def seasonal():
    return Periodic(period=PERIOD, period_bounds=(PERIOD, PERIOD), columns=0) * Matern32(columns=1)


@pytest.fixture(scope="module")
def model():
    return HGPRegressor(seasonal(), method="neighbourhood", neighbours=40, random_state=0).fit(*made(600))


def test_nearest_rows_are_those_of_the_circle_by_brute_force(model):
    near = replace(model.model_.neighbourhood, exact=True)
    _, season, _, _, width, _ = np.exp(near.theta)
    store = np.asarray(near.store.X, float)
    X = model.model_.inputs.restore(store)
    scale = model.model_.inputs.scaling.scale
    for z in made(20, seed=1)[0]:
        turn = 2 * np.sin(np.pi * (X[:, 0] - z[0]) / PERIOD) / season
        distance = turn**2 + ((X[:, 1] - z[1]) / scale[1] / width) ** 2
        rows = nearest_rows(near, model.model_.inputs.apply(z[None, :], np.dtype(float))[0])
        np.testing.assert_allclose(np.sort(distance)[: len(rows)], distance[rows], rtol=1e-8, atol=1e-12)


def test_the_kernel_is_a_profile_of_the_metric(model):
    """exp(-d^2 / 2) of the distance on the circle is the periodic kernel, and the metric knows no other column."""
    kernel = model.model_.committee.kernel.left
    assert isinstance(kernel, OnColumns)
    theta = kernel.theta
    X = np.asarray(model.model_.store.X[:30], float)
    d = X[:, None, :] - X[None, :, :]
    squares = ((kernel.metric(theta) * d) ** 2).sum(axis=2)
    np.testing.assert_allclose(np.tril(kernel.gram(theta, X)), np.tril(np.exp(theta[0] - squares / 2)), rtol=1e-9)
    assert (kernel.metric(theta)[:2] == 0).all()
    assert kernel.stationary
    assert not kernel.local  # a season that was seen elsewhere continues here


def test_predictions_are_near_those_of_the_exact_gp(model):
    """At the same theta, against scikit-learn: 40 of 600 rows suffice if they are near in phase."""
    X, y = made(600)
    Z, _ = made(100, seed=2)
    first, season, period, second, width, noise = np.exp(model.model_.theta)
    scaling, target = model.model_.inputs.scaling, model.model_.target

    def scaled(A):
        return (A - scaling.centre[:2]) / scaling.scale[:2]

    class Seasonal(ExpSineSquared):
        def __call__(self, A, B=None, eval_gradient=False):
            return super().__call__(A[:, :1], None if B is None else B[:, :1])

    class Width(SklearnMatern):
        def __call__(self, A, B=None, eval_gradient=False):
            return super().__call__(A[:, 1:], None if B is None else B[:, 1:])

    kernel = ConstantKernel(first * second) * Seasonal(season, period) * Width(width, nu=1.5) + WhiteKernel(noise)
    exact = GaussianProcessRegressor(kernel, optimizer=None).fit(scaled(X), (y - target.centre[0]) / target.scale[0])
    expected = exact.predict(scaled(Z)) * target.scale[0] + target.centre[0]
    assert np.sqrt(np.mean((model.predict(Z) - expected) ** 2)) < 0.02
    far = Z + np.array([100 * PERIOD, 0])  # a hundred periods later
    np.testing.assert_allclose(model.predict(far), model.predict(Z), atol=1e-6)


@pytest.mark.slow
def test_sums_products_and_other_kernels():
    X, y = made(400)
    kernel = seasonal() + Matern32(columns=0) + Linear(columns=1)
    model = HGPRegressor(kernel, method="neighbourhood", neighbours=24, random_state=0).fit(X, y)
    metric = model.model_.committee.kernel.metric(model.theta_[:-1])
    assert (metric > 0).all()  # both columns by Matern32, and the circle
    assert len(model.model_.inputs.circles) == 1
    assert model.units_.columns == ("x0", "x1")
    assert model.n_features_in_ == 2
    small = HGPRegressor(kernel, random_state=0).fit(X, y)  # all rows are one leaf: distances do not matter
    assert small.model_.inputs.circles == ()
    two = Periodic(period=PERIOD, columns=0) + Periodic(period=5.0, columns=0) + Matern32(columns=1)
    both = HGPRegressor(two, method="neighbourhood", neighbours=24, random_state=0).fit(X, y)
    assert [circle.period for circle in both.model_.inputs.circles] == pytest.approx([PERIOD, 5.0])


def test_saved_restored_and_differentiated(model, tmp_path):
    Z, _ = made(30, seed=3)
    inputs = model.model_.inputs
    np.testing.assert_allclose(inputs.restore(inputs.apply(Z, np.dtype(float))), Z, rtol=1e-12)
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(Z, return_std=True), model.predict(Z, return_std=True))
    assert loaded.model_.inputs.circles == inputs.circles
    slope = model.predict_gradient(Z).mean_gradient
    for column in range(2):
        errors = []
        for step in (1e-6, 3e-7):  # where a neighbour comes or goes within a step, the difference is wrong
            moved = np.eye(2)[column] * step
            up, down = (model.predict(Z + sign * moved, return_std=True)[0] for sign in (1, -1))
            errors.append(np.abs(slope[:, column] - (up - down) / (2 * step)))
        assert (np.min(errors, axis=0) <= 1e-3 * np.abs(slope[:, column]) + 1e-4).all()

"""Every row predicted by all others: from the inverse, from the factor, and by scikit-learn on the other rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from gigagp import expert
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.kernels import Matern52
from gigagp.linalg import cholesky
from gigagp.linalg.workspace import Workspace
from gigagp.model.leave_one_out import LeaveOneOut

NOISE = 0.04
KERNEL = Matern52(1.5, np.array([0.7, 1.3]))
THETA = np.append(KERNEL.theta, np.log(NOISE))


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, 2))
    return X, np.sin(X[:, 0]) + X[:, 1] + NOISE**0.5 * rng.standard_normal(count)


def from_factor(X, y, engine, row_noise=None):
    factor = expert.factor(KERNEL, THETA, X, y, Workspace(), None, True, row_noise)
    return LeaveOneOut.from_factor(KERNEL, THETA, y, factor, engine)


@pytest.mark.parametrize("count", [2, 25, 480, 481, 1013])  # below, at and above borders of tiles and blocks
def test_the_factor_gives_what_the_inverse_gives(count):
    X, y = rows(count)
    some, whole = np.arange(0, count, 3), LeaveOneOut.of(KERNEL, THETA, X, y)
    with ThreadsEngine(2) as engine:
        each = from_factor(X, y, engine)
        predictions, reference = each.held_out(some, engine), whole.held_out(some)
    for name in ("mean", "variance", "misfit", "errors"):
        np.testing.assert_allclose(getattr(predictions, name), getattr(reference, name), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(each.losses, whole.losses, rtol=1e-8, atol=1e-8)


@given(st.integers(3, 60), st.integers(0, 2**16))
def test_a_row_is_predicted_as_by_scikit_learn_on_the_others(count, seed):
    X, y = rows(count, seed)
    row = seed % count
    others = np.arange(count) != row
    kernel = ConstantKernel(1.5) * Matern([0.7, 1.3], nu=2.5)
    reference = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(X[others], y[others])
    mean, std = reference.predict(X[[row]], return_std=True)
    each = from_factor(X, y, SerialEngine())
    np.testing.assert_allclose(each.mean[row], mean[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(each.variance[row], std[0] ** 2 + NOISE, rtol=1e-7)


def test_the_misfit_of_a_row_does_not_depend_on_its_own_target():
    X, y = rows(200)
    changed = y.copy()
    changed[17] += 5.0
    misfits = [from_factor(X, targets, SerialEngine()).misfit(np.array([17])) for targets in (y, changed)]
    np.testing.assert_allclose(*misfits, rtol=1e-9)


def test_known_noise_of_rows_counts():
    X, y = rows(120)
    row_noise = np.column_stack([np.linspace(0.5, 2.0, 120), np.linspace(0.0, 0.3, 120)])
    predictions = from_factor(X, y, SerialEngine(), row_noise)
    reference = LeaveOneOut.of(KERNEL, THETA, X, y, row_noise)
    np.testing.assert_allclose(predictions.mean, reference.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(predictions.variance, reference.variance, rtol=1e-9)


@pytest.mark.parametrize("start", [0, cholesky.WIDTH, 5 * cholesky.WIDTH])
def test_solving_may_begin_where_the_right_hand_side_begins(start):
    X, y = rows(200)
    factor = expert.factor(KERNEL, THETA, X, y, Workspace(), None, True)
    B = np.zeros((200, cholesky.stride(40)))
    B[start:, :40] = np.random.default_rng(0).standard_normal((200 - start, 40))
    whole, part = B.copy(), B.copy()
    part[:start] = np.nan  # is not read
    cholesky.solve_lower(factor.U, factor.D, whole, 200, 40)
    cholesky.solve_lower(factor.U, factor.D, part, 200, 40, start)
    np.testing.assert_allclose(part[start:, :40], whole[start:, :40], rtol=1e-12, atol=1e-12)

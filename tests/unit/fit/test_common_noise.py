"""Rows with equal inputs may have part of their noise in common: predictions, and the choice by held-out rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from gigagp import HGPRegressor, kernels
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.model.boxes import extents
from gigagp.model.linear_predictions import _of_neighbourhood
from gigagp.model.neighbourhood import Neighbourhood, predict
from gigagp.model.neighbourhood_gradient import predict as predict_gradient
from gigagp.model.routing import Router
from gigagp.model.target_neighbourhood import TargetNeighbourhoods
from gigagp.partition.kdtree import cell_starts, kd_order

VARIANCE, LENGTHS, NOISE, SHARE = 1.7, np.array([0.8, 1.5]), 0.3, 0.6


def model(rows=90, distinct=40, kind=np.float64, **settings):
    """Rows of which many have equal inputs; without settings, all of them are neighbours of every query."""
    rng = np.random.default_rng(0)
    places = rng.uniform(-3, 3, (distinct, 2))
    X = places[rng.integers(distinct, size=rows)]
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.standard_normal(rows)
    starts = cell_starts(rows, 4)
    order = kd_order(X, starts)
    X, y = X[order].astype(kind), y[order].astype(kind)
    kernel = kernels.SquaredExponential(VARIANCE, LENGTHS)
    metric = kernel.metric(kernel.theta)
    router = Router((X[:4] * metric).astype(float), metric, tuple(side * metric for side in extents(X, starts)))
    theta = np.append(kernel.theta, np.log(NOISE))
    settings = {"neighbours": rows, "exact": True, "common": SHARE, **settings}
    return Neighbourhood(kernel, theta, ExpertStore(X, y), Runs(starts), router, **settings)


def queries(near):
    """Some that equal training rows, and some that do not."""
    elsewhere = np.random.default_rng(1).uniform(-3.5, 3.5, (8, 2)).astype(near.store.X.dtype)
    return np.concatenate([near.store.X[::11], elsewhere])


def covariance(A, B):
    """The kernel, and the common noise where inputs are equal."""
    return VARIANCE * np.exp(-0.5 * cdist(A / LENGTHS, B / LENGTHS, "sqeuclidean")) + SHARE * NOISE * (cdist(A, B) == 0)


def reference(near, Z, without=None):
    """Mean and covariance of a GP whose kernel includes the common noise, by SciPy."""
    keep = np.arange(len(near.store.y)) != without
    X, y = near.store.X[keep].astype(float), near.store.y[keep].astype(float)
    K = cho_factor(covariance(X, X) + (1 - SHARE) * NOISE * np.eye(len(X)))
    k = covariance(X, Z)
    return k.T @ cho_solve(K, y), covariance(Z, Z) - k.T @ cho_solve(K, k)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_it_is_a_gp_whose_kernel_includes_the_common_noise(kind):
    near = model(kind=kind)
    Z = queries(near)
    mean, latent = reference(near, Z.astype(float))
    prediction = predict(near, Z, SerialEngine())
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(prediction.variance, np.diag(latent), rtol=1e-5)
    only_means = predict(near, Z, SerialEngine(), with_variance=False)
    np.testing.assert_allclose(only_means.mean, prediction.mean, rtol=1e-9, atol=1e-9)
    assert near.noise == pytest.approx((1 - SHARE) * NOISE)
    assert near.prior == pytest.approx(VARIANCE + SHARE * NOISE)


def test_a_held_out_row_is_predicted_by_the_rows_that_equal_it():
    near = model()
    rows = np.arange(0, 90, 7)
    prediction = predict(near, near.store.X[rows], SerialEngine(), held_out=rows)
    for i, row in enumerate(rows):
        mean, latent = reference(near, near.store.X[row : row + 1], without=row)
        assert prediction.mean[i] == pytest.approx(mean[0], abs=1e-8)
        assert prediction.variance[i] == pytest.approx(latent[0, 0], rel=1e-6)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_joint_distributions_have_the_common_noise_of_equal_queries(kind):
    near = model(kind=kind)
    Z = np.concatenate([queries(near), queries(near)[:3]]).astype(float)  # some queries twice
    joint = _of_neighbourhood(near, Z, SerialEngine()).covariance(Z, SerialEngine())
    np.testing.assert_allclose(joint, reference(near, Z)[1], atol=1e-6)


def test_several_targets_are_predicted_like_one():
    near = model(neighbours=24, inner=6)
    Z, both = queries(near), np.stack([near.store.y, -2 * near.store.y])
    together = TargetNeighbourhoods.of(near, both).predict(Z, SerialEngine())
    for y, prediction in zip(both, together, strict=True):
        alone = predict(replace(near, store=near.store.with_target(y)), Z, SerialEngine())
        np.testing.assert_allclose(prediction.mean, alone.mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(prediction.variance, alone.variance, rtol=1e-9)


def test_gradients_are_derivatives_of_predictions():
    near = model(neighbours=24, inner=6)
    Z = np.random.default_rng(2).uniform(-3, 3, (6, 2))
    gradient = predict_gradient(near, Z, SerialEngine())
    for d in range(2):
        step = 1e-6 * np.eye(2)[d]
        higher, lower = (predict(near, Z + s, SerialEngine()).mean for s in (step, -step))
        np.testing.assert_allclose(gradient.mean.tangent[:, d], (higher - lower) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_no_bit_depends_on_the_batch(size):
    near = model(rows=300, distinct=100, neighbours=30, inner=4)
    Z = queries(near)
    together = predict(near, Z, SerialEngine())
    parts = [predict(near, Z[i : i + size], SerialEngine()) for i in range(0, len(Z), size)]
    np.testing.assert_array_equal(np.concatenate([part.mean for part in parts]), together.mean)
    np.testing.assert_array_equal(np.concatenate([part.variance for part in parts]), together.variance)


def test_without_a_share_nothing_changes():
    near = model(common=0.0, neighbours=24)
    Z = queries(near)
    expected = predict(near, Z, SerialEngine())
    tiny = predict(replace(near, common=1e-12), Z, SerialEngine())
    np.testing.assert_allclose(tiny.mean, expected.mean, atol=1e-8)


def table(rows, common, seed=0):
    """Inputs that repeat, with a smooth function, noise of each distinct input and noise of each row."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-3, 3, (rows // 3, 2))
    which = rng.integers(len(places), size=rows)
    of_inputs, of_rows = rng.standard_normal(len(places)), rng.standard_normal(rows)
    y = np.sin(2 * places[which, 0]) + np.sqrt(common) * of_inputs[which] + np.sqrt(1 - common) * 0.5 * of_rows
    return places[which], y


def choice(fitted):
    return {each.name: each.chosen for each in fitted.report_.choices if each.what == "common noise"}


@pytest.fixture(scope="module")
def repeated():
    X, y = table(3200, 0.8)
    return X, y, HGPRegressor(random_state=0, leaf_size=256, method="neighbourhood").fit(X[:2400], y[:2400])


@pytest.mark.full_choices
def test_common_noise_is_chosen_where_equal_inputs_have_it(repeated):
    X, y, fitted = repeated
    assert not choice(fitted)["0%"]
    near = fitted.model_.neighbourhood
    independent = replace(near, common=0.0, others=tuple(replace(each, common=0.0) for each in near.others))
    Z = fitted.predictor_.scaled(X[2400:])
    errors = []
    for each in (near, independent):
        mean = fitted.model_.target.restore(predict(each, Z, SerialEngine()).mean[:, None])[:, 0]
        errors.append(np.sqrt(np.mean((mean - y[2400:]) ** 2)))
    assert errors[0] < 0.95 * errors[1]


@pytest.mark.full_choices
def test_saved_models_keep_the_share(repeated, tmp_path):
    X, _, fitted = repeated
    fitted.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    assert loaded.model_.neighbourhood.common == fitted.model_.neighbourhood.common > 0
    np.testing.assert_array_equal(loaded.predict(X[2400:]), fitted.predict(X[2400:]))


@pytest.mark.full_choices
def test_functions_drawn_from_the_posterior_have_its_mean_and_deviation(repeated):
    X, _, fitted = repeated
    Z = X[2400:2410]
    mean, std = fitted.predict(Z, return_std=True, latent=True)
    draws = fitted.sample_path(400, random_state=0)(Z)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * std.max() / 20)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.2)


@pytest.mark.full_choices
def test_independent_noise_stays_independent():
    X, y = table(2400, 0.0)
    fitted = HGPRegressor(random_state=0, leaf_size=256, method="neighbourhood").fit(X, y)
    assert choice(fitted)["0%"]
    assert fitted.model_.neighbourhood.common == 0


def test_inputs_that_do_not_repeat_leave_nothing_to_choose(wave):
    fitted = HGPRegressor(random_state=0, leaf_size=100, method="neighbourhood").fit(*wave)
    assert choice(fitted) == {}

"""Joint predictions: marginals are those of `predict`, and one leaf is the GP of scikit-learn."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from gigagp import HGPRegressor
from gigagp.combine import RULES
from gigagp.errors import InvalidParameter
from gigagp.kernels import Linear, Matern32, Matern52
from gigagp.model.distribution import Shape
from gigagp.model.joint import JointPrediction
from gigagp.model.sample_paths import normal_of

SETTINGS = {"random_state": 0, "n_jobs": 1, "kernel": "matern52"}


def table(n, seed=0, columns=2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, columns))
    return X, 10 + 5 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + rng.standard_normal(n)


def queries(n=30, seed=5, columns=2):
    return np.random.default_rng(seed).uniform(-2.2, 2.2, (n, columns))


MODELS = {
    "neighbourhood": {"method": "neighbourhood", "neighbours": 25},
    "all rows": {"method": "neighbourhood", "neighbours": 1000, "rows": 80},
    "mixture": {"rows": 80, "kernel": None},
    "committee": {"method": "committee", "leaf_size": 25, "rows": 150},
    "composed": {"method": "neighbourhood", "neighbours": 15, "kernel": Matern32() * Matern52() + Linear(), "rows": 60},
}


def fitted(name):
    settings = {**SETTINGS, **MODELS[name]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the laws need no good theta
        return HGPRegressor(**{k: v for k, v in settings.items() if k != "rows"}).fit(*table(settings.get("rows", 400)))


@pytest.fixture(scope="module")
def models():
    return {name: fitted(name) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("latent", [False, True])
def test_marginals_are_those_of_predict_and_covariances_are_positive_semi_definite(models, name, latent):
    model, X = models[name], queries()
    mean, covariance = model.predict(X, return_cov=True, latent=latent)
    expected, std = model.predict(X, return_std=True, latent=latent)
    np.testing.assert_allclose(mean, expected, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), std, rtol=1e-9)
    np.testing.assert_array_equal(covariance, covariance.T)
    values = np.linalg.eigvalsh(covariance)
    assert values.min() > -1e-9 * values.max()
    _, near = model.predict(X[:1] + np.array([[0.0, 0.0], [1e-3, 1e-3]]), return_cov=True, latent=True)
    assert near[0, 1] > 0.9 * near[0, 0]  # neighbouring queries have nearly the same error


def exact_gp(model, X, y):
    """The GP of scikit-learn with the theta of a model that has one exact expert."""
    theta, target, inputs = np.exp(model.theta_), model.model_.target, model.model_.inputs.scaling
    kernel = ConstantKernel(theta[0]) * Matern(theta[1:3], nu=2.5) + WhiteKernel(theta[-1])
    gp = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-12)
    gp.fit((X - inputs.centre) / inputs.scale, (y - target.centre[0]) / target.scale[0])
    return lambda Z: gp.predict((Z - inputs.centre) / inputs.scale, return_cov=True), float(target.scale[0]), target


@pytest.mark.parametrize(
    "settings",
    [{"method": "neighbourhood", "neighbours": 1000}, {"method": "committee", "leaf_size": 1000}],
    ids=["neighbourhood", "one leaf"],
)
def test_one_leaf_is_the_gp_of_scikit_learn(settings):
    X, y = table(80)
    model = HGPRegressor(**SETTINGS, **settings, calibrate=False).fit(X, y)
    predict, scale, target = exact_gp(model, X, y)
    Z = queries()
    mean, covariance = model.predict(Z, return_cov=True)
    expected, expected_covariance = predict(Z)
    np.testing.assert_allclose(mean, expected * scale + target.centre[0], rtol=1e-6)
    np.testing.assert_allclose(covariance, expected_covariance * scale**2, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("npae", "grbcm")])
def test_a_committee_has_a_joint_distribution_under_every_rule(name):
    model = HGPRegressor(**SETTINGS, method="committee", leaf_size=25, combine=name).fit(*table(80))
    _, covariance = model.predict(queries(6), return_cov=True)
    assert np.linalg.eigvalsh(covariance).min() > 0


def test_samples_have_the_predicted_mean_covariance_and_distribution(models):
    model, X = models["neighbourhood"], queries(5)
    samples = model.sample_y(X, 40_000, random_state=1)
    mean, covariance = model.predict(X, return_cov=True)
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=0.05 * np.sqrt(covariance.max()))
    law = model.predict_distribution(X)
    for level in (0.05, 0.5, 0.9):
        share = (samples < law.quantile(level)[:, None]).mean(axis=1)
        np.testing.assert_allclose(share, level, atol=5 * np.sqrt(level * (1 - level) / 40_000))
    latent = model.sample_y(X, 40_000, random_state=1, latent=True)
    _, of_f = model.predict(X, return_cov=True, latent=True)
    np.testing.assert_allclose(np.cov(latent), of_f, atol=0.05 * of_f.max())


def test_samples_have_a_skewed_shape():
    shape = Shape.of(np.array([0.7, 0.3]), np.array([0.4, 1.5]), np.array([-0.6, 1.4]))
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    samples = JointPrediction(np.zeros(2), covariance, shape).sample(40_000, np.random.default_rng(0))
    for level in (0.01, 0.1, 0.5, 0.9, 0.99):
        share = (samples < shape.quantile(np.array([level]))).mean(axis=1)
        np.testing.assert_allclose(share, level, atol=0.01)
    assert np.corrcoef(samples)[0, 1] == pytest.approx(0.9, abs=0.05)


def test_samples_are_reproducible(models):
    model, X = models["neighbourhood"], queries(4)
    np.testing.assert_array_equal(model.sample_y(X, 3, random_state=7), model.sample_y(X, 3, random_state=7))
    assert model.sample_y(X, 3, random_state=8).shape == (4, 3)
    path, same = (model.sample_path(2, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(path(X), same(X))
    assert not np.allclose(path(X), model.sample_path(2, random_state=8)(X))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "composed"])
def test_a_path_is_a_function(models, name):
    path, X = models[name].sample_path(3, random_state=0), queries(70)
    together = path(X)
    assert together.shape == (70, 3)
    np.testing.assert_allclose(path(X[::-1])[::-1], together, rtol=1e-9)
    np.testing.assert_allclose(path(X[10:11]), together[10:11], rtol=1e-9)
    step = path(X[:20] + 1e-4) - together[:20]
    assert np.abs(step).max() < 0.05 * together.std()  # it is continuous


@pytest.mark.parametrize("name", ["neighbourhood", "mixture"])
def test_paths_have_the_predicted_mean_deviation_and_correlation(models, name):
    model, X = models[name], queries(4)
    X[1] = X[0] + 0.1
    values = model.sample_path(4000, random_state=3)(X)
    mean, covariance = model.predict(X, return_cov=True, latent=True)
    deviation = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(values.mean(axis=1), mean, atol=5 * deviation.max() / np.sqrt(4000))
    np.testing.assert_allclose(values.std(axis=1), deviation, rtol=0.06)
    correlation = covariance / np.outer(deviation, deviation)
    np.testing.assert_allclose(np.corrcoef(values), correlation, atol=0.15)


def test_a_path_keeps_the_model_that_it_was_drawn_from():
    model = HGPRegressor(**SETTINGS, method="neighbourhood", neighbours=20).fit(*table(60))
    path, X = model.sample_path(random_state=0), queries(3)
    before = path(X)
    model.fit(*table(60, seed=9))
    np.testing.assert_array_equal(path(X), before)


def test_noise_of_rows_is_standard_normal_and_a_function_of_the_row():
    numbers = normal_of(np.arange(20_000), np.array([3, 4], np.uint64))
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(numbers.T), np.eye(2), atol=0.03)
    np.testing.assert_array_equal(normal_of(np.array([17]), np.array([3, 4], np.uint64))[0], numbers[17])


def test_joint_predictions_name_what_they_cannot_do(models):
    model = models["neighbourhood"]
    with pytest.raises(InvalidParameter, match="not both"):
        model.predict(queries(2), return_std=True, return_cov=True)
    with pytest.raises(InvalidParameter, match="10,000"):
        model.predict(np.zeros((10_001, 2)), return_cov=True)
    with pytest.raises(InvalidParameter, match="n_samples"):
        model.sample_y(queries(2), -1)
    with pytest.raises(InvalidParameter, match="sample_path needs"):
        models["composed"].sample_path()
    committee = HGPRegressor(**SETTINGS, method="committee", leaf_size=25, combine="npae").fit(*table(60))
    with pytest.raises(InvalidParameter, match="NPAE"):
        committee.predict(queries(2), return_cov=True)


def test_averaged_kernels_and_few_neighbours_have_joint_predictions(models):
    model = HGPRegressor(**models["neighbourhood"].get_params())
    near = models["neighbourhood"].model_.neighbourhood
    metric = near.router.metric * [0.7, 1.5]
    theta = np.concatenate([[0.3], -np.log(metric), [near.theta[-1]]])
    other = replace(near, kernel=Matern32().bind(2), theta=theta, router=near.router.in_metric(metric))
    model._take(replace(models["neighbourhood"].model_, neighbourhood=replace(near, inner=8, others=(other,))))
    X = queries(8)
    _, covariance = model.predict(X, return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diagonal(covariance)), model.predict(X, return_std=True)[1], rtol=1e-9)
    assert np.linalg.eigvalsh(covariance).min() > 0
    assert model.sample_path(2, random_state=0)(X).shape == (8, 2)

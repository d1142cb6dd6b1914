"""HGPRegressor as a scikit-learn user meets it."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from gigagp import HGPRegressor
from gigagp.combine import RULES, PoE
from gigagp.datasets import robot_arm
from gigagp.kernels import Constant, Kernel, Linear, Matern52, Parameter, SquaredExponential
from gigagp.metrics import coverage, rmse


def unequal_checks(estimator):
    """Checks of scikit-learn that do not hold, and why."""
    return {
        "check_sample_weight_equivalence_on_dense_data": "a weight divides the noise variance: weight 2 has the "
        "posterior of a row given twice; but copies that agree exactly are also evidence of little noise, and a weight "
        "is not (test_weights.py compares both at the same theta)"
    }


@pytest.mark.filterwarnings("ignore")  # tiny and degenerate data sets end at bounds, and say so
@parametrize_with_checks([HGPRegressor(random_state=0)], expected_failed_checks=unequal_checks)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


def checks_of_committees(estimator):
    """The same for models that predict by a committee."""
    updates = (
        "check_fit_score_takes_y",
        "check_n_features_in_after_fitting",
        "check_estimators_partial_fit_n_features",
    )
    return {**unequal_checks(estimator), **dict.fromkeys(updates, "partial_fit: a committee takes no updates")}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [HGPRegressor(partition="stratified", random_state=0)], expected_failed_checks=checks_of_committees
)
def test_scikit_learn_conventions_of_the_papers_partition(estimator, check):
    check(estimator)


def test_one_leaf_is_scikit_learns_gp(wave):
    X, y = wave
    X, y = X[:150], y[:150]
    ours = HGPRegressor(
        SquaredExponential(), leaf_size=150, standardize=False, method="committee", calibrate=False, random_state=0
    ).fit(X, y - y.mean())
    variance, *lengthscales, noise = np.exp(ours.theta_)
    kernel = ConstantKernel(variance) * RBF(lengthscales) + WhiteKernel(noise)
    theirs = GaussianProcessRegressor(kernel, alpha=0, optimizer=None).fit(X, y - y.mean())
    assert ours.n_leaves_ == 1
    value, gradient = ours.log_marginal_likelihood(eval_gradient=True)
    expected, expected_gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6, atol=1e-6 * abs(expected))
    Z = np.random.default_rng(3).uniform(-3, 3, (40, 2))
    np.testing.assert_allclose(ours.predict(Z, return_std=True), theirs.predict(Z, return_std=True), rtol=1e-7)


@pytest.mark.parametrize("partition", ["local", "stratified", "random"])
def test_learns_and_is_calibrated(partition):
    X, y = robot_arm(3000, seed=4)
    model = HGPRegressor(partition=partition, leaf_size=250, random_state=0).fit(X[:2500], y[:2500])
    mean, std = model.predict(X[2500:], return_std=True)
    assert rmse(y[2500:], mean) < 0.4 * y.std()
    assert 0.9 < coverage(y[2500:], mean, std) < 0.99
    assert model.score(X[2500:], y[2500:]) > 0.84


def test_answers_are_in_the_users_units(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    moved = HGPRegressor(leaf_size=100, random_state=0).fit(X * [1e3, 1e-3] + [5, -7], 1e4 * y - 3)
    Z = X[:50]
    mean, std = model.predict(Z, return_std=True)
    mean2, std2 = moved.predict(Z * [1e3, 1e-3] + [5, -7], return_std=True)
    np.testing.assert_allclose(mean2, 1e4 * mean - 3, rtol=1e-5)
    np.testing.assert_allclose(std2, 1e4 * std, rtol=1e-4)
    np.testing.assert_allclose(moved.noise_variance_, 1e8 * model.noise_variance_, rtol=1e-4)


def test_latent_deviation_leaves_out_the_noise(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=100, experts="gaussian", calibrate=False, random_state=0).fit(X, y)
    _, std = model.predict(X[:20], return_std=True)
    _, latent = model.predict(X[:20], return_std=True, latent=True)
    np.testing.assert_allclose(std**2 - latent**2, model.noise_variance_, rtol=1e-8)


def test_quantiles_are_the_normal_ones(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=100, calibrate=False, random_state=0).fit(X, y)
    mean, std = model.predict(X[:7], return_std=True)
    levels = [0.05, 0.5, 0.9]
    expected = norm.ppf(np.array(levels), mean[:, None], std[:, None])
    np.testing.assert_allclose(model.predict_quantiles(X[:7], levels), expected, rtol=1e-12)
    assert model.predict_quantiles(X[:7], 0.5).shape == (7, 1)


def test_the_papers_model_by_its_own_settings():
    X, y = robot_arm(2000, seed=2)
    paper = HGPRegressor(
        partition="stratified", levels=2, branching=4, sharing=2, combine=PoE(target="y"), experts_per_query=None,
        training="full", random_state=0,
    )  # fmt: skip
    paper.fit(X[:1600], y[:1600])
    assert paper.n_leaves_ == 16
    assert paper.report_.points_per_leaf == (400, 400)
    mean, std = paper.predict(X[1600:], return_std=True)
    assert rmse(y[1600:], mean) < 0.5 * y.std()
    assert std.min() > 0


@pytest.mark.parametrize("combine", sorted(RULES))
@pytest.mark.parametrize("partition", ["local", "random"])
def test_every_rule_with_every_way_to_ask(wave, combine, partition):
    X, y = wave
    model = HGPRegressor(SquaredExponential(), partition=partition, leaf_size=100, combine=combine, random_state=0)
    model.fit(X[:500], y[:500])
    for asked in (None, 2):
        mean, std = model.set_params(experts_per_query=asked).predict(X[500:], return_std=True)
        assert rmse(y[500:], mean) < 0.3
        assert np.isfinite(std).all()
        assert (std > 0).all()


def test_float32_is_close_to_float64(wave):
    X, y = wave
    double = HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    single = HGPRegressor(leaf_size=100, dtype="float32", random_state=0).fit(X, y)
    np.testing.assert_allclose(single.predict(X[:50]), double.predict(X[:50]), atol=0.02 * y.std())
    assert HGPRegressor(leaf_size=100, dtype=np.float32, random_state=0).fit(X, y)


def test_seeds_decide(wave):
    X, y = wave
    settings = {"leaf_size": 60, "partition": "random"}
    first, again, other = (HGPRegressor(random_state=s, **settings).fit(X, y).predict(X[:20]) for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    for state in (np.random.default_rng(0), np.random.RandomState(0), None, np.int64(3)):
        HGPRegressor(random_state=state, **settings).fit(X, y)


@pytest.mark.filterwarnings("ignore:lengthscale")  # a made-up column that is not needed
def test_works_in_pipelines_and_searches(wave):
    X, y = wave
    search = GridSearchCV(
        HGPRegressor(leaf_size=100, random_state=0), {"kernel": [SquaredExponential(), Matern52()]}, cv=2
    ).fit(X[:200], y[:200])
    assert search.best_score_ > 0.9
    piped = make_pipeline(PolynomialFeatures(2, include_bias=False), HGPRegressor(leaf_size=100, random_state=0))
    predicted, std = piped.fit(X[:200], y[:200]).predict(X[200:], return_std=True)
    assert rmse(y[200:], predicted) < 0.2
    assert std.shape == (400,)
    assert cross_val_predict(HGPRegressor(leaf_size=100, random_state=0), X[:200], y[:200], cv=2).shape == (200,)


def test_pandas_names_are_kept_and_checked(wave):
    X, y = wave
    frame = pd.DataFrame(X, columns=["angle", "height"])
    model = HGPRegressor(leaf_size=100, random_state=0).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["angle", "height"]
    assert model.n_features_in_ == 2
    np.testing.assert_allclose(model.predict(frame[:5]), model.predict(frame)[:5], rtol=1e-10)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["height", "angle"]])


def test_clone_and_pickle(wave):
    X, y = wave
    model = HGPRegressor(Matern52() + Linear(), partition="random", leaf_size=100, combine=PoE("y"), random_state=0)
    assert clone(model).get_params() == model.get_params()
    model.fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[:9], return_std=True), model.predict(X[:9], return_std=True))


class PlainSquaredExponential(Kernel):
    """A user's kernel in plain Python: gram and pullback, nothing else."""

    parameters = (Parameter("variance", (1.0,)), Parameter("lengthscale", (1.0,)))

    def gram(self, theta, X, out=None):
        variance, lengthscale = np.exp(theta)
        K = np.asarray(variance * np.exp(-0.5 * self._squares(X) / lengthscale**2), X.dtype)
        if out is None:
            return K
        out[: len(X), : len(X)] = K
        return out

    def pullback(self, theta, X, W, K):
        p = len(X)
        G = np.tril(W[:p, :p] * K[:p, :p])
        G = G + np.tril(G, -1).T
        return np.array([G.sum(), (G * self._squares(X)).sum() / np.exp(2 * theta[1])])

    @staticmethod
    def _squares(X):
        return ((X[:, None] - X[None]) ** 2).sum(axis=2)


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_a_kernel_in_plain_python_equals_the_built_in_one(wave, engine):
    X, y = wave
    settings = {"partition": "stratified", "leaf_size": 100, "engine": engine, "random_state": 0}
    plain = HGPRegressor(PlainSquaredExponential(), **settings).fit(X, y)
    built_in = HGPRegressor(SquaredExponential(ard=False), **settings).fit(X, y)
    np.testing.assert_allclose(plain.theta_, built_in.theta_, atol=1e-5)
    np.testing.assert_allclose(plain.predict(X[:30]), built_in.predict(X[:30]), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*bound")  # the data are not linear
def test_a_kernel_without_a_metric_is_warned_about_only_where_it_matters(wave):
    X, y = wave
    for partition in ("random", "stratified"):
        HGPRegressor(Linear() + SquaredExponential(), partition=partition, leaf_size=100, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="no metric"):
        HGPRegressor(Constant() + Linear(), leaf_size=100, random_state=0).fit(X, y)


def test_verbose_prints_stages(wave, capsys):
    X, y = wave
    HGPRegressor(leaf_size=100, random_state=0, verbose=1).fit(X, y)
    printed = capsys.readouterr().out
    assert "partition" in printed
    assert "training" in printed
    HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""


def test_the_target_may_be_fitted_without_standardising(wave):
    X, y = wave
    raw = HGPRegressor(leaf_size=100, standardize=False, random_state=0).fit(1e3 * X, 1e-2 * (y - y.mean()))
    assert rmse(1e-2 * (y - y.mean()), raw.predict(1e3 * X)) < 1e-2 * 0.1


def test_noise_can_be_fixed(wave):
    X, y = wave
    model = HGPRegressor(leaf_size=100, noise_bounds=(0.01, 0.01), random_state=0).fit(X, y)
    np.testing.assert_allclose(model.noise_variance_, 0.01 * y.var(), rtol=1e-9)


def test_warnings_point_at_the_callers_line(wave):
    X, y = wave
    with pytest.warns(UserWarning, match="has no metric|ended at its") as seen:
        HGPRegressor(Linear(variance_bounds=(1, 2)), leaf_size=100, noise_bounds=(1, 9), random_state=0).fit(X, y)
    assert {warning.category for warning in seen} == {UserWarning, ConvergenceWarning}
    assert {warning.filename for warning in seen} == {__file__}

"""Tables of few rows: exact GPs on all of them, a weak prior of theta, an average that is never too sure."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import gigagp
from gigagp import HGPRegressor
from gigagp.data.store import ExpertStore, frozen
from gigagp.engines import SerialEngine
from gigagp.expert import Evidence
from gigagp.fit import small_tables
from gigagp.fit.small_tables import stacking_weights
from gigagp.fit.theta_posterior import climb
from gigagp.fit.theta_prior import ThetaPrior
from gigagp.fit.training import Trace
from gigagp.kernels import Matern52, SquaredExponential
from gigagp.model import mixture
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.latent import LatentPrediction
from gigagp.model.leave_one_out import held_out
from gigagp.model.mixture import Member, Mixture

pytestmark = [
    pytest.mark.full_choices,
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
THETA = np.log([1.3, 0.8, 1.1, 2.0, 0.05])


def table(rows, columns=3, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.standard_normal(rows)


def of_members(X, y, *thetas):
    kernel = Matern52().bind(X.shape[1])
    members = [Member(kernel, t, 1 / len(thetas), held_out(kernel, t, X, y).errors) for t in thetas]
    return Mixture(tuple(members), ExpertStore(frozen(X), frozen(y)))


@pytest.fixture(scope="module")
def fitted():
    X, y = table(80)
    return HGPRegressor(random_state=0).fit(X, y), X, y


def test_one_member_is_scikit_learns_exact_gp():
    X, y = table(60)
    Z, _ = table(25, seed=1)
    kernel = ConstantKernel(1.3) * Matern([0.8, 1.1, 2.0], nu=2.5) + WhiteKernel(0.05)
    peer = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    mean, std = peer.predict(Z, return_std=True)
    model = of_members(X, y, THETA)
    prediction = mixture.predict(model, Z, SerialEngine())
    np.testing.assert_allclose(prediction.mean, mean, atol=1e-9)
    np.testing.assert_allclose(prediction.variance + model.noise, std**2, atol=1e-9)


def test_held_out_rows_are_what_a_fit_without_them_says():
    X, y = table(40)
    predictions, others = held_out(Matern52().bind(3), THETA, X, y), np.arange(40) != 7
    without = mixture.predict(of_members(X[others], y[others], THETA), X[7:8], SerialEngine())
    assert predictions.mean[7] == pytest.approx(without.mean[0], abs=1e-9)
    assert predictions.variance[7] == pytest.approx(without.variance[0] + 0.05, abs=1e-9)
    assert predictions.misfit[7] == pytest.approx(without.misfit[0], abs=1e-9)


def test_differing_thetas_only_widen():
    X, y = table(60)
    Z, _ = table(25, seed=1)
    thetas = THETA, THETA + 0.5, THETA - np.array([0, 0.7, 0, 0.7, 0])
    each = [mixture.predict(of_members(X, y, theta), Z, SerialEngine()) for theta in thetas]
    together = mixture.predict(of_members(X, y, *thetas), Z, SerialEngine())
    np.testing.assert_allclose(together.mean, np.mean([a.mean for a in each], axis=0))
    assert (together.variance >= np.mean([a.variance for a in each], axis=0) - 1e-12).all()


def test_the_influence_of_the_prior_vanishes_with_rows():
    prior = ThetaPrior.around((*SquaredExponential().bind(2).names, "noise_variance"), np.zeros(4), 1.0)
    theta = np.array([1.0, -1.0, 2.0, -3.0])
    step = 1e-6 * np.eye(4)
    slopes = [(prior.log_density(theta + s) - prior.log_density(theta - s)) / 2e-6 for s in step]
    np.testing.assert_allclose(prior.gradient(theta), slopes, rtol=1e-5)
    apart = []
    for rows in (30, 480):
        X, y = table(rows, 1)
        mode = HGPRegressor(random_state=0).fit(X, y)
        kernel = type(mode.kernel_)(1.0, [1.0])
        best = HGPRegressor(kernel, leaf_size=rows, calibrate=False, random_state=0).fit(X, y)
        apart.append((best.log_marginal_likelihood() - mode.log_marginal_likelihood()) / rows)
    assert -1e-4 < apart[1] < max(0.1 * apart[0], 1e-3)


def test_an_ascent_with_the_right_curvature_takes_one_step_and_stays_within_bounds():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 4))
    A = A @ A.T + np.eye(4)
    peak = 0.3 * rng.standard_normal(4)

    def density(theta, leaves):
        return Evidence.of(-0.5 * (theta - peak) @ A @ (theta - peak), -A @ (theta - peak), 10, 0.0)

    wide = np.array([[-9.0, 9.0]] * 4)
    end = climb("test", density, np.zeros(4), np.linalg.inv(A), wide, Trace(), 1e-9)
    assert end.stage.converged
    assert end.stage.iterations == 1
    np.testing.assert_allclose(end.theta, peak, atol=1e-9)
    wrong = climb("test", density, np.zeros(4), np.eye(4), wide, Trace(), 1e-9)
    np.testing.assert_allclose(wrong.theta, peak, atol=1e-4)
    narrow = wide.copy()
    narrow[0] = -9.0, peak[0] - 0.1
    bounded = climb("test", density, np.full(4, -1.0), np.linalg.inv(A), narrow, Trace(), 1e-9)
    slope = -A @ (bounded.theta - peak)
    assert bounded.theta[0] == narrow[0, 1]
    assert bounded.stage.iterations == 2  # to the bound, and along it
    np.testing.assert_allclose(slope[1:], 0.0, atol=1e-9)


def test_weights_go_to_the_column_that_is_better_and_stay_equal_without_rows_that_tell():
    rng = np.random.default_rng(0)
    better = rng.standard_normal(500)
    weights = stacking_weights(np.column_stack([better, better - 1.0, better - 1.0]))
    assert weights[0] > 0.97
    np.testing.assert_allclose(stacking_weights(np.zeros((10, 4))), 0.25)
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(("rows", "columns"), [(2, 1), (5, 2), (23, 3), (12, 30), (60, 3)])
def test_any_number_of_rows_and_columns(rows, columns):
    X, y = table(rows, columns)
    model = HGPRegressor(random_state=0).fit(X, y)
    assert model.n_leaves_ == 1
    Z = table(9, columns, seed=1)[0]
    distribution = model.predict_distribution(Z)
    assert np.isfinite(distribution.mean).all()
    assert (distribution.std > 0).all()
    assert (distribution.std < 5 * y.std() + 1e-9).all()
    calibration = model.report_.calibration
    assert calibration.rows == rows
    assert calibration.coefficients[1:].any() == (rows >= 50)
    assert ("assumed" in str(model.report_)) == (rows < 50)


@pytest.mark.parametrize("rows", [20, 60])
def test_intervals_of_few_rows_cover_others(rows):
    """Over many tables with heavy-tailed noise."""
    shares = []
    for seed in range(30):
        rng = np.random.default_rng(10_000 + seed)
        (X, f), (Z, g) = table(rows, noise=0.0, seed=seed), table(50, noise=0.0, seed=1000 + seed)
        y, truth = f + 0.3 * rng.standard_t(4, rows), g + 0.3 * rng.standard_t(4, 50)
        distribution = HGPRegressor(random_state=0, n_jobs=1).fit(X, y).predict_distribution(Z)
        low, high = distribution.interval(0.95)
        shares.append(np.mean((truth >= low) & (truth <= high)))
    assert 0.925 < np.mean(shares) < 0.98


def test_few_rows_keep_the_quartiles_of_the_gaussian_and_its_variances():
    rng = np.random.default_rng(0)
    prediction = LatentPrediction(rng.standard_normal(20), rng.uniform(0.1, 2.0, 20), rng.uniform(0.5, 2.0, 20))
    y, noise = rng.standard_normal(20), 0.3
    calibration = Calibration.assumed(prediction, y, Setting(noise, prior=1.5))
    deviation = np.sqrt(calibration.variance(prediction)) / np.sqrt(prediction.variance + noise)
    np.testing.assert_allclose(deviation, deviation[0])
    quartiles, tails = calibration.shape.quantile(np.array([0.75, 0.995])) * deviation[0]
    assert quartiles == pytest.approx(norm.ppf(0.75))
    assert tails == pytest.approx(student.ppf(0.995, 4) * norm.ppf(0.75) / student.ppf(0.75, 4), rel=0.05)
    assert calibration.refined(prediction, y) is calibration
    assert Calibration.assumed(prediction, prediction.mean, Setting(noise, prior=1.5)).rows == 0


def test_fitted_parameters_widen_the_distribution_of_errors():
    rng = np.random.default_rng(0)
    prediction, y = LatentPrediction(np.zeros(60), np.full(60, 1e-4), np.ones(60)), 0.2 * rng.standard_normal(60)
    plain, wide = (Calibration.learnt(prediction, y, Setting(0.03, 2.0), parameters=p) for p in (0, 10))
    np.testing.assert_allclose(wide.variance(prediction) / plain.variance(prediction), 60 / 50, rtol=1e-3)


def test_a_query_does_not_depend_on_its_batch(fitted):
    model, X, _ = fitted
    mean, std = model.predict(X, return_std=True)
    for part in (slice(0, 1), slice(3, 20), slice(41, 80)):
        alone = model.predict(X[part], return_std=True)
        assert np.array_equal(alone[0], mean[part])
        assert np.array_equal(alone[1], std[part])
    assert np.array_equal(model.predict(X), mean)


def test_engines_and_a_saved_model_predict_the_same(fitted, tmp_path):
    model, X, y = fitted
    mean, std = model.predict(X, return_std=True)
    model.save(tmp_path / "model")
    again = gigagp.load(tmp_path / "model")
    serial = HGPRegressor(engine="serial", random_state=0).fit(X, y)
    for other in (again, serial):
        np.testing.assert_array_equal(other.predict(X, return_std=True), (mean, std))


def test_the_committee_may_be_asked_for_after_the_fit(fitted):
    model, X, _ = fitted
    committee = model.set_params(experts_per_query=1)
    mean, std = committee.predict(X[:5], return_std=True)
    model.set_params(experts_per_query="auto")
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    assert not np.array_equal(mean, model.predict(X[:5]))


def test_what_was_tried_is_reported(fitted):
    model, _, _ = fitted
    candidates = [c for c in model.report_.choices if c.what == "kernel"]
    assert len(candidates) == 5
    assert [type(model.kernel_).__name__] == [c.name for c in candidates if c.chosen]
    assert any("exact GPs" in c.name for c in model.report_.choices if c.what == "prediction")
    assert model.report_.converged


@pytest.mark.parametrize("given", [{"leaf_size": 20}, {"method": "committee"}, {"kernel": Matern52()}, {"levels": 1}])
def test_what_the_user_asks_for_is_not_replaced(given):
    X, y = table(60)
    assert HGPRegressor(random_state=0, **given).fit(X, y).model_.mixture is None


@pytest.mark.parametrize(("work", "families"), [(6e9, [5]), (0.0, [1, 2, 3])])
def test_all_families_are_trained_on_all_rows_where_that_is_affordable(work, families, monkeypatch):
    # The order of families at a theta of some of the rows need not be that at a theta of all of them.
    monkeypatch.setattr(small_tables, "_FAMILIES_WORK", work)
    monkeypatch.setattr(small_tables, "_FEW_ROWS", 64)
    X, y = table(90, columns=2, noise=0.01)
    report = HGPRegressor(random_state=0, engine="serial").fit(X, y).report_
    assert len({stage.name for stage in report.stages if stage.points == len(y)}) in families
    assert len([choice for choice in report.choices if choice.what == "kernel"]) == 5

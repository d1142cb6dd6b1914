"""Exact GPs on all rows of tables that are too large to be trained as one: when they answer, and what they answer."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

import gigagp
from gigagp import HGPRegressor
from gigagp.engines import SerialEngine
from gigagp.fit import exact_answers, planning, stages
from gigagp.fit.held_out_scores import Gain
from gigagp.model import leave_one_out, mixture

ROWS = 420  # tests take tables of up to 300 rows for small


def smooth(count, noise=0.02, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + noise * rng.standard_normal(count)


@pytest.fixture(autouse=True)
def exact_gps_are_allowed(monkeypatch):
    monkeypatch.setattr(planning, "most_rows", exact_answers.most_rows)


@pytest.fixture(scope="module")
def fitted():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "most_rows", exact_answers.most_rows)
        X, y = smooth(ROWS)
        yield HGPRegressor(random_state=0).fit(X, y), X, y


def chosen(model, what):
    return [each.name for each in model.report_.choices if each.what == what and each.chosen]


def peer_kernel(kernel, theta):
    values = dict(zip(kernel.names, np.exp(theta), strict=True))
    scales = [value for name, value in values.items() if "lengthscale" in name]
    name, variance = type(kernel).__name__, values["variance"]
    nu = {"Matern52": 2.5, "Matern32": 1.5, "Matern12": 0.5}
    return ConstantKernel(variance) * (RBF(scales) if name == "SquaredExponential" else Matern(scales, nu=nu[name]))


def test_a_smooth_function_is_predicted_by_exact_gps_on_all_rows(fitted):
    model, *_ = fitted
    assert chosen(model, "prediction") == ["exact GP"]
    assert model.model_.mixture is not None
    assert model.model_.neighbourhood is None
    assert len(model.model_.mixture.store.y) == ROWS


def test_the_mean_is_that_of_scikit_learn_with_the_same_theta(fitted):
    model, *_ = fitted
    predictor, answering = model.predictor_, model.model_.mixture
    Z = smooth(50, seed=1)[0]
    rows, targets = answering.rows()
    mean = np.zeros(len(Z))
    for member in answering.members:
        kernel = peer_kernel(member.kernel, member.theta[:-1])
        peer = GaussianProcessRegressor(kernel, alpha=member.noise, optimizer=None).fit(rows, targets)
        mean += member.weight * peer.predict(np.asarray(predictor.scaled(Z), float))
    np.testing.assert_allclose(model.predict(Z), model.model_.target.restore(mean[:, None])[:, 0], atol=1e-7)


def test_a_held_out_row_is_predicted_as_the_model_would_without_it(fitted):
    model, *_ = fitted
    answering, rows = model.model_.mixture, np.array([3, 50, 419])
    prediction = mixture.predict_held_out(answering, rows, SerialEngine())
    each = mixture.leave_one_out(answering, SerialEngine())
    means = np.array([one.mean[rows] for one in each])
    weights = np.array([member.weight for member in answering.members])
    np.testing.assert_allclose(prediction.mean, weights @ means, atol=1e-12)


def test_large_tables_are_held_out_by_their_factor_with_the_same_result(fitted, monkeypatch):
    model, *_ = fitted
    answering, rows = model.model_.mixture, np.arange(0, ROWS, 7)
    before = mixture.predict_held_out(answering, rows, SerialEngine())
    monkeypatch.setattr(mixture, "MOST_INVERTED", 100)
    after = mixture.predict_held_out(answering, rows, SerialEngine())
    assert leave_one_out.MOST_INVERTED > ROWS
    for name in ("mean", "variance", "misfit"):
        np.testing.assert_allclose(getattr(after, name), getattr(before, name), rtol=1e-6, atol=1e-9)


def test_intervals_cover_new_rows(fitted):
    model, *_ = fitted
    Z, truth = smooth(1000, seed=2)
    low, high = model.predict_distribution(Z).interval(0.9)
    assert 0.85 < np.mean((low <= truth) & (truth <= high)) < 0.95


def test_deviations_hardly_depend_on_which_rows_the_errors_were_learnt_from(fitted, monkeypatch):
    model, X, y = fitted
    monkeypatch.setattr(exact_answers, "_HELD_OUT_ROWS", 100)
    other = HGPRegressor(random_state=0).fit(X, y)
    Z = smooth(200, seed=3)[0]
    ratio = other.predict(Z, return_std=True)[1].mean() / model.predict(Z, return_std=True)[1].mean()
    assert 0.93 < ratio < 1.07


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "neighbourhood"},
        {"method": "committee"},
        {"neighbours": 32},
        {"leaf_size": 64},
        {"kernel": "matern52"},
        {"combine": "gpoe"},
        {"training": "full"},
        {"memory": "64MiB"},
    ],
    ids=str,
)
def test_settings_and_the_memory_budget_exclude_them(settings, monkeypatch):
    monkeypatch.setattr(exact_answers, "_MEMORY_SHARE", 1e-3 if "memory" in settings else 0.5)
    X, y = smooth(ROWS)
    model = HGPRegressor(random_state=0, **settings).fit(X, y)
    assert model.model_.mixture is None
    assert "exact GP" not in {each.name for each in model.report_.choices}


def test_the_budget_bounds_the_matrices():
    for budget in (64 << 20, 1 << 30, 4 << 30):
        assert 5 * 8 * exact_answers.most_rows(budget) ** 2 <= budget / 2
    assert exact_answers.most_rows(1 << 50) < 20_000  # queries are to be answered in milliseconds


def test_the_better_score_decides():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (ROWS, 1))
    y = np.where(X[:, 0] < 0.5, np.sin(200 * X[:, 0]), 0.01 * X[:, 0]) + 0.001 * rng.standard_normal(ROWS)
    model = HGPRegressor(random_state=0).fit(X, y)
    scores = {each.name: each.score for each in model.report_.choices if each.what == "prediction"}
    exact = scores.pop("exact GP")
    assert (model.model_.mixture is None) == (exact >= min(scores.values()))


def test_saved_and_loaded_they_predict_the_same(fitted, tmp_path):
    model, X, _ = fitted
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    for a, b in zip(model.predict(X[:40], return_std=True), loaded.predict(X[:40], return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_factor_of_the_fit_is_used_again(fitted, monkeypatch):
    model, *_ = fitted
    X, y = smooth(ROWS)
    again = HGPRegressor(random_state=0).fit(X, y)
    expected = model.predict(X[:5])
    monkeypatch.setattr(mixture.expert, "factor", lambda *a, **k: pytest.fail("factored again"))
    np.testing.assert_array_equal(again.predict(X[:5]), expected)


class Always(Gain):
    """A gain that is always large enough."""

    @classmethod
    def of(cls, candidate, reference):
        gain = Gain.of(candidate, reference)
        return cls(gain.value, gain.error)

    def exceeds(self, least):
        return True


def test_noise_of_the_inputs_reaches_the_rows_and_the_queries(monkeypatch):
    monkeypatch.setattr(exact_answers, "Gain", Always)
    monkeypatch.setattr(stages, "better_noise", lambda before, candidates, must_depend: (candidates[-1], []))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (900, 1))
    noise = np.where(X[:, 0] < 0, 0.02, 0.5)
    model = HGPRegressor(noise="inputs", random_state=0).fit(X, np.sin(3 * X[:, 0]) + noise * rng.standard_normal(900))
    Z = np.array([[-0.5], [0.5]])
    std = model.predict(Z, return_std=True)[1]
    assert std[1] > 5 * std[0]
    assert model.model_.mixture is not None
    assert model.model_.mixture.store.row_noise is not None
    np.testing.assert_allclose(model.predict_gradient(Z).std, std, rtol=1e-6)


def test_they_are_tried_where_the_noise_might_have_depended_on_the_inputs():
    X, y = smooth(ROWS)
    model = HGPRegressor(noise="auto", random_state=0).fit(X, y)
    assert "exact GP" in {each.name for each in model.report_.choices}


def test_a_checkpoint_goes_on_with_the_budget_that_it_began_with(tmp_path):
    X, y = smooth(1300)
    first = HGPRegressor(random_state=0, memory="2GB").fit(X, y, checkpoint=tmp_path / "run")
    again = HGPRegressor(random_state=0, memory="64MiB").fit(X, y, checkpoint=tmp_path / "run")
    other = HGPRegressor(random_state=0, memory="64MiB").fit(X, y)
    assert first.model_.mixture is not None
    assert other.model_.mixture is None
    np.testing.assert_array_equal(again.predict(X[:9]), first.predict(X[:9]))


def test_updates_are_learnt(fitted):
    model, X, y = fitted
    more, targets = smooth(30, seed=5)
    updated = HGPRegressor(random_state=0).fit(X, y).partial_fit(more, targets)
    assert updated.n_rows_ == ROWS + 30
    errors = np.abs(updated.predict(more) - targets).mean(), np.abs(model.predict(more) - targets).mean()
    assert errors[0] < errors[1]

"""Kernels of several families are averaged where held-out rows are then predicted better, and only there."""

import numpy as np
import pytest

from gigagp import HGPRegressor, load
from gigagp.fit import held_out_scores, kernel_averages
from gigagp.kernels import Matern32

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SETTINGS = {"leaf_size": 60, "method": "neighbourhood", "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (500, 2))
    return X, 2.0 * np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.3 * rng.standard_normal(500)


def averages(model):
    return [choice for choice in model.report_.choices if choice.what == "average"]


@pytest.fixture
def always(monkeypatch):
    """Averages are taken whatever they gain."""
    monkeypatch.setattr(kernel_averages, "_LEAST_GAIN", -np.inf)
    monkeypatch.setattr(kernel_averages.Gain, "exceeds", lambda self, least: True)


def test_an_average_is_the_same_on_every_engine_and_kept_with_the_model(rows, always, tmp_path):
    X, y = rows
    models = [HGPRegressor(engine=engine, **SETTINGS).fit(X, y) for engine in ("serial", "threads")]
    near = models[0].model_.neighbourhood
    assert len(near.members) == 2
    assert near.families[0] == type(models[0].kernel_).__name__
    assert len(set(near.families)) == 2
    (candidate,) = averages(models[0])
    assert candidate.chosen
    assert candidate.name == " and ".join(near.families)
    models[0].save(tmp_path / "model")
    others = [models[1], load(tmp_path / "model")]
    wanted = models[0].predict(X[:40] + 0.01, return_std=True)
    for other in others:
        assert other.report_.choices == models[0].report_.choices
        for ours, theirs in zip(wanted, other.predict(X[:40] + 0.01, return_std=True), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(models[0].predict(X[:40] + 0.01), wanted[0])
    for side in (-1e6, 1e6):  # the calibration is that of the average
        mean, std = models[0].predict(np.full((1, 2), side), return_std=True)
        assert mean[0] == pytest.approx(y.mean(), abs=0.05 * y.std())
        assert std[0] == pytest.approx(y.std(), rel=0.05)


def test_a_model_out_of_core_is_averaged_like_one_in_memory(rows, always, small_sizes):
    X, y = rows
    inside, outside = (HGPRegressor(memory=memory, **SETTINGS).fit(X, y) for memory in (None, 20_000))
    assert outside.model_.store.mapped
    assert inside.model_.neighbourhood.families == outside.model_.neighbourhood.families
    for ours, theirs in zip(inside.predict(X[:40], True), outside.predict(X[:40], True), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_an_average_that_gains_little_is_not_taken(rows, monkeypatch):
    monkeypatch.setattr(kernel_averages, "promising", lambda chosen, trials, *_: trials[-1])
    monkeypatch.setattr(kernel_averages, "_LEAST_GAIN", 0.9)
    model = HGPRegressor(**SETTINGS).fit(*rows)
    assert [choice.chosen for choice in averages(model)] in ([False], [])
    assert model.model_.neighbourhood.others == ()


@pytest.mark.parametrize(
    "changes", [{"kernel": Matern32()}, {"noise": "inputs"}, {"method": "committee"}, {"neighbours": 24}]
)
def test_what_the_user_has_decided_is_not_averaged(rows, always, changes):
    model = HGPRegressor(**{**SETTINGS, **changes}).fit(*rows)
    assert averages(model) == []


def test_what_would_take_minutes_is_not_averaged(rows, always, monkeypatch):
    model = HGPRegressor(**SETTINGS).fit(*rows)
    near = model.model_.neighbourhood
    monkeypatch.setattr(held_out_scores, "_PREDICTION_WORK", 0.99 * near.work * 0.1 * len(rows[1]))
    assert averages(HGPRegressor(**SETTINGS).fit(*rows)) == []


def test_rows_that_differ_in_noise_are_averaged(rows, always):
    X, y = rows
    weights = np.where(np.arange(len(y)) % 2, 4.0, 1.0)
    model = HGPRegressor(**SETTINGS).fit(X, y, sample_weight=weights)
    assert len(model.model_.neighbourhood.members) == 2
    assert np.sqrt(np.mean((model.predict(X) - 2.0 * np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1])) ** 2)) < 0.15

"""Refinement: a warm training finds theta again, recalibration repairs deviations, and logs keep both."""

from dataclasses import replace

import numpy as np
import pytest

import gigagp
from gigagp import HGPRegressor
from gigagp.errors import InvalidParameter
from gigagp.model import recent_rows
from gigagp.model.prequential import ACCEPTED, Prequential, marker

SETTINGS = {
    "random_state": 0, "n_jobs": 1, "kernel": "matern52", "method": "neighbourhood", "neighbours": 20, "leaf_size": 60,
}  # fmt: skip
QUERIES = np.random.default_rng(5).uniform(-2, 2, (50, 2))


def table(n, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 10 + 5 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + noise * rng.standard_normal(n)


@pytest.fixture(scope="module")
def base():
    return HGPRegressor(**SETTINGS).fit(*table(300))


def copy_of(model, **changes):
    other = HGPRegressor(**model.get_params())
    other._take(replace(model.model_, **changes))
    return other


def with_theta(model, shift):
    """A copy of a model with other length-scales, which predicts badly."""
    value = model.model_
    theta = value.theta.copy()
    theta[1:3] += shift
    near = value.neighbourhood
    router = near.router.in_metric(value.committee.kernel.metric(theta[:-1]))
    committee = replace(value.committee, theta=theta)
    return copy_of(
        model, neighbourhood=replace(near, theta=theta, router=router), committee=committee,
        report=replace(value.report, theta=theta),
    )  # fmt: skip


def test_a_warm_training_finds_theta_again_and_keeps_scalings_and_arrivals(base):
    bad = with_theta(base, -2.5).partial_fit(*table(50, seed=1))
    refined = copy_of(bad).refine()
    X, y = table(200, seed=2)
    losses = [model.evaluate(X, y).nlpd for model in (refined, bad, base)]
    assert losses[0] < losses[1] - 0.1
    assert losses[0] < losses[2] + 0.05
    assert refined.n_rows_ == 350
    assert refined.model_.target == bad.model_.target
    assert refined.report_.stages[0].name == "groups"  # no rough theta, no starts, no other families
    np.testing.assert_array_equal(np.sort(refined.model_.arrivals), np.arange(350))
    newest = copy_of(refined).forget(rows=np.arange(300, 350)).n_rows_
    assert newest == 300


def test_arriving_rows_recalibrate(base):
    X, y = table(600, seed=3, noise=1.5)  # five times the noise
    stays, follows = copy_of(base), copy_of(base)
    for begin in range(0, 600, 300):
        part = slice(begin, begin + 300)
        stays.partial_fit(X[part], y[part], score_rows=300)
        follows.partial_fit(X[part], y[part], score_rows=300, refine="auto")
    truth = table(300, seed=4, noise=1.5)
    assert follows.evaluate(*truth).nlpd < stays.evaluate(*truth).nlpd - 0.05
    assert stays.model_.report.calibration == base.model_.report.calibration


def test_a_drifting_model_is_trained_again_and_the_log_has_it(base, tmp_path):
    bad = with_theta(base, -2.5)
    bad.save(tmp_path / "model")
    with HGPRegressor.open(tmp_path / "model") as model:
        model.partial_fit(*table(600, seed=6), score_rows=600, refine="auto")
        record = model.prequential_
        assert record.last_training == ACCEPTED
        assert record.trainings.tolist() == [0, 600]
        assert record.scored == 600
        model.partial_fit(*table(300, seed=7, noise=1.5), score_rows=300, refine="auto")
        expected = np.stack(model.predict(QUERIES, return_std=True))
        loaded = gigagp.load(tmp_path / "model")
        np.testing.assert_allclose(np.stack(loaded.predict(QUERIES, return_std=True)), expected, rtol=1e-9)
        np.testing.assert_array_equal(loaded.model_.recent, model.model_.recent)
        np.testing.assert_array_equal(loaded.prequential_.record, model.prequential_.record)


def test_recent_rows_are_the_last_ones_and_a_worse_calibration_is_refused(base):
    model = copy_of(base).partial_fit(*table(400, seed=8), score_rows=400)
    recent = model.model_.recent
    assert recent[:, recent_rows.ARRIVAL].tolist() == list(range(300, 700))
    calibration = model.model_.report.calibration
    shuffled = recent.copy()
    shuffled[:200, recent_rows.TARGET] += 50.0  # the first half is unlike the second
    assert recent_rows.recalibrated(calibration, shuffled, False) is None
    assert len(recent_rows.appended(recent, np.zeros((4096, recent_rows.COLUMNS)))) == 4096


def test_drift_is_relative_to_what_is_expected():
    def scores(loss, rows=600):
        return np.array([rows, rows, rows * loss, rows * (loss**2 + 0.25), 0.0, 0.0, 0.0])

    steady = Prequential(np.stack([marker(1.0, 0), scores(1.0), scores(1.02)]))
    assert not steady.drift.detected
    worse = Prequential(np.stack([marker(1.0, 0), scores(1.5)]))
    assert worse.drift.detected
    assert worse.drift.difference == pytest.approx(0.5)
    without = Prequential(np.stack([marker(np.nan, 0), scores(1.5)]))
    assert without.drift is None
    later = Prequential(np.stack([marker(2.0, 0), scores(1.0), scores(1.5)]))  # worse than earlier arrivals
    assert later.drift.detected
    assert later.nlpd == pytest.approx(1.25)


def test_refine_names_what_it_cannot_do(base):
    with pytest.raises(InvalidParameter, match="warm"):
        copy_of(base).refine(warm="yes")

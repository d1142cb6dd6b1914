"""The distribution of errors, learnt from held-out predictions: scale, tails, local errors, and the far limit."""

import numpy as np
import pytest

from gigagp.model.calibration import Calibration, Setting
from gigagp.model.latent import LatentPrediction

SETTING = Setting(noise=0.01, prior=2.0)


def held_out(n, errors, variance=0.02, misfit=1.0):
    prediction = LatentPrediction(np.zeros(n), np.broadcast_to(variance, n) * 1.0, np.broadcast_to(misfit, n) * 1.0)
    return prediction, errors


def coverage(calibration, prediction, y, level):
    z = (y - prediction.mean) / np.sqrt(calibration.variance(prediction))
    return np.mean(np.abs(2 * calibration.shape.cdf(z) - 1) < level)


@pytest.mark.parametrize("dof", [2.5, 4, 30])
@pytest.mark.parametrize("scale", [0.03, 0.4])
def test_scale_and_tails_are_learnt(dof, scale):
    rng = np.random.default_rng(0)
    learn, fresh = (held_out(6000, scale * rng.standard_t(dof, 6000)) for _ in range(2))
    calibration = Calibration.learnt(*learn, SETTING)
    for level in (0.5, 0.8, 0.95, 0.99):
        assert coverage(calibration, *fresh, level) == pytest.approx(level, abs=0.02)
    assert np.isfinite(calibration.variance(fresh[0])).all()
    if dof > 3:
        assert np.sqrt(calibration.variance(fresh[0])).mean() == pytest.approx(fresh[1].std(), rel=0.1)


def test_errors_follow_the_misfit_near_the_query():
    rng = np.random.default_rng(0)
    misfit = np.exp(rng.standard_normal(5000))
    prediction, y = held_out(5000, 0.1 * misfit * rng.standard_normal(5000), misfit=misfit)
    calibration = Calibration.learnt(prediction, y, SETTING)
    wide, narrow = misfit > 2, misfit < 0.5
    assert np.std(y[wide] / np.sqrt(calibration.variance(prediction))[wide]) == pytest.approx(1, abs=0.1)
    assert np.std(y[narrow] / np.sqrt(calibration.variance(prediction))[narrow]) == pytest.approx(1, abs=0.1)
    assert calibration.coefficients[1] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 30.0])
@pytest.mark.parametrize("prior", [0.3, 1.0, 200.0])
def test_far_from_data_the_variance_is_the_targets(scale, prior):
    rng = np.random.default_rng(0)
    setting = Setting(noise=0.01, prior=prior)
    calibration = Calibration.learnt(*held_out(500, scale * rng.standard_normal(500), 1e-3, 3.0), setting)
    v = np.geomspace(1e-4 * prior, prior, 400)
    far = LatentPrediction(np.zeros(400), v, np.full(400, 3.0))
    variance = calibration.variance(far)
    assert variance[-1] == pytest.approx(1.0, rel=1e-6)
    assert np.abs(np.diff(np.log(variance))).max() < 0.15 * np.ptp(np.log(variance)) + 0.05  # no jumps on the way
    assert calibration.variance(far, latent=True)[-1] == pytest.approx(1.0 - 0.01, rel=0.02)


def test_few_rows_and_perfect_predictions_teach_nothing():
    rng = np.random.default_rng(0)
    assert Calibration.learnt(*held_out(20, rng.standard_normal(20)), SETTING).rows == 0
    assert Calibration.learnt(*held_out(200, np.zeros(200)), SETTING).rows == 0
    assert repr(Calibration.none()) == "none"


def test_a_few_dozen_rows_give_a_sane_distribution():
    covered = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        calibration = Calibration.learnt(*held_out(60, 0.2 * rng.standard_normal(60)), SETTING)
        covered.append(coverage(calibration, *held_out(4000, 0.2 * rng.standard_normal(4000)), 0.95))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)


def test_the_score_is_the_mean_loss_and_equal_calibrations_are_equal():
    rng = np.random.default_rng(0)
    prediction, y = held_out(300, rng.standard_normal(300))
    first, second = (Calibration.learnt(prediction, y, SETTING) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != Calibration.none()
    assert first.score == pytest.approx(first.losses(prediction, y).mean(), rel=1e-12)
    assert "300 held-out rows" in repr(first)


def test_the_learnt_coefficients_are_a_maximum():
    rng = np.random.default_rng(0)
    misfit = np.exp(0.5 * rng.standard_normal(4000))
    prediction, y = held_out(4000, 0.3 * misfit * rng.standard_t(6, 4000), rng.uniform(0.001, 0.5, 4000), misfit)
    calibration = Calibration.learnt(prediction, y, SETTING)
    for place in range(3):
        for step in (-0.1, 0.1):
            other = calibration.coefficients.copy()
            other[place] += step
            moved = Calibration(other, calibration.floor, calibration.shape, SETTING, calibration.rows)
            assert moved.losses(prediction, y).mean() > calibration.score - 1e-3


def test_no_error_is_impossible():
    """A row that is unlike all its neighbours costs tens of nats, not millions."""
    rng = np.random.default_rng(0)
    prediction = LatentPrediction(np.zeros(2000), np.full(2000, 0.1), np.ones(2000))
    known = Calibration.learnt(prediction, 0.3 * rng.standard_normal(2000), Setting(0.05, 1.0))
    far = LatentPrediction(np.zeros(1), np.full(1, 0.1), np.ones(1))
    for error in (1e2, 1e4, 1e6):
        assert known.losses(far, np.array([error]))[0] < 120
    assert np.sqrt(known.variance(far)[0]) == pytest.approx(0.3, rel=0.1)

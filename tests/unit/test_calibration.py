"""Calibration: quantiles are those of the errors, in order, kept with the model, and can be turned off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import t

import gigagp
from gigagp import HGPRegressor, metrics
from gigagp.calibration import NONE, Calibration
from gigagp.datasets import robot_arm
from gigagp.errors import InvalidParameter

LEVELS = np.array([0.001, 0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975, 0.999])


@given(st.integers(0, 2**32 - 1), st.integers(2, 2000), st.floats(0.01, 100))
@settings(max_examples=50, deadline=None)
def test_quantiles_are_in_order_and_follow_the_errors(seed, n, width):
    z = width * np.random.default_rng(seed).standard_t(3, n)
    found = Calibration.of(z, np.ones(len(z)))
    assert (np.diff(found.quantile(LEVELS)) >= 0).all()
    assert found.deviation == pytest.approx(np.sqrt(np.mean(z**2)))
    levels = ndtr(np.linspace(-2.5, 2.5, 11))
    assert found.deviation * found.quantile(levels) == pytest.approx(np.quantile(z, levels), abs=1e-9 * width)


def test_gaussian_errors_need_none():
    found = Calibration.of(np.random.default_rng(0).standard_normal(200_000), np.ones(200_000))
    assert found.deviation == pytest.approx(1, abs=0.01)
    assert found.quantile(LEVELS) == pytest.approx(ndtri(LEVELS), abs=0.05)
    assert np.array_equal(NONE.quantile(LEVELS), ndtri(LEVELS))


def test_heavy_tails_make_the_middle_narrow_and_the_ends_far():
    z = t(2.5).rvs(100_000, random_state=0)
    found = Calibration.of(z, np.ones(len(z)))
    assert found.deviation * found.quantile(LEVELS[1:-1]) == pytest.approx(t(2.5).ppf(LEVELS[1:-1]), abs=0.05)


def test_a_floor_where_certainty_is_false():
    """Some of the rows repeat inputs: the model was certain of them, and wrong."""
    rng = np.random.default_rng(0)
    variances = np.where(rng.random(4000) < 0.03, 1e-6, 1.0)
    found = Calibration.of(rng.standard_normal(4000), variances)
    assert found.floor > 0.1
    assert found.calibrated(variances).min() > 0.1
    honest = Calibration.of(np.sqrt(variances) * rng.standard_normal(4000), variances)
    assert honest.floor == 0
    assert honest.calibrated(variances) == pytest.approx(variances, rel=0.1)


@pytest.mark.parametrize("z", [np.zeros(10), np.array([np.inf, 1.0])])
def test_errors_that_tell_nothing_change_nothing(z):
    assert Calibration.of(z, np.ones(len(z))) == NONE


@pytest.fixture(scope="module")
def arm():
    X, y = robot_arm(5000)
    return X[:3000], y[:3000], X[3000:], y[3000:]


@pytest.fixture(scope="module")
def model(arm):
    return HGPRegressor(leaf_size=250, random_state=0).fit(*arm[:2])


def test_intervals_cover_what_they_say(arm, model):
    _, _, Z, z = arm
    assert model.report_.calibration.rows >= 1000
    for level in (0.5, 0.8, 0.95):
        low, high = model.predict_quantiles(Z, [0.5 - level / 2, 0.5 + level / 2]).T
        assert metrics.inside(z, low, high) == pytest.approx(level, abs=0.03)


def test_deviations_are_scaled_and_can_be_as_the_experts_say(arm, model):
    _, _, Z, _ = arm
    Z = Z[:50]
    mean, std = model.predict(Z, return_std=True)
    plain = HGPRegressor(leaf_size=250, calibrate=False, random_state=0).fit(*arm[:2])
    assert plain.report_.calibration is NONE
    theirs = plain.predict(Z, return_std=True)
    assert np.array_equal(mean, theirs[0])
    found, height = model.report_.calibration, model._target_scaling.scale[0]
    assert std == pytest.approx(np.sqrt((theirs[1] / height) ** 2 + found.floor) * height * found.deviation)
    assert plain.predict_quantiles(Z, 0.9)[:, 0] == pytest.approx(theirs[0] + ndtri(0.9) * theirs[1])
    model.calibrate = False
    try:
        assert np.array_equal(model.predict(Z, return_std=True)[1], theirs[1])
    finally:
        model.calibrate = True


def test_the_report_tells_of_it(model):
    assert f"deviations times {model.report_.calibration.deviation:.3g}" in repr(model.report_)


def test_it_is_kept_with_the_model(arm, model, tmp_path):
    Z = arm[2][:50]
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    for got, wanted in zip(loaded.predict(Z, return_std=True), model.predict(Z, return_std=True), strict=True):
        assert np.array_equal(got, wanted)
    assert np.array_equal(loaded.predict_quantiles(Z, LEVELS), model.predict_quantiles(Z, LEVELS))
    assert loaded.report_.calibration.rows == model.report_.calibration.rows


def test_predictions_to_files_and_evaluation_use_it(arm, model, tmp_path):
    import pyarrow.parquet as pq  # noqa: PLC0415

    _, _, Z, z = arm
    model.predict_file(Z[:100], tmp_path / "p.parquet", quantiles=[0.1, 0.9])
    table = pq.read_table(tmp_path / "p.parquet")
    written = np.stack([table["q0.1"], table["q0.9"]], axis=1)
    assert np.array_equal(written, model.predict_quantiles(Z[:100], [0.1, 0.9]))
    low, high = model.predict_quantiles(Z, [0.25, 0.75]).T
    assert model.evaluate(Z, z).coverage[0.5] == metrics.inside(z, low, high)


def test_few_rows_and_the_papers_partitions_have_none(arm):
    X, y = arm[:2]
    assert HGPRegressor(random_state=0).fit(X[:700], y[:700]).report_.calibration is NONE
    assert HGPRegressor(partition="random", random_state=0).fit(X[:2000], y[:2000]).report_.calibration is NONE


def test_other_values_are_refused(arm):
    with pytest.raises(InvalidParameter, match="calibrate must be True or False"):
        HGPRegressor(calibrate="yes").fit(*arm[:2])

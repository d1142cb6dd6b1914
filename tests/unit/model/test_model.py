"""A fitted model as one value, and the predictor that answers queries with it."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gigagp import HGPRegressor, InvalidParameter
from gigagp.combine import GPoE
from gigagp.data.scaling import Scaling
from gigagp.model.calibration import Calibration

NUMBERS = st.floats(-1e6, 1e6)
SCALES = st.floats(1e-3, 1e3)


@pytest.fixture(scope="module")
def fitted(wave):
    """A model of 600 rows in cells, which chooses how it predicts."""
    X, y = wave
    return HGPRegressor(leaf_size=100, method="neighbourhood", random_state=0).fit(X, y)


@given(X=arrays(float, (5, 3), elements=NUMBERS), centre=arrays(float, 3, elements=NUMBERS),
       scale=arrays(float, 3, elements=SCALES))  # fmt: skip
def test_restoring_scaled_values_gives_the_values(X, centre, scale):
    scaling = Scaling(centre, scale)
    restored = scaling.restore(scaling.apply(X, np.dtype(float)))
    np.testing.assert_allclose(restored, X, rtol=1e-12, atol=1e-9)


def test_a_model_is_frozen_and_says_what_the_estimator_says(fitted):
    model = fitted.model_
    with pytest.raises(FrozenInstanceError):
        model.local = False
    assert model.kernel == fitted.kernel_
    assert model.noise_variance == fitted.noise_variance_
    assert np.array_equal(model.theta, fitted.theta_)
    assert model.columns == fitted.n_features_in_ == 2
    assert model.units.columns == ("x0", "x1")


def test_the_predictor_gives_the_bits_of_predict(fitted, wave):
    X, predictor = wave[0][:40], fitted.predictor_
    with predictor.engine() as engine:
        mean, deviation = predictor.predict(X, engine)
        only_mean, nothing = predictor.predict(X, engine, with_variance=False)
    assert np.array_equal(np.stack([mean, deviation]), np.stack(fitted.predict(X, return_std=True)))
    np.testing.assert_allclose(only_mean, mean, rtol=0, atol=1e-9)
    assert nothing is None
    assert np.array_equal(predictor.distribution(mean, deviation).std, fitted.predict_distribution(X).std)


def test_a_method_that_the_fit_did_not_choose_is_not_calibrated(fitted):
    """The distribution of errors was learnt for one method, and says nothing of another."""
    assert fitted.predictor_.calibration.rows > 0
    changed = HGPRegressor(**{**fitted.get_params(), "method": "committee", "combine": GPoE()})
    changed._take(fitted.model_)
    predictor = changed.predictor_
    assert predictor.neighbourhood is None
    assert predictor.calibration == Calibration.none()
    assert isinstance(predictor.rule, GPoE)


def test_neighbourhoods_cannot_be_asked_of_a_model_without_them(fitted):
    without = HGPRegressor(**fitted.get_params())
    without._take(replace(fitted.model_, neighbourhood=None))
    with pytest.raises(InvalidParameter, match="fit again"):
        _ = without.predictor_

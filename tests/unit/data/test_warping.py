"""Normal scores: a monotone, invertible map that leaves evenly spread columns alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.preprocessing import QuantileTransformer

from gigagp.data.scaling import Moments
from gigagp.data.sphere import InputScaling
from gigagp.data.warping import KNOTS, Warp, learnt_warps, stacked, unevenness, unstacked

LEVELS = (np.arange(20_000) + 0.5) / 20_000


def warp(x):
    return Warp.learnt(0, x, float(np.mean(x)), float(np.std(x)))


@pytest.mark.parametrize("law", [stats.norm, stats.uniform, stats.logistic], ids=lambda law: law.name)
def test_evenly_spread_values_stay_as_they_are(law):
    assert warp(law.ppf(LEVELS)) is None


@pytest.mark.parametrize("law", [stats.expon, stats.t(3), stats.lognorm(1)], ids=["expon", "t", "lognorm"])
def test_long_tails_become_normal_scores(law):
    x = law.ppf(LEVELS)
    own = warp(x)
    scores = (own.apply(x) - x.mean()) / x.std()
    reference = QuantileTransformer(n_quantiles=1000, output_distribution="normal", subsample=None)
    expected = reference.fit_transform(x[:, None])[:, 0]
    inside = np.abs(expected) < 2.5
    np.testing.assert_allclose(scores[inside], expected[inside], atol=5e-3)
    assert len(own.values) <= KNOTS


def test_a_power_of_a_column_has_the_same_scores():
    x = np.random.default_rng(0).lognormal(0, 2, 5000)
    first, second = ((warp(v).apply(v) - v.mean()) / v.std() for v in (x, x**2))
    inside = np.abs(first) < 2.9
    np.testing.assert_allclose(first[inside], second[inside], atol=0.02)  # they are linear between the same knots


def test_few_values_have_the_scores_of_their_mean_ranks():
    x = np.repeat([0.0, 1.0, 7.0], [60, 30, 10])
    scores = (warp(x).apply(np.array([0.0, 1.0, 7.0])) - x.mean()) / x.std()
    np.testing.assert_allclose(scores, stats.norm.ppf([0.3, 0.75, 0.95]))
    assert warp(np.repeat([0.0, 1.0], [9, 1])) is None
    assert unevenness(x) == np.inf


@given(hnp.arrays(float, st.integers(3, 200), elements=st.floats(-1e6, 1e6, width=32)), st.floats(-1e9, 1e9))
def test_the_map_is_increasing_and_invertible_everywhere(x, far):
    own = warp(x)
    if own is None:
        return
    points = np.sort(np.concatenate([x, [far, far + 1]]))
    images = own.apply(points)
    assert (np.diff(images) >= -1e-15 * np.abs(images).max()).all()  # to rounding
    np.testing.assert_allclose(own.apply(own.restore(images)), images, rtol=1e-6, atol=1e-6 * np.std(x))
    assert (np.diff(own.values) > 0).all()
    assert (np.diff(own.warped) > 0).all()


def test_beyond_the_data_distances_are_those_of_plain_standardisation():
    x = stats.expon.ppf(LEVELS)
    far = np.array([1e3, 2e3])
    assert np.diff(warp(x).apply(far))[0] == pytest.approx(1e3)
    assert warp(x).slope(np.array([-1.0, 1e3])).tolist() == [1.0, 1.0]


def test_scaling_and_its_inverse_and_slopes():
    rng = np.random.default_rng(0)
    X = np.c_[rng.exponential(size=3000), rng.normal(size=3000), rng.lognormal(size=3000)]
    plain = Moments.of(X).scaling()
    scaling = InputScaling(plain, warps=learnt_warps(X, plain.centre, plain.scale, [0, 1, 2]))
    assert [each.column for each in scaling.warps] == [0, 2]
    Z = scaling.apply(X, np.dtype(float))
    np.testing.assert_allclose(scaling.restore(Z), X, rtol=1e-9)
    np.testing.assert_array_equal(Z[:, 1], InputScaling(plain).apply(X, np.dtype(float))[:, 1])
    step = 1e-6
    moved = (scaling.apply(X + step, np.dtype(float)) - Z) / step
    slopes = scaling.pulled(X, np.ones_like(X))
    agree = np.abs(moved / slopes - 1) < 1e-3
    assert agree.mean() > 0.9  # at a knot there are two slopes


def test_maps_are_written_as_one_array():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(500, 3))
    warps = learnt_warps(X, X.mean(axis=0), X.std(axis=0), [0, 2])
    again = unstacked(stacked(warps), 3)
    assert [each.column for each in again] == [0, 2]
    np.testing.assert_array_equal(again[1].apply(X[:, 2]), warps[1].apply(X[:, 2]))
    assert stacked(()).shape == (3, 0)
    bad = stacked(warps)
    for place, value in ((0, 7.0), (1, np.nan), (2, 1e9)):
        wrong = bad.copy()
        wrong[place, 0] = value
        with pytest.raises(ValueError, match=r"column|finite"):
            unstacked(wrong, 3)

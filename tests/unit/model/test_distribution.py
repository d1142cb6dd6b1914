"""One distribution: density, probabilities, quantiles, scores and samples agree with each other and with SciPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gigagp import HGPRegressor
from gigagp.model.distribution import PredictiveDistribution, Shape

WIDE = Shape.of(np.array([0.6, 0.3, 0.1]), np.array([0.5, 1.0, 6.0]))


SKEWED = Shape.of(np.array([0.6, 0.3, 0.1]), np.array([0.5, 1.0, 3.0]), np.array([-1.0, 0.5, 4.0]))


def mixture(weights, widths, centres):
    weights = np.array(weights) / np.sum(weights)
    return Shape.of(weights, np.array(widths), np.array(centres))


MIXTURES = st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.05, 20), st.floats(-5, 5)), min_size=1, max_size=6).map(
    lambda components: mixture(*zip(*components, strict=True))
)


@given(MIXTURES)
def test_density_integrates_to_one_with_mean_zero_and_variance_one(shape):
    z = np.linspace(-400, 400, 800_001)
    density = np.exp(shape.log_density(z))
    assert integrate.simpson(density, x=z) == pytest.approx(1, abs=1e-5)
    assert integrate.simpson(density * z, x=z) == pytest.approx(0, abs=1e-4)
    assert integrate.simpson(density * z**2, x=z) == pytest.approx(1, abs=1e-4)


@given(MIXTURES, st.floats(1e-6, 1 - 1e-6))
def test_quantiles_invert_the_cumulative_distribution(shape, level):
    z = shape.quantile(np.array([level]))
    np.testing.assert_allclose(shape.cdf(z), [level], atol=1e-10)
    np.testing.assert_allclose(shape.mirrored.quantile(np.array([1 - level])), -z, atol=1e-7 * (1 + abs(z[0])))
    size = shape.size_quantile(np.array([level]))
    np.testing.assert_allclose(shape.cdf(size) - shape.cdf(-size), [level], atol=1e-10)


@pytest.mark.parametrize("shape", [WIDE, SKEWED], ids=["symmetric", "skewed"])
@pytest.mark.parametrize("y", [-3.0, 0.0, 0.4, 12.0])
def test_the_cumulative_distribution_and_the_crps_are_integrals(y, shape):
    predicted = PredictiveDistribution(np.array([0.2]), np.array([1.5]), shape)
    x = np.linspace(-300, 300, 2_000_001)
    cdf = shape.cdf((x - 0.2) / 1.5)
    assert predicted.cdf(y)[0] == pytest.approx(np.interp(y, x, cdf), abs=1e-6)
    assert predicted.crps(y)[0] == pytest.approx(integrate.simpson((cdf - (x >= y)) ** 2, x=x), abs=1e-3)


def test_the_gaussian_is_scipys():
    predicted = PredictiveDistribution(np.array([1.0, -2.0]), np.array([0.5, 3.0]), Shape.gaussian())
    theirs = stats.norm(predicted.mean, predicted.std)
    y = np.array([0.3, 1.0])
    np.testing.assert_allclose(predicted.pdf(y), theirs.pdf(y))
    np.testing.assert_allclose(predicted.cdf(y), theirs.cdf(y))
    np.testing.assert_allclose(predicted.quantile(0.9), theirs.ppf(0.9))
    np.testing.assert_allclose(np.array(predicted.interval(0.8)), np.array(theirs.interval(0.8)))
    assert predicted.quantile([0.1, 0.5, 0.9]).shape == (2, 3)


@pytest.mark.parametrize("shape", [WIDE, SKEWED], ids=["symmetric", "skewed"])
def test_samples_have_the_moments_and_are_reproducible(shape):
    predicted = PredictiveDistribution(np.array([1.0, -2.0]), np.array([0.5, 3.0]), shape)
    drawn = predicted.sample(200_000, random_state=0)
    assert drawn.shape == (2, 200_000)
    np.testing.assert_allclose(drawn.mean(axis=1), predicted.mean, atol=0.05)
    np.testing.assert_allclose(drawn.std(axis=1), predicted.std, rtol=0.03)
    np.testing.assert_allclose(np.quantile(drawn[0], 0.9), predicted.quantile(0.9)[0], rtol=0.02)
    np.testing.assert_array_equal(predicted.sample(3, random_state=7), predicted.sample(3, random_state=7))


def test_some_queries_can_be_picked():
    predicted = PredictiveDistribution(np.arange(4.0), np.arange(1.0, 5.0), WIDE)
    assert len(predicted[1:3]) == 2
    np.testing.assert_array_equal(predicted[2].mean, [2.0])
    assert "4 queries" in repr(predicted)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 2.0])
def test_levels_outside_zero_and_one_are_refused(level):
    predicted = PredictiveDistribution(np.zeros(1), np.ones(1), WIDE)
    for call in (predicted.quantile, predicted.interval):
        with pytest.raises(ValueError, match="between 0 and 1, both excluded"):
            call(level)


def test_all_that_a_model_says_comes_from_one_distribution(wave):
    X, y = wave
    model = HGPRegressor(random_state=0).fit(X[:500], y[:500])
    predicted = model.predict_distribution(X[500:])
    mean, std = model.predict(X[500:], return_std=True)
    np.testing.assert_array_equal(predicted.mean, mean)
    np.testing.assert_array_equal(predicted.std, std)
    np.testing.assert_array_equal(model.predict_quantiles(X[500:], [0.1, 0.9]), predicted.quantile([0.1, 0.9]))
    scores = model.evaluate(X[500:], y[500:])
    assert scores.nlpd == pytest.approx(-predicted.log_pdf(y[500:]).mean(), rel=1e-12)
    assert scores.crps == pytest.approx(predicted.crps(y[500:]).mean(), rel=1e-12)
    low, high = predicted.interval(0.8)
    assert scores.coverage[0.8] == pytest.approx(np.mean((low <= y[500:]) & (y[500:] <= high)))

"""Predictive distributions of targets with a likelihood of their own, against SciPy and against sums."""

import numpy as np
import pytest
from scipy import stats

from gigagp.likelihoods import Bernoulli, Gamma, Gaussian, NegativeBinomial, Poisson
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.model.likelihood_distribution import LikelihoodDistribution, joined

MEANS = np.array([-2.0, 0.0, 3.0, 6.9])
D = 0.2
CERTAIN = {
    "poisson": (Poisson(), stats.poisson(np.exp(MEANS))),
    "negative_binomial": (NegativeBinomial(), stats.nbinom(1 / D, 1 / (1 + D * np.exp(MEANS)))),
    "gamma": (Gamma(), stats.gamma(1 / D, scale=D * np.exp(MEANS))),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_where_f_is_certain_the_distribution_is_that_of_scipy(name):
    own, law = CERTAIN[name]
    predicted = LikelihoodDistribution(own, MEANS, np.zeros(4), D)
    np.testing.assert_allclose(predicted.mean, law.mean())
    np.testing.assert_allclose(predicted.std, law.std())
    for level in (0.025, 0.37, 0.5, 0.975):
        np.testing.assert_allclose(predicted.quantile(level), law.ppf(level), rtol=1e-7)
    y = law.ppf(0.8)
    np.testing.assert_allclose(predicted.cdf(y), law.cdf(y))
    density = law.pmf(y) if own.discrete else law.pdf(y)
    np.testing.assert_allclose(predicted.pdf(y), density, rtol=1e-5)


def uncertain(own):
    return LikelihoodDistribution(own, np.array([-1.0, 0.5, 3.0, 6.0]), np.array([0.7, 1.2, 0.4, 0.3]), D)


@pytest.mark.parametrize("own", [Poisson(), NegativeBinomial(), Bernoulli()], ids=lambda own: type(own).__name__)
def test_a_discrete_distribution_agrees_with_its_probabilities(own):
    predicted = uncertain(own)
    k = np.arange(0, 2 if isinstance(own, Bernoulli) else 8000)
    for i in range(len(predicted)):
        p = LikelihoodDistribution(
            own, np.full(len(k), predicted.latent_mean[i]), np.full(len(k), predicted.latent_std[i]), D
        ).pmf(k)
        assert p.sum() == pytest.approx(1, abs=1e-4)
        assert predicted.mean[i] == pytest.approx(k @ p, rel=2e-3)
        assert predicted[i].cdf(k[3 % len(k)])[0] == pytest.approx(p[: 3 % len(k) + 1].sum(), abs=1e-6)
        F = np.cumsum(p)
        for level in (0.1, 0.5, 0.95):
            assert predicted.quantile(level)[i] == np.argmax(level <= F)
        for y in (0, 1, int(np.argmax(F >= 0.7))):
            score = ((F - (k >= y)) ** 2).sum()
            assert predicted[i].crps(y)[0] == pytest.approx(score, rel=2e-3, abs=1e-6)
        low, high = predicted[i].pit(1.0)
        assert (low[0], high[0]) == (pytest.approx(F[0]), pytest.approx(F[1]))


def test_quantiles_and_scores_of_a_gaussian_target_are_those_of_a_gaussian():
    mean, std = np.array([0.0, -2.0, 5.0]), np.array([0.5, 1.0, 1e-3])
    predicted = LikelihoodDistribution(Gaussian(), mean, std, D)
    right = PredictiveDistribution(mean, np.sqrt(std**2 + D), Shape.gaussian())
    y = np.array([0.3, -4.0, 5.0])
    np.testing.assert_allclose(predicted.std, right.std)
    np.testing.assert_allclose(predicted.quantile([0.01, 0.5, 0.9]), right.quantile([0.01, 0.5, 0.9]), atol=1e-8)
    for name in ("log_pdf", "cdf", "crps"):
        np.testing.assert_allclose(getattr(predicted, name)(y), getattr(right, name)(y), rtol=1e-7)


@pytest.mark.parametrize(
    "own", [Poisson(), NegativeBinomial(), Gamma(), Bernoulli()], ids=lambda own: type(own).__name__
)
def test_draws_have_the_moments_and_the_score(own):
    predicted = uncertain(own)
    draws = predicted.sample(40_000, random_state=1)
    error = 5 * draws.std(axis=1) / 200
    assert (np.abs(draws.mean(axis=1) - predicted.mean) < error).all()
    y = np.ceil(predicted.mean) if own.discrete else predicted.mean
    half = 0.5 * np.abs(draws[:, :20_000] - draws[:, 20_000:]).mean(axis=1)
    score = np.abs(draws - y[:, None]).mean(axis=1) - half
    np.testing.assert_allclose(predicted.crps(y), score, rtol=0.05, atol=0.01)
    np.testing.assert_array_equal(draws, predicted.sample(40_000, random_state=1))


def test_intervals_of_counts_are_counts_that_are_not_negative():
    low, high = LikelihoodDistribution(Poisson(), np.log([0.5]), np.array([0.1]), 1.0).interval(0.95)
    assert (low[0], high[0]) == (0.0, 2.0)  # a Gaussian of this mean and variance begins at -0.9


def test_impossible_targets_have_no_probability():
    predicted = LikelihoodDistribution(Poisson(), np.zeros(3), np.ones(3), 1.0)
    np.testing.assert_array_equal(predicted.pmf([-1.0, 0.5, 2.0])[:2], [0.0, 0.0])
    assert predicted.cdf(-1.0).tolist() == [0.0] * 3
    assert predicted.log_pmf(2.0)[0] == predicted.log_pdf([2.0, 2.0, 2.0])[2]


@pytest.mark.parametrize("own", [NegativeBinomial(), Gamma()], ids=lambda own: type(own).__name__)
def test_a_prediction_does_not_depend_on_its_batch(own):
    rng = np.random.default_rng(0)
    whole = LikelihoodDistribution(own, rng.normal(2, 1, 37), rng.uniform(0.01, 1, 37), D)
    y = whole.quantile(0.6)
    parts = joined([whole[:5], whole[5:]])
    np.testing.assert_array_equal(whole.quantile([0.1, 0.9]), parts.quantile([0.1, 0.9]))
    for i in (0, 20):
        one = whole[i]
        assert (one.mean[0], one.std[0]) == (whole.mean[i], whole.std[i])
        assert one.quantile(0.9)[0] == whole.quantile(0.9)[i]
        assert one.log_pdf(y[i])[0] == whole.log_pdf(y)[i]
        assert one.crps(y[i])[0] == whole.crps(y)[i]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_levels_outside_0_and_1_are_errors(level):
    predicted = LikelihoodDistribution(Poisson(), np.zeros(1), np.ones(1), 1.0)
    for call in (predicted.quantile, predicted.interval):
        with pytest.raises(ValueError, match="between 0 and 1"):
            call(level)

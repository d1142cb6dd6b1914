"""The likelihoods against SciPy's distributions and the conformance kit, which must notice mistakes."""

import numpy as np
import pytest
from scipy import special, stats

from gigagp.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Derivatives,
    Gamma,
    Gaussian,
    NegativeBinomial,
    Poisson,
    pointwise,
)
from gigagp.testing import check_likelihood

D = 0.4
LAWS = {
    Poisson: lambda f: stats.poisson(np.exp(f)),
    NegativeBinomial: lambda f: stats.nbinom(1 / D, 1 / (1 + D * np.exp(f))),
    Gamma: lambda f: stats.gamma(1 / D, scale=D * np.exp(f)),
    Bernoulli: lambda f: stats.bernoulli(special.expit(f)),
    Gaussian: lambda f: stats.norm(f, np.sqrt(D)),
}


@pytest.mark.parametrize("kind", [*LIKELIHOODS.values(), Gaussian], ids=lambda kind: kind.__name__)
def test_every_likelihood_passes_the_conformance_kit(kind):
    check_likelihood(kind())


@pytest.mark.parametrize("kind", LAWS, ids=lambda kind: kind.__name__)
def test_each_is_the_distribution_of_scipy(kind):
    own, f = kind(), np.linspace(-3, 4, 29)
    law = LAWS[kind](f)
    y = law.rvs(random_state=np.random.default_rng(0)).astype(float)
    logs = law.logpmf(y) if own.discrete else law.logpdf(y)
    np.testing.assert_allclose(own.log_density(y, f, D), logs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own.cdf(y, f, D), law.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(own.mean(f), law.mean(), rtol=1e-9)
    np.testing.assert_allclose(own.variance(f, D), law.var(), rtol=1e-9)
    compiled = [
        pointwise.log_density(own.compiled, D, *each) + pointwise.log_constant(own.compiled, D, each[0])
        for each in zip(y, f, strict=True)
    ]
    np.testing.assert_allclose(compiled, logs, rtol=1e-9, atol=1e-12)


def test_what_each_can_have_as_a_target():
    y = np.array([-1.0, 0.0, 0.5, 1.0, 3.0, np.nan, np.inf])
    assert Poisson().is_possible(y).tolist() == [False, True, False, True, True, False, False]
    assert NegativeBinomial().is_possible(y).tolist() == [False, True, False, True, True, False, False]
    assert Gamma().is_possible(y).tolist() == [False, False, True, True, True, False, False]
    assert Bernoulli().is_possible(y).tolist() == [False, True, True, True, False, False, False]


def test_digamma_is_that_of_scipy():
    x = np.geomspace(1e-3, 1e7, 200)
    np.testing.assert_allclose([pointwise.digamma(each) for each in x], special.digamma(x), rtol=1e-12)


class WrongSlope(Poisson):
    compiled = pointwise.PYTHON

    def derivatives(self, y, f, d):
        right = super().derivatives(y, f, d)
        return Derivatives(1.001 * right.slope, right.curvature, right.third)


class WrongVariance(Poisson):
    compiled = pointwise.PYTHON

    def variance(self, f, d):
        return 1.1 * super().variance(f, d)


class WrongDistribution(Gamma):
    compiled = pointwise.PYTHON

    def cdf(self, y, f, d):
        return super().cdf(1.01 * y, f, d)


class WrongCompiled(NegativeBinomial):
    compiled = pointwise.POISSON


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (WrongSlope(), "slope of WrongSlope"),
        (WrongVariance(), "variance of WrongVariance"),
        (WrongDistribution(), "must be the slope of its cdf"),
        (WrongCompiled(), "compiled code"),
    ],
    ids=lambda each: each if isinstance(each, str) else type(each).__name__,
)
def test_the_kit_notices_mistakes(wrong, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_likelihood(wrong)

"""Targets whose f is integrated out, against adaptive quadrature; and f far from all rows."""

import numpy as np
import pytest
from scipy import integrate, stats

from gigagp.likelihoods import Bernoulli, Gamma, Gaussian, NegativeBinomial, Poisson
from gigagp.likelihoods.far import far_latent
from gigagp.likelihoods.marginal import log_marginal
from gigagp.likelihoods.pointwise import PYTHON

CASES = [
    (Poisson(), 0.0, -1.0, 0.8), (Poisson(), 1200.0, 6.5, 0.5), (Poisson(), 3.0, 8.0, 2.0),
    (NegativeBinomial(), 0.0, 2.0, 1.0), (NegativeBinomial(), 57.0, 2.0, 1.5), (Gamma(), 0.02, 1.0, 0.7),
    (Gamma(), 30.0, 1.0, 0.1), (Bernoulli(), 1.0, -4.0, 3.0), (Bernoulli(), 0.0, 0.3, 0.01),
]  # fmt: skip


@pytest.mark.parametrize(("own", "y", "mean", "deviation"), CASES)
def test_integral_over_f(own, y, mean, deviation):
    d = 0.3

    def integrand(f):
        return float(np.exp(own.log_density(np.array(y), np.array(f), d)) * stats.norm.pdf(f, mean, deviation))

    ends = mean - 9 * deviation, mean + 9 * deviation
    places = np.linspace(*ends, 60)
    right = integrate.quad(integrand, *ends, points=places[1:-1], epsabs=0, epsrel=1e-10, limit=400)[0]
    arrays = (np.array([each]) for each in (y, mean, deviation**2))
    (got,) = log_marginal(own, d, *arrays)
    assert got == pytest.approx(np.log(right), abs=2e-5)
    plain = type("Plain", (type(own),), {"compiled": PYTHON})()
    (by_calls,) = log_marginal(plain, d, np.array([y]), np.array([mean]), np.array([deviation**2]))
    assert by_calls == pytest.approx(got, abs=1e-9)


def test_a_gaussian_target_has_a_closed_form():
    y, mean, variance = np.array([1.0, -3.0]), np.array([0.5, 2.0]), np.array([0.2, 4.0])
    right = stats.norm.logpdf(y, mean, np.sqrt(variance + 0.3))
    np.testing.assert_allclose(log_marginal(Gaussian(), 0.3, y, mean, variance), right, rtol=1e-10)


def test_a_share_is_the_average_of_trials():
    one, zero, share = (
        log_marginal(Bernoulli(), 1.0, np.array([y]), np.zeros(1), np.ones(1)) for y in (1.0, 0.0, 0.25)
    )
    assert share == pytest.approx(0.25 * one + 0.75 * zero)


@pytest.mark.parametrize(
    ("own", "mean", "variance", "d"),
    [(Poisson(), 3.0, 9.0, 1.0), (NegativeBinomial(), 3.0, 20.0, 0.2), (Gamma(), 2.0, 5.0, 0.3)],
)
def test_far_from_all_rows_the_moments_are_those_of_all_targets(own, mean, variance, d):
    far = far_latent(own, mean, variance, 1000, d)
    f = far.mean + np.sqrt(far.variance) * np.random.default_rng(0).standard_normal(2_000_000)
    assert own.mean(f).mean() == pytest.approx(mean, rel=0.01)
    assert own.variance(f, d).mean() + own.mean(f).var() == pytest.approx(variance, rel=0.03)


@pytest.mark.parametrize(
    ("own", "mean", "variance"),
    [(Poisson(), 3.0, 1.0), (Poisson(), 0.0, 0.0), (Bernoulli(), 0.2, 0.16), (Bernoulli(), 1.0, 0.0)],
)
def test_f_is_constant_where_it_need_not_vary(own, mean, variance):
    far = far_latent(own, mean, variance, 100, 1.0)
    assert far.variance == 0.0
    assert own.mean(np.array(far.mean)) == pytest.approx(mean, abs=0.006)

"""Metrics against quadrature, simulation and SciPy."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from gigagp import metrics

means = st.floats(-5, 5).map(lambda v: round(v, 3))  # no two so near that quadrature stumbles between them
deviations = st.floats(0.05, 20)


def random_gaussians(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 3, n), rng.normal(0, 3, n), rng.uniform(0.1, 4, n)


def integral(function, centres, width):
    """Over forty widths beyond the centres, with breaks where the function bends."""
    breaks = [c + k * width for c in centres for k in (-6, 0, 6)]
    edges = sorted({min(centres) - 40 * width, *breaks, max(centres) + 40 * width})
    return sum(integrate.quad(function, a, b, epsabs=1e-12, epsrel=1e-10)[0] for a, b in pairwise(edges))


def test_rmse():
    assert metrics.rmse(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 3.0])) == pytest.approx(np.sqrt(4 / 3))
    assert metrics.rmse(np.ones(4), np.ones(4)) == 0


def test_nlpd_is_the_mean_log_density():
    y, mean, std = random_gaussians()
    assert metrics.nlpd(y, mean, std) == pytest.approx(-stats.norm(mean, std).logpdf(y).mean(), rel=1e-12)


@given(means, means, deviations)
def test_crps_is_the_area_between_the_cdf_and_a_step(y, mean, std):
    """CRPS = integral of (F(t) - [t >= y])^2, Gneiting & Raftery 2007, eq. 20."""
    wanted = integral(lambda t: (stats.norm.cdf(t, mean, std) - (t >= y)) ** 2, [mean, y], std)
    got = metrics.crps(np.array([y]), np.array([mean]), np.array([std]))
    assert got == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_crps_is_a_mean_over_queries():
    y, mean, std = random_gaussians()
    singles = [metrics.crps(y[i : i + 1], mean[i : i + 1], std[i : i + 1]) for i in range(len(y))]
    assert metrics.crps(y, mean, std) == pytest.approx(np.mean(singles), rel=1e-12)


@given(means, st.floats(0.2, 5), means, st.floats(0.2, 5))
def test_kl_is_the_integral_of_p_ln_p_over_q(mean, std, other_mean, other_std):
    p, q = stats.norm(mean, std), stats.norm(other_mean, other_std)
    wanted = integral(lambda t: p.pdf(t) * (p.logpdf(t) - q.logpdf(t)), [mean], std)
    got = metrics.kl_divergence(np.array([mean]), np.array([std]), np.array([other_mean]), np.array([other_std]))
    assert got[0] == pytest.approx(wanted, rel=1e-6, abs=1e-8)


@given(means, deviations)
def test_kl_of_a_gaussian_to_itself_is_zero(mean, std):
    a, b = np.array([mean]), np.array([std])
    assert metrics.kl_divergence(a, b, a, b)[0] == 0


def test_kl_comes_query_by_query():
    mean, other_mean, std = random_gaussians()
    assert metrics.kl_divergence(mean, std, other_mean, 2 * std).shape == mean.shape


def test_likelihood_ratio_is_the_geometric_mean_ratio_of_densities():
    """exp(-KL(p || q)) = exp(E_p[ln q - ln p]): by drawing from the reference p."""
    mean, other_mean, std = 0.3, 0.9, 1.1
    x = np.random.default_rng(0).normal(mean, std, 400_000)
    logs = stats.norm(other_mean, 1.7).logpdf(x) - stats.norm(mean, std).logpdf(x)
    error = logs.std() / np.sqrt(len(x))
    got = metrics.likelihood_ratio(*(np.array([v]) for v in (mean, std, other_mean, 1.7)))
    assert abs(np.log(got) - logs.mean()) < 5 * error


def test_likelihood_ratio_is_averaged_over_queries_and_one_for_equals():
    mean, other_mean, std = random_gaussians()
    assert metrics.likelihood_ratio(mean, std, mean, std) == 1
    each = np.exp(-metrics.kl_divergence(mean, std, other_mean, 2 * std))
    assert metrics.likelihood_ratio(mean, std, other_mean, 2 * std) == pytest.approx(each.mean())
    assert metrics.likelihood_ratio(mean, std, other_mean, 2 * std) < 1


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_coverage_of_an_honest_model_is_its_level(level):
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=100_000), rng.uniform(0.1, 3, 100_000)
    y = rng.normal(mean, std)
    assert metrics.coverage(y, mean, std, level) == pytest.approx(level, abs=5 * np.sqrt(level * (1 - level) / 1e5))


def test_pit_of_an_honest_model_is_uniform():
    y = np.random.default_rng(0).normal(2.0, 3.0, 4_000)
    pit = metrics.pit(y, np.full(4_000, 2.0), np.full(4_000, 3.0))
    assert stats.kstest(pit, "uniform").pvalue > 0.01
    assert metrics.pit([2.0], [2.0], [3.0]) == pytest.approx([0.5])


def test_pit_is_the_inverse_of_the_quantiles():
    z = np.random.default_rng(0).standard_t(4, 500)
    zeros, ones = np.zeros(500), np.ones(500)
    assert metrics.pit(z, zeros, ones, stats.norm.ppf) == pytest.approx(metrics.pit(z, zeros, ones), abs=1e-5)
    assert metrics.pit(z, zeros, ones, lambda p: stats.t(4).ppf(p)) == pytest.approx(stats.t(4).cdf(z), abs=1e-5)


def test_coverage_of_the_overconfident_is_too_small():
    y = np.random.default_rng(2).normal(size=10_000)
    wanted = stats.norm.cdf(0.98) - stats.norm.cdf(-0.98)  # 95% of half the deviation: 1.96 / 2
    assert metrics.coverage(y, np.zeros(10_000), np.full(10_000, 0.5)) == pytest.approx(wanted, abs=0.02)


@pytest.mark.parametrize("metric", [metrics.nlpd, metrics.crps])
def test_proper_scores_are_best_for_the_truth(metric):
    y = np.random.default_rng(3).normal(0.5, 2.0, 20_000)
    ones = np.ones(len(y))
    best = metric(y, 0.5 * ones, 2 * ones)
    assert all(metric(y, m * ones, s * ones) > best for m, s in [(0.0, 2.0), (1.0, 2.0), (0.5, 1.5), (0.5, 2.7)])


def test_lists_will_do():
    assert metrics.rmse([1.0, 2.0], [1.0, 2.0]) == 0
    assert metrics.nlpd([0.0], [0.0], [1.0]) == pytest.approx(0.5 * np.log(2 * np.pi))
    assert metrics.coverage([0.0, 9.0], [0.0, 0.0], [1.0, 1.0]) == 0.5
    assert metrics.crps([0.0], [0.0], [1.0]) == pytest.approx((np.sqrt(2) - 1) / np.sqrt(np.pi))

"""The adapter to skpro: skpro's own checks, and the predictive distribution of the wrapped regressor."""

import numpy as np
import pytest
from scipy.integrate import quad

pytest.importorskip("skpro")

import pandas as pd
from skpro.utils import check_estimator

from gigagp import HGPRegressor
from gigagp.errors import InvalidParameter
from gigagp.skpro import HGPProbaRegressor, ScaleMixture

rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-2, 2, (200, 2)), columns=["a", "b"])
y = pd.DataFrame({"y": 3 + np.sin(2 * X["a"]) + 0.3 * X["b"] + 0.2 * rng.standard_t(4, 200)})
SETTINGS = {"kernel": "matern52", "method": "neighbourhood", "neighbours": 32, "random_state": 0, "n_jobs": 1}


def test_the_distribution_is_that_of_the_regressor():
    wrapped = HGPProbaRegressor(HGPRegressor(**SETTINGS)).fit(X[:150], y[:150])
    own = HGPRegressor(**SETTINGS).fit(X[:150], y["y"][:150]).predict_distribution(X[150:])
    prediction = wrapped.predict_proba(X[150:])
    truth = y[150:].to_numpy()
    np.testing.assert_allclose(prediction.mean()["y"], own.mean)
    np.testing.assert_allclose(prediction.var()["y"], own.variance)
    np.testing.assert_allclose(prediction.log_pdf(y[150:])["y"], own.log_pdf(truth[:, 0]))
    np.testing.assert_allclose(prediction.cdf(y[150:])["y"], own.cdf(truth[:, 0]))
    np.testing.assert_allclose(prediction.ppf(0.9)["y"], own.quantile(0.9))
    crps = prediction.energy(y[150:]).to_numpy()[:, 0] - prediction.energy().to_numpy()[:, 0] / 2
    np.testing.assert_allclose(crps, own.crps(truth[:, 0]))
    updated = wrapped.update(X[150:], y[150:]).regressor_
    assert updated.n_rows_ == 200


def test_energies_are_those_of_the_density():
    mixture = ScaleMixture(mu=1.0, sigma=2.0, weights=[0.7, 0.3], widths=[0.5, 1.3], centres=[-0.3, 0.7])

    def absolute(x):
        return quad(lambda t: abs(t - x) * mixture.pdf(t), -60, 60, limit=200, points=[x, 1.0])[0]

    np.testing.assert_allclose(mixture.energy(2.5), absolute(2.5), rtol=1e-6)
    spread = quad(lambda x: absolute(x) * mixture.pdf(x), -60, 60, limit=200, points=[1.0])[0]
    np.testing.assert_allclose(mixture.energy(), spread, rtol=1e-5)


def test_only_gaussian_targets_are_taken():
    with pytest.raises(InvalidParameter, match="HGPRegressor"):
        HGPProbaRegressor("matern52").fit(X[:50], y[:50])
    counts = pd.DataFrame({"y": np.arange(60) % 5})
    with pytest.raises(InvalidParameter, match="Gaussian"):
        HGPProbaRegressor(HGPRegressor(likelihood="poisson", random_state=0)).fit(X[:60], counts)


@pytest.mark.filterwarnings("ignore:.*does not have a numerically exact implementation")
def test_the_distribution_passes_the_checks_of_skpro():
    results = check_estimator(ScaleMixture, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # skpro's own tables are small, so that columns are ignored
def test_the_regressor_passes_the_checks_of_skpro():
    results = check_estimator(HGPProbaRegressor, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}

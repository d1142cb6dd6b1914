"""The shape of errors: skewed and clustered errors are learnt where they are clear, and the mean is always zero."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from gigagp.model.calibration import Calibration, Setting
from gigagp.model.distribution import Shape
from gigagp.model.latent import LatentPrediction
from gigagp.model.shape_learning import _balanced, learn_shape, learn_symmetric

pytestmark = pytest.mark.full_choices  # as many steps of expectation maximisation as users get
LEVELS = np.array([0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975])


def shape_of(components):
    used = components.used
    return Shape.of(used.weights, used.widths, used.centres)


def clustered(rng, n):
    """Errors most of which have one of three values, like those of targets that repeat."""
    values = rng.choice([-0.2, 0.05, 0.6], size=n, p=[0.6, 0.2, 0.2])
    spread = 1 + 0.2 * rng.standard_normal(n)
    return np.where(rng.random(n) < 0.7, values * spread, rng.standard_normal(n)) - 0.7 * 0.01


SKEWED = {
    "gamma": stats.gamma(2),
    "mirrored gamma": stats.gamma(2),
    "log-normal": stats.lognorm(0.6),
}


@pytest.mark.parametrize("name", SKEWED)
def test_quantiles_of_skewed_errors_are_learnt(name):
    law = SKEWED[name]
    sign = -1 if name.startswith("mirrored") else 1
    z = (law.rvs(8000, random_state=0) - law.mean()) / law.std()
    learnt = shape_of(learn_shape(sign * z, 30.0))
    true = (law.ppf(LEVELS) - law.mean()) / law.std()
    expected = true if sign == 1 else -true[::-1]
    np.testing.assert_allclose(learnt.cdf(expected), LEVELS, atol=0.02)
    symmetric = shape_of(learn_symmetric(sign * z, 30.0))
    fresh = sign * (law.rvs(8000, random_state=1) - law.mean()) / law.std()
    assert learnt.log_density(fresh).mean() > symmetric.log_density(fresh).mean() + 0.03


@pytest.mark.parametrize(("law", "dof"), [(stats.norm(), 30.0), (stats.t(3), 4.0)], ids=["Gaussian", "t"])
def test_symmetric_errors_keep_the_symmetric_components(law, dof):
    larger = [learn_shape(law.rvs(2000, random_state=seed), dof).centres.any() for seed in range(20)]
    assert np.mean(larger) <= 0.1  # a gain of two standard errors occurs by chance


def test_intervals_cover_errors_that_cluster():
    rng = np.random.default_rng(0)
    learn, fresh = clustered(rng, 8000), clustered(rng, 20_000)
    prediction = LatentPrediction(np.zeros(8000), np.full(8000, 0.02), np.ones(8000))
    symmetric = Calibration.learnt(prediction, learn, Setting(noise=0.01, prior=2.0))
    calibration = symmetric.refined(prediction, learn)
    assert not symmetric.shape.centres.any()
    assert calibration.score < symmetric.score - 0.1
    deviation = np.sqrt(calibration.variance(prediction.at(slice(1))))[0]
    for level in (0.5, 0.8, 0.95):
        low, high = deviation * calibration.shape.quantile(np.array([0.5 - level / 2, 0.5 + level / 2]))
        assert np.mean((low <= fresh) & (fresh <= high)) == pytest.approx(level, abs=0.02)


@given(st.integers(0, 10_000), st.integers(50, 400), st.sampled_from(["gamma", "t", "atoms", "outlier"]))
def test_the_mean_is_zero_and_the_variance_is_that_of_the_errors(seed, n, kind):
    rng = np.random.default_rng(seed)
    draw = {
        "gamma": lambda: rng.gamma(0.5, size=n) - 0.5,
        "t": lambda: rng.standard_t(3, n),
        "atoms": lambda: rng.choice([0.0, 0.3, -2.0], n),
        "outlier": lambda: np.append(0.1 * rng.standard_normal(n - 1), 50.0),
    }[kind]
    components = learn_shape(draw(), 6.0)
    mean = float(components.weights @ components.centres)
    assert abs(mean) < 1e-6 * max(1.0, components.variance**0.5)
    assert np.isfinite(components.variance)
    assert components.weights.sum() == pytest.approx(1)
    assert (components.weights >= 0).all()


def test_balanced_weights_maximise_the_likelihood_under_the_constraints():
    """The multipliers give the maximum that SciPy's constrained optimiser finds."""
    rng = np.random.default_rng(3)
    centres, widths = np.array([0.0, 0.0, 0.7, -0.7, 1.5, -1.5]), np.array([0.3, 1.2, 0.3, 0.3, 0.5, 0.5])
    rows = rng.uniform(1, 20, 6)
    p, squares = rows / rows.sum(), centres**2 + widths**2
    result = minimize(
        lambda w: -(p @ np.log(w)), p, jac=lambda w: -p / w, bounds=[(1e-9, 1)] * 6, method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() - 1},
            {"type": "eq", "fun": lambda w: w @ centres},
            {"type": "eq", "fun": lambda w: w @ squares - p @ squares},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert result.success
    np.testing.assert_allclose(_balanced(rows, centres, widths), result.x, atol=1e-6)


def test_refining_keeps_deviations_that_were_learnt_from_other_rows():
    """Where all rows have larger errors than those that the shape is learnt from, deviations stay larger."""
    rng = np.random.default_rng(0)
    y = 0.3 * (rng.exponential(1.0, 4000) - 1)
    prediction = LatentPrediction(np.zeros(4000), np.full(4000, 0.02), np.ones(4000))
    own = Calibration.learnt(prediction, y, Setting(noise=0.01, prior=2.0))
    wider = replace(own, coefficients=own.coefficients + np.array([2 * np.log(1.5), 0.0, 0.0]), floor=0.0)
    own = replace(own, floor=0.0)
    ratio = wider.refined(prediction, y).variance(prediction) / own.refined(prediction, y).variance(prediction)
    np.testing.assert_allclose(ratio, 1.5**2, rtol=0.05)


def test_symmetric_and_gaussian_calibrations_stay_as_they_are():
    rng = np.random.default_rng(0)
    prediction = LatentPrediction(np.zeros(2000), np.full(2000, 0.02), np.ones(2000))
    setting = Setting(noise=0.01, prior=2.0)
    normal, skewed = 0.3 * rng.standard_normal(2000), 0.3 * (rng.exponential(1.0, 2000) - 1)
    symmetric = Calibration.learnt(prediction, normal, setting)
    assert symmetric.refined(prediction, normal) is symmetric
    gaussian = Calibration.learnt(prediction, skewed, setting, gaussian=True)
    assert gaussian.refined(prediction, skewed) is gaussian
    assert Calibration.none().refined(prediction, skewed) == Calibration.none()


def test_intervals_cover_heavy_tailed_and_skewed_errors():
    """A few very large errors determine the deviation, in which all others are small."""
    rng = np.random.default_rng(0)

    def draw(n):
        kind, skewed = rng.random(n), rng.gamma(2.0, size=n) - 2
        return np.where(kind < 0.005, 10 * rng.standard_t(4, n), np.where(kind < 0.9, 0.05, 0.01) * skewed)

    learn, fresh = draw(8000), draw(20_000)
    prediction = LatentPrediction(np.zeros(8000), np.full(8000, 0.02), np.ones(8000))
    calibration = Calibration.learnt(prediction, learn, Setting(noise=0.01, prior=2.0)).refined(prediction, learn)
    assert calibration.shape.centres.any()
    deviation = np.sqrt(calibration.variance(prediction.at(slice(1))))[0]
    for level in (0.5, 0.8, 0.95):
        low, high = deviation * calibration.shape.quantile(np.array([0.5 - level / 2, 0.5 + level / 2]))
        assert np.mean((low <= fresh) & (fresh <= high)) == pytest.approx(level, abs=0.02)

"""The link from latent functions to probabilities, learnt from held-out rows."""

import numpy as np
import pytest
from scipy.special import expit

from gigagp.likelihoods import Classes
from gigagp.model import class_calibration
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.class_evaluation import CalibrationBins
from gigagp.model.laplace_neighbourhood import LatentFunctions

PRIOR = 9.0


def latents(mean, variance=1.0):
    mean = np.asarray(mean, float)[:, None]
    return LatentFunctions(mean, np.full_like(mean, variance), np.ones_like(mean))


def drawn(rows, seed):
    """Latent functions and labels whose probabilities no link of four parameters can express."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(0, 2.5, rows)
    return latents(mean), (rng.random(rows) < expit(mean + 0.8 * np.sin(mean))).astype(int)


def error(calibration, classes, held_out, codes):
    bins = CalibrationBins()
    bins.add(np.exp(calibration.log_probabilities(classes, held_out, PRIOR)), codes)
    return bins.error


@pytest.fixture(scope="module")
def learnt():
    f, codes = drawn(20_000, 0)
    classes = Classes((float((codes == 0).sum()), float((codes == 1).sum())), (1.0, 1.0))
    return classes, ClassCalibration.learnt(classes, f, codes, PRIOR, np.ones(len(codes))), f, codes


def test_probabilities_that_few_parameters_cannot_express_are_corrected(learnt, monkeypatch):
    classes, corrected, f, codes = learnt
    monkeypatch.setattr(class_calibration, "_LEAST_CORRECTED_ROWS", np.inf)
    plain = ClassCalibration.learnt(classes, f, codes, PRIOR, np.ones(len(codes)))
    assert plain.knots == ()
    new = drawn(50_000, 1)
    assert error(corrected, classes, *new) < 0.5 * error(plain, classes, *new)
    assert corrected.losses(classes, *new, PRIOR).mean() < plain.losses(classes, *new, PRIOR).mean() - 1e-3


def test_probabilities_increase_with_the_latent_function(learnt):
    classes, calibration, _, _ = learnt
    for variance in (0.0, 1.0, 8.0, PRIOR):
        p = calibration.log_probabilities(classes, latents(np.linspace(-20, 20, 2001), variance), PRIOR)[:, 1]
        assert (np.diff(p) >= 0).all()


def test_far_from_all_rows_the_probabilities_are_the_shares(learnt):
    classes, calibration, _, _ = learnt
    far = np.exp(calibration.log_probabilities(classes, latents(classes.means, PRIOR), PRIOR))
    np.testing.assert_allclose(far[0], classes.shares)


def test_a_sample_with_other_shares_of_the_classes_is_weighted():
    rng = np.random.default_rng(0)
    mean = rng.normal(-1, 2, 40_000)
    codes = (rng.random(len(mean)) < expit(mean)).astype(int)
    classes = Classes((float((codes == 0).sum()), float((codes == 1).sum())), (1.0, 1.0))
    unlucky = np.flatnonzero((codes == 1) | (rng.random(len(codes)) < 0.8))  # too few of the first class
    calibration = ClassCalibration.learnt(classes, latents(mean[unlucky]), codes[unlucky], PRIOR, np.ones(len(unlucky)))
    p = np.exp(calibration.log_probabilities(classes, latents(mean), PRIOR))[:, 1]
    assert p.mean() == pytest.approx(codes.mean(), abs=2e-3)

"""Where training starts: columns of numbers that identify things."""

import numpy as np
import pytest

from gigagp import HGPClassifier
from gigagp.fit.starts import _coincidence

ROUTES, ROWS = 100, 4000


def timetable(seed):
    """Routes, identified by their lengths, on which the label depends on the time as on no other route."""
    rng = np.random.default_rng(seed)
    lengths, phases = np.random.default_rng(0).permutation(ROUTES), np.random.default_rng(1).uniform(0, 6.28, ROUTES)
    route, time = rng.integers(ROUTES, size=ROWS), rng.uniform(0, 6.28, ROWS)
    late = rng.random(ROWS) < 1 / (1 + np.exp(-6 * np.sin(2 * time + phases[route])))
    return np.c_[lengths[route], time, rng.normal(size=(ROWS, 5))], late


def test_a_column_of_numbers_that_identifies_things_is_recognised():
    model = HGPClassifier(neighbours=32, random_state=0).fit(*timetable(2))
    starts = {choice.name: choice.score for choice in model.report_.choices if choice.what == "start"}
    assert "identifier lengthscale[0]" in starts
    scores = model.evaluate(*timetable(3))
    assert scores.log_loss < 0.6 * scores.base_log_loss
    assert np.exp(model.theta_[1]) < 2 * np.sqrt(12) / ROUTES  # less than two lengths apart, in standard deviations


def test_only_columns_with_repeated_values_are_tried_as_identifiers():
    rng = np.random.default_rng(0)
    assert _coincidence(rng.normal(size=1000)) == 0
    assert _coincidence(np.zeros(1000)) == 1
    assert _coincidence(rng.integers(50, size=100_000)) == pytest.approx(1 / 50, rel=0.02)

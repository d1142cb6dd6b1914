"""Where training starts: columns of numbers that identify things."""

import numpy as np

from gigagp import HGPClassifier

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
    assert not any(name.startswith("identifier") and "[0]" not in name for name in starts)  # others hardly repeat
    assert np.exp(model.theta_[1]) < 2 * np.sqrt(12) / ROUTES  # less than two lengths apart, in standard deviations

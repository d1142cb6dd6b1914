"""Theta does not collapse on data that are not kind: names as numbers, heavy tails, repeats, constants, angles."""

import warnings

import numpy as np
import pytest

from gigagp import HGPRegressor

ROWS = 3000


def names_as_numbers(rng):
    """A column of 40 names, coded by numbers that mean nothing, as the airline's routes are by their distance."""
    code = rng.integers(0, 40, ROWS)
    x = rng.uniform(-2, 2, ROWS)
    return np.column_stack([rng.permutation(40)[code], x]), rng.normal(0, 1, 40)[code] + np.sin(2 * x)


def repeats(rng):
    """Every input comes three times, with other noise."""
    X = np.repeat(rng.uniform(-2, 2, (ROWS // 3, 2)), 3, axis=0)
    return X, np.sin(2 * X[:, 0]) + X[:, 1]


def constants(rng):
    X = rng.uniform(-2, 2, (ROWS, 3))
    X[:, 1] = 7.0
    return X, np.sin(2 * X[:, 0]) + X[:, 2]


def angles(rng):
    """Degrees, which jump from 360 to 0."""
    X = np.column_stack([rng.uniform(0, 360, ROWS), rng.uniform(0, 20, ROWS)])
    return X, np.cos(np.radians(X[:, 0])) + 0.1 * X[:, 1]


def gaussian(rng):
    return 0.2 * rng.standard_normal(ROWS)


def heavy(rng):
    return 0.1 * rng.standard_t(2, ROWS)


@pytest.mark.parametrize(
    ("made", "noise"),
    [
        pytest.param(made, noise, marks=() if made is names_as_numbers and noise is gaussian else pytest.mark.slow)
        for made in (names_as_numbers, repeats, constants, angles)
        for noise in (gaussian, heavy)
    ],
)
def test_the_function_is_found_and_intervals_cover(made, noise):
    rng = np.random.default_rng(1)
    X, truth = made(rng)
    y = truth + noise(rng)
    order = rng.permutation(ROWS)
    train, test = order[:2500], order[2500:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column that does not matter is told of
        model = HGPRegressor(random_state=0).fit(X[train], y[train])
    mean = model.predict(X[test])
    assert np.sqrt(np.mean((mean - truth[test]) ** 2)) < 0.2 * truth.std()
    low, high = model.predict_quantiles(X[test], [0.025, 0.975]).T
    assert 0.91 < np.mean((low <= y[test]) & (y[test] <= high)) < 0.985
    deviation = np.sqrt(model.noise_variance_)
    assert 0.05 < deviation < 1.0

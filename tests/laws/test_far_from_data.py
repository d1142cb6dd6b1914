"""Far from all data the predicted deviation is that of the target as a whole, and the way there is continuous."""

import numpy as np
import pytest

from gigagp import HGPRegressor

WAYS = ["neighbourhood", "committee"]
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def quiet(X, rng):
    return np.sin(2 * X[:, 0]) + 0.01 * rng.standard_normal(len(X))


def noisy(X, rng):
    return np.sin(3 * X[:, 0]) + 0.5 * rng.standard_normal(len(X))


def mixed(X, rng):
    return np.sin(3 * X[:, 0]) + np.where(X[:, 0] < 0, 0.01, 0.5) * rng.standard_normal(len(X))


def linear(X, rng):
    return np.sin(X[:, 0]) + X[:, -1] + 0.05 * rng.standard_normal(len(X))


def rows(columns, target, n=450, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, columns))
    return X, target(X, rng)


@pytest.mark.parametrize(
    ("columns", "target", "way"),  # every pair of them
    [
        (columns, target, WAYS[(i + j) % 2])
        for i, columns in enumerate([1, 3, 10])
        for j, target in enumerate([quiet, noisy, mixed, linear])
    ],
)
def test_the_deviation_far_away_is_the_targets(columns, target, way):
    X, y = rows(columns, target)
    model = HGPRegressor(method=way, leaf_size=90, random_state=0).fit(X, y)
    for side in (-1.0, 1.0):
        far = side * np.full((1, columns), 1e6)
        mean, std = model.predict(far, return_std=True)
        assert mean[0] == pytest.approx(y.mean(), abs=0.05 * y.std())
        assert std[0] == pytest.approx(y.std(), rel=0.05)


@pytest.mark.parametrize(("columns", "target"), [(1, mixed), (3, noisy), (6, mixed), (10, quiet)])
def test_noise_that_depends_on_the_inputs_does_not_change_the_deviation_far_away(columns, target):
    X, y = rows(columns, target)
    model = HGPRegressor(method="neighbourhood", noise="inputs", leaf_size=90, random_state=0).fit(X, y)
    for side in (-1.0, 1.0):
        _, std = model.predict(side * np.full((1, columns), 1e6), return_std=True)
        assert std[0] == pytest.approx(y.std(), rel=0.05)


@pytest.mark.parametrize(
    ("columns", "way", "spread"), [(1, "neighbourhood", 1.0), (3, "committee", 0.3), (6, "neighbourhood", 0.6)]
)
def test_far_away_the_variance_is_the_targets_without_the_known_noise(columns, way, spread):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (900, columns))
    known = 0.3 * np.exp(spread * rng.standard_normal(len(X)) - spread**2)  # the mean of the squares is .09
    f = np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(len(X))
    model = HGPRegressor(method=way, leaf_size=90, random_state=0)
    model.fit(X, f + known * rng.standard_normal(len(X)), noise_std=known)
    for side in (-1.0, 1.0):
        _, std = model.predict(side * np.full((1, columns), 1e6), return_std=True)
        assert std[0] == pytest.approx(f.std(), rel=0.05)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", [quiet, mixed])
def test_the_way_there_is_continuous(way, target):
    X, y = rows(2, target)
    model = HGPRegressor(method=way, leaf_size=90, random_state=0).fit(X, y)

    def along(start, end):
        steps = np.linspace(start, end, 1001)
        line = np.array([-1.5, 0.3]) + steps[:, None] * np.array([40.0, 7.0])
        return steps, *model.predict(line, return_std=True)

    steps, *coarse = along(0, 1)
    for which, values in enumerate(coarse):
        jumps = np.abs(np.diff(values))
        largest = int(jumps.argmax())
        fine = along(steps[largest], steps[largest + 1])[1 + which]  # a jump would remain as large as it is
        assert np.abs(np.diff(fine)).max() < 0.1 * jumps[largest]


@pytest.mark.parametrize("way", WAYS)
def test_a_hole_in_the_data_is_less_certain_than_its_surroundings(way):
    rng = np.random.default_rng(0)
    X = rng.uniform(-6, 6, (1200, 2))
    X = X[(np.abs(X) > 2.5).any(axis=1)]
    y = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1]) + 0.02 * rng.standard_normal(len(X))
    model = HGPRegressor(method=way, leaf_size=150, random_state=0).fit(X, y)
    _, inside = model.predict(np.zeros((1, 2)), return_std=True)
    _, around = model.predict(X[:200], return_std=True)
    assert inside[0] > 3 * np.median(around)
    assert inside[0] < 1.5 * y.std()

"""Theta from groups of neighbouring rows: it finds structure that scattered rows do not show, wherever it starts."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from gigagp import HGPRegressor
from gigagp.data.scaled import ArrayRows
from gigagp.data.scan import Sample
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.fit import stages, starts, training
from gigagp.fit.groups import Groups
from gigagp.fit.plan import Plan
from gigagp.fit.starts import _rise
from gigagp.fit.store_writer import MemoryStorage, write_store
from gigagp.fit.training import Precision, Trace, train_on_groups
from gigagp.kernels import SquaredExponential
from gigagp.model.fit_warnings import MissedStructure
from gigagp.partition import Shape, partitioner


def sample_of(X, y):
    keys = np.random.default_rng(0).permutation(len(y)).astype(np.uint64)
    return Sample(keys, np.arange(len(y)), X, y)


def groups_of(X, y, leaf_size, cut_metric, kernel=None):
    kernel = (kernel or SquaredExponential()).bind(X.shape[1])
    plan = Plan(kernel, 0.1, (1e-6, 10.0), partitioner("local"), Shape(leaf_size=leaf_size), "auto", Precision())
    rng = np.random.default_rng(0)
    stored = write_store(
        plan.partitioner,
        ArrayRows(X, y),
        plan.shape,
        cut_metric,
        sample_of(X, y),
        0,
        rng,
        MemoryStorage(),
        SerialEngine(),
    )
    return Groups(plan, stored, SerialEngine(), rng)


@given(st.integers(0, 10_000))
def test_groups_are_the_nearest_rows_whatever_metric_the_cells_were_cut_in(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    metric = 10 ** rng.uniform(-2, 2, 3)
    groups = groups_of(X, y, 20, np.array([1.0, 1e-3, 1e-3]))
    store, cells = groups.around(metric, 4)
    for i in range(len(cells)):
        rows, targets = store.read(cells, i)
        distances, nearest = cKDTree(X * metric).query(rows[0] * metric, len(rows))  # the first row is the centre
        np.testing.assert_allclose(np.linalg.norm((rows - rows[0]) * metric, axis=1), distances, atol=1e-12)
        np.testing.assert_array_equal(np.sort(targets), np.sort(y[nearest]))


def test_cells_that_were_cut_in_another_metric_are_found_out():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60_000, 2)), rng.standard_normal(60_000)
    kernel = SquaredExponential(1.0, [0.05, 5.0]).bind(2)
    theta = np.append(kernel.theta, np.log(0.1))
    assert groups_of(X, y, 50, np.array([20.0, 0.2]), kernel).well_cut(kernel, theta)
    assert not groups_of(X, y, 50, np.array([1e-6, 1.0]), kernel).well_cut(kernel, theta)


def test_boxes_are_computed_once_and_by_any_number_of_workers(monkeypatch):
    monkeypatch.setattr("gigagp.fit.committee_assembly._ROWS_AT_ONCE", 500)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((3000, 3))
    groups = groups_of(X, X[:, 0], 40, np.ones(3))
    boxes = groups.extents
    assert groups.with_plan(replace(groups.plan, kernel=SquaredExponential(2.0).bind(3))).extents is boxes
    with ThreadsEngine(3) as engine:
        others = replace(groups, engine=engine).extents
    for name in ("means", "lows", "highs"):
        np.testing.assert_array_equal(getattr(others, name), getattr(boxes, name))
    for own, expected in zip(others.blocks.arrays, boxes.blocks.arrays, strict=True):
        np.testing.assert_array_equal(own, expected)


def two_scales(seed, shape=(220, 110)):
    """A grid on which a slow wave is seen from anywhere, and fast ones only between adjacent points."""
    rng = np.random.default_rng(seed)
    a, b = (axis.ravel() for axis in np.meshgrid(*map(np.arange, shape), indexing="ij"))
    fast = sum(np.sin(2 * np.pi * (a * rng.uniform(-0.1, 0.1) + b * rng.uniform(-0.1, 0.1)) + i) for i in range(12))
    y = np.cos(2 * np.pi * b / shape[1]) + 0.6 * fast / fast.std() + 0.02 * rng.standard_normal(len(a))
    X = np.stack([a, b], axis=1).astype(float)
    test = rng.random(len(y)) < 0.1
    return X[~test], y[~test], X[test], y[test]


def test_a_short_scale_beside_a_long_one_is_found():
    X, y, Z, t = two_scales(0)
    model = HGPRegressor(random_state=0).fit(X, y)
    error = np.sqrt(np.mean((model.predict(Z) - t) ** 2))
    assert error < 0.04  # the noise has 0.02; a model that takes the fast waves for noise has 0.6
    assert not [warning for warning in model.report_.warnings if isinstance(warning, MissedStructure)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_different_rough_thetas_lead_to_models_that_predict_equally_well(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 3))
    y = np.sin(6 * X[:, 0]) + 0.5 * np.sin(15 * X[:, 1]) + 0.1 * rng.standard_normal(5000)
    errors, real = [], stages.rough_theta
    for shift in (-3.0, 0.0, 3.0):

        def shifted(*arguments, by=shift):
            climbs = real(*arguments)
            names = arguments[0].names
            moved = climbs[-1].theta + by * np.array(["lengthscale" in name for name in names])
            return [*climbs[:-1], replace(climbs[-1], theta=np.clip(moved, *arguments[0].bounds.T))]

        monkeypatch.setattr(stages, "rough_theta", shifted)
        model = HGPRegressor(random_state=0).fit(X[:4000], y[:4000])
        errors.append(np.sqrt(np.mean((model.predict(X[4000:]) - y[4000:]) ** 2)))
    assert max(errors) < 1.05 * min(errors)
    assert max(errors) < 0.11


def test_missed_structure_is_told():
    X, y, _, _ = two_scales(1, (120, 60))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    kernel = SquaredExponential().bind(2)
    groups = groups_of(X, y, 100, np.ones(2))
    long, short = (np.log([1.0, scale, scale, noise]) for scale, noise in ((3.0, 0.36), (0.1, 0.001)))
    assert groups.missed(kernel, long).ratio > 1.3
    assert groups.missed(kernel, short) is None


def test_no_structure_is_missed_in_noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HGPRegressor(random_state=0).fit(X, X[:, 0] + rng.standard_t(3, 2000))
    assert not [warning for warning in model.report_.warnings if isinstance(warning, MissedStructure)]


def test_a_variogram_shows_a_short_wave_and_no_noise():
    rng = np.random.default_rng(0)
    x = np.sort(rng.standard_normal(30_000))
    noise = rng.standard_normal(30_000)
    assert _rise(x, noise, 30) is None
    assert _rise(x, np.sin(x) + 0.1 * noise, 30) is None  # scattered rows see it too
    scale = _rise(x, np.sin(300 * x) + 0.1 * noise, 30)
    assert scale is not None
    assert 1e-4 < scale < np.pi / 300


def test_training_returns_the_theta_that_predicts_best(monkeypatch):
    """A round whose evidence misleads is not followed."""
    monkeypatch.setattr(training, "_MOST_GROUPS", 64)
    first_thetas = []

    def gather(theta, count):
        target = {8: 1.0, 16: 5.0, 32: 2.0, 64: 3.0}[count]
        first_thetas.append(float(theta[0]))

        def evidence(theta, leaves):
            away = theta[0] - target
            return SimpleNamespace(
                value=-(away**2), gradient=np.array([-2 * away]), points=1, experts=1, jitter=0.0, jittered=0
            )

        return evidence

    def judge(theta):
        return abs(float(theta[0]) - 2.2)

    trained = train_on_groups(gather, judge, np.zeros(1), np.array([[-10.0, 10.0]]), Trace(), Precision(), 8)
    assert trained.theta[0] == pytest.approx(2.0, abs=1e-3)
    assert first_thetas == pytest.approx([0.0, 1.0, 1.0, 2.0], abs=1e-3)


def test_training_ends_after_two_rounds_that_do_not_improve_predictions(monkeypatch):
    """The evidence gains on every set of groups, but held-out predictions are best where training started."""
    monkeypatch.setattr(training, "_MOST_GROUPS", 1024)
    counts = []

    def gather(theta, count):
        counts.append(count)
        return lambda theta, leaves: SimpleNamespace(
            value=-((theta[0] - 1.0) ** 2),
            gradient=-2 * (theta - 1.0),
            points=1,
            experts=1,
            jitter=0.0,
            jittered=0,
        )

    bounds = np.array([[-10.0, 10.0]])
    trained = train_on_groups(gather, lambda theta: abs(float(theta[0])), np.zeros(1), bounds, Trace(), Precision(), 8)
    assert trained.theta[0] == 0.0
    assert counts == [8, 16]


def test_cells_are_cut_again_on_disk_as_in_memory(small_sizes, tmp_path, monkeypatch):
    """The same bits, and a checkpoint that is resumed finds all stores."""
    monkeypatch.setattr("gigagp.fit.groups._LEAST_RECALL", 2.0)  # the search is never good enough
    for module, name, value in (
        (training, "_MOST_GROUPS", 16), (starts, "_ROUNDS", 2), (starts, "_GROUPS", 6), (starts, "_ITERATIONS", 8),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)  # enough to find the short wave, in two rounds
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (6000, 2))
    y = np.sin(2 * X[:, 0]) + np.sin(120 * X[:, 1]) + 0.02 * rng.standard_normal(6000)
    settings = {"random_state": 0, "leaf_size": 20}
    memory = HGPRegressor(**settings).fit(X, y)
    disk = HGPRegressor(**settings, memory=len(y) * 40).fit(X, y, checkpoint=tmp_path / "kept")
    assert disk.model_.store.mapped
    again = HGPRegressor(**settings, memory=len(y) * 40).fit(X, y, checkpoint=tmp_path / "kept")
    for model in (disk, again):
        np.testing.assert_array_equal(model.theta_, memory.theta_)
        np.testing.assert_array_equal(model.predict(X[:50]), memory.predict(X[:50]))
    stores = {path.name for path in (tmp_path / "kept").iterdir() if path.name.startswith("store")}
    assert stores == {"store", "store-again", "store-again-again"}


def test_groups_have_distinct_inputs_where_inputs_repeat():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((150, 2)), 4, axis=0)
    groups = groups_of(X, rng.standard_normal(600), 100, np.ones(2))
    store, cells = groups.around(np.ones(2), 5)
    for cell in cells:
        assert len(np.unique(store.X[cell], axis=0)) == len(cell)

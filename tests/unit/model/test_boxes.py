"""Queries go to the cells they lie in: distances to boxes, found through a tree of them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp import HGPRegressor
from gigagp.model.boxes import BY_CENTRE, Boxes, extents
from gigagp.model.routing import Router
from gigagp.partition.kdtree import cell_starts, kd_order


def cut(X, cells):
    starts = cell_starts(len(X), cells)
    X = X[kd_order(X, starts)]
    lows, highs = extents(X, starts)
    return X, starts, lows, highs


def squares(points, lows, highs, centres):
    """By all distances."""
    beyond = np.clip(np.maximum(lows - points[:, None], points[:, None] - highs), 0, None)
    widths = np.where(highs > lows, highs - lows, np.inf)
    return (beyond**2).sum(axis=2) + BY_CENTRE * (((points[:, None] - centres) / widths) ** 2).sum(axis=2)


def test_extents_are_the_least_and_the_greatest():
    X, starts, lows, highs = cut(np.random.default_rng(0).standard_normal((103, 3)), 7)
    for cell in range(7):
        rows = X[starts[cell] : starts[cell + 1]]
        np.testing.assert_array_equal(lows[cell], rows.min(axis=0))
        np.testing.assert_array_equal(highs[cell], rows.max(axis=0))


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 5), st.integers(1, 12), st.booleans(), st.integers(0, 9))
def test_the_nearest_are_those_of_all_distances(cells, points, columns, count, in_order, seed):
    rng = np.random.default_rng(seed)
    X, starts, lows, highs = cut(rng.standard_normal((cells * points, columns)), cells)
    centres = np.array([X[a:b].mean(axis=0) for a, b in pairwise(starts)])
    if not in_order:  # slower, and as right
        shuffled = rng.permutation(cells)
        lows, highs, centres = lows[shuffled], highs[shuffled], centres[shuffled]
    count = min(count, cells)
    queries = 2 * rng.standard_normal((20, columns))
    distances, nearest = Boxes(lows, highs, centres).nearest(queries, count)
    every = squares(queries, lows, highs, centres)
    np.testing.assert_allclose(distances**2, np.sort(every, axis=1)[:, :count], rtol=1e-10)
    np.testing.assert_allclose(np.take_along_axis(every, nearest, 1), distances**2, rtol=1e-10)
    assert all(len(set(row)) == count for row in nearest)


def test_a_query_asks_the_cell_it_lies_in_however_long_that_is():
    """Cells were cut in another metric: in this one their centres are far from their points."""
    rng = np.random.default_rng(0)
    X, starts, lows, highs = cut(rng.standard_normal((4000, 3)), 50)
    own = np.repeat(np.arange(50), np.diff(starts))
    metric = np.array([1.0, 1.0, 500.0])
    centres = np.array([X[a:b].mean(axis=0) for a, b in pairwise(starts)])
    router = Router(centres * metric, metric, (lows * metric, highs * metric))
    by_centres = Router(centres * metric, metric)
    assert (router.nearest(X, 1).experts[:, 0] == own).all()
    assert np.mean((by_centres.nearest(X, 4).experts == own[:, None]).any(axis=1)) < 0.5


def test_where_boxes_hold_the_same_points_centres_decide():
    lows, highs = np.zeros((3, 1)), np.ones((3, 1))
    boxes = Boxes(lows, highs, np.array([[0.2], [0.9], [0.5]]))
    assert boxes.nearest(np.array([[0.85]]), 3)[1].tolist() == [[1, 2, 0]]


def test_a_cell_is_nearest_to_itself():
    _, _, lows, highs = cut(np.random.default_rng(1).standard_normal((900, 2)), 40)
    boxes = Boxes(lows, highs, (lows + highs) / 2)
    for cell in range(40):
        beside = boxes.beside(cell, 6)
        assert beside[0] == cell
        assert len(set(beside)) == 6


@pytest.mark.filterwarnings("ignore:.*bound")
def test_a_model_asks_the_experts_that_hold_the_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 60, 3000).astype(float), rng.uniform(0, 10, 3000)])
    y = np.cos(37 * X[:, 0]) + 0.1 * np.sin(X[:, 1]) + 0.05 * rng.standard_normal(3000)  # the first column is a name
    model = HGPRegressor(leaf_size=100, random_state=0).fit(X, y)
    c, starts = model.model_.committee, model.model_.cells.starts
    own = np.searchsorted(starts, np.arange(3000), side="right") - 1
    experts = c.router.nearest(c.store.X, 4).experts
    assert np.mean((experts == own[:, None]).any(axis=1)) > 0.99
    assert model.model_.committee.router.by_cells
    assert not HGPRegressor(partition="random", leaf_size=100).fit(X[:500], y[:500]).model_.committee.router.by_cells

"""A local expert's outside points: the nearest of the nearest cells, found when asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.model.boxes import BY_CENTRE, extents
from gigagp.model.routing import Router
from gigagp.model.sharing import Neighbourhoods, share_nearest
from gigagp.partition.base import run_means
from gigagp.partition.kdtree import cell_starts, kd_order


def cells_of(n, cells, columns=2, dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    X, metric = rng.standard_normal((n, columns)).astype(dtype), rng.uniform(0.3, 3, columns)
    starts = cell_starts(n, cells)
    X = X[kd_order(X * metric.astype(dtype), starts)]
    lows, highs = extents(X, starts)
    return X, Runs(starts), Router(run_means(X, starts) * metric, metric, (lows * metric, highs * metric))


def nearest_outside(X, cells, router, cell, wanted, asked):
    """By all distances: of the `asked` cells with the nearest boxes, the `wanted` rows nearest to the cell's box."""
    scaled = X.astype(float) * router.metric
    boxes = [(scaled[rows].min(axis=0), scaled[rows].max(axis=0)) for rows in (cells[c] for c in range(len(cells)))]
    lows, highs = (np.array(side) for side in zip(*boxes, strict=True))
    low, high = boxes[cell]

    def apart(others_low, others_high, off, widths):
        beyond = np.clip(np.maximum(others_low - high, low - others_high), 0, None)
        relative = np.divide(off, widths, out=np.zeros_like(off), where=widths > 0)
        return (beyond**2).sum(axis=1) + BY_CENTRE * (relative**2).sum(axis=1)

    off = router.centres[cell] - router.centres
    order = np.argsort(apart(lows, highs, off, highs - lows), kind="stable")[:asked]
    rows = np.concatenate([cells[c] for c in order if c != cell])
    points = scaled[rows]
    widths = np.broadcast_to(high - low, points.shape)
    distance = apart(points, points, points - router.centres[cell], widths)
    return set(rows[np.argsort(distance, kind="stable")[:wanted]].tolist())


@given(
    cells=st.integers(2, 90),
    points=st.integers(2, 12),
    sharing=st.floats(1, 9),
    columns=st.integers(1, 4),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 9),
)
def test_the_nearest_rows_of_the_nearest_cells(cells, points, sharing, columns, dtype, seed):
    n = cells * points + seed
    X, runs, router = cells_of(n, cells, columns, dtype, seed)
    shared = share_nearest(ExpertStore(X, X[:, 0]), runs, router, sharing)
    outside = np.minimum(np.round((sharing - 1) * runs.sizes), n - runs.sizes).astype(int)
    asked = min(cells, 24 + int(8 * outside.max() / runs.sizes.min()))
    assert (shared.sizes == runs.sizes + outside).all()
    for cell in {0, cells // 2, cells - 1}:
        rows = shared[cell].tolist()
        size = runs.sizes[cell]
        assert rows[:size] == runs[cell].tolist()
        assert rows[size:] == sorted(set(rows[size:]))
        assert len(rows) == shared.sizes[cell]
        assert set(rows[size:]) == nearest_outside(X, runs, router, cell, outside[cell], asked)


def test_equal_rows_are_shared_too():
    """Where all centres are the same no cell is nearest, and still each expert has the points it is to have."""
    X, starts = np.ones((600, 2)), cell_starts(600, 100)
    cells = Runs(starts)
    shared = share_nearest(ExpertStore(X, X[:, 0]), cells, Router(run_means(X, starts), np.ones(2)), 4.0)
    for cell in range(100):
        rows = shared[cell]
        assert len(np.unique(rows)) == len(rows) == 24
        assert set(cells[cell]) <= set(rows)


def test_asking_from_many_threads_changes_nothing():
    X, cells, router = cells_of(4000, 200, 3)
    shared = share_nearest(ExpertStore(X, X[:, 0]), cells, router, 5.0)
    assert isinstance(shared, Neighbourhoods)
    one = [shared[cell] for cell in range(200)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for a, b in zip(one, pool.map(shared.__getitem__, range(200)), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sharing", [1.0, 1.01])
def test_less_than_a_row_is_none(sharing):
    X, cells, router = cells_of(100, 10)
    assert share_nearest(ExpertStore(X, X[:, 0]), cells, router, sharing) is cells

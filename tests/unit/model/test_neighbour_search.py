"""The search for the nearest rows: exact when asked to be, near to it otherwise, whatever the cells are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.model.block_tree import BlockTree
from gigagp.model.boxes import extents
from gigagp.model.neighbour_search import NO_ROW, UNLIMITED, nearest, nearest_group, search_scratch
from gigagp.partition.kdtree import cell_starts, kd_order


def search(X, starts, metric, point, count, held_out=NO_ROW, limit=UNLIMITED, coded=True):
    tree = BlockTree.of_rows(X, starts, coded)
    squares, rows = np.empty(count), np.empty(count, np.int64)
    size = nearest(
        X, tree.arrays, metric[None], point * metric, held_out, limit, search_scratch(X.shape[1], tree.places),
        squares, rows,
    )  # fmt: skip
    return squares[:size], rows[:size]


def by_all_distances(X, metric, point, count, without=()):
    squares = ((X * metric - point * metric) ** 2).sum(axis=1)
    order = [row for row in np.lexsort((np.arange(len(X)), squares)) if row not in set(without)][:count]
    return squares[order], np.array(order)


def cut(X, cells, metric):
    starts = cell_starts(len(X), cells)
    return X[kd_order(X * metric, starts)], starts


@given(
    st.integers(1, 120), st.integers(1, 30), st.integers(1, 11), st.integers(1, 40), st.booleans(), st.integers(0, 99)
)
def test_an_exact_search_finds_the_rows_of_all_distances(rows, cells, columns, count, on_a_grid, seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (rows, columns)).astype(float) if on_a_grid else rng.standard_normal((rows, columns))
    X, starts = cut(X, min(cells, rows), rng.uniform(0.1, 3, columns))  # cut in another metric than the search's
    metric, point = rng.uniform(0.1, 3, columns), 2 * rng.standard_normal(columns)
    squares, found = search(X, starts, metric, point, count)
    wanted_squares, wanted = by_all_distances(X, metric, point, count)
    np.testing.assert_allclose(squares, wanted_squares, rtol=1e-12)
    if not on_a_grid:  # equal distances may round differently
        np.testing.assert_array_equal(found, wanted)


def test_a_held_out_row_is_ignored_and_its_copies_are_not():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    X[10:12] = X[20]
    order = kd_order(X, cell_starts(60, 6))
    X = X[order]
    own, copies = np.flatnonzero(order == 20)[0], np.flatnonzero(np.isin(order, [10, 11]))
    _, rows = search(X, cell_starts(60, 6), np.ones(2), X[own], 8, held_out=own)
    np.testing.assert_array_equal(rows, by_all_distances(X, np.ones(2), X[own], 8, {own})[1])
    assert set(rows[:2]) == set(copies)


def test_a_limited_search_compares_few_rows_and_finds_most_neighbours():
    rng = np.random.default_rng(1)
    X, starts = cut(rng.standard_normal((20_000, 6)), 80, np.ones(6))
    common = []
    for point in rng.standard_normal((50, 6)):
        squares, rows = search(X, starts, np.ones(6), point, 64, limit=4000)
        assert (np.diff(squares) >= 0).all()
        np.testing.assert_allclose(squares, ((X[rows] - point) ** 2).sum(axis=1), rtol=1e-12)
        common.append(len(np.intersect1d(rows, by_all_distances(X, np.ones(6), point, 64)[1])) / 64)
    assert np.mean(common) > 0.9


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_more_neighbours_than_rows_are_all_rows(kind):
    X = np.arange(10, dtype=kind)[:, None]
    squares, rows = search(X, np.array([0, 4, 10]), np.ones(1), np.array([2.2]), 20)
    assert rows.tolist() == [2, 3, 1, 4, 0, 5, 6, 7, 8, 9]
    np.testing.assert_allclose(squares, (X[rows, 0].astype(float) - 2.2) ** 2)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 9])
def test_a_distance_does_not_depend_on_the_place_of_its_row(columns, kind):
    rng = np.random.default_rng(2)
    X = np.repeat(rng.standard_normal((1, columns)).astype(kind), 70, axis=0)
    for cells in (1, 3, 9):
        squares, _ = search(X, cell_starts(70, cells), rng.uniform(0.5, 2, columns), np.full(columns, 0.3), 70)
        assert len(np.unique(squares)) == 1


def test_far_queries_find_their_nearest_rows_too():
    rng = np.random.default_rng(3)
    X, starts = cut(rng.standard_normal((20_000, 3)), 600, np.ones(3))
    point = np.array([1e4, -1e3, 1e5])
    _, rows = search(X, starts, np.ones(3), point, 64, limit=4000)
    assert len(np.intersect1d(rows, by_all_distances(X, np.ones(3), point, 64)[1])) > 60


@pytest.mark.parametrize("blocks", [1, 8, 9, 125, 1000])
def test_the_nearest_group_of_blocks_is_found(blocks):
    X, starts = cut(np.random.default_rng(4).standard_normal((4000, 2)), blocks, np.ones(2))
    points = 2 * np.random.default_rng(5).standard_normal((200, 2))
    tree = BlockTree.of(starts, *extents(X, starts))
    nearest = nearest_group(tree, np.ones(2), points)
    lows, highs = (np.stack([side.reduceat(box, range(0, blocks, 64)) for box in boxes.T], axis=1)
                   for side, boxes in zip((np.minimum, np.maximum), tree.boxes(), strict=True))  # fmt: skip
    squares = (np.maximum(np.maximum(lows - points[:, None], points[:, None] - highs), 0) ** 2).sum(axis=2)
    first = len(tree.frames) - 1 if blocks <= 64 else -(-blocks // 8)  # nodes of the lowest level come before
    here, least = squares[np.arange(200), nearest - first], squares.min(axis=1)
    assert (np.sqrt(here) <= np.sqrt(least) + 0.02).all()  # boxes are rounded to 255ths of a frame


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("columns", "limit"), [(1, UNLIMITED), (3, 800), (8, 800), (9, UNLIMITED)])
def test_a_search_with_codes_has_the_bits_of_one_without(columns, limit, kind):
    rng = np.random.default_rng(6)
    X, starts = cut(rng.standard_normal((6000, columns)).astype(kind), 190, np.ones(columns))
    metric = rng.uniform(0.2, 2, columns)
    for number, point in enumerate(1.5 * rng.standard_normal((40, columns))):
        held_out = NO_ROW if number % 2 else int(search(X, starts, metric, point, 1)[1][0])
        coded, plain = (search(X, starts, metric, point, 20, held_out, limit, coded) for coded in (True, False))
        for a, b in zip(coded, plain, strict=True):
            np.testing.assert_array_equal(a, b)

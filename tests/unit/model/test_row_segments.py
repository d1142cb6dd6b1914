"""Rows that arrive and leave are found as by a search through all rows, and older values never change."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore
from gigagp.kernels import Matern32
from gigagp.model.block_tree import BlockTree
from gigagp.model.neighbour_search import NO_ROW
from gigagp.model.neighbourhood import Neighbourhood, search_many
from gigagp.model.routing import Router
from gigagp.model.row_segments import ArrivingRows, RowSegments
from gigagp.partition.kdtree import cell_starts

COLUMNS = 3
METRIC = np.array([1.0, 2.0, 0.5])


def rows(count, seed, first=0, noisy=False):
    rng = np.random.default_rng(seed)
    noise = rng.uniform(1, 2, (count, 2)) if noisy else None
    return ArrivingRows(
        rng.standard_normal((count, COLUMNS)), rng.standard_normal(count), noise, first + np.arange(count)
    )


def start(count, seed=0, metrics=(METRIC,)):
    content = rows(count, seed)
    starts = np.array([0, count])
    tree = BlockTree.of_rows(content.X, starts, coded=False)
    return RowSegments.of(ExpertStore(content.X.copy(), content.y.copy()), tree, list(metrics), (), content.arrivals)


def found(segments, queries, neighbours, member=0):
    """Numbers of arrival of the nearest rows of each query, nearest first."""
    metric = segments.metrics[member]
    router = Router(np.zeros((1, COLUMNS)), metric, (np.zeros((1, COLUMNS)),) * 2, segments.tree)
    store = segments.store
    cells = Runs(cell_starts(len(store.y), 1))
    near = Neighbourhood(Matern32().bind(COLUMNS), np.zeros(COLUMNS + 2), store, cells, router, neighbours, True)
    _, numbers, sizes = search_many(near, queries, np.full(len(queries), NO_ROW))
    assert (sizes == min(neighbours + 1, segments.size)).all()
    return segments.arrays.arrivals[numbers[:, :neighbours]]


def check(segments, expected, member=0):
    """The search finds what a KD-tree of SciPy finds among the rows that should be there."""
    content = segments.all_rows()
    order = np.argsort(content.arrivals)
    np.testing.assert_array_equal(content.arrivals[order], expected.arrivals)
    np.testing.assert_array_equal(content.X[order], expected.X)
    np.testing.assert_array_equal(content.y[order], expected.y)
    queries = np.random.default_rng(99).standard_normal((5, COLUMNS))
    metric = segments.metrics[member]
    neighbours = min(7, len(expected))
    nearest = cKDTree(expected.X * metric).query(queries * metric, neighbours)[1].reshape(5, -1)
    np.testing.assert_array_equal(found(segments, queries, neighbours, member), expected.arrivals[nearest])


def without(content, gone):
    return content.at(~np.isin(content.arrivals, gone))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 120)), max_size=8), st.integers(0, 1000))
def test_any_sequence_of_updates_is_searched_exactly(updates, seed):
    rng = np.random.default_rng(seed)
    segments, expected = start(40), rows(40, 0)
    for number, (arrives, count) in enumerate(updates):
        if arrives:
            more = rows(count, 5000 + seed + number, first=int(expected.arrivals.max()) + 1)
            segments, expected = segments.appended(more), ArrivingRows.joined([expected, more])
        else:
            gone = np.sort(rng.choice(expected.arrivals, min(count, len(expected) - 2), replace=False))
            segments, expected = segments.without(gone), without(expected, gone)
        check(segments, expected)


def test_values_are_not_changed_by_later_updates():
    first = start(50)
    second = first.appended(rows(30, 1, 50))
    third = second.appended(rows(30, 2, 80)).without(np.arange(40))
    other = second.appended(rows(500, 3, 80))  # from the same value: neither may overwrite the other
    check(first, rows(50, 0))
    check(second, ArrivingRows.joined([rows(50, 0), rows(30, 1, 50)]))
    both = ArrivingRows.joined([rows(50, 0), rows(30, 1, 50), rows(30, 2, 80)])
    check(third, without(both, np.arange(40)))
    check(other, ArrivingRows.joined([rows(50, 0), rows(30, 1, 50), rows(500, 3, 80)]))


def test_all_metrics_are_searched():
    segments = start(50, metrics=(METRIC, METRIC[::-1])).appended(rows(70, 1, 50)).appended(rows(1, 2, 120))
    expected = ArrivingRows.joined([rows(50, 0), rows(70, 1, 50), rows(1, 2, 120)])
    for member in range(2):
        check(segments, expected, member)


def test_segments_grow_geometrically():
    segments, count = start(64), 64
    for number in range(300):
        segments = segments.appended(rows(1 + number % 3, number, count))
        count += 1 + number % 3
        sizes = [segment.size for segment in segments.segments]
        assert all(before >= 2 * after for before, after in pairwise(sizes))
    assert segments.size == count
    assert len(segments.arrays.y) < 8 * count  # memory is linear in the rows that count


@pytest.mark.parametrize("first_noisy", [False, True])
def test_rows_with_and_without_noise_of_their_own(first_noisy):
    segments = start(20).appended(rows(30, 1, 20, noisy=first_noisy)).appended(rows(200, 2, 50, noisy=not first_noisy))
    content = segments.all_rows()
    order = np.argsort(content.arrivals)
    parts = [rows(20, 0), rows(30, 1, 20, noisy=first_noisy), rows(200, 2, 50, noisy=not first_noisy)]
    np.testing.assert_array_equal(content.row_noise[order], np.concatenate([part.noise_of_all for part in parts]))


def test_leaving_rows_of_an_older_value_do_not_change_a_newer_one():
    first = start(200).appended(rows(30, 1, 200))
    newer = first.appended(rows(5, 2, 230))
    before = [np.array(part) for part in newer.tree.arrays]
    older = first.without(200 + np.arange(30))  # a whole segment leaves: nothing is sorted again
    for part, was in zip(newer.tree.arrays, before, strict=True):
        np.testing.assert_array_equal(part, was)
    assert older.size == 200
    assert newer.size == 235

"""Codes of rows: a lower bound of every distance, so that a search with codes misses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.linalg import row_codes
from gigagp.model.block_tree import BlockTree


def possible(X, starts, metric, point, worst):
    """For each block the rows that may lie within `worst`."""
    tree = BlockTree.of_rows(X, starts)
    assert len(tree.codes) == row_codes.length(*X.shape)
    box, rows, found = np.empty((row_codes.PREPARED, X.shape[1]), np.float32), np.empty(len(X), np.int64), []
    for block in range(len(starts) - 1):
        row_codes.prepare_box(tree.frames, tree.corners, block // 8, block % 8, metric[None], point * metric, box)
        count = row_codes.rows_possibly_within(tree.codes, starts[block], starts[block + 1], box, worst, rows)
        found.extend(rows[:count].tolist())
    return found


@given(
    st.integers(1, 150), st.integers(1, 6), st.integers(1, 11), st.sampled_from([np.float32, np.float64]),
    st.sampled_from([(0.0, 1.0), (1e3, 1e-3), (1e8, 1.0), (0.0, 1e30), (0.0, 1e-30), (0.0, 1e-160)]),
    st.integers(0, 999),
)  # fmt: skip
def test_no_row_within_a_distance_is_missed(rows, blocks, columns, kind, place, seed):
    rng = np.random.default_rng(seed)
    centre, scale = place if kind == np.float64 else (place[0], max(place[1], 1e-30))
    X = (centre + scale * rng.standard_normal((rows, columns))).astype(kind)
    X[rng.random(rows) < 0.3] = X[0]  # copies, and columns that are constant in a block
    starts = np.unique(np.linspace(0, rows, blocks + 1).astype(int))
    metric = np.where(rng.random(columns) < 0.2, 0.0, rng.uniform(0.1, 3, columns))
    point = X[0].astype(float) if rng.random() < 0.3 else centre + 2 * scale * rng.standard_normal(columns)
    squares = ((X.astype(float) * metric - point * metric) ** 2).sum(axis=1)
    for worst in (*np.quantile(squares, [0.0, 0.3, 1.0]), np.inf):
        found = possible(X, starts, metric, point, worst)
        assert found == sorted(set(found))
        assert set(np.flatnonzero(squares <= worst)) <= set(found)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 20])
def test_few_rows_are_possible_that_are_not_within_the_distance(columns):
    rng = np.random.default_rng(0)
    X, point = rng.standard_normal((3200, columns)), rng.standard_normal(columns)
    squares = ((X - point) ** 2).sum(axis=1)
    worst = np.quantile(squares, 0.2)
    assert len(possible(X, np.arange(0, 3201, 32), np.ones(columns), point, worst)) < 1.1 * (squares <= worst).sum()


def test_numbers_that_overflow_float32_are_not_discarded():
    X = np.array([[0.0, 1e200], [1e39, -1e200], [1e38, 0.0]])
    assert possible(X, np.array([0, 3]), np.ones(2), np.array([0.0, 1e200]), 1e100) == [0, 1, 2]

"""Boxes of one byte per corner: they contain their rows and their nodes, and are hardly larger."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gigagp.linalg.searching import FANOUT, box_distances
from gigagp.model.block_tree import BlockTree, TreeBuilder, frame_sides
from gigagp.model.boxes import extents
from gigagp.model.neighbour_search import NO_ROW, UNLIMITED, nearest, search_scratch

PLACES = [(0.0, 1.0), (1e3, 1e-3), (1e7, 1.0), (0.0, 1e30), (0.0, 1e-30), (-5.0, 0.0)]


@given(
    st.integers(1, 200), st.integers(1, 40), st.integers(1, 5), st.sampled_from([np.float32, np.float64]),
    st.sampled_from(PLACES), st.integers(0, 999),
)  # fmt: skip
def test_every_box_contains_what_is_below_it(rows, blocks, columns, kind, place, seed):
    rng = np.random.default_rng(seed)
    X = (place[0] + place[1] * rng.standard_normal((rows, columns))).astype(kind)
    X[rng.random(rows) < 0.3] = X[0]
    starts = np.unique(np.linspace(0, rows, blocks + 1).astype(int))
    tree = BlockTree.of_rows(X, starts)
    for low, high, (start, end) in zip(*tree.boxes(), itertools.pairwise(starts), strict=True):
        assert (low <= X[start:end]).all()
        assert (X[start:end] <= high).all()
    lows, highs = frame_sides(tree.frames)
    for node, below in enumerate(tree.first_below):
        children = range(below, min(below + FANOUT, node)) if below >= 0 else ()
        for child in children:
            assert (lows[node] <= lows[child]).all()
            assert (highs[child] <= highs[node]).all()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_boxes_are_hardly_larger_than_their_rows(kind):
    X = np.random.default_rng(0).uniform(-1, 1, (640, 3)).astype(kind)
    starts = np.arange(0, 641, 32)
    tree = BlockTree.of_rows(X, starts)
    for own, exact, outwards in zip(tree.boxes(), extents(X, starts), (-1, 1), strict=True):
        assert ((outwards * (own - exact) >= 0) & (outwards * (own - exact) < 2 / 250)).all()  # of the frame's side


@given(st.integers(1, 700), st.integers(1, 4), st.lists(st.integers(1, 300), max_size=4), st.integers(0, 9))
def test_a_tree_does_not_depend_on_the_parts_in_which_boxes_come(blocks, columns, sizes, seed):
    rng = np.random.default_rng(seed)
    lows = rng.standard_normal((blocks, columns))
    highs = lows + rng.uniform(0, 1, lows.shape)
    builder, borders = TreeBuilder(blocks, columns, lows.dtype), np.minimum(np.cumsum([0, *sizes]), blocks)
    for start, end in zip(borders, [*borders[1:], blocks], strict=True):
        builder.add(lows[start:end], highs[start:end])
    whole, parts = BlockTree.of(np.arange(blocks + 1), lows, highs), builder.finish(np.arange(blocks + 1))
    for own, expected in zip(parts.arrays, whole.arrays, strict=True):
        np.testing.assert_array_equal(own, expected)


@given(st.integers(1, 9), st.sampled_from([np.float32, np.float64]), st.booleans(), st.integers(0, 999))
def test_no_row_is_nearer_than_its_box(columns, kind, limited, seed):
    """Also to the last bit: rows of one box each, which are compared with the distances that the search computes."""
    rng = np.random.default_rng(seed)
    X = (rng.choice([0.0, 1.0, 1e4]) + rng.standard_normal((40, columns))).astype(kind)
    tree = BlockTree.of_rows(X, np.arange(41), coded=False)
    metric = np.where(rng.random(columns) < 0.2, 0.0, rng.uniform(0.1, 3, columns))
    limits = rng.uniform(0.1, 2, columns) if limited else np.empty(0)
    search_metric = np.stack([metric, limits]) if limited else metric[None]
    point = rng.choice([1.0, 1e3]) * rng.standard_normal(columns) if rng.random() < 0.5 else X[3] * metric
    squares, rows, apart = np.empty(40), np.empty(40, np.int64), np.empty(FANOUT)
    nearest(
        X, tree.arrays, search_metric, point, NO_ROW, UNLIMITED, search_scratch(columns, tree.places), squares, rows
    )
    distances = dict(zip(rows.tolist(), squares.tolist(), strict=True))
    for node in range(5):
        box_distances(tree.frames, tree.corners, node, search_metric, point, limits, apart)
        assert all(apart[child] <= distances[FANOUT * node + child] for child in range(FANOUT))


def test_boxes_that_do_not_exist_are_infinitely_far_away():
    X = np.zeros((11, 2))
    tree, apart = BlockTree.of_rows(X, np.arange(12)), np.empty(FANOUT)
    box_distances(tree.frames, tree.corners, 1, np.ones((1, 2)), np.zeros(2), np.empty(0), apart)
    np.testing.assert_array_equal(apart, [0, 0, 0, *[np.inf] * 5])


@given(st.integers(1, 200))
def test_the_first_row_below_each_node(blocks):
    tree = BlockTree.of_rows(np.zeros((3 * blocks, 1)), 3 * np.arange(blocks + 1), coded=False)

    def first(node):
        below = int(tree.first_below[node])
        return first(below) if below >= 0 else 3 * ~below

    nodes = np.arange(len(tree.frames))
    assert tree.first_rows(nodes).tolist() == [first(node) for node in nodes]
    assert tree.first_rows(nodes[-1:])[0] == 0

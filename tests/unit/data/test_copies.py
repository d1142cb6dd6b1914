"""Exact copies of rows count once, up to a number of rows; repeated inputs with different targets count as they are."""

import numpy as np
import pandas as pd
import pytest

from gigagp import HGPRegressor, load
from gigagp.data.copies import DistinctRows, count_copies
from gigagp.data.sources import open_rows

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(90)
TWICE = np.r_[np.arange(90), np.arange(0, 90, 5)]  # every fifth row again, at the end
MIXED = RNG.permutation(TWICE)


def counted_once(rows):
    copies = count_copies(rows)
    return DistinctRows(rows, rows.n_rows - copies) if copies else rows, copies


def rows_of(rows):
    blocks = list(rows.blocks(50))
    return np.concatenate([block.X for block in blocks]), np.concatenate([block.y for block in blocks])


def test_the_first_of_each_row_remains_in_its_place():
    rows, copies = counted_once(open_rows(X[TWICE], Y[TWICE]))
    assert copies == 18
    for got, wanted in zip(rows_of(rows), (X, Y), strict=True):
        np.testing.assert_array_equal(got, wanted)
    rows, copies = counted_once(open_rows(X[MIXED], Y[MIXED]))
    assert (copies, rows.n_rows) == (18, 90)
    _, first = np.unique(MIXED, return_index=True)
    np.testing.assert_array_equal(rows_of(rows)[1], Y[MIXED][np.sort(first)])
    numbers = np.concatenate([block.source_rows for block in rows.blocks(50)])
    np.testing.assert_array_equal(numbers, np.sort(first))  # as the user numbers them


@pytest.mark.parametrize("case", ["none", "on purpose", "weights", "many", "nothing else"])
def test_all_rows_count_where_copies_may_be_observations(case):
    inputs, targets, noise = X[TWICE], Y[TWICE].copy(), {}
    if case == "none":
        inputs, targets = X, Y
    elif case == "on purpose":
        targets[0] += 0.1  # its copy, row 90, has another target
    elif case == "weights":
        noise = {"weights": np.ones(len(targets))}
    elif case == "many":
        inputs, targets = np.tile(inputs, (700, 1)), np.tile(targets, 700)
    else:
        inputs, targets = np.ones((5, 2)), np.ones(5)
    rows, copies = counted_once(open_rows(inputs, targets, **noise))
    assert copies == 0
    assert sum(len(block.X) for block in rows.blocks()) == len(targets)


def test_copies_are_found_beyond_small_tables_and_within_bounded_memory():
    inputs, targets = np.tile(X[TWICE], (30, 1)), np.tile(Y[TWICE], 30)
    assert count_copies(open_rows(inputs, targets)) == 30 * len(TWICE) - 90
    wide = np.tile(X[:6], (50, 2000))  # its inputs would take more memory than is spent on copies
    assert count_copies(open_rows(np.tile(wide, (6, 1)), np.zeros(1800))) == 0


def test_rows_with_missing_values_and_categories_are_compared_too():
    table = pd.DataFrame({"a": [1.0, 2.0, 1.0, None, 1.0], "b": ["x", "y", "x", "x", "y"], "y": [0.0, 1, 0, 2, 3]})
    rows, copies = counted_once(open_rows(table, "y", categorical=["b"], missing="drop"))
    assert (copies, rows.n_rows, rows.n_dropped) == (1, 3, 1)


@pytest.mark.filterwarnings("ignore:.*ended at its")
def test_a_fit_with_copies_is_the_fit_without(tmp_path):
    once = HGPRegressor(random_state=0).fit(X, Y)
    twice = HGPRegressor(random_state=0).fit(X[TWICE], Y[TWICE])
    Z = RNG.standard_normal((20, 3))
    np.testing.assert_array_equal(twice.predict(Z, return_std=True), once.predict(Z, return_std=True))
    assert (once.report_.copies, twice.report_.copies, twice.report_.rows) == (0, 18, 90)
    assert "18 rows are exact copies of others" in repr(twice.report_)
    twice.save(tmp_path / "m")
    assert load(tmp_path / "m").report_.copies == 18
    paper = HGPRegressor(partition="random", random_state=0).fit(X[TWICE], Y[TWICE])
    assert paper.report_.rows == 108  # the partitions of the paper take the rows as they are

"""Exact copies of rows count once; repeated inputs with different targets count as they are."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gigagp import HGPRegressor, load
from gigagp.data.copies import CopySearch, DistinctRows, find_copies
from gigagp.data.sources import open_rows

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(90)
TWICE = np.r_[np.arange(90), np.arange(0, 90, 5)]  # every fifth row again, at the end
MIXED = RNG.permutation(TWICE)


def counted_once(rows):
    copies = find_copies(rows)
    return (rows, 0) if copies is None else (DistinctRows(rows, rows.n_rows - copies.count, copies), copies.count)


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


@pytest.mark.parametrize("case", ["none", "on purpose", "weights", "nothing else"])
def test_all_rows_count_where_copies_may_be_observations(case):
    inputs, targets, noise = X[TWICE], Y[TWICE].copy(), {}
    if case == "none":
        inputs, targets = X, Y
    elif case == "on purpose":
        targets[0] += 0.1  # its copy, row 90, has another target
    elif case == "weights":
        noise = {"weights": np.ones(len(targets))}
    else:
        inputs, targets = np.ones((5, 2)), np.ones(5)
    rows, copies = counted_once(open_rows(inputs, targets, **noise))
    assert copies == 0
    assert sum(len(block.X) for block in rows.blocks()) == len(targets)


@pytest.mark.parametrize("most_bytes", [1 << 30, 0])  # all digests in memory, or some of them and then all in files
def test_copies_are_found_in_tables_of_any_size(most_bytes, tmp_path):
    rng = np.random.default_rng(1)
    given = rng.permutation(np.r_[np.arange(120_000), rng.integers(0, 120_000, 60_000)])
    inputs = rng.standard_normal((120_000, 2)).astype(np.float32)
    targets = inputs[:, 0] ** 2.0
    rows = open_rows(inputs[given], targets[given])
    copies = find_copies(rows, most_bytes, tmp_path)
    assert copies.count == 60_000
    kept = DistinctRows(rows, 120_000, copies)
    first = np.sort(np.unique(given, return_index=True)[1])
    np.testing.assert_array_equal(rows_of(kept)[0], inputs[given[first]])
    assert [block.first_row for block in kept.blocks(50_000)] == [0, 50_000, 100_000]
    assert not list(tmp_path.iterdir())
    contradicted = targets[given]
    twice = np.flatnonzero(np.bincount(given) > 1)[0]
    contradicted[np.flatnonzero(given == twice)[0]] += 1
    assert find_copies(open_rows(inputs[given], contradicted), most_bytes, tmp_path) is None


def test_few_digests_are_kept_where_rows_are_many():
    search = CopySearch(0)
    rows = open_rows(np.arange(200_000.0)[:, None], np.zeros(200_000))
    assert sum(len(block.X) for block in search.watched(rows.blocks())) == search.n_rows == 200_000
    assert search.copies(rows) is None


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


def test_copies_count_once_out_of_core(tmp_path, small_sizes):
    rng = np.random.default_rng(2)
    table = pd.DataFrame(rng.uniform(-2, 2, (900, 2)), columns=["a", "b"])
    table["y"] = np.sin(table.a) + 0.1 * rng.standard_normal(900)
    table.to_parquet(tmp_path / "once.parquet")
    pd.concat([table, table[::3]], ignore_index=True).to_parquet(tmp_path / "twice.parquet", row_group_size=200)
    model = HGPRegressor("matern32", neighbours=16, memory=40_000, random_state=0)
    once, twice = (clone(model).fit(tmp_path / f"{name}.parquet", "y") for name in ("once", "twice"))
    assert twice.model_.store.mapped
    assert (twice.report_.copies, twice.report_.rows) == (300, 900)
    Z = table[["a", "b"]][:20]
    np.testing.assert_array_equal(twice.predict(Z, return_std=True), once.predict(Z, return_std=True))

"""Directions are an invertible linear map of the scaled columns, the same for a row whatever rows are beside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gigagp.data.directions import Directions
from gigagp.data.scaling import Scaling
from gigagp.data.sphere import InputScaling


def directions(columns, seed=0, combined=None):
    """Random directions of some columns; the others stay as they are."""
    rng = np.random.default_rng(seed)
    places = list(range(columns)) if combined is None else combined
    matrix = np.eye(columns)
    matrix[np.ix_(places, places)] = rng.standard_normal((len(places), len(places)))
    return Directions(matrix)


@given(columns=st.integers(2, 9), seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float32", "float64"]))
@settings(deadline=None)
def test_a_row_has_the_same_coordinates_alone_and_among_others(columns, seed, dtype):
    rng = np.random.default_rng(seed)
    X, map_ = rng.standard_normal((20, columns)).astype(dtype), directions(columns, seed)
    Z = map_.apply(X)
    assert Z.dtype == X.dtype
    np.testing.assert_array_equal(map_.apply(np.asfortranarray(X)[7:8]), Z[7:8])
    np.testing.assert_allclose(Z, X.astype(float) @ map_.matrix, rtol=1e-4 if dtype == "float32" else 1e-9, atol=1e-5)


@given(columns=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_columns_are_restored(columns, seed):
    map_ = directions(columns, seed)
    X = np.random.default_rng(seed).standard_normal((20, columns))
    condition = np.linalg.cond(map_.matrix)
    np.testing.assert_allclose(map_.restore(map_.apply(X)), X, atol=1e-13 * condition)


def test_columns_that_are_not_combined_are_restored_exactly():
    map_ = directions(5, combined=[0, 3])
    X = np.random.default_rng(1).standard_normal((50, 5))
    assert map_.combined == (0, 3)
    np.testing.assert_array_equal(map_.restore(map_.apply(X))[:, [1, 2, 4]], X[:, [1, 2, 4]])


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float32", "float64"]))
@settings(deadline=None)
def test_rows_of_a_value_are_not_below_it_and_rows_of_the_next_are(seed, dtype):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (200, 4)).astype(dtype) / np.array(3, dtype)  # as after scaling: not exact
    map_ = directions(4, seed)
    if np.linalg.cond(map_.matrix) > 1e3:
        return
    below = map_.below(map_.apply(X), 2, float(X[0, 2]))
    np.testing.assert_array_equal(below, X[:, 2] < X[0, 2])


def test_gradients_are_pulled_back():
    inputs = InputScaling(Scaling(np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, 10.0])), directions=directions(3))
    weights = np.array([1.0, -2.0, 0.5])

    def value(x):
        return float((inputs.apply(x[None, :], np.dtype(float)) @ weights)[0])

    x = np.array([0.3, 1.7, -4.0])
    steps = 1e-5 * np.eye(3)
    expected = [(value(x + step) - value(x - step)) / 2e-5 for step in steps]
    np.testing.assert_allclose(inputs.pulled(x[None, :], weights[None, :])[0], expected, rtol=1e-6)
    np.testing.assert_allclose(inputs.restore(inputs.apply(x[None, :], np.dtype(float)))[0], x, rtol=1e-12)


def test_length_scales_along_columns_are_those_of_the_distance():
    """Along a column, the others being fixed, the distance in the metric of directions is |step| / length-scale."""
    map_, metric = directions(4), np.array([0.1, 3.0, 0.0, 1.0])
    X = np.zeros((5, 4))
    X[1:] = 0.7 * np.eye(4)
    distances = np.linalg.norm((map_.apply(X)[1:] - map_.apply(X)[0]) * metric, axis=1)
    np.testing.assert_allclose(map_.along_columns(metric), distances / 0.7, rtol=1e-12)


@given(columns=st.integers(2, 40), copies=st.integers(2, 5), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_equal_rows_stay_equal_in_both_ways(columns, copies, seed):
    rng = np.random.default_rng(seed)
    rows = np.repeat(rng.standard_normal((37, columns)), copies, axis=0)
    map_ = Directions(rng.standard_normal((columns, columns)) + columns * np.eye(columns))
    for change in (map_.apply, map_.restore):
        changed = change(rows)
        np.testing.assert_array_equal(changed, np.repeat(changed[::copies], copies, axis=0))
        np.testing.assert_array_equal(changed[5:9], change(rows[5:9]))
        np.testing.assert_array_equal(changed[5], change(rows[5]))


def test_coordinates_that_are_rounding_errors_have_a_length_of_one_column():
    map_ = directions(4, combined=[0, 1, 2])
    np.testing.assert_array_equal(map_.lengths(np.array([1.0, 1e-16, 0.99, 1e-9])), [1.0, 1.0, 0.99, 1e-9])


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), np.full((2, 2), np.nan), [[1.0, 1.0], [1.0, 1.0 + 1e-12]]])
def test_columns_cannot_be_restored_from_any_matrix(matrix):
    assert not Directions.is_valid(np.array(matrix))


def test_names_of_length_scales_do_not_number_columns():
    map_ = directions(12, combined=[1, 11])
    names = ("variance", "lengthscale[0]", "lengthscale[1]", "lengthscale[11]", "noise_variance")
    assert map_.named(names) == (
        "variance", "lengthscale[0]", "lengthscale[direction 1]", "lengthscale[direction 11]", "noise_variance"
    )  # fmt: skip

"""Missing values that the model answers: what stands in their place is what a Gaussian expects there."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gigagp.data.sources import Encoding, open_rows
from gigagp.data.sources.gaps import GapMoments, Gaps
from gigagp.errors import InvalidInput

RNG = np.random.default_rng(0)
MIXING = np.array([[1.0, 0.8, 0.0], [0.0, 0.6, 0.0], [0.0, 0.0, 2.0]])
WHOLE = RNG.standard_normal((20_000, 3)) @ MIXING + [5.0, -3.0, 1e6]


def gaps_of(X, size=7_000):
    moments = GapMoments(X.shape[1])
    for start in range(0, len(X), size):
        moments.add(X[start : start + size])
    return Gaps.of([f"c{j}" for j in range(X.shape[1])], moments)


def test_means_and_covariances_of_whole_rows_are_numpys():
    gaps = gaps_of(WHOLE)
    np.testing.assert_allclose(gaps.means, WHOLE.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(gaps.covariances, np.cov(WHOLE.T, bias=True), rtol=1e-6, atol=1e-6)
    assert gaps.incomplete == ()


def test_a_missing_number_is_its_mean_given_the_others():
    X = WHOLE.copy()
    X[RNG.random(X.shape) < 0.2] = np.nan
    gaps = gaps_of(X)
    covariance = MIXING.T @ MIXING  # of the distribution that the rows are drawn from
    np.testing.assert_allclose(gaps.covariances, covariance, atol=0.1)
    queries = np.array([[7.0, np.nan, 1e6], [np.nan, np.nan, 1e6], [np.nan] * 3, [7.0, -2.0, 1e6]])
    filled = gaps.fill(queries)
    regression = -3 + covariance[1, 0] / covariance[0, 0] * (7 - 5)
    np.testing.assert_allclose(filled[0], [7, regression, 1e6], atol=0.1)
    np.testing.assert_allclose(filled[1:3], np.tile([5, -3, 1e6], (2, 1)), atol=0.1)
    np.testing.assert_array_equal(filled[3], queries[3])
    np.testing.assert_array_equal(gaps.fill(queries[:1]), filled[:1])  # whatever the batch


def test_gaps_are_marked_and_survive_json():
    table = pd.DataFrame(
        {"a": [1.0, np.nan, 3.0, 4.0], "b": [1.0, 2.0, 3.0, 4.0], "c": ["u", None, "v", "u"], "y": [1.0, 2, 3, np.nan]}
    )
    rows = open_rows(table, "y", missing="model")
    assert rows.feature_names == ["a", "a is missing", "b", "c"]
    block = next(rows.blocks())
    np.testing.assert_allclose(block.X, [[1, 0, 1, 0], [block.X[1, 0], 1, 2, 2], [3, 0, 3, 1]])
    np.testing.assert_allclose(block.X[1, 0], 8 / 3)  # the mean: correlations of so few rows do not count
    assert rows.n_dropped == 1  # the row without target
    assert rows.encoding.category_places == (1, 3)
    encoding = Encoding.from_dict(json.loads(json.dumps(rows.encoding.to_dict())))
    assert encoding == rows.encoding
    queries = pd.DataFrame({"a": [np.nan, 2.0], "b": [2.0, np.nan], "c": ["u", "new"]})
    X = next(open_rows(queries, encoding=encoding, missing="keep").blocks()).X
    np.testing.assert_allclose(X, [[block.X[1, 0], 1, 2, 0], [2, 0, np.nan, 3]], rtol=1e-9)
    with pytest.raises(InvalidInput, match=r"'b' .* row 1; the training data had no gaps in this column"):
        list(open_rows(queries, encoding=encoding).blocks())


def test_damaged_descriptions_are_refused():
    rows = open_rows(pa.table({"a": [1.0, None, 2.0], "b": [1.0, 3.0, 3.0]}), missing="model")
    good = rows.encoding.to_dict()
    for change in ({"means": [1.0]}, {"covariances": [[1.0, 2.0], [2.0, 1.0]]}, {"incomplete": ["b"]}, {"means": None}):
        with pytest.raises(InvalidInput, match="not an encoding of columns"):
            Encoding.from_dict({**good, "gaps": {**good["gaps"], **change}})


def test_a_column_without_any_value_is_an_error():
    with pytest.raises(InvalidInput, match=r"column 'a' of the table is empty; leave it out with drop=\['a'\]"):
        open_rows(pa.table({"a": pa.array([None, None], pa.float64()), "y": [1.0, 2.0]}), "y", missing="model")


def test_without_conditions_the_mean_of_the_column_is_filled_in():
    a = np.r_[np.arange(1.0, 21.0), np.nan]
    table = pd.DataFrame({"a": a, "b": 2 * np.arange(1.0, 22.0)})
    X = next(open_rows(table, missing="model", conditional=False).blocks()).X
    assert X[-1].tolist() == [10.5, 1.0, 42.0]  # a, whether it is missing, b
    assert next(open_rows(table, missing="model").blocks()).X[-1, 0] > 18

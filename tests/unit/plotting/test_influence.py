"""Influence of columns: Sobol's total effects of known functions; categories and places as one column."""

import numpy as np
import pandas as pd
import pytest

from gigagp import HGPRegressor
from gigagp.errors import InvalidParameter
from gigagp.plotting import influence, influences, levels
from gigagp.plotting.influence import influential_columns, user_columns


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    n = 400
    rows = pd.DataFrame(
        {"kind": rng.choice(["a", "b"], n), "long": rng.uniform(0, 1, n), "short": rng.uniform(0, 1, n)}
    )
    rows["constant"] = 1.0
    rows["y"] = 2 * rows.long + rows.short + 1.5 * (rows.kind == "b") + rng.normal(0, 0.02, n)
    return HGPRegressor("matern52", random_state=0).fit(rows, "y", categorical=["kind"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_shares_of_variance_are_those_of_the_function(model):
    names = [column.name for column in user_columns(model)]
    assert names == ["kind", "long", "short", "constant"]
    variances = np.array([1.5**2 / 4, 4 / 12, 1 / 12, 0.0])  # of independent terms of a sum
    np.testing.assert_allclose(influences(model), variances / variances.sum(), atol=0.06)


def test_columns_that_are_constant_or_categories_are_not_drawn_along_an_axis(model):
    names = [model.units_.columns[d] for d in influential_columns(model, 4)]
    assert names == ["long", "short"]
    assert len(influential_columns(model, 4, least=3)) == 3


def test_pictures_have_one_bar_per_column_and_one_mark_per_level(model):
    assert [text.get_text() for text in influence(model).get_yticklabels()] == ["kind", "long", "short", "constant"]
    ax = levels(model, "kind")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]
    means = ax.containers[0].lines[0].get_xdata()
    np.testing.assert_allclose(means[1] - means[0], 1.5, atol=0.15)
    with pytest.raises(InvalidParameter, match="must be a category"):
        levels(model, "long")


def test_longitude_and_latitude_are_one_place():
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {"depth": rng.uniform(0, 1, 100), "lon": rng.uniform(0, 99, 100), "lat": rng.uniform(-60, 60, 100)}
    )
    fitted = HGPRegressor("matern52", random_state=0).fit(
        rows, np.sin(rows.lon / 20) + rows.depth + rng.normal(0, 0.1, 100)
    )
    assert [column.name for column in user_columns(fitted)] == ["lon, lat", "depth"]

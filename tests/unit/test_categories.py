"""Categories from the table to the prediction: one unit each, the same in every call, in memory and out of core."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score

from gigagp import HGPClassifier, HGPRegressor, load
from gigagp.errors import InvalidParameter
from gigagp.kernels import Matern32

KERNEL = Matern32()  # choosing the family is not what is tested here
pytestmark = pytest.mark.filterwarnings("ignore:.*ended at its")


def made(rows, levels, seed=0):
    rng = np.random.default_rng(seed)
    level, x = rng.integers(levels, size=rows), rng.uniform(-2, 2, rows)
    effect = np.random.default_rng(1).standard_normal(levels)
    y = effect[level] + np.sin(2 * x) + 0.1 * rng.standard_normal(rows)
    return pd.DataFrame({"x": x, "kind": [f"kind {k}" for k in level], "y": y})


@pytest.fixture(scope="module")
def table():
    return made(400, 6)


@pytest.fixture(scope="module")
def model(table):
    return HGPRegressor(KERNEL, leaf_size=100, random_state=0).fit(table, "y")


def test_text_and_categories_are_read_alike_in_both_calls(table, model):
    X, y = table[["x", "kind"]], table.y
    expected = model.predict(X)
    forms = {
        "text": X,
        "pandas": X.astype({"kind": "category"}),
        "objects": X.to_numpy(dtype=object),
    }
    for form in forms.values():
        other = HGPRegressor(KERNEL, leaf_size=100, random_state=0).fit(form, y)
        np.testing.assert_array_equal(other.predict(form), expected)
    assert list(model.feature_names_in_) == ["x", "kind"]
    assert model.n_features_in_ == 2


def test_one_relevance_per_column(model):
    names = [each.name for each in model.units_.parameters(model.kernel_, model.noise_variance_)]
    assert names == ["variance", "lengthscale[x]", "lengthscale[kind]", "noise_variance"]
    assert [model.units_.text(1, k) for k in (0, 5, 7)] == ["kind 0", "kind 5", "(other)"]


def test_new_levels_are_answered_with_more_uncertainty(table, model):
    queries = table[:50].drop(columns="y")
    _, known = model.predict(queries, return_std=True)
    mean, new = model.predict(queries.assign(kind="never seen"), return_std=True)
    assert (new > 3 * known).all()  # the effects of levels have the deviation 1, the noise 0.1
    other, _ = model.predict(queries.assign(kind="nor this"), return_std=True)
    np.testing.assert_array_equal(mean, other)
    assert np.abs(mean - table.y[:50]).max() < 4 * new.max()


def test_a_model_is_saved_and_loaded(table, model, tmp_path):
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(table), model.predict(table))


def test_numbers_are_categories_where_the_constructor_says_so():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-1, 1, 150), rng.permutation(np.arange(150) % 10)])
    y = np.array([3, -1, 2, 0, 5, -4, 1, -2, 4, 0])[X[:, 1].astype(int)] + X[:, 0] + 0.1 * rng.standard_normal(150)
    kernel = Matern32(lengthscale=[3.0, 0.5], lengthscale_bounds=(0.4, 4))
    scores = {
        name: cross_val_score(HGPRegressor(kernel, random_state=0, **options), X, y, cv=3).min()
        for name, options in (("numbers", {}), ("levels", {"categorical": [1]}))
    }
    assert scores["levels"] > max(0.97, scores["numbers"])


def test_a_thousand_levels_cost_one_column():
    table = made(3000, 1000)
    model = HGPRegressor(KERNEL, neighbours=64, random_state=0).fit(table[:2500], "y")
    rest = table[2500:]
    assert model.model_.store.X.shape[1] == 2
    assert np.mean((model.predict(rest) - rest.y) ** 2) < 0.35 * rest.y.var()
    assert len(str(model.report_)) < 10_000


def test_a_classifier_reads_categories(table):
    X, label = table[["x", "kind"]], np.where(table.y > 0, "high", "low")
    frame = X.assign(label=label)
    by_name = HGPClassifier(KERNEL, neighbours=32, random_state=0).fit(frame, "label")
    beside = HGPClassifier(KERNEL, neighbours=32, random_state=0).fit(X.astype({"kind": "category"}), label)
    np.testing.assert_array_equal(by_name.predict_proba(X), beside.predict_proba(X))
    assert (by_name.predict(X) == label).mean() > 0.9


@pytest.mark.parametrize("value", [[1.5], [True], [None]])
def test_columns_that_are_no_columns(table, value):
    with pytest.raises(InvalidParameter, match="categorical must be names or numbers of columns"):
        HGPRegressor(categorical=value).fit(table, "y")

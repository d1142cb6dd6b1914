"""Missing values: an error, rows without a prediction, or gaps that the model answers with an uncertainty to match."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from gigagp import HGPClassifier, HGPRegressor, load
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Matern32
from gigagp.model.distribution import Shape
from gigagp.model.gap_scales import GapScales

KERNEL = Matern32(lengthscale=2.0)
pytestmark = pytest.mark.filterwarnings("ignore:.*ended at its")


def made(rows, seed=0):
    """The target depends on a alone; b is nearly a; c has nothing to do with either."""
    rng = np.random.default_rng(seed)
    a, c = rng.uniform(-2, 2, (2, rows))
    b = a + 0.1 * rng.standard_normal(rows)
    return pd.DataFrame({"a": a, "b": b, "c": c, "kind": rng.choice(["u", "v"], rows), "y": np.sin(2 * a) + c**2 / 4})


def cut(table, share, columns, seed=1):
    gaps = np.random.default_rng(seed).random((len(table), len(columns))) < share
    return table.assign(**{name: table[name].mask(gap) for name, gap in zip(columns, gaps.T, strict=True)})


@pytest.fixture(scope="module")
def table():
    return cut(made(500), 0.2, ["a", "c", "kind"])


@pytest.fixture(scope="module")
def model(table):
    return HGPRegressor(KERNEL, neighbours=48, missing="model", random_state=0).fit(table, "y")


def test_gaps_are_answered_with_an_uncertainty_to_match(model):
    whole = made(300, seed=5)
    mean, std = model.predict(whole, return_std=True)
    assert np.sqrt(np.mean((mean - whole.y) ** 2)) < 0.25
    for column, error in (("a", 0.5), ("c", 0.7)):
        gaps = whole.assign(**{column: np.nan})
        mean, wide = model.predict(gaps, return_std=True)
        errors = np.abs(mean - whole.y)
        assert np.sqrt(np.mean(errors**2)) < error  # of a target whose deviation is 0.8
        assert np.median(wide) > 1.2 * np.median(std)
        assert np.mean(errors < 1.96 * wide) > 0.9
    mean = model.predict(whole.assign(kind=None))
    assert np.sqrt(np.mean((mean - whole.y) ** 2)) < 0.35


def test_rows_with_gaps_have_factors_of_their_own(table, model, tmp_path):
    """Held-out rows with gaps are covered as often as those without."""
    scales = model.model_.gap_scales
    whole, of_a, of_c, _ = scales.factors
    assert min(of_a, of_c) > whole
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").model_.gap_scales.factors, scales.factors)
    gaps = made(20, seed=6).assign(a=np.nan)
    std, plain = model.predict(gaps, return_std=True)[1], model.predict_distribution(gaps).std
    np.testing.assert_array_equal(plain, std)
    np.testing.assert_allclose(model.predict_gradient(gaps).std, std, rtol=1e-9)
    without = HGPRegressor(KERNEL, neighbours=48, random_state=0).fit(made(200), "y")
    assert without.model_.gap_scales is None


def test_factors_make_intervals_cover_what_they_should():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(4000), rng.random(4000) < 0.3, rng.random(4000) < 0.3]).astype(float)
    true = np.where(X[:, 2] == 1, 3.0, np.where(X[:, 1] == 1, 1.5, 0.5))
    z = true * rng.standard_normal(4000)
    scales = GapScales.learnt([(1, 1.0), (2, 1.0)], X[:2000], z[:2000], Shape.gaussian())
    np.testing.assert_allclose(scales.factors[[0, 2]], [0.5, 3.0], rtol=0.1)
    inside = np.abs(z[2000:]) < 1.96 * scales.at(X[2000:])
    for group in (true == 0.5, true == 3.0):
        assert abs(inside[group[2000:]].mean() - 0.95) < 0.025
    few = GapScales.learnt([(1, 1.0)], X[:2], z[:2], Shape.gaussian())
    assert ((few.factors > 0.8) & (few.factors < 1.2)).all()


def test_distributions_of_queries_that_cannot_be_answered_are_nan(model):
    queries = made(6, seed=7).assign(b=[0.1, np.nan, 0.2, 0.3, np.nan, 0.4])
    law = model.predict_distribution(queries, missing="drop")
    mean, std = model.predict(queries, return_std=True, missing="drop")
    assert np.isnan(law.mean).tolist() == [False, True, False, False, True, False]
    np.testing.assert_array_equal([law.mean, law.std], [mean, std])
    np.testing.assert_array_equal(law.quantile(0.9), model.predict_quantiles(queries, 0.9, missing="drop")[:, 0])
    with pytest.raises(InvalidInput, match="column 'b'"):
        model.predict_distribution(queries)


def test_both_calls_and_files_are_alike(table, model, tmp_path):
    X, y = table.drop(columns="y"), table.y
    beside = HGPRegressor(KERNEL, neighbours=48, missing="model", random_state=0).fit(X, y)
    expected = model.predict(X)
    np.testing.assert_array_equal(beside.predict(X), expected)
    table.to_parquet(tmp_path / "t.parquet")
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(tmp_path / "t.parquet"), expected)


def test_gaps_that_training_did_not_have_are_an_error_or_no_prediction(table, model):
    queries = table.assign(b=table.b.mask(np.arange(500) == 3))
    with pytest.raises(InvalidInput, match=r"'b' .* row 3; the training data had no gaps .*missing=\"drop\""):
        model.predict(queries)
    mean, std = model.predict(queries, return_std=True, missing="drop")
    assert np.flatnonzero(np.isnan(mean)).tolist() == np.flatnonzero(np.isnan(std)).tolist() == [3]
    assert model.predict_quantiles(queries, [0.1, 0.9], missing="drop").shape == (500, 2)


def test_every_row_of_a_file_is_a_row_of_the_output(tmp_path):
    whole = made(60)
    gaps = cut(whole, 0.2, ["a"])
    lost = np.flatnonzero(gaps.a.isna())
    model = HGPRegressor(KERNEL, missing="drop", random_state=0).fit(gaps.drop(columns="y"), whole.y)
    assert model.report_.dropped == len(lost)
    for name in ("o.parquet", "o.csv"):
        report = model.predict_file(gaps, tmp_path / name, keep=["c"], missing="drop")
        assert (report.rows, report.dropped) == (60, len(lost))
        read = pq.read_table(tmp_path / name).to_pandas() if name.endswith("t") else pd.read_csv(tmp_path / name)
        assert np.flatnonzero(read["mean"].isna()).tolist() == lost.tolist()
        np.testing.assert_allclose(read.c, gaps.c)
    expected = model.predict(gaps[~gaps.a.isna()])
    np.testing.assert_array_equal(model.predict(gaps, missing="drop")[~gaps.a.isna()], expected)
    none = model.predict(gaps.assign(a=np.nan), missing="drop")
    assert len(none) == 60
    assert np.isnan(none).all()


def test_arrays():
    whole = made(80).drop(columns="kind")
    X, y = whole[["a", "b", "c"]].to_numpy().copy(), whole.y.to_numpy()
    X[::10, 0] = np.nan
    with pytest.raises(InvalidInput, match="NaN at row 0, column 0"):
        HGPRegressor(KERNEL).fit(X, y)
    for how, finite in (("drop", 72), ("model", 80)):
        model = HGPRegressor(KERNEL, missing=how, random_state=0).fit(X, y)
        assert np.isfinite(model.predict(X, missing="drop")).sum() == finite


def test_classes():
    table = cut(made(200), 0.1, ["a"])
    label = np.where(table.y > 0, "high", "low")
    X = table.drop(columns="y")
    model = HGPClassifier(KERNEL, neighbours=32, missing="drop", random_state=0).fit(X, label)
    gaps = table.a.isna().to_numpy()
    labels = model.predict(X, missing="drop")
    assert [each is None for each in labels] == gaps.tolist()
    np.testing.assert_array_equal(np.isnan(model.predict_proba(X, missing="drop")).all(axis=1), gaps)
    learnt = HGPClassifier(KERNEL, neighbours=32, missing="model", random_state=0).fit(X, label)
    assert (learnt.predict(X) == label)[gaps].mean() > 0.7


def test_wrong_words(table, model):
    with pytest.raises(InvalidParameter, match="missing must be one of 'drop', 'error', 'model'"):
        HGPRegressor(missing="ignore").fit(table, "y")
    with pytest.raises(InvalidParameter, match="missing must be one of 'drop', 'error'"):
        model.predict(table, missing="model")

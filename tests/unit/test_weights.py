"""Weights and known noise of rows through `fit`: what they mean, and that every way to fit respects them."""

import warnings
from itertools import cycle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gigagp import HGPRegressor
from gigagp.errors import InvalidInput, InvalidParameter

SETTINGS = {
    "mixture": {},
    "neighbourhood": {"method": "neighbourhood", "neighbours": 20},
    "committee": {"method": "committee", "leaf_size": 60, "sharing": 2.0},
    "stratified": {"partition": "stratified", "leaf_size": 80},
}


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    deviations = np.where(rng.random(n) < 0.5, 0.5, 0.05)
    y = np.sin(3 * X[:, 0]) + X[:, 1] + deviations * rng.standard_normal(n)
    return X, y, deviations


def model(**options):
    return HGPRegressor(random_state=0, n_jobs=1, **options)


def predictions(fitted):
    Z = np.random.default_rng(9).uniform(-1, 1, (50, 2))
    return np.concatenate(fitted.predict(Z, return_std=True))


@pytest.mark.parametrize("way", SETTINGS)
def test_a_row_of_weight_zero_is_absent(way):
    """To the bit: such rows are left out before anything else happens, whatever their values."""
    X, y, deviations = rows()
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    some = weights > 0
    y[~some] *= 1e6
    whole = model(**SETTINGS[way]).fit(X, y, weights, noise_std=deviations)
    part = model(**SETTINGS[way]).fit(X[some], y[some], weights[some], noise_std=deviations[some])
    np.testing.assert_array_equal(predictions(whole), predictions(part))
    assert whole.report_.rows == some.sum()


@pytest.mark.parametrize("way", SETTINGS)
def test_known_noise_is_used(way):
    """Half of the rows are ten times as precise as the others: f is predicted much better if that is known."""
    X, y, deviations = rows(300)
    Z, _, _ = rows(400, seed=2)
    truth = np.sin(3 * Z[:, 0]) + Z[:, 1]
    errors = [
        np.sqrt(np.mean((model(**SETTINGS[way]).fit(X, y, **options).predict(Z) - truth) ** 2))
        for options in ({}, {"noise_std": deviations}, {"sample_weight": (0.05 / deviations) ** 2})
    ]
    assert errors[1] < 0.7 * errors[0]
    assert errors[2] < 0.7 * errors[0]


def test_known_noise_is_not_learnt_again():
    """The learnt noise is what the known one leaves unexplained."""
    X, y, deviations = rows(400)
    plain, known = model().fit(X, y), model().fit(X, y, noise_std=deviations)
    only_known = model().fit(X, y, noise_std=deviations, learn_noise=False)
    assert plain.noise_variance_ > 0.05
    assert known.noise_variance_ < 0.01
    assert only_known.noise_variance_ < 1e-8


def test_weight_two_is_the_row_given_twice():
    """At the same theta: moments, evidence and its gradient agree to rounding, but for a constant of the noise.

    The optimum of the noise differs, since copies that agree exactly are evidence of little noise.
    """
    X, y, _ = rows(150)
    weights = np.random.default_rng(1).integers(1, 3, len(y))
    one_leaf = {"partition": "stratified", "leaf_size": 1000}
    twice = np.repeat(np.arange(len(y)), weights)
    a = model(**one_leaf).fit(X, y, weights)
    b = model(**one_leaf).fit(X[twice], y[twice])
    np.testing.assert_allclose(a.model_.inputs.widths, b.model_.inputs.widths, rtol=1e-12)
    np.testing.assert_allclose(a.model_.target.centre, b.model_.target.centre, rtol=1e-10, atol=1e-12)
    value_a, slope_a = a.log_marginal_likelihood(b.theta_, eval_gradient=True)
    value_b, slope_b = b.log_marginal_likelihood(b.theta_, eval_gradient=True)
    # Two copies with noise s^2 have the density of their mean, with s^2 / 2, times that of their difference, zero.
    copies, noise = int((weights == 2).sum()), np.exp(b.theta_[-1])
    assert value_b == pytest.approx(value_a - copies * np.log(2 * np.sqrt(np.pi * noise)), rel=1e-8)
    np.testing.assert_allclose(slope_a[:-1], slope_b[:-1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("engine", ["serial", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["neighbourhood", "committee"])
def test_every_engine_gives_the_same_model(engine, way):
    X, y, deviations = rows()
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    own = model(**SETTINGS[way]).fit(X, y, weights, noise_std=deviations)
    other = HGPRegressor(random_state=0, engine=engine, n_jobs=2, **SETTINGS[way])
    np.testing.assert_array_equal(predictions(own), predictions(other.fit(X, y, weights, noise_std=deviations)))


@pytest.mark.parametrize("way", SETTINGS)
def test_a_saved_model_predicts_the_same(way, tmp_path):
    X, y, deviations = rows()
    fitted = model(**SETTINGS[way]).fit(X, y, noise_std=deviations)
    fitted.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(predictions(loaded), predictions(fitted))
    np.testing.assert_array_equal(loaded.model_.store.row_noise, fitted.model_.store.row_noise)


@pytest.mark.parametrize("way", ["mixture", "neighbourhood"])
def test_targets_are_scored_with_their_own_noise(way):
    """95% intervals cover new rows of little and of much noise alike, and the scores are better for knowing it."""
    X, y, deviations = rows(400)
    new = pd.DataFrame(np.column_stack(rows(400, seed=3)), columns=["x0", "x1", "y", "s"])
    fitted = model(**SETTINGS[way]).fit(X, y, noise_std=deviations)
    queries = new[["x0", "x1"]].to_numpy()
    known = fitted.evaluate(queries, new["y"].to_numpy(), noise_std=new["s"].to_numpy())
    unknown = fitted.evaluate(queries, new["y"].to_numpy())
    assert 0.9 < known.coverage[0.95] < 0.99
    assert 0.4 < known.coverage[0.5] < 0.6
    assert known.nlpd < unknown.nlpd
    precise = new["s"].to_numpy() < 0.1
    part = fitted.evaluate(queries[precise], new["y"].to_numpy()[precise], noise_std=new["s"].to_numpy()[precise])
    assert part.coverage[0.95] > 0.85


BAD = {
    "negative": ({"sample_weight": -1.0}, "sample_weight has the weight -1 at row 3"),
    "missing": ({"sample_weight": np.nan}, "sample_weight has the weight nan at row 3"),
    "infinite": ({"sample_weight": np.inf}, "sample_weight has the weight inf at row 3"),
    "negative noise": ({"noise_std": -0.5}, "noise_std has the standard deviation -0.5 at row 3"),
    "missing noise": ({"noise_std": np.nan}, "at row 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_numbers_are_refused_by_row(name):
    X, y, _ = rows(20)
    (bad,), message = (BAD[name][0].items(),), BAD[name][1]
    ((option, value),) = bad
    numbers = np.ones(20)
    numbers[3] = value
    with pytest.raises(InvalidInput, match=message):
        model().fit(X, y, **{option: numbers})


def test_bad_shapes_are_refused():
    X, y, _ = rows(20)
    with pytest.raises(InvalidInput, match="20 rows and sample_weight has 19"):
        model().fit(X, y, np.ones(19))
    with pytest.raises(InvalidInput, match="one dimension"):
        model().fit(X, y, np.ones((20, 1)))
    with pytest.raises(InvalidInput, match="have the weight zero"):
        model().fit(X, y, np.zeros(20))
    with pytest.raises(InvalidInput, match="needs at least 2"):
        model().fit(X, y, np.eye(20)[0])
    with pytest.raises(InvalidInput, match="must be numbers"):
        model().fit(X, y, ["a"] * 20)
    with pytest.raises(InvalidParameter, match="names a column"):
        model().fit(X, y, "weight")
    with pytest.raises(InvalidParameter, match="needs noise_std"):
        model().fit(X, y, learn_noise=False)


FORMS = {
    "pandas": lambda frame, folder: frame,
    "polars": lambda frame, folder: pl.from_pandas(frame),
    "csv": lambda frame, folder: (frame.to_csv(folder / "t.csv", index=False), folder / "t.csv")[1],
    "parquet": lambda frame, folder: (frame.to_parquet(folder / "t.parquet"), folder / "t.parquet")[1],
}


@pytest.mark.parametrize(("form", "memory"), [*zip(FORMS, cycle([None, 12_000]))], ids=str)
def test_columns_of_tables_and_files_give_the_same_bits(form, memory, tmp_path, small_sizes):
    X, y, deviations = rows(700)
    weights = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(t=y, w=weights, s=deviations)
    plain = model(**SETTINGS["committee"]).fit(X, y, weights, noise_std=deviations)
    named = model(**SETTINGS["committee"], memory=memory)
    named.fit(FORMS[form](frame, tmp_path), "t", "w", noise_std="s")
    assert named.model_.store.mapped == (memory is not None)
    assert list(named.feature_names_in_) == ["a", "b"]
    assert named.report_.dropped == 0
    Z = np.random.default_rng(9).uniform(-1, 1, (50, 2))
    expected = np.concatenate(plain.predict(Z, return_std=True))
    got = named.predict(pd.DataFrame(Z, columns=["a", "b"]), return_std=True)
    np.testing.assert_array_equal(np.concatenate(got), expected)


def test_rows_sorted_through_buckets_keep_their_noise(monkeypatch, small_sizes):
    """Buckets in memory and in files, and cells that are cut again."""
    monkeypatch.setattr("gigagp.fit.store_writer.bucket_rows", lambda columns: 70)
    X, y, deviations = rows(300)
    y = np.arange(300.0)
    weights = 1.0 + np.arange(300)
    for memory in (None, 12_000):
        fitted = model(**SETTINGS["committee"], memory=memory).fit(X, y, weights, noise_std=deviations)
        store, scale = fitted.model_.store, fitted.model_.target
        order = np.rint(store.y * scale.scale[0] + scale.centre[0]).astype(int)
        np.testing.assert_array_equal(np.sort(order), np.arange(300))
        np.testing.assert_allclose(store.row_noise[:, 0], 1 / weights[order])
        np.testing.assert_allclose(
            store.row_noise[:, 1], (deviations**2 / weights)[order] / scale.scale[0] ** 2, rtol=1e-12
        )


def test_a_checkpoint_is_of_its_weights(tmp_path):
    X, y, deviations = rows(200)
    weights = np.random.default_rng(1).uniform(0.5, 2, len(y))
    fresh = model(**SETTINGS["committee"]).fit(X, y, weights, noise_std=deviations)
    for _ in range(2):
        kept = model(**SETTINGS["committee"])
        kept.fit(X, y, weights, noise_std=deviations, checkpoint=tmp_path / "c")
        np.testing.assert_array_equal(predictions(kept), predictions(fresh))
    others = [
        {"sample_weight": weights + 1, "noise_std": deviations},
        {"sample_weight": weights},
        {"noise_std": deviations},
        {"sample_weight": weights, "noise_std": deviations, "learn_noise": False},
    ]
    for other in others:
        with pytest.raises(InvalidInput, match="checkpoint of another fit"):
            model(**SETTINGS["committee"]).fit(X, y, **other, checkpoint=tmp_path / "c")


def test_roles_of_columns_are_checked():
    frame = pd.DataFrame(np.random.default_rng(0).uniform(size=(30, 4)), columns=["a", "t", "w", "s"])
    frame.loc[3, "w"] = -1
    with pytest.raises(InvalidInput, match="column 'w' of the table has the weight -1 at row 3"):
        model().fit(frame, "t", "w")
    with pytest.raises(InvalidInput, match="Did you mean 'w'"):
        model().fit(frame, "t", "ww")
    with pytest.raises(InvalidInput, match="different columns"):
        model().fit(frame, "t", "t")
    with pytest.raises(InvalidInput, match="weight or noise and a feature"):
        model().fit(frame, "t", noise_std="s", features=["a", "s"])
    frame.loc[3, "w"] = np.nan
    with pytest.raises(InvalidInput, match="the weight nan at row 3"):
        model().fit(frame, "t", "w")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model().fit(frame, "t", "w", missing="drop")
    assert (fitted.report_.rows, fitted.report_.dropped) == (29, 1)


@pytest.mark.parametrize("way", SETTINGS)
def test_only_ratios_of_weights_matter_for_f(way):
    """Start, bounds and prior of the noise are those of a typical row, whatever the unit of the weights."""
    X, y, deviations = rows()
    weights = deviations**-2
    Z = np.random.default_rng(9).uniform(-1, 1, (50, 2))
    small, large = (model(**SETTINGS[way]).fit(X, y, factor * weights) for factor in (1e-3, 1e3))
    assert large.noise_variance_ == pytest.approx(1e6 * small.noise_variance_, rel=1e-2)
    np.testing.assert_allclose(small.predict(Z), large.predict(Z), rtol=1e-3, atol=1e-3)

"""What users hand over by mistake: handled as they would expect, or refused with what, where and what to do."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from gigagp import HGPRegressor, InvalidInput, InvalidParameter
from gigagp.combine import GRBCM, Healed, PoE
from gigagp.estimators.user_warnings import warn_user
from gigagp.kernels import SquaredExponential
from gigagp.metrics import rmse
from gigagp.model.fit_warnings import OutlyingRows

AT_A_BOUND = pytest.mark.filterwarnings("ignore:.*bound")  # such data may drive a parameter there, and are told so


def model(**settings):
    return HGPRegressor(**{"kernel": SquaredExponential(), "leaf_size": 60, "random_state": 0, **settings})


@pytest.fixture
def data(wave):
    X, y = wave
    return X[:300].copy(), y[:300].copy()


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_nan_and_infinity_are_located(data, bad, word):
    X, y = data
    X[17, 1] = bad
    with pytest.raises(InvalidInput, match=f"X contains {word} at row 17, column 1 .*drop those rows"):
        model().fit(X, y)
    with pytest.raises(InvalidInput, match=r"row 17, column 1 \('height'\)"):
        model().fit(pd.DataFrame(X, columns=["angle", "height"]), y)
    X[17, 1], y[5] = 0.0, bad
    with pytest.raises(InvalidInput, match=f"y contains {word} at row 5"):
        model().fit(X, y)
    fitted = model().fit(*data_without(X, y, 5))
    X[17, 1] = bad
    with pytest.raises(InvalidInput, match="row 17, column 1"):
        fitted.predict(X)


def data_without(X, y, row):
    return np.delete(X, row, axis=0), np.delete(y, row)


@AT_A_BOUND
def test_a_sum_that_overflows_is_not_an_infinity(data):
    X, y = data
    X[0, 0], X[1, 0] = 1.7e308, 1.7e308
    model().fit(X, y)


def test_strings_are_located(data):
    X, y = data
    numbers = ["1.5", *["2.5"] * (len(y) - 2), "tall"]  # a typing error, not a category
    frame = pd.DataFrame(X, columns=["angle", "height"]).assign(length=numbers)
    for call in ((frame, y), (frame.assign(y=y), "y")):
        with pytest.raises(InvalidInput, match=r"'length' .*'tall' at row 299 .*drop=\['length'\]"):
            model().fit(*call)
    both = frame.assign(width=numbers)
    with pytest.raises(InvalidInput, match=r"columns 'length' .*, 'width' .* drop=\['length', 'width'\]"):
        model().fit(both.assign(y=y), "y")
    objects = X.astype(object)
    objects[3, 1] = "tall"
    with pytest.raises(InvalidInput, match="column 'x1' of X mixes types"):
        model().fit(objects, y)
    assert model().fit(X.astype(object), y).n_leaves_ == 5


def test_text_as_target_is_explained(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["angle", "height"])
    with pytest.raises(InvalidInput, match="y has the text 'low' at row 1, and the target must be numbers"):
        model().fit(X, ["1.5", "low", *y[2:].astype(str)])
    with pytest.raises(InvalidInput, match="no features are left"):
        model().fit(frame, ["angle", "height"])


@pytest.mark.parametrize("as_array", [list, np.array], ids=["lists", "an array"])
def test_text_among_the_inputs_is_named(data, as_array):
    X, y = data
    rows = as_array([*X[:5].astype(str).tolist(), ["1.5", "tall"]])
    with pytest.raises(InvalidInput, match=r"X has .* at row 0, column 0; X must be an array of numbers"):
        model().fit(rows, y[:6])
    with pytest.raises(InvalidInput, match=r"X has 'tall' at row 5, column 1"):
        model().fit([*X[:5].tolist(), [1.5, "tall"]], y[:6])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.empty((0, 2)), np.empty(0), "0 sample"),
        (np.ones((1, 2)), np.ones(1), "1 sample.*minimum of 2"),
        (np.empty((5, 0)), np.ones(5), "0 feature"),
        (np.ones(5), np.ones(5), "Expected 2D array"),
        (np.ones((5, 2)), np.ones(4), "inconsistent numbers of samples"),
        (np.ones((5, 2, 2)), np.ones(5), "dim 3"),
        (np.ones((5, 2)), np.ones((5, 2, 2)), "dim 3|dimension"),
        (np.ones((5, 2)), np.ones((5, 0)), "no columns"),
        (np.ones((5, 2)), None, "requires y"),
    ],
)
def test_wrong_shapes(X, y, message):
    with pytest.raises(ValueError, match=message):
        model().fit(X, y)


def test_sparse_and_complex_are_refused(data):
    X, y = data
    with pytest.raises(TypeError, match=r"Use '.toarray\(\)'"):
        model().fit(csr_matrix(X), y)
    with pytest.raises(ValueError, match="Complex"):
        model().fit(X + 1j, y)


def test_two_columns_of_one_name_are_refused(data):
    X, y = data
    with pytest.raises(InvalidInput, match="X has two columns called 'a'; rename one"):
        model().fit(pd.DataFrame(X, columns=["a", "a"]), y)


def test_predict_before_fit_and_with_other_columns(data):
    X, y = data
    with pytest.raises(NotFittedError):
        model().predict(X)
    with pytest.raises(ValueError, match="3 features, but HGPRegressor is expecting 2"):
        model().fit(X, y).predict(np.ones((4, 3)))


def test_fewer_rows_than_a_leaf_is_an_exact_gp(data):
    X, y = data
    few = HGPRegressor(random_state=0).fit(X[:40], y[:40])
    assert few.n_leaves_ == 1
    assert rmse(y[:40], few.predict(X[:40])) < 0.2
    assert np.isfinite(HGPRegressor(random_state=0).fit(X[:2], y[:2]).predict(X[:2])).all()


def test_a_constant_target_is_predicted(data):
    X, _ = data
    for value in (0.0, 7.5, -1e300):
        mean, std = model().fit(X, np.full(300, value)).predict(X, return_std=True)
        np.testing.assert_allclose(mean, value)
        assert (std <= max(1e-2, 1e-2 * abs(value))).all()


def test_constant_and_duplicate_columns_change_nothing_else(data):
    X, y = data
    plain = model().fit(X, y).predict(X)
    constant = model().fit(np.column_stack([X, np.full(300, 3.3)]), y).predict(np.column_stack([X, np.full(300, 3.3)]))
    np.testing.assert_allclose(constant, plain, atol=0.05)
    double = np.column_stack([X, X[:, 0]])
    assert rmse(y, model().fit(double, y).predict(double)) < 0.1


def test_a_new_value_in_a_constant_column_still_predicts(data):
    X, y = data
    wide = np.column_stack([X, np.full(300, 3.3)])
    fitted = model().fit(wide, y)
    wide[:, 2] = 4.0
    mean, std = fitted.predict(wide, return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


@AT_A_BOUND
def test_duplicate_rows(data):
    X, y = data
    thrice = np.tile(X, (3, 1))
    with_copies = model().fit(thrice, np.tile(y, 3))
    assert rmse(y, with_copies.predict(X)) < 0.15
    all_the_same = np.ones((50, 2))
    target = np.random.default_rng(0).normal(size=50)
    mean, std = model().fit(all_the_same, target).predict(all_the_same[:1], return_std=True)
    assert abs(mean[0] - target.mean()) < 0.3
    assert 0.5 < std[0] < 2


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_extreme_values(data, factor):
    X, y = data
    plain, deviation = model().fit(X, y).predict(X, return_std=True)
    mean, std = model().fit(X * factor, y).predict(X * factor, return_std=True)
    np.testing.assert_allclose(mean, plain, rtol=1e-6)
    mean, std = model().fit(X, y * factor).predict(X, return_std=True)
    np.testing.assert_allclose(mean, plain * factor, rtol=1e-6)
    np.testing.assert_allclose(std, deviation * factor, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_queries_beyond_everything_get_the_prior(data, dtype):
    X, y = data
    beyond = np.array([[1e300, -1e300], [1e30, 0.0], [1.7e308, 1.7e308]])
    for settings in ({"calibrate": False}, {"method": "committee"}, {"method": "neighbourhood"}):
        fitted = model(dtype=dtype, experts="gaussian", **settings).fit(X, y)
        mean, std = fitted.predict(beyond, return_std=True)
        np.testing.assert_allclose(mean, y.mean(), rtol=1e-3)
        prior = np.sqrt(np.exp(fitted.theta_[0]) * y.var() + fitted.noise_variance_)
        np.testing.assert_allclose(std, prior if "calibrate" in settings else y.std(), rtol=1e-3)


@AT_A_BOUND
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.int64, np.uint16, bool])
def test_other_number_types(data, dtype):
    X, y = data
    other = (X * 10).astype(dtype)
    fitted = model().fit(other, y)
    np.testing.assert_allclose(fitted.predict(other), fitted.predict(other.astype(float)), rtol=1e-6)


def test_layout_does_not_matter_and_input_is_not_written(data):
    X, y = data
    expected = model().fit(X, y).predict(X)
    wide = np.zeros((300, 4))
    wide[:, ::2] = X
    frozen = X.copy()
    frozen.flags.writeable = False
    for same in (wide[:, ::2], np.asfortranarray(X), frozen, X.tolist(), X[::-1][::-1]):
        np.testing.assert_array_equal(model().fit(same, y).predict(same), expected)
    before = X.copy(), y.copy()
    model().fit(X, y)
    np.testing.assert_array_equal(before[0], X)
    np.testing.assert_array_equal(before[1], y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": "kd"}, "partition must be one of 'local', 'random', 'stratified'; got 'kd'"),
        ({"combine": "mean"}, "combine must be one of 'auto', 'barycentre', 'bcm', 'blend'.*got 'mean'"),
        ({"training": "fast"}, "training must be one of 'auto', 'full', 'progressive'; got 'fast'"),
        ({"engine": "gpu"}, "engine must be one of 'dask', 'processes', 'serial', 'threads'; got 'gpu'"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'float64'; got 'float16'"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"n_jobs": -5}, "n_jobs must be a positive number of workers, -1 for all cores, or None; got -5"),
        ({"n_jobs": 1.5}, "n_jobs must be"),
        ({"kernel": "rbf"}, "kernel must be one of 'constant', .*; got 'rbf'"),
        ({"kernel": 3}, "kernel must be a gigagp.kernels.Kernel, its name or None; got 3"),
        ({"leaf_size": 1}, "leaf_size must be a whole number of at least 2"),
        ({"leaf_size": 10.5}, "leaf_size must be a whole number"),
        ({"leaf_size": None, "levels": 0}, "levels must be a whole number of at least 1"),
        ({"leaf_size": None, "levels": 2, "branching": 1}, "branching must be a whole number of at least 2"),
        ({"levels": 2}, "levels and branching, or leaf_size, not both"),
        ({"leaf_size": None, "branching": 4}, "needs levels too"),
        ({"sharing": 0}, "sharing must be at least 1"),
        ({"partition": "random", "sharing": 1.5}, "sharing must be a whole number"),
        (
            {"partition": "random", "leaf_size": None, "levels": 1, "branching": 4, "sharing": 5},
            "sharing must be at most branching.*sharing=5, branching=4",
        ),
        ({"partition": "random", "leaf_size": None, "levels": 6}, "leave .* of 300 rows in a leaf"),
        ({"leaf_size": None, "levels": 6}, "leave .* of 300 rows in a leaf"),
        ({"experts_per_query": 0}, "experts_per_query must be 'auto', None"),
        ({"experts_per_query": "all"}, "experts_per_query must be 'auto', None"),
        ({"noise_bounds": (1.0, 0.1)}, "noise_bounds must be two numbers, 0 < low <= high"),
        ({"noise_bounds": None}, "noise_bounds must be two numbers"),
        ({"noise_bounds": (1,)}, "noise_bounds must be two numbers"),
        ({"noise_bounds": "ab"}, "noise_bounds must be two numbers"),
        ({"standardize": "False"}, "standardize must be True or False"),
        ({"engine": "serial", "n_jobs": 0}, "n_jobs must be"),
        ({"n_restarts": -1}, "n_restarts must be"),
        ({"random_state": "dice"}, "random_state must be"),
    ],
)
def test_settings_are_refused_before_any_work(data, settings, message, monkeypatch):
    monkeypatch.setattr("gigagp.fit.theta_training.maximise", lambda *a, **k: pytest.fail("work was done first"))
    with pytest.raises(ValueError, match=message):
        model(**settings).fit(*data)


def test_a_number_of_workers_is_checked_again_when_a_model_predicts(data):
    fitted = model().fit(*data)
    for engine in ("threads", "serial"):
        with pytest.raises(InvalidParameter, match=r"n_jobs must be .*; got -5"):
            fitted.set_params(n_jobs=-5, engine=engine).predict(data[0])


def test_parts_refuse_what_they_cannot_be(data):
    with pytest.raises(InvalidParameter, match="target must be 'f'"):
        PoE("z")
    with pytest.raises(InvalidParameter, match="temperature"):
        Healed(-1)
    with pytest.raises(InvalidParameter, match="positive and finite"):
        SquaredExponential(variance=-1)
    with pytest.raises(InvalidParameter, match="bounds"):
        SquaredExponential(variance_bounds=(2, 1))
    with pytest.raises(InvalidParameter, match=r"3 values of lengthscale for 2 columns"):
        model(kernel=SquaredExponential(1.0, [1, 2, 3])).fit(*data)
    with pytest.raises(InvalidParameter, match="theta must have 4"):
        model().fit(*data).log_marginal_likelihood([0.0])
    for levels in (0.0, 1.0, [0.5, 2], np.nan):
        with pytest.raises(InvalidParameter, match="between 0 and 1"):
            model().fit(*data).predict_quantiles(data[0], levels)


def test_a_rule_that_needs_more_than_the_fit_gave_says_so(data):
    fitted = model().fit(*data)
    with pytest.raises(InvalidParameter, match="set combine before fit"):
        fitted.set_params(combine=GRBCM()).predict(data[0])


@pytest.mark.parametrize("settings", [{"random_state": -1}, {"n_jobs": 0}, {"engine": "gpu"}])
def test_a_fit_that_fails_leaves_the_model_as_it_was(data, settings):
    X, y = data
    fitted = model().fit(X, y)
    before = fitted.predict(X)
    with pytest.raises(ValueError, match="must be"):
        fitted.set_params(**settings).fit(10 * X + 5, 1000 * y)
    fitted.set_params(random_state=0, n_jobs=None, engine="threads")
    np.testing.assert_array_equal(fitted.predict(X), before)
    fresh = model(random_state=-1)
    with pytest.raises(ValueError, match="random_state"):
        fresh.fit(X, y)
    with pytest.raises(NotFittedError):
        fresh.predict(X)


def test_a_target_that_hardly_varies_is_still_learnt(data):
    X, y = data
    mean = model().fit(X, 1e9 + 1e-4 * y).predict(X)
    assert rmse(1e9 + 1e-4 * y, mean) < 0.1 * 1e-4 * y.std()
    with pytest.raises(InvalidInput, match="too large for standardize=False"):
        model(standardize=False).fit(X, 1e200 * y)


def test_frames_of_objects_that_are_numbers_will_do(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b"]).astype(object)
    np.testing.assert_array_equal(model().fit(frame, y).predict(frame), model().fit(X, y).predict(X))


def test_endless_sharing_is_all_rows(data):
    X, y = data
    fitted = model(sharing=1e18).fit(X, y)
    assert fitted.report_.points_per_expert == (300, 300)


def test_many_parameters_at_a_bound_make_one_warning(data):
    X, _ = data
    rng = np.random.default_rng(0)
    with pytest.warns(ConvergenceWarning, match=r"each of the columns x1, .* ended at its upper bound") as caught:
        model().fit(np.column_stack([X, rng.standard_normal((300, 12))]), X[:, 0] + 0.01 * rng.standard_normal(300))
    assert len([w for w in caught if "bound" in str(w.message)]) == 1


def test_of_many_warnings_some_are_quoted_and_the_others_counted(data):
    fitted = model().fit(*data)
    many = tuple(OutlyingRows(1, (row,)) for row in range(7))
    with pytest.warns(ConvergenceWarning, match=r"; and 2 more in report_\.warnings$") as caught:
        warn_user(replace(fitted.report_, warnings=many), fitted.model_.units)
    assert len(caught) == 1


def test_a_bound_that_is_hit_is_named(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=rf"noise_variance ended at its lower bound {0.5 * y.var():.3g} y\^2"):
        model(noise_bounds=(0.5, 10.0)).fit(X, y)

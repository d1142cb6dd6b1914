"""Mean functions: coefficients against NumPy and statsmodels, universal kriging, cross-fitting, the guard, saving."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct, Matern
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor
from statsmodels.regression.linear_model import GLS

from gigagp import HGPRegressor, load
from gigagp.data.sources import open_rows
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit import trends
from gigagp.kernels import Matern52


def table(n=120, columns=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, columns)) * 3 + 7
    return X, 2 * X[:, 0] - X[:, -1] + np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def fixed(mean, **settings):
    """A regressor with one exact GP whose theta is not learnt."""
    kernel = Matern52(0.7, 0.8, ard=False, variance_bounds=(0.7, 0.7), lengthscale_bounds=(0.8, 0.8))
    return HGPRegressor(kernel, mean=mean, noise_bounds=(0.01, 0.01), calibrate=False, random_state=0, **settings)


@pytest.mark.parametrize("weighted", [False, True])
def test_least_squares_over_blocks_is_that_of_numpy(weighted, monkeypatch):
    X, y = table(200)
    weights = np.random.default_rng(1).uniform(0.5, 2, 200) if weighted else None
    rows = open_rows(X, y, weights=weights)
    read = rows.blocks
    monkeypatch.setattr(rows, "blocks", lambda: read(64))
    trend = trends._least_squares(rows, np.arange(2))
    root = np.sqrt(np.ones(200) if weights is None else weights)[:, None]
    H = np.column_stack([np.ones(200), X])
    intercept, *slopes = np.linalg.lstsq(root * H, root[:, 0] * y, rcond=None)[0]
    assert trend.slopes == pytest.approx(slopes, rel=1e-9)
    assert trend.values(X) == pytest.approx(intercept + X @ slopes, rel=1e-9)


def test_a_column_given_twice_or_constant_has_a_mean_all_the_same():
    X, y = table()
    X = np.column_stack([X, X[:, 0], np.full(len(X), 5.0)])
    trend = trends._least_squares(open_rows(X, y), np.arange(4))
    reference = LinearRegression().fit(X, y)
    assert trend.values(X) == pytest.approx(reference.predict(X), rel=1e-8)


def test_coefficients_are_those_of_generalised_least_squares():
    X, y = table()
    model = fixed("linear").fit(X, y)
    first = fixed("constant").fit(X, y - trends._least_squares(open_rows(X, y), np.arange(2)).values(X)).model_
    Z = first.inputs.apply(X, np.dtype(float))
    K = first.kernel.gram(first.theta[:-1], Z)
    C = np.tril(K) + np.tril(K, -1).T + np.exp(first.theta[-1]) * np.eye(len(y))
    reference = GLS(y, np.column_stack([np.ones(len(y)), X]), sigma=C).fit()
    assert model.model_.trend.slopes == pytest.approx(reference.params[1:], rel=1e-6)


def test_one_exact_gp_with_a_linear_mean_is_universal_kriging():
    """A linear mean with a flat prior is the limit of a linear kernel with a large variance."""
    X, y = table(80)
    model = fixed("linear").fit(X, y)
    inputs, scale = model.model_.inputs, float(model.model_.target.scale[0])
    Z = inputs.apply(X, np.dtype(float))
    kernel = ConstantKernel(0.7) * Matern(0.8, nu=2.5) + ConstantKernel(1e5) * DotProduct(1.0)
    reference = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(Z, (y - y.mean()) / scale)
    queries = np.array([[7.0, 8.0], [0.0, 7.0], [40.0, -30.0]])
    mean, std = model.predict(queries, return_std=True)
    expected, deviation = reference.predict(inputs.apply(queries, np.dtype(float)), return_std=True)
    assert mean == pytest.approx(expected * scale + y.mean(), rel=2e-3, abs=2e-2)
    with_noise = scale * np.sqrt(deviation**2 + 0.01)
    assert std == pytest.approx(with_noise, rel=0.1)


def test_a_shifted_plane_shifts_predictions():
    X, y = table(150)
    queries = X[:20] + 30.0
    plane = 5 * X[:, 0] - 3 * X[:, 1] + 100
    before, after = fixed("linear").fit(X, y), fixed("linear").fit(X, y + plane)
    shift = 5 * queries[:, 0] - 3 * queries[:, 1] + 100
    assert after.predict(queries) == pytest.approx(before.predict(queries) + shift, rel=1e-6)


def test_a_prediction_does_not_depend_on_its_batch():
    X, y = table(150)
    model = fixed("linear").fit(X, y)
    together = np.stack(model.predict(X[:30], return_std=True))
    alone = np.stack([np.ravel(model.predict(x[None], return_std=True)) for x in X[:30]], axis=1)
    assert np.array_equal(together, alone)


class Remembers(RegressorMixin, BaseEstimator):
    """Predicts a large number for rows that it has seen."""

    def fit(self, X, y):
        self.rows_ = {tuple(x) for x in X}
        return self

    def predict(self, X):
        return np.array([1e6 if tuple(x) in self.rows_ else 0.0 for x in X])


def test_no_row_is_predicted_by_a_regressor_that_has_seen_it():
    X, y = table(200)
    trend, rest = trends._cross_fitted(open_rows(X, y), Remembers(), seed=3, budget=1 << 30)
    assert np.array_equal(next(rest.blocks()).y, y)
    assert np.array_equal(trend.values(X), np.full(200, 1e6 * (trends._FOLDS - 1) / trends._FOLDS))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the residuals of steps have outliers
def test_a_regressor_is_used_where_it_helps_and_only_there(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (280, 2))
    steps = 10 * (X[:, 0] > 0.5) * (X[:, 1] > 0.3) + 0.5 * rng.standard_normal(280)
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    helped = HGPRegressor(mean=tree, random_state=0).fit(X, steps)
    assert [c.name for c in helped.report_.choices if c.what == "mean" and c.chosen] == ["DecisionTreeRegressor"]
    assert np.abs(helped.predict(X) - steps).mean() < 1
    smooth = HGPRegressor(mean=tree, random_state=0).fit(X, np.sin(4 * X[:, 0]) + X[:, 1])
    assert [c.name for c in smooth.report_.choices if c.what == "mean" and c.chosen] == ["constant"]
    assert smooth.model_.trend is None
    plain = HGPRegressor(random_state=0).fit(X, np.sin(4 * X[:, 0]) + X[:, 1])
    np.testing.assert_array_equal(smooth.predict(X, return_std=True), plain.predict(X, return_std=True))
    helped.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded.mean, DecisionTreeRegressor)
    assert np.array_equal(loaded.predict(X), helped.predict(X))


def test_a_linear_mean_is_saved_and_read_from_files(tmp_path):
    import pandas as pd  # noqa: PLC0415

    X, y = table(150)
    model = fixed("linear").fit(X, y)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.mean == "linear"
    assert np.array_equal(loaded.predict(X, return_std=True), model.predict(X, return_std=True))
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_csv(tmp_path / "rows.csv", index=False)
    from_file = fixed("linear").fit(tmp_path / "rows.csv", "y")
    assert from_file.predict(tmp_path / "rows.csv") == pytest.approx(model.predict(X), rel=1e-9)


def test_a_class_that_is_not_known_is_not_loaded(tmp_path, monkeypatch):
    X, y = table(150)
    monkeypatch.setattr(
        trends, "_crps", lambda predictor, rows: np.arange(9.0) / (1 + (predictor.model.trend is not None))
    )
    model = fixed(Remembers()).fit(X, y)
    model.save(tmp_path / "model")
    with pytest.raises(InvalidInput, match=r"Remembers.*kernels="):
        load(tmp_path / "model")
    assert isinstance(load(tmp_path / "model", kernels=[Remembers]).mean, Remembers)


@pytest.mark.parametrize("mean", ["quadratic", 3, None, LinearRegression])
def test_other_values_are_refused(mean):
    with pytest.raises(InvalidParameter, match='mean must be "constant", "linear" or a regressor'):
        HGPRegressor(mean=mean).fit(*table(30))


def test_rows_that_are_too_many_or_too_few_for_a_regressor():
    X, y = table(120)
    with pytest.raises(InvalidInput, match="needs at least 100 rows; the data have 99"):
        HGPRegressor(mean=LinearRegression()).fit(X[:99], y[:99])
    with pytest.raises(InvalidParameter, match=r"all rows in memory.*mean=\"linear\""):
        trends._cross_fitted(open_rows(X, y), LinearRegression(), 0, budget=4000)

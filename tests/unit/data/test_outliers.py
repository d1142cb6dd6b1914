"""Rows whose target is far outside all others: which they are, and that they do no harm."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from gigagp import HGPRegressor
from gigagp.data.outliers import find_outliers, without
from gigagp.data.scan import scan
from gigagp.data.sources import open_rows
from gigagp.model.fit_warnings import OutlyingRows
from gigagp.report import write_report


def outliers(X, y, size=512, **options):
    return find_outliers(scan(open_rows(X, y, **options).blocks(size), 0))


def table(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + 0.02 * rng.standard_normal(n)


@pytest.mark.parametrize("size", [64, 512, 5000])
def test_a_value_far_outside_is_found(size):
    X, y = table(3000)
    y[[17, 1234]] = 1e4, -60.0
    found = outliers(X, y, size)
    assert found.rows.tolist() == [17, 1234]
    centre = np.median(y)
    np.testing.assert_allclose(found.variances, [(1e4 - centre) ** 2, (60 + centre) ** 2])
    targets = found.mark(y[1000:2000], np.arange(1000, 2000))
    assert targets[234].tolist() == [-60.0, 1.0, found.variances[1]]
    np.testing.assert_array_equal(np.delete(targets, 234, axis=0)[:, 1:], np.tile([1.0, 0.0], (999, 1)))


@pytest.mark.parametrize("draw", ["standard_normal", "uniform", "laplace", "lognormal", "t3"])
def test_ordinary_targets_have_no_outliers(draw):
    """Also of heavy tails: in one of 1,000 data sets where the exponent of the tail is 3."""
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        y = rng.standard_t(3, 400) if draw == "t3" else getattr(rng, draw)(size=400)
        found += len(outliers(np.arange(400.0)[:, None], y)) > 0
    assert found <= 1


def test_a_group_of_neighbours_is_structure():
    X, y = table(1000)
    y[[3, 400]] = 1e4
    assert len(outliers(X, y)) == 2
    X[400] = X[3] + 1e-4
    assert len(outliers(X, y)) == 0


def test_targets_of_which_half_are_equal_have_no_outliers():
    X, y = table(1000)
    assert len(outliers(X, (np.arange(1000) == 7) * 1.0)) == 0
    y[:501], y[700] = 0, 1e6
    assert len(outliers(X, y)) == 0


def test_many_far_values_are_a_second_cluster():
    X, y = table(1000)
    y[:6] = 1e4  # more than one in 200
    assert len(outliers(X, y)) == 0


def test_huge_values_do_not_overflow():
    X, y = table(1000)
    y[3] = 1.7e308
    found = outliers(X, y)
    assert found.rows.tolist() == [3]
    assert np.isfinite(found.variances).all()


def test_moments_are_those_of_the_other_rows():
    X, y = table(1000)
    y[3] = 1e8
    data = scan(open_rows(X, y).blocks(512), 0)
    cleaned = without(data, find_outliers(data))
    rest = np.delete(y, 3)
    assert cleaned.target.mean[0] == pytest.approx(rest.mean(), rel=1e-12)
    assert cleaned.target.deviation[0] == pytest.approx(rest.std(), rel=1e-12)


def test_rows_are_numbered_as_the_user_numbers_them():
    X, y = table(1000)
    y[500] = 1e4
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y, w=1.0)
    frame.loc[:9, "a"] = np.nan
    frame.loc[10:19, "w"] = 0.0
    found = outliers(frame, "y", missing="drop", weights="w")
    assert (found.rows.tolist(), found.source_rows.tolist()) == ([480], [500])


def median_error(fitted, X):
    return np.median(np.abs(fitted.predict(X) - np.sin(3 * X[:, 0]) - X[:, 1]))


@pytest.mark.parametrize("settings", [{}, {"method": "neighbourhood"}, {"partition": "stratified"}], ids=str)
def test_an_outlier_does_no_harm(settings, tmp_path):
    X, y = table(600)
    new = table(500, seed=1)[0]
    clean = HGPRegressor(random_state=0, n_jobs=1, **settings).fit(X, y)
    assert clean.model_.store.row_noise is None
    y[321] = 1e4
    with pytest.warns(ConvergenceWarning, match=r"1 row looks like an outlier, .* \(row 321\)"):
        fitted = HGPRegressor(random_state=0, n_jobs=1, **settings).fit(X, y)
    assert median_error(fitted, new) < 1.5 * median_error(clean, new)
    assert fitted.report_.warnings[0] == OutlyingRows(1, (321,))
    assert fitted.report_.outliers == (321,)
    assert "row 321" in repr(fitted.report_)
    assert "row 321" in fitted.report_._repr_html_()
    fitted.save(tmp_path / "model")
    assert HGPRegressor.load(tmp_path / "model").report_.warnings == fitted.report_.warnings


@pytest.mark.slow
@pytest.mark.full_choices
@pytest.mark.parametrize("settings", [{}, {"method": "neighbourhood", "neighbours": 20}], ids=str)
def test_the_report_lists_rows_unlike_their_predictions(settings, tmp_path):
    """An error within the range of the target is left to the calibration, and reported."""
    X, y = table(600)
    y[321] += 1.5
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    frame.loc[:9, "a"] = np.nan
    fitted = HGPRegressor(random_state=0, n_jobs=1, **settings).fit(frame, "y", missing="drop")
    report = fitted.report_
    assert (report.outliers, report.outlier_count, report.warnings) == ((321,), 1, ())
    assert "all predictions: 321" in repr(report)
    assert "all predictions: 321" in report._repr_html_()
    write_report(fitted, tmp_path / "page.html")
    assert "all predictions: 321" in (tmp_path / "page.html").read_text()
    fitted.save(tmp_path / "model")
    assert HGPRegressor.load(tmp_path / "model").report_.outliers == (321,)


@pytest.mark.slow
def test_one_value_of_ten_thousand_deviations_among_3000_rows():
    X, y = table(3000)
    new = table(2000, seed=1)[0]
    y[1234] = 1e4 * y.std()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = HGPRegressor(random_state=0).fit(X, y)
    assert median_error(fitted, new) < 0.012 * np.delete(y, 1234).std()

"""Dates are numbers inside the model, and dates and days for the user, in both calls of fit."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from gigagp import HGPRegressor, load, plotting
from gigagp.data.sources.times import date_text
from gigagp.kernels import Linear, Periodic
from gigagp.report import write_report

DAYS = np.sort(np.random.default_rng(0).integers(0, 3000, 150))
Y = 3 * np.sin(2 * np.pi * DAYS / 365.25) + 1e-3 * DAYS + 0.3 * np.random.default_rng(1).standard_normal(150)
KERNEL = Periodic(period=365.25, columns="when") + Linear(columns="when")


def table(unit):
    """The same instants as dates, or as timestamps of any precision."""
    when = (np.datetime64("1990-01-01", "D") + DAYS).astype(f"M8[{unit}]")
    return pd.DataFrame({"when": pd.Series(when), "y": Y})


@pytest.fixture(scope="module")
def model():
    return HGPRegressor(KERNEL, random_state=0).fit(table("ns"), "y")


def test_both_calls_give_the_same_model(model):
    data = table("ns")
    other = HGPRegressor(KERNEL, random_state=0).fit(data[["when"]], data.y)
    assert list(other.feature_names_in_) == ["when"]
    np.testing.assert_array_equal(other.predict(data[["when"]]), model.predict(data))
    np.testing.assert_array_equal(other.theta_, model.theta_)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M"])
def test_text_that_is_dates_is_read_as_in_a_csv_file(form, tmp_path):
    data = table("ns")
    text = data.assign(when=data.when.dt.strftime(form))
    text.to_csv(tmp_path / "t.csv", index=False)
    small = HGPRegressor(KERNEL, random_state=0)
    from_file = small.fit(tmp_path / "t.csv", "y").predict(tmp_path / "t.csv")
    np.testing.assert_array_equal(HGPRegressor(KERNEL, random_state=0).fit(text, "y").predict(text), from_file)
    beside = HGPRegressor(KERNEL, random_state=0).fit(text[["when"]], text.y)
    np.testing.assert_array_equal(beside.predict(text[["when"]][:3]), from_file[:3])
    days = text.assign(when=text.when.str[:7] + "-01", x=DAYS)
    levels = HGPRegressor(categorical=["when"], random_state=0).fit(days, "y")
    assert levels.model_.encoding.features[0].kind == "category"
    assert np.isfinite(levels.predict(days)).all()


def test_arrays_of_dates_are_read(model):
    when = (np.datetime64("1990-01-01", "D") + DAYS)[:, None]
    kernel = Periodic(period=365.25, columns=0) + Linear(columns=0)
    other = HGPRegressor(kernel, random_state=0).fit(when, Y)
    np.testing.assert_allclose(other.predict(when), model.predict(table("s")), rtol=1e-6)


def test_lengths_are_in_days_for_dates_and_timestamps(model, tmp_path):
    model.save(tmp_path / "m")
    for each in (model, load(tmp_path / "m")):
        values = {p.name: p for p in each.units_.parameters(each.kernel_, each.noise_variance_)}
        assert values["period[when]"].value == pytest.approx(365.25, rel=0.01)
        assert values["period[when]"].unit == "days"
        assert values["linear.variance[when]"].unit == "y^2/days^2"


def test_pictures_and_report_show_dates(model, tmp_path):
    with mpl.rc_context({"backend": "agg"}):
        ax = plotting.predictive_band(model, "when")
        ax.figure.canvas.draw()
        labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels
    assert all(label.startswith("199") and label.endswith("-01") for label in labels)
    write_report(model, tmp_path / "report.html", table("ns"))
    page = (tmp_path / "report.html").read_text()
    assert "1990-0" in page
    assert " days" in page
    assert f"{model.model_.inputs.scaling.centre[0]:.4g}" not in page  # seconds since 1970


@pytest.mark.parametrize(
    ("kind", "value", "span", "text"),
    [
        ("date", 7305.0, 30.0, "1990-01-01"),
        ("date", 7305.0, 4000.0, "1990-01"),
        ("timestamp", 7305.0 * 86400 + 3661, 86400.0, "1990-01-01 01:01"),
        ("timestamp", -1.0, 1e7, "1969-12-31"),
        ("date", 1e12, 1.0, "1e+12"),
    ],
)
def test_dates_are_as_fine_as_the_range_needs(kind, value, span, text):
    assert date_text(kind, value, span) == text


def test_dates_in_the_target_are_refused():
    data = table("ns")
    with pytest.raises(ValueError, match="y"):
        HGPRegressor().fit(data[["when"]], data.when.astype(str))

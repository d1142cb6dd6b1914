"""Kernels on chosen columns: the same as on a slice of X, in the user's units, with the names of the columns."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import kernels as sk

from gigagp import HGPRegressor, load
from gigagp.errors import InvalidParameter
from gigagp.kernels import (
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    OnColumns,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from gigagp.kernels.expressions import NAMES, parse
from gigagp.kernels.inputs import InputColumns
from gigagp.model.plain_values import Registry, from_plain, to_plain
from gigagp.testing import check_kernel

KINDS = [SquaredExponential, Matern12, Matern32, Matern52, RationalQuadratic, Periodic, Linear]
RNG = np.random.default_rng(0)
X, Z = RNG.standard_normal((12, 4)), RNG.standard_normal((5, 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [2, (1,), (3, 0), (0, 1, 2, 3)])
def test_a_kernel_on_columns_is_the_kernel_on_the_slice(kind, columns):
    own, places = kind(columns=columns).bind(4), list(np.atleast_1d(columns))
    plain = kind().bind(len(places))
    theta = plain.theta + 0.1 * RNG.standard_normal(len(plain.theta))
    x, z = np.ascontiguousarray(X[:, places]), np.ascontiguousarray(Z[:, places])
    K = plain.gram(theta, x)
    np.testing.assert_array_equal(own.gram(theta, X), K)
    np.testing.assert_array_equal(own.cross(theta, X, Z), plain.cross(theta, x, z))
    np.testing.assert_array_equal(own.diagonal(theta, X), plain.diagonal(theta, x))
    W = RNG.standard_normal((12, 12))
    W = W + W.T
    np.testing.assert_array_equal(own.pullback(theta, X, W, K), plain.pullback(theta, x, W, K))
    assert isinstance(own, kind if columns == (0, 1, 2, 3) else OnColumns)  # all columns: the compiled kernel itself


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_on_columns_conform(kind):
    check_kernel(kind(columns=[2, 0]) * Matern32(columns=1) + Constant(), 3)


def test_scikit_learn_gives_the_same_values_on_the_slices():
    kernel = (Periodic(2.0, 0.7, 3.0, columns=1) + Matern32(0.5, [0.4, 1.5], columns=[0, 3])).bind(4)
    period = 2.0 * sk.ExpSineSquared(length_scale=0.7, periodicity=3.0)(X[:, [1]])
    matern = 0.5 * sk.Matern([0.4, 1.5], nu=1.5)(X[:, [0, 3]])
    np.testing.assert_allclose(np.tril(kernel.gram(kernel.theta, X)), np.tril(period + matern), atol=1e-12)


# Units

INPUTS = InputColumns(("lon", "lat", "kind", "year"), ((0,), (1,), (2, 3), (4,)), (50.0, 20.0, 0.5, 0.4, 8.0), 3.0)


def test_values_of_a_kernel_on_columns_are_in_the_units_of_the_data():
    kernel = Periodic(9.0, 0.5, 1.0, columns="year").bound(INPUTS)
    np.testing.assert_allclose(np.exp(kernel.theta), [9 / 3.0**2, 0.5, 1 / 8])
    matern = Matern32(lengthscale=[5, 10], lengthscale_bounds=(1, 100), columns=["lon", "lat"]).bound(INPUTS)
    np.testing.assert_allclose(np.exp(matern.theta), [1, 5 / 50, 10 / 20])
    np.testing.assert_allclose(np.exp(matern.bounds[1:]), [[1 / 50, 100 / 50], [1 / 20, 100 / 20]])
    line = Linear(variance=4.0, columns="year").bound(INPUTS)
    np.testing.assert_allclose(np.exp(line.theta), [4.0 * 8.0**2 / 3.0**2])


def test_what_is_not_given_is_standardised_and_so_are_kernels_without_columns():
    for kernel in (Matern52(), Matern52(columns=["lon", "year"]), Matern52(2.0, 0.3)):
        plain = Matern52(*[p.values[0] for p in kernel.parameters])
        bound = kernel.bound(INPUTS)
        np.testing.assert_allclose(bound.theta, plain.theta[[0] + [1] * (len(bound.theta) - 1)])
    assert Matern52(2.0, 0.3, columns="lon", units="standardised").bound(INPUTS).theta[1] == np.log(0.3)
    everywhere = Matern52(lengthscale=30, units="data").bound(INPUTS)
    assert type(everywhere) is Matern52  # all columns: the compiled kernel itself
    np.testing.assert_allclose(np.exp(everywhere.theta[1:]), [30 / width for width in INPUTS.widths])


def test_one_length_scale_for_several_columns_is_in_their_common_unit():
    kernel = Matern32(lengthscale=5.0, ard=False, columns=["lon", "lat"]).bound(INPUTS)
    data = np.array([[10.0, -3.0], [12.0, 4.0], [0.0, 0.0]])  # in degrees
    inside = np.zeros((3, 5))
    inside[:, :2] = data / [50.0, 20.0]
    expected = sk.Matern(5.0, nu=1.5)(data)
    np.testing.assert_allclose(np.tril(kernel.gram(kernel.theta, inside)), np.tril(expected), atol=1e-12)
    metric = kernel.metric(kernel.theta)
    np.testing.assert_allclose(metric, [50 / 5, 20 / 5, 0, 0, 0])


def test_the_first_factor_of_a_product_carries_the_variance():
    kernel = (Matern32(18.0, columns="lon") * Periodic(2.0, columns="year")).bound(INPUTS)
    np.testing.assert_allclose(np.exp(kernel.theta[[0, 2]]), [18 / 9, 2])


def test_a_given_period_is_kept_unless_bounds_are_given():
    kept = Periodic(period=1.0, columns="year").bound(INPUTS)
    np.testing.assert_allclose(np.exp(kept.bounds[2]), [1 / 8, 1 / 8])
    free = Periodic(period=1.0, period_bounds=(0.1, 10), columns="year").bound(INPUTS)
    np.testing.assert_allclose(np.exp(free.bounds[2]), [0.1 / 8, 10 / 8])
    assert Periodic(columns="year").bound(INPUTS).bounds[2, 0] < Periodic(columns="year").bound(INPUTS).bounds[2, 1]


def test_bounds_make_room_for_a_given_value():
    far = Matern32(lengthscale=1e6, columns="lat").bound(INPUTS)
    assert np.exp(far.bounds[1, 1]) == pytest.approx(10 * 1e6 / 20)
    near = Matern32(lengthscale_bounds=(1, 2), columns="lat").bound(INPUTS)
    np.testing.assert_allclose(np.exp(near.theta[1]), 2 / 20)  # the default, 20, is moved into the bounds
    with pytest.raises(InvalidParameter, match="starts outside its bounds"):
        Matern32(lengthscale=3, lengthscale_bounds=(1, 2), columns="lat")


# Columns


def test_a_category_is_all_of_its_columns_and_numbers_count_the_users_columns():
    by_name, by_number = (Matern32(columns=c).bound(INPUTS) for c in ("kind", 2))
    assert by_name == by_number
    assert by_name.places == (2, 3)
    assert Matern32(columns=-1).bound(INPUTS).places == (4,)
    equal = Matern32(lengthscale=1.0, ard=False, columns="kind").bound(INPUTS)  # levels at the same distance
    inside = np.zeros((3, 5))
    inside[:, 2:4] = np.array([[1, 0], [0, 1], [1, 0]]) / [0.5, 0.4]
    np.testing.assert_allclose(equal.gram(equal.theta, inside)[1, 0], sk.Matern(1.0, nu=1.5)([[0, 2**0.5]], [[0, 0]]))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("Lat", r"no column 'Lat'. Did you mean 'lat'\? They have 'lon', 'lat'"),
        (7, "no column number 7; the data have 4"),
        (["lon", 0], "different columns"),
        (True, "no column True"),
    ],
)
def test_a_column_that_is_not_there_is_named(columns, message):
    with pytest.raises(InvalidParameter, match=message):
        Matern32(columns=columns).bound(INPUTS)


def test_no_columns_and_other_units_are_refused():
    with pytest.raises(InvalidParameter, match="must not be empty"):
        Matern32(columns=[])
    with pytest.raises(InvalidParameter, match="units must be one of 'data', 'standardised'"):
        Matern32(units="metres")


def test_equality_and_repr_tell_columns():
    assert Matern32(columns="a") != Matern32(columns="b")
    assert Matern32(columns="a") != Matern32()
    assert pickle.loads(pickle.dumps(Matern32(columns=["a", "b"]))) == Matern32(columns=["a", "b"])
    assert repr(Matern32(columns="a", units="data")) == (
        "Matern32(variance=1, lengthscale=1, columns='a', units='data')"
    )
    assert repr(Matern32(columns=["lon", "lat"]).bound(INPUTS)) == (
        "Matern32(variance=1, lengthscale=1, columns=[0, 1])"
    )


def test_the_metric_is_that_of_the_parts_and_plain_in_columns_that_no_part_measures():
    kernel = (Periodic(columns=1) + Matern32(lengthscale=[0.5, 2.0], columns=[0, 3])).bind(5)
    np.testing.assert_allclose(kernel.metric(kernel.theta), [2.0, 1.0, 0, 0.5, 0])
    same = (Periodic(columns=0) * Matern32(lengthscale=0.5, columns=0)).bind(2)
    np.testing.assert_allclose(same.metric(same.theta), [2.0, 0])
    assert (Periodic(columns=1) + Linear()).bind(2).metric(np.zeros(5)) is None


class Own(SquaredExponential):
    """A kernel of the user's own, in which nothing is compiled."""

    def __init__(self, lengthscale=2.0, columns=None):
        self.columns = columns
        self.parameters = Matern52(1.0, lengthscale).parameters

    def gram(self, theta, X, out=None):
        return super().gram(theta, X, out)


@pytest.mark.parametrize("kernel", [Own(3.0), Own(3.0, "year"), Matern32(2.0, columns=["lon"]), Constant(2.0)])
def test_kernels_on_columns_as_plain_values(kernel):
    for each in (kernel, kernel.bound(INPUTS), (kernel + Linear(columns=-1)).bound(INPUTS)):
        assert from_plain(to_plain("kernel", each), Registry([Own])) == each


# Models


@pytest.fixture(scope="module")
def series():
    """Trend and season, of which the rows of the last years are not used for the fit."""
    rng = np.random.default_rng(1)
    year = np.sort(rng.uniform(1960, 1990, 300))
    site = rng.choice(["north", "south"], 300)
    co2 = 315 + 1.2 * (year - 1960) + 3 * np.sin(2 * np.pi * year) + (site == "north") + 0.3 * rng.standard_normal(300)
    return pd.DataFrame({"site": site, "year": year, "co2": co2})


SEASONAL = Periodic(period=1.0, columns="year") + Linear(columns="year") + Matern32(ard=False, columns="site")


@pytest.fixture(scope="module")
def seasonal(series):
    before = series[series.year < 1980]
    return HGPRegressor(SEASONAL, random_state=0).fit(before, "co2", categorical=["site"])


def test_a_season_continues_beyond_the_data(series, seasonal):
    after = series[series.year >= 1980]
    mean, std = seasonal.predict(after, return_std=True)
    errors = np.abs(mean - after.co2.to_numpy())
    assert errors.mean() < 0.5  # the noise has 0.3, the season 3, the trend 12
    assert (errors < 2 * std).mean() > 0.85
    assert seasonal.n_leaves_ == 1  # far rows matter, so that all of them are one leaf


def test_parameters_are_reported_in_the_units_of_the_data(seasonal):
    values = {each.name: each for each in seasonal.units_.parameters(seasonal.kernel_, seasonal.noise_variance_)}
    assert values["period[year]"].value == pytest.approx(1.0, rel=0.01)
    assert values["period[year]"].unit == "year"
    assert values["linear.variance[year]"].unit == "co2^2/year^2"
    assert values["matern32.lengthscale[site]"].unit == "level distances"
    shape = seasonal.units_.description(seasonal.kernel_)
    assert shape == "Periodic(year) + Linear(year) + Matern32(site)"
    text = " ".join(repr(seasonal.report_).split())
    assert "period[year] = 1" in text
    assert not any(part in text for part in ("left.", "right.", "[0]"))


def test_a_model_on_columns_is_saved_without_pickle(series, seasonal, tmp_path):
    seasonal.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.kernel == SEASONAL
    assert loaded.kernel_ == seasonal.kernel_
    np.testing.assert_array_equal(loaded.predict(series), seasonal.predict(series))


@pytest.mark.filterwarnings("ignore:.*ended at its")
def test_units_of_the_data_do_not_change_the_model(series):
    table = series.drop(columns="site")
    seconds = table.assign(year=(table.year - 1960) * 31557600.0, co2=table.co2 * 1e-6)
    kernel = Matern32(lengthscale=5.0, columns="year") * Periodic(period=1.0, columns="year") + Constant()
    scaled = Matern32(lengthscale=5.0 * 31557600, columns="year") * Periodic(period=31557600.0, columns="year")
    one = HGPRegressor(kernel, random_state=0).fit(table, "co2").predict(table)
    other = HGPRegressor(scaled + Constant(), random_state=0).fit(seconds, "co2").predict(seconds)
    np.testing.assert_allclose(other * 1e6, one, rtol=1e-4)


def test_warnings_name_columns_and_units():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"metres": 1e3 * rng.standard_normal(80), "noise": rng.standard_normal(80)})
    kernel = Matern32(columns="metres", lengthscale_bounds=(10, 100)) + Constant()
    with pytest.warns(UserWarning, match=r"lengthscale\[metres\] ended at its upper bound 100 metres"):
        HGPRegressor(kernel, random_state=0).fit(table, np.sin(table.metres / 1e3).to_numpy())


# Expressions


def test_expressions_are_what_python_would_make_of_them():
    assert parse("matern52") == Matern52()
    assert parse("squared-exponential + rational-quadratic(alpha=2)") == SquaredExponential() + RationalQuadratic(
        alpha=2
    )
    text = "periodic(period=24, columns=hour) + matern32(columns=[lon, 'lat'], ard=False)"
    assert parse(text) == Periodic(period=24, columns="hour") + Matern32(columns=["lon", "lat"], ard=False)
    assert parse("matern32+linear*periodic") == Matern32() + Linear() * Periodic()
    assert parse("(matern32+linear)*constant(2.5)") == (Matern32() + Linear()) * Constant(2.5)
    assert {type(parse(name)) for name in NAMES} == set(NAMES.values())


@pytest.mark.parametrize(
    "text",
    [
        "matern", "2 * matern32", "matern32 - linear", "matern32 +", "", "matern32(2**9)", "matern32(columns=f(x))",
        "__import__('os').system('true')", "matern32.__class__", "[matern32]", "matern32(size=3)", "matern32(*[1])",
        "matern32(**{'ard': False})", "(lambda: 1)()", "matern32(lengthscale=-1)", "matern32(lengthscale='a')",
        "(" * 500 + "matern32" + ")" * 500, "matern32 + " * 2000 + "matern32",
    ],
)  # fmt: skip
def test_other_expressions_are_refused(text):
    with pytest.raises(InvalidParameter, match="kernel"):
        parse(text)


def test_kernels_by_name_in_python(series):
    table = series[["year", "co2"]]
    by_name, by_class = (
        HGPRegressor(kernel, partition="random", random_state=0).fit(table, "co2").predict(table[:3])
        for kernel in ("matern52", Matern52())
    )
    np.testing.assert_array_equal(by_name, by_class)
    with pytest.raises(InvalidParameter, match="kernel must be one of"):
        HGPRegressor("matern").fit(table, "co2")

"""Models on the sphere: no seam, one length-scale, and the same answers from arrays, tables, files and saved models."""

import numpy as np
import pandas as pd
import pytest

import gigagp
from gigagp import HGPClassifier, HGPRegressor
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.kernels import Matern32, Periodic


def unit_vectors(lon, lat):
    a, b = np.radians(lon), np.radians(lat)
    return np.column_stack([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)])


def height(lon, lat):
    x, y, z = unit_vectors(lon, lat).T
    return np.sin(3 * x) + y * z + 2 * z


def table(n=500, seed=0, **columns):
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))
    return pd.DataFrame({"lon": lon, "lat": lat, **columns, "t": height(lon, lat) + 0.01 * rng.standard_normal(n)})


FIXED = Matern32(1.0, 1.0, variance_bounds=(1.0, 1.0), lengthscale_bounds=(1.0, 1.0))
QUERIES = pd.DataFrame({"lon": [-180.0, 180, -179.9, 179.9, 10, 100], "lat": [20.0, 20, 20, 20, 90, 90]})


@pytest.fixture(scope="module")
def model():
    return HGPRegressor(random_state=0).fit(table(), "t")


def test_there_is_no_seam_and_a_pole_is_one_place(model):
    mean, std = model.predict(QUERIES, return_std=True)
    assert (mean[0], std[0]) == (mean[1], std[1])
    np.testing.assert_allclose(mean[4:], mean[4], rtol=1e-9)
    np.testing.assert_allclose(mean[2] - mean[3], height(-179.9, 20) - height(179.9, 20), atol=1e-3)
    np.testing.assert_allclose(mean, height(QUERIES.lon, QUERIES.lat), atol=0.05)


def test_the_model_is_that_of_unit_vectors_with_one_lengthscale():
    """The same GP, fitted to coordinates without knowledge of a sphere."""
    data = table(400)
    settings = {"partition": "random", "leaf_size": 400, "random_state": 0}
    sphere = HGPRegressor(Matern32(1.0, 1.0), **settings).fit(data, "t")
    P = unit_vectors(data.lon, data.lat)
    plain = HGPRegressor(Matern32(1.0, 1.0, ard=False), **settings, standardize=False)
    scale = sphere.model_.inputs.scaling.scale[0]
    y = (data.t - data.t.mean()) / data.t.std(ddof=0)
    plain.fit(P / scale, y)
    np.testing.assert_allclose(sphere.theta_, plain.theta_, atol=1e-4)
    q = unit_vectors(QUERIES.lon, QUERIES.lat) / scale
    mean = plain.predict(q) * data.t.std(ddof=0) + data.t.mean()
    np.testing.assert_allclose(sphere.predict(QUERIES), mean, atol=1e-5)


def test_the_report_says_so(model):
    text = repr(model.report_)
    assert "lengthscale[lon, lat] = " in text
    assert "degrees" in text
    assert "lon and lat are places on a sphere" in text
    assert "km" in text
    assert model.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["lon", "lat"]


def test_columns_with_such_names_and_other_values_are_plain():
    data = table(100).assign(lat=lambda rows: 1000 * rows.lat)
    assert HGPRegressor(FIXED, noise_bounds=(0.01, 0.01)).fit(data, "t").model_.inputs.sphere is None


def test_it_can_be_switched_off():
    flat = HGPRegressor(random_state=0, sphere=None).fit(table(200), "t")
    assert flat.model_.inputs.sphere is None
    assert "sphere" not in repr(flat.report_)
    assert len(flat.theta_) == 4


def test_arrays_are_on_a_sphere_where_it_is_declared(model):
    data = table()
    X, y = data[["lat", "lon"]].to_numpy(), data.t.to_numpy()
    declared = HGPRegressor(random_state=0, sphere=(1, 0)).fit(X, y)
    np.testing.assert_allclose(declared.predict(QUERIES[["lat", "lon"]].to_numpy()), model.predict(QUERIES), atol=2e-3)
    assert HGPRegressor(kernel=FIXED, noise_bounds=(0.01, 0.01)).fit(X[:100], y[:100]).model_.inputs.sphere is None
    frame = HGPRegressor(kernel=FIXED, noise_bounds=(0.01, 0.01)).fit(data[["lat", "lon"]], y)
    assert frame.model_.inputs.sphere is not None


def test_saved_models_and_files_predict_the_same(model, tmp_path):
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(QUERIES), model.predict(QUERIES))
    assert loaded.units_ == model.units_
    QUERIES.to_csv(tmp_path / "queries.csv", index=False)
    loaded.predict_file(tmp_path / "queries.csv", tmp_path / "out.csv")
    mean, _ = model.predict(QUERIES, return_std=True)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["mean"], mean, rtol=1e-12)


def test_out_of_core_is_the_same_model(tmp_path, small_sizes):
    depth = np.random.default_rng(1).uniform(0, 1, 1500)
    data = table(1500, depth=depth).assign(t=lambda rows: rows.t + np.sin(5 * depth))
    data.to_parquet(tmp_path / "rows.parquet")
    settings = {"random_state": 0, "leaf_size": 100, "kernel": "matern32"}
    inside = HGPRegressor(**settings).fit(data, "t")
    outside = HGPRegressor(**settings, memory=20_000).fit(tmp_path / "rows.parquet", "t")
    queries = QUERIES.assign(depth=0.5)
    np.testing.assert_array_equal(outside.predict(queries), inside.predict(queries))
    assert inside.units_.named("lengthscale[0,1,3]") == "lengthscale[lon, lat]"
    assert [each.name for each in inside.units_.parameters(inside.kernel_, 1.0)][1:3] == [
        "lengthscale[lon, lat]", "lengthscale[depth]"
    ]  # fmt: skip


def test_kernels_see_both_or_none():
    year = np.random.default_rng(1).uniform(0, 5, 200)
    data = table(200, year=year).assign(t=lambda rows: rows.t + np.sin(2 * np.pi * year))
    kernel = Matern32(lengthscale=30.0, columns=["lon", "lat"]) + Periodic(
        period=1.0, lengthscale=1.0, lengthscale_bounds=(1.0, 1.0), columns="year"
    )
    text = repr(HGPRegressor(kernel).fit(data, "t").report_)
    assert "matern32.lengthscale[lon, lat]" in text
    assert "period[year] = 1 year" in text
    with pytest.raises(InvalidParameter, match="sees both or none"):
        HGPRegressor(Matern32(columns="lon")).fit(data, "t")


def test_a_lengthscale_in_degrees_is_the_users_value():
    data = table(200)
    kernel = Matern32(1.0, 30.0, columns=["lon", "lat"], lengthscale_bounds=(30.0, 30.0))
    fitted = HGPRegressor(kernel, random_state=0).fit(data, "t")
    (value,) = [each for each in fitted.units_.parameters(fitted.kernel_, 1.0) if "lengthscale" in each.name]
    assert value.unit == "degrees"
    np.testing.assert_allclose(value.value, 30.0)


def test_classes_on_a_sphere():
    data = table(300).assign(high=lambda t: np.where(t.t > 0, "high", "low")).drop(columns="t")
    fitted = HGPClassifier(random_state=0).fit(data, "high")
    probability = fitted.predict_proba(QUERIES)
    np.testing.assert_array_equal(probability[0], probability[1])
    assert fitted.model_.inputs.sphere is not None


@pytest.mark.parametrize("sphere", ["sphere", ("lon",), (0, 1.5), ("lon", "lat", "t"), True])
def test_other_values_of_sphere_are_refused(sphere):
    with pytest.raises(InvalidParameter, match="sphere must be"):
        HGPRegressor(sphere=sphere).fit(table(50), "t")


def test_declared_columns_must_be_degrees():
    with pytest.raises(
        InvalidInput, match=r"column 'lon' has values from .* a latitude is in degrees.* longitude first"
    ):
        HGPRegressor(sphere=("lat", "lon")).fit(table(50), "t")
    fitted = HGPRegressor(FIXED, noise_bounds=(0.01, 0.01)).fit(table(100), "t")
    with pytest.raises(InvalidInput, match="latitude 91"):
        fitted.predict(pd.DataFrame({"lon": [0.0], "lat": [91.0]}))

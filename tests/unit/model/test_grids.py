"""Grids: the same predictions as point by point, in memory, in blocks and in files that xarray and rioxarray read."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gigagp import HGPRegressor
from gigagp.cli import app
from gigagp.errors import DiskFull, InvalidInput, InvalidParameter
from gigagp.kernels import Matern32
from gigagp.model import grids
from gigagp.model.grid_files import Variables, check_memory, check_output
from gigagp.model.grids import Axis, Grid
from gigagp.plotting import grid_map

xarray = pytest.importorskip("xarray")
FIXED = Matern32(1.0, 1.0, variance_bounds=(1.0, 1.0), lengthscale_bounds=(1.0, 1.0))
SETTINGS = {"kernel": FIXED, "noise_bounds": (0.01, 0.01), "random_state": 0}


def places(n=150, seed=0):
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-30, 30, n), rng.uniform(40, 60, n)
    return pd.DataFrame({"lon": lon, "lat": lat, "t": np.sin(lon / 10) + np.cos(lat / 5)})


@pytest.fixture(scope="module")
def model():
    return HGPRegressor(**SETTINGS).fit(places(), "t")


def test_a_grid_is_the_prediction_of_its_points(model):
    grid = model.predict_grid(lon=(-10, 10), lat=(45, 50), step=2.5, quantiles=(0.1, 0.9))
    assert dict(grid.sizes) == {"lat": 3, "lon": 9}
    assert list(grid.data_vars) == ["mean", "std", "q0.1", "q0.9"]
    lat, lon = (each.ravel() for each in np.meshgrid(grid.lat, grid.lon, indexing="ij"))
    queries = pd.DataFrame({"lon": lon, "lat": lat})
    mean, std = model.predict(queries, return_std=True)
    np.testing.assert_array_equal(grid["mean"].values.ravel(), mean)
    np.testing.assert_array_equal(grid["std"].values.ravel(), std)
    np.testing.assert_allclose(grid["q0.9"].values.ravel(), model.predict_quantiles(queries, 0.9)[:, 0], rtol=1e-12)
    assert grid.lon.attrs["units"] == "degrees_east"
    assert grid["mean"].attrs["long_name"] == "predicted t"


def test_blocks_do_not_change_predictions(model, monkeypatch):
    whole = model.predict_grid(lon=(-10, 10), lat=(45, 50), step=1)
    monkeypatch.setattr("gigagp.model.predictor.Predictor.queries_at_once", lambda *_: 50)
    xarray.testing.assert_identical(model.predict_grid(lon=(-10, 10), lat=(45, 50), step=1), whole)


def test_dimensions_are_in_reverse_order_with_places_last():
    data = places().assign(year=np.arange(150.0) % 5)
    model = HGPRegressor(**SETTINGS).fit(data, "t")
    grid = model.predict_grid(year=[1.0, 2.0], lat=(45, 50), lon=(0, 10), step=5)
    assert dict(grid.sizes) == {"year": 2, "lat": 2, "lon": 3}
    point = grid.sel(year=2, lat=50, lon=5)
    expected = model.predict(pd.DataFrame({"lon": [5.0], "lat": [50.0], "year": [2.0]}))
    np.testing.assert_allclose(float(point["mean"]), expected[0], rtol=1e-12)
    fixed = model.predict_grid(year=2.0, lat=(45, 50), lon=(0, 10), step={"lon": 5, "lat": 5})
    np.testing.assert_array_equal(fixed["mean"], grid["mean"].sel(year=2))
    with pytest.raises(InvalidParameter, match="give a value, values or a range of year"):
        model.predict_grid(lat=(45, 50), lon=(0, 10), step=5)


def test_places_cover_the_training_rows_by_default(model):
    grid = model.predict_grid(step=5)
    rows = places()
    for name in ("lon", "lat"):
        values = grid[name].values
        assert values[0] <= rows[name].min() < values[0] + 5
        assert values[-1] <= rows[name].max() < values[-1] + 5
        np.testing.assert_allclose(values % 5, 0, atol=1e-9)


def test_columns_of_arrays_and_dates():
    X, y = places()[["lon", "lat"]].to_numpy(), places().t.to_numpy()
    plain = HGPRegressor(**SETTINGS).fit(X, y)
    grid = plain.predict_grid(x0=[0.0, 1.0, 3.0], x1=50.0)
    np.testing.assert_allclose(grid["mean"], plain.predict([[0.0, 50], [1, 50], [3, 50]]), rtol=1e-12)
    declared = HGPRegressor(**SETTINGS, sphere=(0, 1)).fit(X, y)
    assert dict(declared.predict_grid(lon=[0.0, 1.0], lat=[45.0]).sizes) == {"x1": 1, "x0": 2}
    days = np.arange("2020-01-01", "2020-05-30", dtype="M8[D]")
    series = HGPRegressor(**SETTINGS).fit(pd.DataFrame({"day": days, "t": np.sin(np.arange(150) / 9)}), "t")
    some = days[[3, 50]]
    expected = series.predict(pd.DataFrame({"day": some}))
    np.testing.assert_allclose(series.predict_grid(day=some)["mean"], expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")  # of rasterio's own code
@pytest.mark.parametrize("ending", ["nc", "zarr", "tif"])
def test_files_hold_the_same_grid(model, tmp_path, monkeypatch, ending):
    expected = model.predict_grid(lon=(-10, 10), lat=(45, 50), step=1, quantiles=0.5)
    monkeypatch.setattr("gigagp.model.predictor.Predictor.queries_at_once", lambda *_: 50)
    path = tmp_path / "new" / f"map.{ending}"
    result = model.predict_grid(lon=(-10, 10), lat=(45, 50), step=1, quantiles=0.5, output=path)
    if ending == "tif":
        assert result.rio.crs.to_epsg() == 4326
        result = result.rename(x="lon", y="lat").sortby("lat")
    for name in ("mean", "std", "q0.5"):
        np.testing.assert_array_equal(result[name], expected[name])
    np.testing.assert_allclose(result.lon, expected.lon)
    np.testing.assert_allclose(result.lat, expected.lat)
    result.close()
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    with pytest.raises(InvalidParameter, match="overwrite=True"):
        model.predict_grid(lon=(-10, 10), lat=(45, 50), step=5, output=path)
    model.predict_grid(lon=(-10, 10), lat=(45, 50), step=5, output=path, overwrite=True).close()


def test_a_failed_file_leaves_nothing(model, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("the disk is full")
        yield

    monkeypatch.setattr(grids, "predicted_blocks", fail)
    with pytest.raises(DiskFull, match="disk is full"):
        model.predict_grid(lon=(0, 1), lat=(45, 46), step=1, output=tmp_path / "map.nc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lon": (0, 1), "lat": (45, 46)}, "needs a positive step"),
        ({"lon": (0, 1), "lat": (45, 46), "step": -1}, "needs a positive step"),
        ({"lon": (1, 0), "lat": (45, 46), "step": 1}, "must be a pair"),
        ({"lon": (0, 1, 2), "lat": 45, "step": 1}, "must be a pair"),
        ({"lon": 0, "lat": 45}, "range or values of at least one"),
        ({"lon": (0, 1), "lat": 45, "depth": 1, "step": 1}, "no column 'depth'"),
        ({"lon": [], "lat": 45}, "has no values"),
        ({"lon": ["a"], "lat": 45}, "must be numbers"),
        ({"lon": (0, 1), "lat": 45, "step": 1, "output": "map.csv"}, "NetCDF"),
        ({"lon": (0, 1), "lat": 45, "step": 1, "output": "map.tif"}, "two columns"),
        ({"lon": [0.0, 1, 3], "lat": [45.0, 46], "output": "map.tif"}, "equal steps"),
        ({"lon": (0, 1), "lat": (45, 46), "step": 1e-12}, "larger step"),
        ({"lon": (0, 1), "lat": (45, 46), "step": 1e-5}, "pass output="),
    ],
)
def test_impossible_grids_are_refused(model, arguments, message):
    with pytest.raises(InvalidParameter, match=message):
        model.predict_grid(**arguments)


def test_the_command_writes_a_file_and_a_map(tmp_path):
    places().to_csv(tmp_path / "rows.csv", index=False)
    run = CliRunner()
    folder, output = tmp_path / "model", tmp_path / "map.nc"
    fit = ["fit", tmp_path / "rows.csv", "--target", "t", "-o", folder, "--kernel", "matern32", "--sphere", "lon,lat"]
    assert run.invoke(app, list(map(str, fit))).exit_code == 0
    made = run.invoke(app, ["grid", str(folder), "-o", str(output), "--step", "2", "--range", "lon=-10,10", "--json"])
    assert made.exit_code == 0, made.stderr
    report = json.loads(made.stdout)
    assert report["shape"] == {"lat": 10, "lon": 11}
    assert report["variables"] == ["mean", "std"]
    with xarray.open_dataset(output, engine="h5netcdf") as grid:
        assert float(np.abs(grid["mean"]).max()) < 3
    assert (tmp_path / "map.png").stat().st_size > 10_000
    wrong = run.invoke(app, ["grid", str(folder), "-o", str(output), "--step", "2", "--range", "lon"])
    assert wrong.exit_code != 0
    assert "--range takes a column" in wrong.stderr


def test_maps_are_drawn(model):
    grid = model.predict_grid(lon=(-10, 10), lat=(45, 50), step=1)
    ax = grid_map(grid, "std")
    assert ax.get_xlabel() == "lon"
    with pytest.raises(InvalidParameter, match=r"has no variable 'q0\.5'"):
        grid_map(grid, "q0.5")
    with pytest.raises(InvalidParameter, match="two columns"):
        grid_map(grid.isel(lat=0))


def test_geodataframes_are_read_as_longitude_and_latitude(model):
    geopandas = pytest.importorskip("geopandas")
    data = places()
    points = geopandas.points_from_xy(data.lon, data.lat, crs=4326)
    table = geopandas.GeoDataFrame({"t": data.t}, geometry=points)
    fitted = HGPRegressor(**SETTINGS).fit(table.to_crs(3857), "t")
    queries = table.iloc[:5]
    assert list(fitted.feature_names_in_) == ["longitude", "latitude"]
    np.testing.assert_allclose(
        fitted.predict(queries[["geometry"]]), model.predict(data[["lon", "lat"]][:5]), atol=1e-9
    )
    np.testing.assert_allclose(fitted.predict(queries.geometry), model.predict(data[["lon", "lat"]][:5]), atol=1e-9)
    same = HGPRegressor(**SETTINGS).fit(table[["geometry"]], data.t.to_numpy())
    np.testing.assert_allclose(same.predict(queries[["geometry"]]), fitted.predict(queries[["geometry"]]), atol=1e-9)
    with pytest.raises(InvalidInput, match="must be points"):
        fitted.predict(table.set_geometry(table.to_crs(3857).buffer(1.0))[["geometry"]])
    with pytest.raises(InvalidInput, match="'longitude' besides its geometry"):
        fitted.predict(queries.assign(longitude=1.0))


def test_an_output_of_the_other_kind_is_refused_before_any_work(tmp_path):
    axes = tuple(Axis(name, place, np.arange(3.0), np.arange(3.0)) for place, name in enumerate("ab"))
    grid, variables = Grid(axes, np.zeros(2)), Variables(("mean",), ("mean",))
    for name in ("map.nc", "map.tif", "map.zarr"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("not a grid")
        with pytest.raises(InvalidParameter, match="choose another output"):
            check_output(grid, variables, tmp_path / name, overwrite=True)
    (tmp_path / "file.zarr").write_text("not a folder")
    with pytest.raises(InvalidParameter, match="choose another output"):
        check_output(grid, variables, tmp_path / "file.zarr", overwrite=True)
    (tmp_path / "empty.zarr").mkdir()
    assert check_output(grid, variables, tmp_path / "empty.zarr", overwrite=True) == tmp_path / "empty.zarr"
    with pytest.raises(InvalidParameter, match=r"s3://bucket/map\.nc is an address, .* give a path"):
        check_output(grid, variables, "s3://bucket/map.nc", overwrite=True)


def test_a_column_that_is_called_like_a_prediction_is_refused_before_any_work(tmp_path):
    axes = tuple(Axis(name, place, np.arange(3.0), np.arange(3.0)) for place, name in enumerate(("a", "mean")))
    grid, variables = Grid(axes, np.zeros(2)), Variables(("mean", "std"), ("mean", "standard deviation"))
    with pytest.raises(InvalidParameter, match="'mean'"):
        check_memory(grid, variables, 1 << 30)
    with pytest.raises(InvalidParameter, match="'mean'"):
        check_output(grid, variables, tmp_path / "map.nc", overwrite=False)

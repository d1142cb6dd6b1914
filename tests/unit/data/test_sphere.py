"""Places on a sphere: coordinates against SciPy's rotations and haversines, names and ranges of columns."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from sklearn.metrics.pairwise import haversine_distances

from gigagp.data.scaling import Moments, Scaling
from gigagp.data.sphere import Sphere, check_pair, find_pair, on_sphere, range_error
from gigagp.errors import InvalidInput, InvalidParameter


def places(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))])


def scaling(X, standardize=True, longitude=0, latitude=1):
    moments = Moments.of(X)
    plain = moments.scaling() if standardize else Scaling.identity(X.shape[1])
    return on_sphere(plain, moments, X, longitude, latitude, standardize)


@pytest.mark.parametrize("region", ["world", "fiji", "pole"])
def test_distances_are_chords_of_great_circles(region):
    X = places(60)
    if region == "fiji":
        X = np.column_stack([np.remainder(178 + X[:, 0] / 60, 360) - 360 * (X[:, 0] > 120), -17 + X[:, 1] / 60])
    elif region == "pole":
        X[:, 1] = 85 + X[:, 1] / 20
    inputs, _ = scaling(X)
    Z = inputs.apply(X, np.dtype(float))
    chords = np.linalg.norm(Z[:, None] - Z[None], axis=2) * inputs.scaling.scale[0]
    angles = haversine_distances(np.radians(X[:, ::-1]))
    np.testing.assert_allclose(chords, 2 * np.sin(angles / 2), atol=1e-12)


def test_places_come_back():
    X = np.column_stack([places(200), np.arange(200.0)])[:, [2, 1, 0]]
    inputs, _ = scaling(X, longitude=2, latitude=1)
    np.testing.assert_allclose(inputs.restore(inputs.apply(X, np.dtype(float))), X, atol=1e-9)
    assert inputs.columns == 3
    assert inputs.together == (2, 1, 3)


def test_longitudes_up_to_360_come_back_as_they_were_given():
    X = places(200)
    X[:, 0] = np.remainder(X[:, 0], 360)
    inputs, _ = scaling(X)
    np.testing.assert_allclose(inputs.restore(inputs.apply(X, np.dtype(float))), X, atol=1e-9)


def test_there_is_no_seam_and_a_pole_is_one_place():
    inputs, _ = scaling(places(50))
    Z = inputs.apply(np.array([[-180.0, 20], [180, 20], [540, 20], [0, 90], [123, 90]]), np.dtype(float))
    np.testing.assert_array_equal(Z[1], Z[0])
    np.testing.assert_array_equal(Z[2], Z[0])
    np.testing.assert_allclose(Z[4], Z[3], atol=1e-15)


def test_axes_point_east_north_and_up_in_the_middle_of_the_data():
    X = np.array([[11.0, 46.0], [11.2, 46.0], [11.1, 46.1], [11.1, 45.9]])
    inputs, _ = scaling(X)
    to_place = Rotation.from_euler("ZY", [11.1, -46], degrees=True)  # turns longitude 0, latitude 0 into the middle
    east, north, up = to_place.apply([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_allclose(inputs.sphere.axes, [east, north, up], atol=1e-3)
    Z = inputs.sphere.coordinates(X)
    assert np.ptp(Z[:, 2]) < 1e-3 * np.ptp(Z[:, 0])
    east, north = Z[1] - Z[0], Z[2] - Z[3]
    assert east[0] > 50 * abs(east[1])
    assert north[1] > 50 * abs(north[0])


def test_units_of_the_model_are_degrees_without_standardisation():
    X = places(50)
    inputs, moments = scaling(X, standardize=False)
    np.testing.assert_allclose(inputs.widths, 1)
    radius = np.linalg.norm(inputs.apply(X, np.dtype(float)), axis=1)
    np.testing.assert_allclose(radius, 180 / np.pi)
    np.testing.assert_allclose(moments.deviation, (inputs.expanded(X) * 180 / np.pi).std(axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["lon", "lat", "t"], (0, 1)),
        (["t", "Latitude", "Longitude"], (2, 1)),
        (["pickup_lat", "pickup_lng"], (1, 0)),
        (["decimalLongitude", "decimalLatitude"], None),
        (["belong", "flat"], None),
        (["lon", "y"], None),
        (["pickup_lon", "dropoff_lat"], None),
        (["a_lon", "a_lat", "b_lon", "b_lat"], None),
    ],
)
def test_columns_are_recognised_by_name(names, pair):
    assert find_pair(names) == pair


@pytest.mark.parametrize("values", [[[0, 95.0], [10, 20]], [[-200.0, 0], [10, 20]], [[-180.0, 0], [359, 20]]])
def test_columns_with_other_values_are_not_degrees(values):
    assert "in degrees" in range_error(["lon", "lat"], 0, 1, Moments.of(np.array(values)))


def test_pairs_that_do_not_exist_are_refused():
    with pytest.raises(InvalidParameter, match="no column 'lng'; they have 'lon', 'lat'"):
        check_pair(("lng", "lat"), ["lon", "lat"], ["number", "number"])
    with pytest.raises(InvalidParameter, match="no column number 2"):
        check_pair((0, 2), ["lon", "lat"], ["number", "number"])
    with pytest.raises(InvalidParameter, match="two different columns"):
        check_pair((0, "lon"), ["lon", "lat"], ["number", "number"])
    with pytest.raises(InvalidParameter, match="'day' is a date"):
        check_pair(("day", "lat"), ["day", "lat"], ["date", "number"])


def test_a_latitude_beyond_the_pole_is_refused():
    sphere = Sphere(0, 1, np.eye(3))
    with pytest.raises(InvalidInput, match="column 1 has the latitude 91"):
        sphere.coordinates(np.array([[0.0, 91.0]]))

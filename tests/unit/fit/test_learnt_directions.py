"""Directions take the places of columns where held-out rows are then predicted better."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import gigagp
from gigagp import HGPRegressor, plotting
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit import groups
from gigagp.fit.learnt_directions import canonical, shortened
from gigagp.model import neighbourhood
from gigagp.model.fit_warnings import MissedStructure
from gigagp.model.neighbourhood_gradient import held_out_slopes
from gigagp.report import write_report

N = 1500
SMALL = {"leaf_size": 100, "random_state": 0, "n_jobs": 1, "method": "neighbourhood", "neighbours": 32}


def difference(n, seed=0, noise=0.05):
    """A target that varies with the difference of two columns, which are measured in different units."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3)) * [1.0, 100.0, 0.1] + [0.0, 50.0, 2.0]
    Z = (X - [0.0, 50.0, 2.0]) / [1.0, 100.0, 0.1]
    y = np.sin(8 * (Z[:, 0] - Z[:, 1])) + 0.3 * Z[:, 2] + noise * rng.standard_normal(n)
    return X, y


def fitted(X, y=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return HGPRegressor(**{**SMALL, **options}).fit(X, y)


@pytest.fixture(scope="module")
def model():
    return fitted(*difference(N))


def rmse(model, X, y):
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


@given(
    rows=st.integers(20, 200), columns=st.integers(2, 6), dependent=st.integers(0, 2), seed=st.integers(0, 2**32 - 1)
)
@settings(deadline=None)
def test_neither_coordinates_nor_slopes_are_correlated_along_directions(rows, columns, dependent, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) @ rng.standard_normal((columns, columns))
    X = np.column_stack([X, *(X @ rng.standard_normal(columns) for _ in range(dependent))])
    slopes = rng.standard_normal((rows, columns + dependent)) @ rng.standard_normal(2 * [columns + dependent])
    A = canonical(X, slopes)
    Z, G = X @ A, slopes @ np.linalg.inv(A).T
    variances = np.linalg.eigvalsh(np.cov(X.T))
    rank = int((variances > 1e-6 * variances[-1]).sum())
    np.testing.assert_allclose(np.cov(Z.T)[:rank, :rank], np.eye(rank), atol=1e-6)
    np.testing.assert_allclose(Z[:, rank:].std(axis=0), 0, atol=2e-3 * np.sqrt(variances[-1]))
    M = G[:, :rank].T @ G[:, :rank]
    np.testing.assert_allclose(M, np.diag(np.diag(M)), atol=1e-6 * np.diag(M).max())
    assert np.all(np.diff(np.diag(M)) <= 1e-9 * np.diag(M).max())


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_directions_do_not_depend_on_units_or_combinations_that_the_user_made(seed):
    rng = np.random.default_rng(seed)
    X, slopes = rng.standard_normal((100, 3)), rng.standard_normal((100, 3)) * [3.0, 1.0, 0.3]
    B = rng.standard_normal((3, 3)) + 3 * np.eye(3)
    if np.linalg.cond(B) > 100:
        return
    Z, other = X @ canonical(X, slopes), X @ B @ canonical(X @ B, slopes @ np.linalg.inv(B).T)
    np.testing.assert_allclose(np.abs(other), np.abs(Z), atol=1e-8)


def test_slopes_that_are_longer_than_nearly_all_others_are_shortened():
    rng = np.random.default_rng(0)
    slopes = rng.standard_normal((1000, 3))
    slopes[:10] *= 1e6
    slopes[10:20] = 0.0  # where predictions are constant
    short = shortened(slopes)
    lengths, before = np.linalg.norm(short, axis=1), np.linalg.norm(slopes, axis=1)
    limit = np.quantile(before[before > 0], 0.95)
    np.testing.assert_allclose(lengths, np.minimum(before, limit))
    np.testing.assert_allclose(short * before[:, None], slopes * lengths[:, None])
    assert not shortened(np.zeros((5, 2))).any()
    assert shortened(np.empty((0, 2))).shape == (0, 2)


def test_directions_are_chosen_where_they_predict_better(model):
    queries = difference(500, seed=1, noise=0.0)
    columns = fitted(*difference(N), directions=False)
    assert model.model_.inputs.directions is not None
    assert columns.model_.inputs.directions is None
    assert rmse(model, *queries) < 0.7 * rmse(columns, *queries)
    chosen = [each.name for each in model.report_.choices if each.what == "coordinates" and each.chosen]
    assert chosen == ["directions"]
    assert "coordinates, by held-out rows" in str(model.report_)


def test_columns_stay_where_directions_do_not_predict_better():
    """A code says which rows belong together only as long as nothing is added to it."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 60, N), rng.uniform(-1, 1, N)])
    y = rng.standard_normal(60)[X[:, 0].astype(int)] + 0.3 * np.sin(3 * X[:, 1]) + 0.05 * rng.standard_normal(N)
    assert fitted(X, y).model_.inputs.directions is None


@pytest.mark.parametrize("options", [{"kernel": "matern52"}, {"standardize": False}, {"directions": False}])
def test_columns_stay_where_the_user_has_chosen_kernel_or_scaling(options):
    model = fitted(*difference(400), **options)
    assert model.model_.inputs.directions is None
    assert not {"directions", "coordinates"} & {each.what for each in model.report_.choices}


def test_directions_must_be_a_switch():
    with pytest.raises(InvalidParameter, match="directions"):
        fitted(*difference(400), directions="some")


@pytest.mark.full_choices
def test_categories_and_places_on_a_sphere_are_not_combined():
    rng = np.random.default_rng(0)
    X, y = difference(N)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        kind=rng.choice(["u", "v"], N), lon=rng.uniform(-180, 180, N), lat=rng.uniform(-60, 60, N), y=y
    )
    table["y"] += 0.1 * (table["kind"] == "u") + 0.1 * np.cos(np.radians(table["lat"]))
    model = fitted(table, "y")
    assert model.model_.inputs.directions.combined == (0, 1, 2)


def test_slopes_are_those_of_held_out_predictions(model):
    near, rows = model.model_.neighbourhood, np.arange(0, 200, 20)
    X, _ = near.store.gather(rows)
    with model.predictor_.engine() as engine:
        slopes = held_out_slopes(near, X, engine, rows)
        for d in range(3):
            step = np.zeros(3)
            step[d] = 1e-6
            after, before = (
                neighbourhood.predict(near, X + sign * step, engine, held_out=rows).mean for sign in (1, -1)
            )
            close = np.isclose(slopes[:, d], (after - before) / 2e-6, rtol=1e-3, atol=1e-3)
            assert close.sum() >= len(rows) - 1  # the neighbours may change within a step


def test_gradients_are_in_the_units_of_columns(model):
    X = difference(6, seed=2)[0]
    got = model.predict_gradient(X).mean_gradient
    for d, size in enumerate([1e-6, 1e-4, 1e-7]):
        step = np.zeros(3)
        step[d] = size
        expected = (model.predict(X + step) - model.predict(X - step)) / (2 * size)
        assert np.isclose(got[:, d], expected, rtol=1e-3, atol=1e-4 / size * 1e-6).sum() >= len(X) - 1


def test_a_saved_model_has_its_directions(model, tmp_path):
    model.save(tmp_path / "model")
    loaded, X = gigagp.load(tmp_path / "model"), difference(50, seed=1)[0]
    for how in ({"return_std": True}, {"return_cov": True}):
        for one, other in zip(model.predict(X, **how), loaded.predict(X, **how), strict=True):
            np.testing.assert_array_equal(one, other)
    assert str(loaded.report_) == str(model.report_)
    assert loaded.report_.names == model.report_.names
    loaded.save(tmp_path / "model", overwrite=True)


@pytest.mark.parametrize("spoilt", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.eye(3)])
def test_damaged_directions_are_refused(model, spoilt, tmp_path):
    folder = tmp_path / "model"
    model.save(folder)
    np.save(folder / "directions.npy", spoilt)
    with pytest.raises(InvalidInput, match="directions"):
        gigagp.load(folder, verify=False)


def test_length_scales_are_reported_along_columns(model):
    """A step of one reported length-scale along a column, the others being fixed, is a distance of one."""
    X = difference(1, seed=5)[0]
    inputs, near = model.model_.inputs, model.model_.neighbourhood
    for quantity in model.units_.parameters(model.kernel_, model.noise_variance_):
        if not quantity.name.startswith("lengthscale"):
            continue
        column = int(quantity.name.removesuffix("]").rsplit("x", 1)[1])
        moved = X.copy()
        moved[:, column] += quantity.value
        first, second = (inputs.apply(each, np.dtype(float)) for each in (X, moved))
        assert np.linalg.norm((second - first) * near.router.metric) == pytest.approx(1, rel=1e-6)
    assert not any("direction" in str(warning) for warning in model.report_.warnings)


@pytest.mark.parametrize("options", [{"engine": "serial"}, {"engine": "processes", "n_jobs": 2}])
def test_engines_do_not_change_directions(model, options):
    assert_same(fitted(*difference(N), **options), model)


@pytest.mark.full_choices
def test_storage_does_not_change_directions(small_sizes):
    """With little memory, rows are in files."""
    in_memory, on_disk = fitted(*difference(N)), fitted(*difference(N), memory=90 * N)
    assert on_disk.model_.store.mapped
    assert_same(on_disk, in_memory)
    folder = Path(on_disk.model_.store.files[0].path).parent
    assert not list(folder.parent.rglob("directions_*"))  # rows along directions that were tried


def test_the_report_counts_what_it_shows_and_names_columns(model):
    """Whether columns or directions have been chosen."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, 2))
    columns = fitted(X, np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]) + 0.05 * rng.standard_normal(N))
    assert columns.model_.inputs.directions is None
    for report in (model.report_, columns.report_):
        assert sum(stage.evaluations for stage in report.stages) == len(report.evidence_trace) == report.evaluations
    parameters = next(line for line in str(model.report_).splitlines() if "parameters:" in line)
    assert "lengthscale[x0]" in parameters
    shown = dict(part.strip().split(" = ") for part in parameters.split(":", 1)[1].split(",") if " = " in part)
    expected = {each.name: each.value for each in model.units_.parameters(model.kernel_, model.noise_variance_)}
    for name, value in shown.items():
        assert float(value.split()[0]) == pytest.approx(expected[name], rel=0.01)


def test_report_and_pictures_are_drawn_over_columns(model, tmp_path):
    write_report(model, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "lengthscale[x1]" in page
    assert "direction 0" not in page
    relevances = [text.get_text() for text in plotting.relevance(model).get_yticklabels()]
    assert set(relevances) == {"x0", "x1", "x2"}
    ax = plotting.partition_map(model, columns=(0, 1), query=difference(1, seed=2)[0][0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x0", "x1")


def with_a_sum(n, seed=0):
    """Rows with a third column that is the sum of two others, and noise that depends on another column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    noise = np.where(X[:, 2] > 0, 0.5, 0.05)
    y = np.sin(6 * (X[:, 0] - X[:, 1])) + noise * rng.standard_normal(n)
    return np.column_stack([X, X[:, 0] + X[:, 1]]), y, noise


@pytest.mark.full_choices
def test_noise_depends_on_columns_also_where_the_mean_has_directions():
    X, y, _ = with_a_sum(N)
    model = fitted(X, y, noise="inputs")
    inputs, noise = model.model_.inputs, model.model_.input_noise
    assert inputs.directions is not None
    assert noise.metric.argmax() == 2
    assert plotting.noise_along(model).get_xlabel() == "x2"
    queries, _, truth = with_a_sum(300, seed=1)
    rounded = queries.copy()
    rounded[:, 3] = rounded[:, 3].round(3)  # no longer exactly the sum
    for some in (queries, rounded):
        std = model.predict(some, return_std=True)[1]
        for level in (0.05, 0.5):
            assert np.median(std[truth == level]) == pytest.approx(level, rel=0.5)
    Z = inputs.apply(queries[:5], np.dtype(float))
    slopes = noise.with_gradient(Z)[1]
    for k, step in enumerate(1e-5 * np.eye(4)):
        differences = (noise.factors(Z + step) - noise.factors(Z - step)) / 2e-5
        np.testing.assert_allclose(slopes[:, k], differences, rtol=1e-3, atol=1e-6 * np.abs(slopes).max())


def test_missed_structure_is_noticed_where_columns_depend_on_each_other(monkeypatch):
    """A fast pattern of scattered rows is noise for the model, though near rows have it in common."""
    monkeypatch.setattr(groups, "_MISSED", 0.0)  # so that the ratio is always reported
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, N))
    X = np.column_stack([a, b, a + b, 2 * a + b, a + 2 * b])
    y = np.sin(6 * (a - b)) + 0.5 * np.sign(np.sin(40 * a) * np.sin(37 * b)) + 0.02 * rng.standard_normal(N)
    models = [fitted(X, y, directions=directions) for directions in (True, False)]
    assert models[0].model_.inputs.directions is not None
    ratios = [next(each.ratio for each in m.report_.warnings if isinstance(each, MissedStructure)) for m in models]
    assert ratios[0] == pytest.approx(ratios[1], rel=0.3)


def assert_same(other, model):
    """To the bit."""
    np.testing.assert_array_equal(other.model_.inputs.directions.matrix, model.model_.inputs.directions.matrix)
    X = difference(50, seed=1)[0]
    for one, two in zip(*(each.predict(X, return_std=True) for each in (model, other)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_rows_that_arrive_later_have_directions_too(model, tmp_path):
    X, y = difference(200, seed=3)
    model.save(tmp_path / "model")
    updated = gigagp.load(tmp_path / "model").partial_fit(X, y)
    assert rmse(updated, X, y) < rmse(model, X, y)
    updated.forget(rows=np.arange(N, N + 200))
    np.testing.assert_allclose(updated.predict(X[:20]), model.predict(X[:20]), rtol=1e-6)


def test_a_model_with_directions_is_trained_again(model, tmp_path):
    """Warm training keeps the directions; a cold one learns them from rows that are restored from them."""
    model.save(tmp_path / "model")
    queries = difference(300, seed=1)
    for warm in (True, False):
        again = gigagp.load(tmp_path / "model").refine(warm=warm)
        assert again.model_.inputs.directions is not None
        assert rmse(again, *queries) < 1.2 * rmse(model, *queries)


def test_rows_are_forgotten_by_the_values_that_the_user_gave():
    """Rows of the limit itself stay, although columns are restored from directions with rounding."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 50, (N, 2)) * 0.1
    y = np.sin(4 * (X[:, 0] - X[:, 1])) + 0.05 * rng.standard_normal(N)
    model = fitted(X, y)
    assert model.model_.inputs.directions is not None
    limit = X[7, 0]
    model.forget(older_than=limit, column=0)
    assert model.model_.online.size == int((X[:, 0] >= limit).sum())

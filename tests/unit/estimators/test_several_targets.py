"""Several targets: a target among others is predicted exactly as alone, in every call, engine, file and format."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as SklearnMatern
from sklearn.metrics import r2_score
from typer.testing import CliRunner

from gigagp import HGPClassifier, HGPRegressor, load
from gigagp.cli import app
from gigagp.data.sources import Share, csv, parquet
from gigagp.errors import DamagedFile, InvalidInput, InvalidParameter
from gigagp.estimators import target_fits
from gigagp.kernels import Matern32
from gigagp.report import write_report

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def made(rows=700, seed=0):
    """Three targets of three columns, each a function of other columns and with other noise."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.uniform(-2, 2, (rows, 3)), columns=["u", "v", "w"])
    noise = rng.standard_normal((3, rows))
    table["a"] = np.sin(2 * table.u) + 0.1 * noise[0]
    table["b"] = 50 + 10 * table.v * table.w + noise[1]
    table["c"] = np.exp(table.u) - table.w + 0.3 * noise[2]
    return table


NAMES = ["a", "b", "c"]
MODEL = {"neighbours": 24, "random_state": 3, "targets": "separate"}
SHARED = MODEL | {"targets": "shared"}


@pytest.fixture(scope="module")
def table():
    return made()


@pytest.fixture(scope="module")
def model(table):
    return HGPRegressor(**MODEL).fit(table, NAMES)


def test_a_target_among_others_is_predicted_as_alone(table, model):
    queries = made(40, seed=1)
    mean, std = model.predict(queries, return_std=True)
    quantiles = model.predict_quantiles(queries, [0.1, 0.5, 0.9])
    assert mean.shape == std.shape == (40, 3)
    assert quantiles.shape == (40, 3, 3)
    X = table[["u", "v", "w"]]
    together = HGPRegressor(**MODEL).fit(X, table[NAMES])
    np.testing.assert_array_equal(together.predict(queries[["u", "v", "w"]], return_std=True)[0], mean)
    for j, name in enumerate(NAMES):
        alone = HGPRegressor(**MODEL).fit(X, table[name])
        one = queries[["u", "v", "w"]]
        np.testing.assert_array_equal(np.stack(alone.predict(one, return_std=True)), [mean[:, j], std[:, j]])
        np.testing.assert_array_equal(alone.predict_quantiles(one, [0.1, 0.5, 0.9]), quantiles[:, j])
        np.testing.assert_array_equal(model.target(name).theta_, alone.theta_)
        assert model.target(j).units_.target == name


def test_distributions_have_one_column_per_target(model):
    queries = made(30, seed=2)
    law = model.predict_distribution(queries)
    y = queries[NAMES].to_numpy()
    mean, std = model.predict(queries, return_std=True)
    np.testing.assert_array_equal(law.mean, mean)
    np.testing.assert_array_equal(law.std, std)
    np.testing.assert_allclose(law.variance, std**2)
    assert law.sample(5, random_state=0).shape == (30, 3, 5)
    for name, values in (("pdf", law.pdf(y)), ("cdf", law.cdf(y)), ("crps", law.crps(y)), ("log_pdf", law.log_pdf(y))):
        for j, target in enumerate(NAMES):
            np.testing.assert_array_equal(values[:, j], getattr(law.target(target), name)(y[:, j]))
    low, high = law.interval(0.9)
    assert ((low < y) & (y < high)).mean() > 0.75
    np.testing.assert_array_equal(law[4:6].mean, mean[4:6])
    with pytest.raises(InvalidParameter, match="the targets are 'a', 'b', 'c'"):
        law.target("d")


def test_linnerud_and_diabetes():
    X, Y = load_linnerud(return_X_y=True)
    model = HGPRegressor(random_state=0).fit(X, Y)
    assert model.target_names_ == ("y0", "y1", "y2")
    assert model.predict(X).shape == (20, 3)
    assert model.score(X, Y) == pytest.approx(r2_score(Y, model.predict(X)))
    X, y = load_diabetes(return_X_y=True)
    both = np.column_stack([y, X[:, 2]])
    model = HGPRegressor(random_state=0).fit(X[:200, :2], both[:200])
    assert np.isfinite(model.predict(X[200:, :2])).all()


def test_saved_and_loaded(model, tmp_path):
    queries = made(20, seed=3)
    model.save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(queries), model.predict(queries))
    assert loaded.target_names_ == tuple(NAMES)
    alone = HGPRegressor.load(tmp_path / "m" / "1")
    np.testing.assert_array_equal(alone.predict(queries), model.predict(queries)[:, 1])
    with pytest.raises(InvalidParameter, match="contains a model"):
        model.save(tmp_path / "m")
    model.target("b").save(tmp_path / "m", overwrite=True)  # of one target, where there were several
    assert load(tmp_path / "m").predict(queries).shape == (20,)
    model.save(tmp_path / "m", overwrite=True)
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidParameter, match=r"notes\.txt"):
        model.save(tmp_path / "m", overwrite=True)
    with pytest.raises(InvalidInput, match="is a HGPRegressor"):
        HGPClassifier.load(tmp_path / "m")
    manifest = json.loads((tmp_path / "m" / "manifest.json").read_text())
    (tmp_path / "m" / "manifest.json").write_text(json.dumps({**manifest, "targets": ["a", "a", "b"]}))
    with pytest.raises(DamagedFile):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 60_000},
        *(pytest.param(o, marks=pytest.mark.slow) for o in ({"engine": "serial"}, {"partition": "stratified"})),
    ],
)
def test_engines_and_storage(table, options, small_sizes):
    queries = made(20, seed=4)
    alone = [
        HGPRegressor(**MODEL, **options).fit(table.drop(columns=[n for n in NAMES if n != name]), name)
        for name in NAMES
    ]
    together = HGPRegressor(**MODEL, **options).fit(table, NAMES)
    np.testing.assert_array_equal(together.predict(queries), np.column_stack([each.predict(queries) for each in alone]))
    assert bool(together.targets_.models[0].store.files) == ("memory" in options)


@pytest.mark.parametrize("end", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_files_are_parsed_once_for_all_targets(table, tmp_path, end, monkeypatch):
    """A target among others is that of a fit alone, to the bit, also with categories, gaps and rows on disk."""
    table, path = table.copy(), tmp_path / f"t.{end}"
    table["kind"] = np.where(table.u > 0, "plus", "minus")
    table.loc[[3, 50], "b"] = np.nan
    table.to_csv(path, index=False) if end == "csv" else table.to_parquet(path, index=False)
    source = {"csv": csv.CsvSource, "parquet": parquet.ParquetSource}[end]
    passes, read = [], source.batches

    def counted(self, columns, rows, start=0):
        passes.append(tuple(columns))
        yield from read(self, columns, rows, start)

    monkeypatch.setattr(source, "batches", counted)
    options = {"missing": "drop", "store": tmp_path / "store"}
    together = HGPRegressor(**MODEL).fit(path, NAMES, **options)
    whole = [each for each in passes if set(NAMES) <= set(each)]
    assert len(whole) == 1
    assert all(each == ("kind",) for each in passes if each not in whole)  # what its levels are, and whether it is text
    assert not list((tmp_path / "store").glob("gigagp-tmp-*"))
    queries = table[["u", "v", "w", "kind"]][:20]
    for j, name in enumerate(NAMES):
        alone = HGPRegressor(**MODEL).fit(path, name, drop=[n for n in NAMES if n != name], missing="drop")
        np.testing.assert_array_equal(alone.predict(queries), together.predict(queries)[:, j])


def test_files_and_checkpoints(table, model, tmp_path):
    queries = made(30, seed=5)
    queries.to_parquet(tmp_path / "q.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    expected = model.predict(queries, return_std=True)
    done = model.predict_file(tmp_path / "q.parquet", tmp_path / "p.parquet", quantiles=(0.9,), keep=["a"])
    assert done.rows == 30
    out = pq.read_table(tmp_path / "p.parquet")
    own = [f"{name}_{what}" for name in NAMES for what in ("mean", "std", "q0.9")]
    assert out.column_names == ["a", *own]
    np.testing.assert_array_equal(out["b_mean"], expected[0][:, 1])
    np.testing.assert_array_equal(out["c_std"], expected[1][:, 2])
    again = HGPRegressor(**MODEL).fit(tmp_path / "t.csv", NAMES, checkpoint=tmp_path / "progress")
    np.testing.assert_array_equal(again.predict(queries, return_std=True), expected)
    resumed = HGPRegressor(**MODEL).fit(tmp_path / "t.csv", NAMES, checkpoint=tmp_path / "progress")
    np.testing.assert_array_equal(resumed.predict(queries, return_std=True), expected)
    grid = model.predict_grid(u=(0, 1), v=0.5, w=0.5, step=0.25)
    points = pd.DataFrame({"u": grid.u.to_numpy(), "v": 0.5, "w": 0.5})
    np.testing.assert_allclose(grid.b_mean, model.predict(points)[:, 1])


def test_evaluations_and_reports_are_per_target(table, model, tmp_path, no_pictures):
    fresh = made(80, seed=6)
    scores = model.evaluate(fresh)
    assert list(scores) == NAMES
    assert scores["b"].rmse == pytest.approx(np.sqrt(np.mean((model.predict(fresh)[:, 1] - fresh.b) ** 2)))
    assert model.evaluate(fresh.drop(columns=NAMES), fresh[NAMES])["c"].crps == pytest.approx(scores["c"].crps)
    with pytest.raises(InvalidParameter, match="got 2 targets"):
        model.evaluate(fresh, ["a", "b"])
    with pytest.raises(InvalidParameter, match=r"model.target\('a'\)"):
        write_report(model, tmp_path / "r.html")
    assert write_report(model.target("a"), tmp_path / "r.html", fresh).rows == 80
    with pytest.raises(AttributeError, match="the model has 3 targets"):
        _ = model.theta_
    with pytest.raises(AttributeError, match="belongs to one"):
        model.log_marginal_likelihood()


def test_wrong_targets_are_named(table):
    X = table[["u", "v", "w"]]
    model = HGPRegressor(**MODEL)
    with pytest.raises(InvalidInput, match="the target 'a' is named twice"):
        model.fit(table, ["a", "b", "a"])
    with pytest.raises(InvalidInput, match="no column 'd'"):
        model.fit(table, ["a", "d"])
    with pytest.raises(InvalidInput, match="no columns 'd', 'e'"):
        model.fit(table, ["a", "d", "e"])
    with pytest.raises(InvalidInput, match=r"the target 'word' \(.*\) of the table is not numbers"):
        model.fit(table.assign(word="u"), ["a", "word"])
    with pytest.raises(ValueError, match="column 'u' is "):
        model.fit(table, ["a", "u"], features=["u", "v"])
    Y = table[NAMES].astype(object)
    Y.iloc[4, 1] = "tall"
    with pytest.raises(InvalidInput, match="the target 'b' has the text 'tall' at row 4"):
        model.fit(X, Y)
    Y.iloc[4, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"target 'b'\) contains NaN at row 4"):
        model.fit(X, Y)
    with pytest.raises(InvalidInput, match=r"column 'b'.* missing value .*at row 4"):
        model.fit(table.assign(b=Y["b"].astype(float)), NAMES)
    with pytest.raises(InvalidParameter, match="noise_std is the known noise of one target"):
        model.fit(X, table[NAMES], noise_std=np.ones(len(X)))
    with pytest.raises(InvalidParameter, match="this model has one"):
        HGPRegressor(**MODEL).fit(X[:40], table.a[:40]).target("a")
    for options, why in (
        ({"method": "committee"}, "a committee"),
        ({"partition": "random"}, "partition"),
        ({"mean": "linear"}, "a mean function"),
        ({"likelihood": "poisson"}, "a likelihood"),
        ({"kernel": "linear"}, "a kernel that is not stationary"),
    ):
        with pytest.raises(InvalidParameter, match=f'targets="shared" cannot be combined with {why}'):
            HGPRegressor(targets="shared", **options).fit(X, table[NAMES])
    with pytest.raises(InvalidInput, match="the target 'b' has a missing value at row 4"):
        HGPRegressor(missing="drop", **SHARED).fit(X, Y.astype(float))
    with pytest.raises(InvalidParameter, match="targets must be one of"):
        HGPRegressor(targets="own").fit(X, table[NAMES])
    with pytest.warns(UserWarning, match="the target 'd' is constant"):
        constant = model.fit(X[:60], table[["a"]].assign(d=7.0)[:60])
    np.testing.assert_allclose(constant.predict(X[:3])[:, 1], 7.0)


def test_gaps_in_one_target_leave_out_its_own_rows_alone(table):
    X = table[["u", "v", "w"]][:150]
    Y = table[["a", "b"]][:150].copy()
    Y.loc[:29, "b"] = np.nan
    together = HGPRegressor(missing="drop", **MODEL).fit(X, Y)
    assert [model.report.rows for model in together.targets_.models] == [150, 120]
    alone = HGPRegressor(missing="drop", **MODEL).fit(X, Y["b"])
    np.testing.assert_array_equal(together.predict(X)[:, 1], alone.predict(X))


def test_other_tables(table, model):
    queries = made(10, seed=7)
    polars = HGPRegressor(**MODEL).fit(pl.from_pandas(table), NAMES)
    np.testing.assert_array_equal(polars.predict(pl.from_pandas(queries)), model.predict(queries))
    one = HGPRegressor(**MODEL).fit(table[["u", "v", "w"]], table[["a"]])
    np.testing.assert_array_equal(one.predict(queries[["u", "v", "w"]]), model.predict(queries)[:, :1])


def alike(rows=900, seed=0):
    """Three targets of the same kind, one of them with the opposite sign."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    Y = [np.sin(2 * X[:, 0] + s) * np.cos(X[:, 1] + s) for s in (0.0, 0.3, 3.3)]
    return X, np.column_stack(Y) * [1, 100, 0.01] + np.array([1, 100, 0.01]) * 0.1 * rng.standard_normal((rows, 3))


@pytest.fixture(scope="module")
def shared():
    return HGPRegressor(**SHARED).fit(*alike())


def test_targets_that_share_theta_are_predicted_together(shared):
    Z, T = alike(300, seed=1)
    assert shared.targets_.shared is not None
    mean, std = shared.predict(Z, return_std=True)
    assert (np.sqrt(np.mean((mean - T) ** 2, axis=0)) < 0.26 * T.std(axis=0)).all()  # the noise is 0.22
    assert (np.abs(np.mean(np.abs(mean - T) < 1.96 * std, axis=0) - 0.95) < 0.05).all()
    law = shared.predict_distribution(Z)
    for j in range(3):
        one = shared.target(j)
        np.testing.assert_array_equal(one.theta_, shared.target(0).theta_)
        np.testing.assert_allclose(np.stack(one.predict(Z, return_std=True)), [mean[:, j], std[:, j]], rtol=1e-9)
        np.testing.assert_allclose(one.predict(Z), shared.predict(Z)[:, j], rtol=1e-9)
        np.testing.assert_allclose(one.predict(Z, True, True)[1], shared.predict(Z, True, True)[1][:, j], rtol=1e-9)
        np.testing.assert_allclose(one.predict_quantiles(Z, 0.9)[:, 0], law.quantile(0.9)[:, j], rtol=1e-9)


def test_shared_theta_is_the_gp_on_the_neighbours(shared):
    """Against scikit-learn, at the same theta, where all rows are neighbours."""
    X, Y = alike(60)
    few = HGPRegressor(Matern32(), neighbours=60, targets="shared", calibrate=False, random_state=0).fit(X, Y)
    variance, *scales, noise = np.exp(few.target(0).theta_)
    kernel = ConstantKernel(variance) * SklearnMatern(scales, nu=1.5) + WhiteKernel(noise)
    inside = (X - X.mean(axis=0)) / X.std(axis=0)
    Z = alike(20, seed=2)[0]
    exact = GaussianProcessRegressor(kernel, optimizer=None).fit(inside, (Y - Y.mean(axis=0)) / Y.std(axis=0))
    mean, std = exact.predict((Z - X.mean(axis=0)) / X.std(axis=0), return_std=True)
    got, deviation = few.predict(Z, return_std=True)
    np.testing.assert_allclose(got, mean * Y.std(axis=0) + Y.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(deviation, np.reshape(std, (len(Z), -1)) * Y.std(axis=0), rtol=1e-6)


def test_signs_do_not_let_targets_cancel():
    X, Y = alike(400)
    opposite = np.column_stack([Y[:, 0], -Y[:, 0]])
    model = HGPRegressor(**SHARED).fit(X, opposite)
    one = HGPRegressor(**MODEL).fit(X, Y[:, 0])
    np.testing.assert_allclose(model.predict(X[:50])[:, 0], -model.predict(X[:50])[:, 1], rtol=1e-9, atol=1e-9)
    assert np.corrcoef(model.predict(X)[:, 0], one.predict(X))[0, 1] > 0.99


def test_shared_models_are_saved_with_their_inputs_once(shared, tmp_path):
    Z, _ = alike(40, seed=3)
    shared.save(tmp_path / "m")
    first, second = (tmp_path / "m" / place / "X.npy" for place in "01")
    assert first.samefile(second)
    loaded = load(tmp_path / "m")
    assert loaded.targets_.shared is not None
    np.testing.assert_array_equal(loaded.predict(Z, return_std=True), shared.predict(Z, return_std=True))
    np.testing.assert_array_equal(
        load(tmp_path / "m" / "1").predict(Z, return_std=True), shared.target(1).predict(Z, return_std=True)
    )


@pytest.mark.parametrize(
    "options", [{"engine": "serial"}, {"memory": 60_000}, pytest.param({"dtype": "float32"}, marks=pytest.mark.slow)]
)
def test_shared_theta_with_other_engines_and_storage(shared, options, small_sizes, tmp_path):
    X, Y = alike()
    Z, T = alike(40, seed=4)
    np.save(tmp_path / "X.npy", X)
    model = HGPRegressor(**SHARED, **options).fit(tmp_path / "X.npy", Y)
    mean, std = model.predict(Z, return_std=True)
    if "memory" in options:
        assert model.targets_.models[0].store.mapped
        in_memory = HGPRegressor(**SHARED).fit(X, Y)
        np.testing.assert_array_equal(in_memory.predict(Z, return_std=True), [mean, std])
    elif "engine" in options:
        assert np.sqrt(np.mean((mean - T) ** 2 / T.var(axis=0))) < 0.35
    else:
        assert np.abs((mean - shared.predict(Z)) / std).max() < 1.0


@pytest.mark.slow
def test_auto_shares_theta_unless_separate_ones_predict_better(monkeypatch):
    monkeypatch.setattr(target_fits, "MOST_SEPARATE", 100)
    X, Y = alike(500)
    model = HGPRegressor(neighbours=24, random_state=0).fit(X, Y[:, :2])
    choices = {each.name: each for each in model.target(0).report_.choices if each.what == "targets"}
    assert choices["shared"].chosen == (model.targets_.shared is not None)
    different = np.column_stack([np.sin(12 * X[:, 0]), X[:, 1] ** 2]) + 0.01 * Y[:, :2] / Y[:, :2].std(axis=0)
    apart = HGPRegressor(neighbours=24, random_state=0).fit(X, different)
    assert apart.targets_.shared is None
    alone = HGPRegressor(neighbours=24, random_state=0).fit(X, different[:, 1])
    np.testing.assert_array_equal(apart.predict(X[:50])[:, 1], alone.predict(X[:50]))
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "a": Y[:, 0], "b": Y[:, 1]})[:300]
    held = HGPRegressor(neighbours=24, random_state=0).fit(table, ["a", "b"], share=Share(0.8))
    assert held.held_out_ == Share(0.8).others


def test_command_line(tmp_path, no_pictures):
    made(200).to_csv(tmp_path / "t.csv", index=False)
    data, folder = str(tmp_path / "t.csv"), str(tmp_path / "m")

    def run(*arguments):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    fit = json.loads(run("fit", data, "-t", "a,b", "--drop", "c", "-o", folder, "--test-fraction", "0.2", "--json"))
    assert list(fit["targets"]) == ["a", "b"]
    assert fit["targets"]["b"]["held_out"]["rows"] > 20
    scores = json.loads(run("evaluate", folder, data, "--held-out", "--json"))
    assert scores["targets"]["b"]["rmse"] == fit["targets"]["b"]["held_out"]["rmse"]
    assert "a: " in run("evaluate", folder, data)
    run("predict", folder, data, "-o", tmp_path / "p.csv")
    assert list(pd.read_csv(tmp_path / "p.csv")) == ["a_mean", "a_std", "b_mean", "b_std"]
    assert list(json.loads(run("inspect", folder, "--json"))["targets"]) == ["a", "b"]
    assert "b from u, v, w" in run("inspect", folder)
    run("report", folder, "-o", tmp_path / "r.html")
    assert (tmp_path / "r-a.html").exists()
    assert (tmp_path / "r-b.html").exists()

"""Updates: the rows of any chunks, in any order, predict as one exact GP on all of them; forgetting undoes learning."""

import pickle
import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import gigagp
from gigagp import HGPRegressor
from gigagp.data import folders
from gigagp.data.scaling import Scaling
from gigagp.data.sphere import InputScaling
from gigagp.data.update_log import ROWS, UpdateLog
from gigagp.errors import FolderInUse, InvalidParameter
from gigagp.estimators import online_updates
from gigagp.kernels import Matern32
from gigagp.model.prequential import Prequential
from gigagp.model.row_segments import ArrivingRows
from gigagp.model.update_replay import LogPlace, identity
from gigagp.plotting import prequential_curve

SETTINGS = {"random_state": 0, "n_jobs": 1, "kernel": "matern52", "method": "neighbourhood"}


def table(n, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 2))
    return X, 10 + shift + 5 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + rng.standard_normal(n)


QUERIES = np.random.default_rng(5).uniform(-2.2, 2.2, (20, 2))


def fitted(n=150, **settings):
    return HGPRegressor(**{**SETTINGS, "neighbours": 20, **settings}).fit(*table(n))


def copy_of(model):
    other = HGPRegressor(**model.get_params())
    other._take(model.model_)
    return other


@pytest.fixture(scope="module")
def base():
    return fitted()


def answers(model):
    return np.stack(model.predict(QUERIES, return_std=True))


@pytest.mark.parametrize("chunks", [[1, 2, 3, 94], [50, 50], [7] * 14 + [2]])
def test_any_chunks_in_any_order_give_the_same_predictions(base, chunks):
    X, y = table(100, seed=1)
    together = copy_of(base).partial_fit(X, y)
    order = np.random.default_rng(len(chunks)).permutation(100)
    model = copy_of(base)
    for part in np.split(order, np.cumsum(chunks)[:-1]):
        model.partial_fit(X[part], y[part])
    assert model.n_rows_ == 250
    np.testing.assert_allclose(answers(model), answers(together), rtol=1e-9)
    assert not np.allclose(answers(model), answers(base))


def test_updates_give_the_exact_gp_of_scikit_learn_on_all_rows():
    model = fitted(80, neighbours=1000, calibrate=False)
    X, y = table(80)
    more = table(60, seed=1)
    for start in range(0, 60, 13):
        model.partial_fit(more[0][start : start + 13], more[1][start : start + 13])
    theta, target, inputs = np.exp(model.theta_), model.model_.target, model.model_.inputs.scaling
    kernel = ConstantKernel(theta[0]) * Matern(theta[1:3], nu=2.5) + WhiteKernel(theta[-1])
    gp = GaussianProcessRegressor(kernel, optimizer=None, alpha=1e-14)
    X, y = np.concatenate([X, more[0]]), np.concatenate([y, more[1]])
    gp.fit((X - inputs.centre) / inputs.scale, (y - target.centre[0]) / target.scale[0])
    mean, std = gp.predict((QUERIES - inputs.centre) / inputs.scale, return_std=True)
    scale = target.scale[0]
    np.testing.assert_allclose(answers(model), [mean * scale + target.centre[0], std * scale], rtol=1e-7)


def test_forget_undoes_partial_fit(base):
    model = copy_of(base)
    first = model.next_arrival_
    model.partial_fit(*table(70, seed=1)).forget(rows=first + np.arange(70))
    np.testing.assert_allclose(answers(model), answers(base), rtol=1e-9)
    assert model.n_rows_ == 150
    assert model.next_arrival_ == first + 70


def test_forget_keeps_the_most_recent_rows_or_those_of_later_times(base):
    X, y = table(300, seed=1)
    model = copy_of(base).partial_fit(X, y).forget(max_rows=300)
    later = copy_of(base).partial_fit(X, y).forget(older_than=0.5, column="x0")
    only = copy_of(base)
    only.partial_fit(X, y).forget(rows=np.arange(150))
    np.testing.assert_allclose(answers(model), answers(only), rtol=1e-9)
    assert later.n_rows_ == (X[:, 0] >= 0.5).sum() + (table(150)[0][:, 0] >= 0.5).sum()


def test_forgetting_dates():
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 120), unit="D")
    frame = pd.DataFrame({"day": days, "x": rng.uniform(size=120), "y": rng.standard_normal(120)})
    model = HGPRegressor(**{**SETTINGS, "neighbours": 20}).fit(frame, "y")
    model.partial_fit(frame.assign(x=rng.uniform(size=120)))
    model.forget(older_than="2024-06-01", column="day")
    assert model.n_rows_ == 2 * (days >= "2024-06-01").sum()


def test_the_first_call_fits_and_a_mixture_takes_updates():
    X, y = table(120)
    model = HGPRegressor(random_state=0, n_jobs=1).partial_fit(X[:80], y[:80])
    assert model.model_.mixture is not None
    before = answers(model)
    theta = model.theta_.copy()
    together = copy_of(model).partial_fit(X[80:], y[80:])
    apart = copy_of(model).partial_fit(X[100:], y[100:]).partial_fit(X[80:100], y[80:100])
    np.testing.assert_allclose(answers(apart), answers(together), rtol=1e-8)
    np.testing.assert_array_equal(together.theta_, theta)
    assert not np.allclose(answers(together), before)
    np.testing.assert_allclose(answers(apart.forget(rows=80 + np.arange(40))), before, rtol=1e-8)


def test_averaged_kernels_take_updates(base):
    near = base.model_.neighbourhood
    metric = near.router.metric * [0.7, 1.5]
    theta = np.concatenate([[0.3], -np.log(metric), [near.theta[-1]]])
    other = replace(near, kernel=Matern32().bind(2), theta=theta, router=near.router.in_metric(metric))
    model = copy_of(base)
    model._take(replace(base.model_, neighbourhood=replace(near, inner=8, others=(other,))))
    X, y = table(90, seed=1)
    together = copy_of(model).partial_fit(X, y)
    apart = copy_of(model).partial_fit(X[40:], y[40:]).partial_fit(X[:40], y[:40])
    np.testing.assert_allclose(answers(apart), answers(together), rtol=1e-9)


@pytest.mark.parametrize("kind", ["weights", "noise_std"])
def test_rows_with_weights_and_known_noise(base, kind):
    X, y = table(60, seed=1)
    values = np.random.default_rng(0).uniform(0.5, 2, 60)
    name = "sample_weight" if kind == "weights" else "noise_std"
    together = copy_of(base).partial_fit(X, y, **{name: values})
    apart = copy_of(base)
    for part in (slice(30, 60), slice(0, 30)):
        apart.partial_fit(X[part], y[part], **{name: values[part]})
    np.testing.assert_allclose(answers(apart), answers(together), rtol=1e-9)
    assert not np.allclose(answers(together), answers(copy_of(base).partial_fit(X, y)))


def test_noise_that_depends_on_the_inputs_and_a_linear_mean():
    for settings in ({"noise": "inputs"}, {"mean": "linear"}):
        model = fitted(**settings)
        X, y = table(60, seed=1)
        together = copy_of(model).partial_fit(X, y)
        apart = copy_of(model).partial_fit(X[20:], y[20:]).partial_fit(X[:20], y[:20])
        np.testing.assert_allclose(answers(apart), answers(together), rtol=1e-9)


def test_tables_with_categories_take_updates_and_are_refined():
    X, y = table(200)
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.where(X[:, 1] > 0, "high", "low"), "y": y})
    model = HGPRegressor(**{**SETTINGS, "neighbours": 20}).fit(frame[:120], "y").partial_fit(frame[120:])
    refined = copy_of(model).refine(warm=False)
    direct = HGPRegressor(**{**SETTINGS, "neighbours": 20}).fit(frame, "y")
    np.testing.assert_allclose(refined.predict(frame[:10]), direct.predict(frame[:10]), rtol=1e-3)
    assert refined.model_.encoding is not None


def test_refine_is_a_fit_to_the_rows_that_are_there(base):
    X, y = table(100, seed=1)
    model = copy_of(base).partial_fit(X, y)
    model.forget(rows=150 + np.arange(20)).refine(warm=False)
    assert model.n_rows_ == 230
    assert model.prequential_.scored == 0
    direct = HGPRegressor(**model.get_params()).fit(
        np.concatenate([table(150)[0], X[20:]]), np.concatenate([table(150)[1], y[20:]])
    )
    np.testing.assert_allclose(answers(model), answers(direct), rtol=0.02)
    rest = copy_of(model).forget(max_rows=80)  # the numbers of arrival survive
    only = copy_of(model).forget(rows=np.arange(150))
    np.testing.assert_allclose(answers(rest), answers(only), rtol=1e-9)


def test_scores_are_those_of_predictions_before_learning(base):
    X, y = table(100, seed=1)
    expected = base.evaluate(X, y)
    model = copy_of(base).partial_fit(X, y, score_rows=100)
    record = model.prequential_
    assert (record.rows, record.scored) == (100, 100)
    np.testing.assert_allclose([record.nlpd, record.rmse, record.crps], [expected.nlpd, expected.rmse, expected.crps])
    assert copy_of(base).partial_fit(X, y, score_rows=0).prequential_.scored == 0


def test_drift_is_detected_and_refines(base):
    X, y = table(700, seed=1)
    steady = copy_of(base).partial_fit(X, y, score_rows=700).partial_fit(*table(700, seed=2), score_rows=700)
    assert not steady.prequential_.drift.detected
    changed = copy_of(base).partial_fit(X, y, score_rows=700)
    changed.partial_fit(*table(700, seed=2, shift=30.0), score_rows=700)
    assert changed.prequential_.drift.detected
    assert isinstance(changed.prequential_, Prequential)
    drawn = prequential_curve(changed).lines[0]
    arrived, losses = changed.prequential_.curve()
    np.testing.assert_array_equal(drawn.get_xdata(), arrived)
    assert arrived[-1] == 1400
    assert losses[-1] > losses[0]


def test_older_values_of_a_model_and_pickles_keep_their_rows(base):
    model = copy_of(base).partial_fit(*table(50, seed=1))
    before, path = answers(model), model.model_
    restored = pickle.loads(pickle.dumps(model))
    model.partial_fit(*table(300, seed=2))
    np.testing.assert_array_equal(answers(restored), before)
    older = copy_of(base)
    older._take(path)
    np.testing.assert_array_equal(answers(older), before)


def test_a_saved_model_has_its_updates(base, tmp_path):
    model = copy_of(base).partial_fit(*table(90, seed=1))
    before = answers(model)
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    np.testing.assert_allclose(answers(loaded), before, rtol=1e-9)
    assert loaded.next_arrival_ == model.next_arrival_
    assert loaded.prequential_.scored == 90
    model.forget(rows=150 + np.arange(90))
    np.testing.assert_allclose(answers(loaded.forget(rows=150 + np.arange(90))), answers(model), rtol=1e-9)


def test_arrival_numbers_are_never_given_twice(base, tmp_path):
    """Not even if the last rows were forgotten before the model was saved."""
    model = copy_of(base).partial_fit(*table(10, seed=1))
    model.forget(rows=[158, 159]).forget(rows=[]).save(tmp_path / "model")
    assert model.next_arrival_ == 160
    loaded = gigagp.load(tmp_path / "model")
    assert loaded.next_arrival_ == 160
    assert loaded.partial_fit(*table(1, seed=2)).next_arrival_ == 161


def test_updates_of_an_open_model_are_on_the_disk(base, tmp_path):
    folder = tmp_path / "model"
    copy_of(base).save(folder)
    reader = gigagp.load(folder)
    X, y = table(90, seed=1)
    with HGPRegressor.open(folder) as model:
        with pytest.raises(FolderInUse):
            HGPRegressor.open(folder)
        model.partial_fit(X[:50], y[:50]).forget(rows=[3, 155])
        np.testing.assert_allclose(answers(gigagp.load(folder)), answers(model), rtol=1e-9)
        np.testing.assert_allclose(answers(reader.refresh()), answers(model), rtol=1e-9)
        model.partial_fit(X[50:], y[50:])
        assert not np.allclose(answers(reader), answers(model))
        np.testing.assert_allclose(answers(reader.refresh()), answers(model), rtol=1e-9)
        model.compact()
        assert not (folder / "updates.log").exists()
        np.testing.assert_allclose(answers(reader.refresh()), answers(model), rtol=1e-9)
        model.partial_fit(X[:5], y[:5])
    with HGPRegressor.open(folder) as again:
        np.testing.assert_allclose(answers(again), answers(model), rtol=1e-9)
        assert again.n_rows_ == 150 + 90 - 2 + 5


def test_updates_name_what_they_cannot_do(base):
    model = copy_of(base)
    with pytest.raises(InvalidParameter, match="one of rows"):
        model.forget()
    with pytest.raises(InvalidParameter, match="arrival numbers"):
        model.forget(rows=[1000])
    with pytest.raises(InvalidParameter, match="at least 2"):
        model.forget(max_rows=1)
    with pytest.raises(InvalidParameter, match="column"):
        model.forget(older_than=1.0)
    with pytest.raises(InvalidParameter, match="no column"):
        model.forget(older_than=1.0, column="z")
    with pytest.raises(InvalidParameter, match="refine"):
        model.partial_fit(*table(3), refine="often")
    with pytest.raises(InvalidParameter, match="open"):
        model.compact()
    with pytest.raises(InvalidParameter, match="loaded"):
        model.refresh()
    committee = HGPRegressor(random_state=0, n_jobs=1, kernel="matern52", method="committee", leaf_size=40)
    with pytest.raises(InvalidParameter, match="committee"):
        committee.fit(*table(80)).partial_fit(*table(3))
    several = HGPRegressor(**SETTINGS).fit(table(40)[0], np.column_stack([table(40)[1]] * 2))
    with pytest.raises(InvalidParameter, match="y0, y1, in this order; got one target"):
        several.partial_fit(*table(3))
    with pytest.raises(InvalidParameter, match="pass y="):
        model.partial_fit(table(3)[0])


def rows_in_units(X, inputs, dtype):
    return ArrivingRows(inputs.apply(X, dtype), np.zeros(len(X)), None, np.arange(len(X)))


def test_an_update_that_fails_is_not_in_the_log(tmp_path, monkeypatch):
    @dataclass
    class Empty:
        online: object = None
        log: object = None
        reading: object = field(default_factory=lambda: SimpleNamespace(features=()))

    def fail(*_):
        raise MemoryError

    model, inputs = HGPRegressor(), InputScaling(Scaling.identity(2))
    model.model_, model._log = Empty(log=LogPlace(tmp_path, (0, 0, 0), 0)), UpdateLog(tmp_path)
    monkeypatch.setattr(model, "_scaled", lambda *_: rows_in_units(np.zeros((3, 2)), inputs, float), raising=False)
    monkeypatch.setattr(online_updates, "online", lambda _: SimpleNamespace(following=0))
    monkeypatch.setattr(online_updates, "added", fail)
    with pytest.raises(MemoryError):
        model._learn([None], 0, None)
    model.close()
    assert not (tmp_path / "updates.log").exists(), "rows that the model lacks would be learnt again by the next load"


def test_the_log_of_a_folder_takes_no_updates_of_a_model_that_was_fitted_later(tmp_path):
    model = HGPRegressor()
    model.model_, model._log = SimpleNamespace(log=None), UpdateLog(tmp_path)  # as after open and fit
    with pytest.raises(InvalidParameter, match="call compact"):
        model._logged(ROWS, lambda: b"rows of another scaling")
    model.close()
    assert not (tmp_path / "updates.log").exists()


def test_a_folder_that_is_replaced_twice_is_another_one(tmp_path):
    seen = set()
    for _ in range(3):  # the third may have the inode of the first
        with folders.writing(tmp_path / "model") as folder:
            (folder / "manifest.json").write_text("{}")
        seen.add(identity(tmp_path / "model"))
        time.sleep(0.02)  # file systems count time in some milliseconds
    assert len(seen) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_exactly_the_given_age_stay(monkeypatch, dtype):
    X = np.random.default_rng(0).integers(0, 1000, (300, 2)).astype(float)
    inputs = InputScaling(Scaling(X.mean(axis=0), X.std(axis=0)))
    rows = rows_in_units(X, inputs, dtype)
    units = SimpleNamespace(columns=("a", "b"), kinds=("number", "number"))
    model = SimpleNamespace(inputs=inputs, units=units, store=SimpleNamespace(X=rows.X))
    monkeypatch.setattr(online_updates, "all_rows", lambda _: rows)
    for value in X[:50, 0]:
        gone = online_updates._forgotten(model, rows.arrivals, None, None, value, "a")
        np.testing.assert_array_equal(gone, np.flatnonzero(X[:, 0] < value))


@pytest.mark.parametrize("value", ["soon", float("nan"), np.datetime64("NaT"), [1, 2], None])
@pytest.mark.parametrize("column", [0, 1])
def test_ages_that_are_none_are_refused(value, column):
    model = SimpleNamespace(units=SimpleNamespace(kinds=("date", "number")))
    with pytest.raises(InvalidParameter, match="older_than"):
        online_updates._as_number(value, model, column)

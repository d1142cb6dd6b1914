"""Updates with every feature: any chunks in any order predict as one fit with the same theta and scalings.

The one fit is a model whose rows arrive in one call and are then sorted into cells at once (`settled`), as a fit sorts
them. Each feature is tried alone; what cannot take updates says so.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import gigagp
from gigagp import HGPClassifier, HGPRegressor
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.fit.settling import settled
from gigagp.kernels import Matern52

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # columns that do not matter
N, FIRST = 160, 100  # rows, and those of the fit
SETTINGS = {
    "random_state": 0, "n_jobs": 1, "kernel": "matern52", "method": "neighbourhood", "neighbours": 15,
    "exact_neighbours": True,
}  # fmt: skip


def table(seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.uniform(-2, 2, N), "b": rng.uniform(-2, 2, N)})
    frame["y"] = 10 + 3 * np.sin(frame["a"]) * frame["b"] + 0.3 * rng.standard_normal(N)
    return frame, rng


def plain(settings=(), fit=()):
    frame, _ = table()
    return frame, dict(settings), dict(fit)


def categories():
    frame, rng = table()
    frame["kind"] = rng.choice(["red", "green", "blue"], N)
    frame["y"] += frame["kind"].map({"red": 2.0, "green": 0.0, "blue": -2.0})
    return frame, {}, {}


def dates():
    frame, rng = table()
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, N), unit="D")
    seconds = rng.integers(0, 10**6, N)
    frame["time"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(seconds, unit="s")
    frame["y"] += frame["day"].dt.day_of_year / 20 + np.sin(seconds / 2e5)
    return frame, {}, {}


def gaps(missing):
    frame, rng = table()
    frame["kind"] = rng.choice(["red", "green", None], N)
    frame["y"] += frame["kind"].map({"red": 2.0, "green": -2.0}).fillna(0.0)
    frame.loc[rng.choice(N, 40, replace=False), "a"] = np.nan
    frame.loc[rng.choice(N, 10, replace=False), "y"] = np.nan
    return frame, {"missing": missing}, {}


def sphere():
    frame, rng = table()
    frame = pd.DataFrame({"lon": rng.uniform(-180, 180, N), "lat": rng.uniform(-80, 80, N), "y": frame["y"]})
    return frame, {"sphere": ("lon", "lat")}, {}


def noise(kind):
    frame, rng = table()
    frame["w"] = rng.uniform(0.5, 2, N)
    return frame, {}, {kind: "w"}


def trend(mean):
    frame, rng = table()
    steps = 50 * ((frame["a"] > 0) & (frame["b"] > -1)) + 0.3 * rng.standard_normal(N)
    return frame.assign(y=frame["y"] + 9 * frame["a"] if mean == "linear" else steps), {"mean": mean}, {}


def counts(likelihood):
    frame, rng = table()
    rate = np.exp(0.5 * frame["a"])
    y = {"poisson": rng.poisson(rate), "gamma": rng.gamma(2.0, rate), "bernoulli": rng.uniform(size=N) < rate / 3}
    frame["y"] = np.asarray(y[likelihood], float)
    return frame, {"likelihood": likelihood}, {}


def copies():
    frame, _ = table()
    return pd.concat([frame[:-20], frame[:10], frame[-30:-20]], ignore_index=True), {}, {}


FEATURES = {
    "numbers": plain,
    "categories": categories,
    "dates": dates,
    "gaps that are modelled": lambda: gaps("model"),
    "gaps that are dropped": lambda: gaps("drop"),
    "longitude and latitude": sphere,
    "weights": lambda: noise("sample_weight"),
    "known noise": lambda: noise("noise_std"),
    "a periodic column": lambda: plain({"kernel": "periodic(period=1, columns=a) + matern32"}),
    "a linear mean": lambda: trend("linear"),
    "a regressor as the mean": lambda: trend(DecisionTreeRegressor(max_depth=3, random_state=0)),
    "noise that depends on the inputs": lambda: plain({"noise": "inputs"}),
    "Student's t": lambda: plain({"likelihood": "student"}),
    "counts": lambda: counts("poisson"),
    "positive numbers": lambda: counts("gamma"),
    "outcomes": lambda: counts("bernoulli"),
    "copies of rows": copies,
}  # fmt: skip


def copy_of(model):
    other = type(model)(**model.get_params(deep=False))
    other._take(model._fitted)
    return other


def answers(model, queries):
    if isinstance(model, HGPClassifier):
        return model.predict_proba(queries)
    return np.stack(model.predict(queries, return_std=True))


def learnt(model, rows, chunks, fit, **options):
    """A copy of a model that has learnt rows in chunks, in another order."""
    order = np.random.default_rng(len(chunks)).permutation(len(rows))
    other = copy_of(model)
    for part in np.split(order, chunks):
        other.partial_fit(rows.iloc[part], **fit, **options)
    return other


@pytest.mark.parametrize("feature", FEATURES)
def test_any_chunks_predict_as_one_fit_and_forgetting_undoes_them(feature, tmp_path):
    frame, settings, fit = FEATURES[feature]()
    model = HGPRegressor(**SETTINGS | settings).fit(frame[:FIRST], "y", **fit)
    assert (model.model_.trend is not None) == ("mean" in settings)
    rows, queries = frame[FIRST:], frame.drop(columns=["y", "w"], errors="ignore")[::7]
    queries = queries if settings.get("missing") == "model" else queries.dropna()
    together, apart = learnt(model, rows, [], fit), learnt(model, rows, [7, 8, 40], fit)
    expected = answers(together, queries)
    assert not np.allclose(expected, answers(model, queries), rtol=1e-3)
    np.testing.assert_allclose(answers(apart, queries), expected, rtol=1e-9)
    whole = copy_of(together)
    whole._take(settled(together.model_))
    np.testing.assert_allclose(answers(whole, queries), expected, rtol=1e-9)
    apart.save(tmp_path / "model")
    np.testing.assert_allclose(answers(gigagp.load(tmp_path / "model"), queries), expected, rtol=1e-9)
    arrived = np.arange(model.next_arrival_, apart.next_arrival_)
    np.testing.assert_allclose(
        answers(apart.forget(rows=arrived), queries), answers(model, queries), rtol=1e-9
    )  # fmt: skip
    assert together.prequential_.scored == len(arrived)
    assert np.isfinite(together.prequential_.nlpd)


@pytest.mark.parametrize("labels", [("no", "yes"), (1, 2, 3)])
def test_classes_take_updates(labels, tmp_path):
    frame, rng = table()
    frame["y"] = np.array(labels)[np.digitize(frame["a"] + 0.5 * rng.standard_normal(N), [0, 1][: len(labels) - 1])]
    model = HGPClassifier(kernel=Matern52(), neighbours=20, exact_neighbours=True, random_state=0, n_jobs=1)
    model.partial_fit(frame[:FIRST], "y")
    rows, queries = frame[FIRST:], frame[["a", "b"]][::7]
    together, apart = learnt(model, rows, [], {}), learnt(model, rows, [7, 8, 40], {})
    expected = answers(together, queries)
    assert not np.allclose(expected, answers(model, queries), rtol=1e-3)
    np.testing.assert_allclose(answers(apart, queries), expected, rtol=1e-9)
    scores = model.evaluate(rows, "y")
    record = together.prequential_
    np.testing.assert_allclose([record.nlpd, record.crps], [scores.log_loss, scores.brier])
    assert np.isnan(record.rmse)
    model.save(tmp_path / "model")
    with HGPClassifier.open(tmp_path / "model") as opened:
        opened.partial_fit(rows)
        np.testing.assert_allclose(answers(gigagp.load(tmp_path / "model"), queries), expected, rtol=1e-9)
        with pytest.raises(InvalidInput, match="'other'"):
            opened.partial_fit(rows.assign(y="other"))
        assert opened.n_rows_ == N
    arrays = copy_of(model).partial_fit(rows[["a", "b"]], rows["y"].to_numpy())
    np.testing.assert_allclose(answers(arrays, queries), expected, rtol=1e-9)
    refined = copy_of(apart).refine()
    direct = HGPClassifier(**model.get_params()).fit(frame, "y")
    np.testing.assert_allclose(answers(refined, queries), answers(direct, queries), atol=0.05)
    np.testing.assert_allclose(
        answers(apart.forget(rows=np.arange(FIRST, N)), queries), answers(model, queries), rtol=1e-9
    )  # fmt: skip


@pytest.mark.parametrize("targets", ["separate", "shared"])
def test_several_targets_take_updates(targets, tmp_path):
    frame, rng = table()
    frame["z"] = frame["b"] ** 2 + 0.1 * rng.standard_normal(N)
    model = HGPRegressor(**SETTINGS, targets=targets).partial_fit(frame[:FIRST], ["y", "z"])
    rows, queries = frame[FIRST:], frame[["a", "b"]][::7]
    updated = copy_of(model).partial_fit(rows)
    apart = copy_of(model).partial_fit(rows[30:]).partial_fit(rows[:30][["a", "b"]], rows[:30][["y", "z"]])
    np.testing.assert_allclose(answers(apart, queries), answers(updated, queries), rtol=1e-9)
    for place, name in enumerate(("y", "z")):
        alone = model.target(name).partial_fit(rows[["a", "b"]], rows[name])
        np.testing.assert_allclose(answers(updated, queries)[:, :, place], answers(alone, queries), rtol=1e-9)
    updated.save(tmp_path / "model")
    np.testing.assert_allclose(answers(gigagp.load(tmp_path / "model"), queries), answers(updated, queries), rtol=1e-9)
    forgotten = apart.forget(rows=np.arange(FIRST, N))
    np.testing.assert_allclose(answers(forgotten, queries), answers(model, queries), rtol=1e-9)
    with pytest.raises(InvalidParameter, match="the targets y, z"):
        model.partial_fit(rows, ["z", "y"])
    with pytest.raises(AttributeError, match="target"):
        _ = model.n_rows_
    with pytest.raises(InvalidParameter, match="several targets"):
        HGPRegressor.open(tmp_path / "model")


def test_the_first_call_never_chooses_a_committee():
    frame, _ = table()
    settings = {"random_state": 0, "n_jobs": 1, "kernel": "matern52", "leaf_size": 40}
    assert HGPRegressor(**settings).fit(frame[:80], "y").model_.neighbourhood is None
    model = HGPRegressor(**settings).partial_fit(frame[:80], "y")
    assert model.model_.neighbourhood is not None
    model.partial_fit(frame[80:90]).partial_fit(frame[90:95]).refine(warm=False)
    assert model.model_.neighbourhood is not None
    assert model.n_rows_ == 95


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "committee"},
        {"combine": "gpoe"},
        {"sharing": 2},
        {"partition": "random"},
        {"kernel": "linear"},
        {"leaf": "sparse", "experts": "gaussian"},
    ],
)
@pytest.mark.filterwarnings("ignore:.*no metric")
def test_settings_that_exclude_updates_are_refused_at_the_first_call(settings):
    frame, _ = table()
    model = HGPRegressor(random_state=0, n_jobs=1, **settings)
    with pytest.raises(InvalidParameter, match="updates need"):
        model.partial_fit(frame, "y")
    assert not hasattr(model, "model_")


def test_rows_that_cannot_be_learnt_change_nothing():
    frame, _ = table()
    frame["kind"] = np.where(frame["a"] > 0, "high", "low")
    model = HGPRegressor(**SETTINGS).fit(frame[:FIRST], "y")
    rows = frame[FIRST:].copy()
    before = answers(model, frame[:9])
    for bad, match in (
        (rows.assign(a=np.nan), "missing"),
        (rows.assign(a=np.inf), "inf"),
        (rows.assign(y=np.nan), "missing"),
        (rows.drop(columns="kind"), "kind"),
        (rows.assign(a="text"), "'a'"),
    ):
        with pytest.raises(InvalidInput, match=match):
            model.partial_fit(bad)
    for missing in ("error", "model"):  # the model has not learnt to answer gaps
        with pytest.raises(InvalidInput, match="missing"):
            model.partial_fit(rows.assign(a=np.nan), missing=missing)
    assert model.n_rows_ == FIRST
    np.testing.assert_array_equal(answers(model, frame[:9]), before)
    with pytest.raises(InvalidParameter, match="Gaussian"):
        HGPRegressor(likelihood="poisson").partial_fit(frame, "y", refine="auto")
    with pytest.warns(UserWarning, match="'kind': some rows have levels"):
        model.partial_fit(rows.assign(kind="new"))


def test_rows_in_which_the_column_is_missing_are_not_forgotten_by_it():
    frame, settings, _ = gaps("model")
    model = HGPRegressor(**SETTINGS | settings).fit(frame, "y")
    present = frame.dropna(subset="y")
    model.forget(older_than=0.5, column="a")
    assert model.n_rows_ == len(present) - (present["a"] < 0.5).sum()

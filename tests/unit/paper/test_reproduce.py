"""The paper's experiments: every expert asked once for all rules, steps that are kept, pages of what was found."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from gigagp import HGPRegressor, expert, metrics
from gigagp.combine import BCM, RBCM, GPoE, Healed, PoE
from gigagp.errors import InvalidParameter
from gigagp.kernels import SquaredExponential
from gigagp.linalg import tiny
from gigagp.linalg.workspace import Workspace
from gigagp.paper import airline, all_experts, kin40k, likelihood_ratios, million, peers, provenance, timing
from gigagp.paper.page import Paths, number, table
from gigagp.paper.record import Record

pytestmark = pytest.mark.filterwarnings("ignore:.*bound", "ignore:.*converge")
RULES = {"y": PoE(target="y"), "f": PoE(), "gpoe": GPoE(), "bcm": BCM(), "rbcm": RBCM(), "healed": Healed()}


@pytest.fixture
def wave():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 2))
    return X, 5 + 3 * np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.2 * rng.standard_normal(300)


def experts(**settings):
    return HGPRegressor(SquaredExponential(), experts_per_query=None, training="full", random_state=0, **settings)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "settings", [{"partition": "random", "leaf_size": 40}, {"partition": "stratified", "levels": 2, "sharing": 2}]
)
def test_one_pass_gives_each_rule_what_it_gives_alone(wave, settings, dtype, monkeypatch):
    X, y = wave
    monkeypatch.setattr(all_experts, "BLOCK", 17)
    model = experts(dtype=dtype, **settings).fit(X, y)
    queries = np.random.default_rng(1).uniform(-3, 3, (50, 2))
    predictions = all_experts.predict_with_all_experts(model, queries, RULES)
    for name, rule in RULES.items():
        mean, std = model.set_params(combine=rule).predict(queries, return_std=True)
        exact = dtype == "float64"
        np.testing.assert_allclose(predictions[name][0], mean, rtol=1e-9 if exact else 1e-3)
        np.testing.assert_allclose(predictions[name][1], std, rtol=1e-9 if exact else 1e-2)


def test_another_theta_can_be_asked(wave):
    X, y = wave
    model = experts(partition="random", leaf_size=60).fit(X, y)
    theta = model.theta_ + 0.1
    fixed = SquaredExponential(np.exp(theta[0]), np.exp(theta[1:-1]), variance_bounds=(np.exp(theta[0]),) * 2)
    noise = float(np.exp(theta[-1]))
    other = HGPRegressor(
        fixed, partition="random", leaf_size=60, experts_per_query=None, noise_bounds=(noise, noise), random_state=0
    )
    other.fit(X, y)
    predictions = all_experts.predict_with_all_experts(model, X[:9], {"f": PoE()}, theta=other.theta_)
    mean, std = other.set_params(combine=PoE()).predict(X[:9], return_std=True)
    np.testing.assert_allclose(predictions["f"], (mean, std), rtol=1e-9)


def test_progress_counts_all_rows(wave, monkeypatch):
    X, y = wave
    monkeypatch.setattr(all_experts, "BLOCK", 128)
    events = []
    all_experts.predict_with_all_experts(
        experts(partition="random", leaf_size=50).fit(X, y), X, {"f": PoE()}, events.append
    )
    done = [event.done for event in events]
    assert done == sorted(done)
    assert (done[-1], events[-1].total, events[-1].stage) == (300, 300, "prediction")
    assert len(done) == 3 * 6, "once a block and expert"


def test_a_step_is_made_once(tmp_path):
    calls = []

    def work():
        calls.append(1)
        return {"value": 1.5, "some": [1, 2]}

    for _ in range(2):
        record = Record(tmp_path / "steps", {"levels": (1, 2)})
        assert record.step("Level 1, trained", work) == {"value": 1.5, "some": [1, 2]}
    assert len(calls) == 1
    assert provenance.commit() in record.origin
    assert record.seconds >= 0
    record.step("Level 1, trained", work, again=True)
    Record(tmp_path / "steps", {"levels": (1, 3)}).step("Level 1, trained", work)
    assert len(calls) == 3, "other settings"
    [file] = (tmp_path / "steps").iterdir()
    file.write_text(file.read_text().replace("1.5", "2.5"))
    assert Record(tmp_path / "steps", {"levels": (1, 3)}).step("Level 1, trained", work)["value"] == 1.5
    assert len(calls) == 4, "damaged"
    Record(tmp_path / "steps", {"levels": (1, 3)}, fresh=True).step("Level 1, trained", work)
    assert len(calls) == 5


def test_an_interrupted_run_goes_on(tmp_path):
    record, calls = Record(tmp_path, {}), []

    def interrupted():
        raise KeyboardInterrupt

    record.step("first", lambda: calls.append("first") or {})
    with pytest.raises(KeyboardInterrupt):
        record.step("second", interrupted)
    again = Record(tmp_path, {})
    again.step("first", lambda: calls.append("first again") or {})
    again.step("second", lambda: calls.append("second") or {})
    assert calls == ["first", "second"]


def test_joint_divergence_is_the_textbooks():
    rng = np.random.default_rng(0)
    A, B = (M @ M.T + np.eye(3) for M in rng.standard_normal((2, 3, 3)))
    a, b = rng.standard_normal((2, 3))
    draws = rng.multivariate_normal(a, A, 200_000)
    mean = np.mean(multivariate_normal(a, A).logpdf(draws) - multivariate_normal(b, B).logpdf(draws))
    assert likelihood_ratios._kl(a, A, b, B) == pytest.approx(mean, rel=0.02)
    apart = metrics.kl_divergence(a, np.ones(3), b, 2 * np.ones(3)).sum()
    assert likelihood_ratios._kl(a, np.eye(3), b, 4 * np.eye(3)) == pytest.approx(apart)


def test_with_one_expert_every_reading_of_the_ratio_is_one(wave):
    X, y = wave
    y = (y - y.mean()) / y.std()
    model = experts(partition="random", leaf_size=300, standardize=False).fit(X[:200], y[:200])
    mean, std = model.predict(X[200:], return_std=True)
    exact = {"theta": model.theta_.tolist(), "mean": mean.tolist(), "std": std.tolist()}
    truth = likelihood_ratios.ExactGP.of(X[:200], y[:200], X[200:], y[200:], exact)
    results = truth.ratios(model, None, 7, lambda event: None)
    assert set(results) == {"y, as eq. 7", "y, noise added once", "y, product normalised (gPoE)", "f"}
    for ways in results.values():
        for way, value in ways.items():
            assert value == pytest.approx(1, abs=1e-4), way
    many = experts(partition="random", leaf_size=20, standardize=False).fit(X[:200], y[:200])
    fewer = truth.ratios(many, model.theta_, 7, lambda event: None)
    assert all(value < 0.999 for ways in fewer.values() for value in ways.values())


def flights(folder, rows=900):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (rows, 8))
    y = 30 * np.sin(X[:, 0] / 10) + rng.standard_normal(rows) * 5
    np.savez(folder / f"{airline.FILE}.npz", X=X, y=y)
    return X, y


@pytest.mark.slow
def test_the_airline_table_is_what_its_models_say(tmp_path, monkeypatch):
    X, y = flights(tmp_path)
    monkeypatch.setattr(peers, "reason_unavailable", lambda *modules: "torch is not installed")
    monkeypatch.setattr(airline, "BLOCK", 40)
    settings = airline.Settings(training=600, test=100, repeats=2, experts=12)
    assert settings.points == 100
    paths = Paths(tmp_path / "out", "airline")
    record = Record(paths.steps, {})
    results = airline.run(record, tmp_path, settings)
    text = airline.write(record, results, settings, paths)
    rows = airline.Rows.drawn(X, y, settings, 1)
    model = airline.paper_model(settings, 1).fit(rows.X, rows.y)
    assert {len(model.model_.committee.experts[leaf]) for leaf in range(12)} == {100}
    mean, std = model.predict(rows.Z, return_std=True)
    told = results["repeats"][1]["lines"]["the paper's experts, PoE over y, as eq. 7"]
    assert told["rmse"] == pytest.approx(metrics.rmse(rows.truth, mean), rel=1e-3)
    nlpd = metrics.nlpd(rows.truth, mean, std) - np.log(rows.y.std())
    assert told["nlpd"] == pytest.approx(nlpd, rel=1e-2)
    first = airline.Rows.drawn(X, y, settings, 0)
    flat = metrics.rmse(first.truth, np.full(100, first.y.mean()))
    assert results["repeats"][0]["lines"]["the mean"]["rmse"] == pytest.approx(flat)
    page = paths.page.read_text()
    assert "not run: torch is not installed" in page
    assert "27.45" in page
    wins = sum(
        r["lines"]["ours, defaults"]["rmse"] < r["lines"]["the paper's experts, PoE over y, as eq. 7"]["rmse"]
        for r in results["repeats"]
    )
    assert f"in {wins} of 2 repeats" in page
    assert all(line in page for line in text.splitlines())
    assert paths.picture().read_bytes().startswith(b"\x89PNG")
    again = Record(paths.steps, {})
    monkeypatch.setattr(airline, "paper_model", None)  # nothing is computed again
    assert airline.run(again, tmp_path, settings) == results


def test_repeats_draw_rows_apart(tmp_path):
    X = np.arange(1000.0)[:, None]
    settings = airline.Settings(training=600, test=100)
    rows = airline.Rows.drawn(X, X[:, 0], settings, 3)
    assert (len(rows.y), len(rows.truth), len({*rows.y, *rows.truth})) == (600, 100, 700)
    every = airline.Rows.all_but_the_test(X, X[:, 0], settings, 3)
    assert (every.truth == rows.truth).all()
    assert set(every.y) == set(X[:, 0]) - set(rows.truth)
    assert (rows.X[:, 0] == rows.y).all()


@pytest.mark.slow
def test_the_kin40k_table_is_what_its_models_say(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 3))
    y = np.sin(X).sum(axis=1) * 7 + 0.1 * rng.standard_normal(400)
    np.savez(tmp_path / f"{kin40k.FILE}.npz", X=X, y=y, orig_test_mask=np.arange(400) >= 160)
    settings = kin40k.Settings(training=160, queries=90, levels=(1, 2), read=30, joint=4, random_from=2)
    paths = Paths(tmp_path / "out", "kin40k")
    record = Record(paths.steps, {})
    results = kin40k.run(record, tmp_path, settings)
    kin40k.write(record, results, settings, paths)
    level = results["levels"]["2"]
    assert (level["leaves"], level["points"]) == (16, [40, 40])
    assert level["rules"][kin40k.BLEND]["points"] == 40, "experts of the same size"
    rows = kin40k.Rows.of(tmp_path, settings)
    assert rows.y.std() == pytest.approx(1)
    spread = rows.X.std(axis=0)
    exact = kin40k.exact_model(settings).fit(rows.X / spread, rows.y).predict(rows.Z / spread, return_std=True)
    assert results["exact"]["rmse"] == pytest.approx(
        metrics.rmse(rows.truth, exact[0]), rel=1e-3
    )  # it starts elsewhere
    paper = kin40k.paper_model(settings, 2).fit(rows.X / spread, rows.y).predict(rows.Z / spread, return_std=True)
    assert level["rules"][kin40k.EQ7]["ratio"] == pytest.approx(metrics.likelihood_ratio(*exact, *paper), rel=1e-3)
    assert level["rules"][kin40k.EQ7]["rmse"] == pytest.approx(metrics.rmse(rows.truth, paper[0]), rel=1e-9)
    page = paths.page.read_text()
    assert "0.992" in page
    assert "The closest" in page
    assert "random, theta trained" in page
    assert "random, theta trained" not in results["levels"]["1"]["readings"]


def test_paper_trees_have_three_levels_and_all_leaves():
    for leaves in (1, 2, 5, 64, 1000):
        tree = timing.three_levels(leaves)
        assert (tree.depth, tree.n_leaves) == (3, leaves)
    assert [timing.leaf_size(p) for p in (20, 21)] == [512, 128]


def test_the_timing_figure_has_every_curve(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "reason_unavailable", lambda *modules: "torch is not installed")
    paths, settings = Paths(tmp_path, "timing", True), timing.Settings(powers=(9, 10), allowed_seconds=2.0, repeats=1)
    record = Record(paths.steps, {})
    results = timing.run(record, tmp_path, settings)
    assert [p["leaves"] for p in results["curves"][timing.TREE]] == [1, 2]
    assert [p["power"] for p in results["curves"][timing.EXACT]] == [9, 10]
    timing.write(record, results, settings, paths)
    assert "2^10" in paths.page.read_text()
    assert "A quick run" in paths.page.read_text()
    assert "FITC was not run: torch is not installed" in paths.page.read_text()


@pytest.mark.torch
def test_fitc_with_all_rows_as_inducing_inputs_is_the_exact_gp():
    X, y = timing.rows(60)
    value, gradient = peers.load_peer("fitc").evidence(X, y, share=1.0)(timing.THETA)
    kernel = SquaredExponential(1.0, 1.5).bind(timing.D)
    exact = expert.evidence(kernel, timing.THETA, X, y, Workspace())
    assert value == pytest.approx(exact.value, rel=1e-5)
    np.testing.assert_allclose(gradient, exact.gradient, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_a_million_in_small(tmp_path):
    paths, settings = Paths(tmp_path, "million"), million.Settings(rows=1_000, held_out=200, leaf_size=100)
    record = Record(paths.steps, {})
    results = million.run(record, tmp_path, settings)
    million.write(record, results, settings, paths)
    paper, progressive, *ours = results["lines"].values()
    assert paper["experts"] == progressive["experts"] == 10
    assert all(line["rmse"] < paper["rmse"] for line in ours)
    assert paths.picture().exists()


def test_numbers_on_pages():
    assert [number(v) for v in (0.12345, 0.0, 1e-9, -2.5, None, 3e7)] == [
        "0.123",
        "0.000",
        "1e-09",
        "-2.500",
        "-",
        "3e+07",
    ]
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_data_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidParameter, match=r"uci_kin40k\.npz is not in .*--data"):
        kin40k.run(Record(tmp_path / "steps", {}), tmp_path, kin40k.QUICK)
    np.savez(tmp_path / "uci_kin40k.npz", X=np.ones((3, 1)), y=np.ones(3))
    with pytest.raises(InvalidParameter, match="has no array orig_test_mask"):
        kin40k.run(Record(tmp_path / "steps", {}), tmp_path, kin40k.QUICK)
    (tmp_path / "uci_kin40k.npz").write_bytes(b"no archive")
    with pytest.raises(InvalidParameter, match="cannot be read"):
        kin40k.run(Record(tmp_path / "steps", {}), tmp_path, kin40k.QUICK)


def test_settings_of_steps_are_plain(tmp_path):
    record = Record(tmp_path, {"levels": (1, 2)})
    record.step("one", dict)
    [file] = tmp_path.iterdir()
    assert json.loads(file.read_text())["settings"] == {"levels": [1, 2]}
    assert replace(kin40k.FULL, training=10).training == 10


@pytest.mark.skipif(not tiny._HAS_REGISTER, reason="only processors of x86 are told to flush")
def test_tiny_numbers_are_zero_in_experts_and_nowhere_else():
    small = np.full(4, 1e-30, np.float32)
    seen = []
    tiny.tiny_is_zero(lambda: seen.append(small * small[::-1] * np.float32(1e20)))()
    assert (seen[0] == 0).all()
    assert (small * np.float32(1e-10) != 0).all(), "the thread's own setting is given back"
    with pytest.raises(ZeroDivisionError):
        tiny.tiny_is_zero(lambda: 1 / 0)()
    assert (small * np.float32(1e-10) != 0).all()
    assert tiny.tiny_is_zero(lambda: np.float64(1e-300) * np.float64(1e-10))() == 0

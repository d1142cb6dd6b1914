"""The accuracy comparison's own arithmetic: scores, paired differences, rows of a split, bars, merging, the page."""

import json
import sys
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import t as student
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from threadpoolctl import threadpool_limits

from gigagp import metrics

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
accuracy, accuracy_page, comparison, deadline, peers, scores = map(
    import_module, ("accuracy", "accuracy_page", "comparison", "deadline", "peers", "scores")
)
boosting, render, small_tables, small_tables_page = map(
    import_module, ("boosting", "render", "small_tables", "small_tables_page")
)


@pytest.fixture
def exact_torch():
    return import_module("exact_torch")


@pytest.fixture
def gaussian():
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal(4000), np.exp(rng.standard_normal(4000) / 3)
    return mean + std * rng.standard_normal(4000), mean, std


def predicted(mean, std, **more):
    return peers.Prediction(peers.Answer(mean, std), 1.0, 1.0, **more)


def row(who, **more):
    base = {
        "set": "elevators", "split": 0, "method": "ours" if who == "GigaGP" else "neighbours", "who": who,
        "rmse": 0.36, "nlpd": 0.40, "crps": 0.2, "coverage": {"0.5": 0.5, "0.8": 0.8, "0.95": 0.95}, "cap": 30.0,
        "capped": False, "rows": 100, "queries": 50, "answered": 50, "fit_seconds": 2.0, "predict_seconds": 1.0,
        "gb": 0.5, "no_cap": False, "commit": "abc", "date": "2026-11-16",
    }  # fmt: skip
    return base | more


def test_losses_average_to_the_scores(gaussian):
    y, mean, std = gaussian
    result = scores.Losses.of(y, mean, scores.own_distribution(predicted(mean, std))).scores
    assert result["rmse"] == pytest.approx(metrics.rmse(y, mean), rel=1e-12)
    assert result["nlpd"] == pytest.approx(metrics.nlpd(y, mean, std), rel=1e-12)
    assert result["crps"] == pytest.approx(metrics.crps(y, mean, std), rel=1e-12)
    assert result["coverage"]["0.95"] == metrics.coverage(y, mean, std)


def test_a_gaussians_quantiles_give_its_scores(gaussian):
    y, mean, std = gaussian
    quantiles = scores.QuantileDistribution(
        peers.Answer(mean, std), mean[:, None] + std[:, None] * ndtri(scores.LEVELS)
    )
    plain = scores.Losses.of(y, mean, scores.own_distribution(predicted(mean, std)))
    given = scores.Losses.of(y, mean, scores.own_distribution(predicted(mean, std, distribution=quantiles)))
    assert given.crps == pytest.approx(plain.crps, abs=0.02)
    assert given.scores["crps"] == pytest.approx(plain.scores["crps"], rel=3e-3)
    assert given.coverage == plain.coverage


def test_wider_quantiles_cover_more(gaussian):
    y, mean, std = gaussian
    wide = scores.QuantileDistribution(peers.Answer(mean, std), mean[:, None] + 2 * std[:, None] * ndtri(scores.LEVELS))
    assert all(metrics.inside(y, *wide.interval(level)) > level + 0.02 for level in scores.COVERAGES)


@pytest.mark.parametrize("noise", [None, 0.01])
def test_recalibration_mends_deviations_and_tails(noise):
    """A method whose deviations are three times too small, with errors that have heavy tails."""
    rng = np.random.default_rng(7)

    def rows(count):
        std = np.exp(rng.standard_normal(count) / 3)
        return peers.Answer(np.zeros(count), std / 3), std * rng.standard_t(4, count) / 2**0.5

    held_out, truth = rows(4000)
    answer, y = rows(4000)
    method = peers.Prediction(answer, 1.0, 1.0, held_out=held_out, noise=noise)
    own = scores.Losses.of(y, answer.mean, scores.own_distribution(method))
    again = scores.Losses.of(y, answer.mean, scores.recalibrated(method, truth))
    right = -student(4, scale=3 * answer.std / 2**0.5).logpdf(y).mean()
    assert own.scores["nlpd"] > right + 1
    assert again.scores["nlpd"] == pytest.approx(right, abs=0.03)
    assert all(abs(again.coverage[f"{level:g}"] - level) < 0.025 for level in scores.COVERAGES)
    assert np.array_equal(again.rmse, own.rmse)


def test_without_held_out_rows_nothing_is_recalibrated(gaussian):
    y, mean, std = gaussian
    assert scores.recalibrated(predicted(mean, std), y) is None


def test_paired_interval_is_that_of_the_differences():
    rng = np.random.default_rng(1)
    theirs = 10 * rng.standard_normal(2500)
    apart = rng.standard_normal(2500)
    result = scores.paired([theirs + apart], [theirs])
    assert result.mean == pytest.approx(apart.mean())
    assert result.high - result.mean == pytest.approx(1.96 * apart.std(ddof=1) / 50, rel=1e-4)


@pytest.mark.parametrize(("shift", "verdict"), [(-0.5, "win"), (0.5, "loss"), (0.0, "tie")])
def test_verdict_follows_the_interval(shift, verdict):
    noise = np.random.default_rng(2).standard_normal(1000)
    assert scores.paired([noise - noise.mean() + shift], [np.zeros(1000)]).verdict == verdict


def test_who_ran_out_of_time_is_compared_on_what_it_answered():
    ours, theirs = np.arange(10.0), np.arange(4.0) + 1
    assert scores.paired([ours], [theirs]).mean == -1.0


def test_splits_that_disagree_widen_the_interval():
    noise = np.random.default_rng(3).standard_normal(10_000) / 100
    zeros = np.zeros(10_000)
    agree = scores.paired([noise + 1, noise + 1], [zeros, zeros])
    differ = scores.paired([noise + 0.5, noise + 1.5], [zeros, zeros])
    assert agree.mean == pytest.approx(differ.mean)
    assert differ.high - differ.low > 100 * (agree.high - agree.low)


def test_rows_are_standardised_on_the_training_rows():
    rng = np.random.default_rng(4)
    test = np.zeros((200, 2), bool)
    test[:50, 1] = True
    X = np.column_stack([rng.normal(5, 3, 200), np.full(200, 7.0)])
    data = {"X": X, "y": rng.normal(9, 2, 200), "test_mask": test}
    rows = accuracy.Rows.of(data, accuracy.SETS["elevators"], 1)
    assert (len(rows.y), len(rows.truth)) == (150, 50)
    assert (rows.y.mean(), rows.y.std()) == (pytest.approx(0, abs=1e-12), pytest.approx(1))
    inputs, _, queries = rows.standardised()
    assert inputs[:, 0].std() == pytest.approx(1)
    assert np.all(queries[:, 1] == 0)  # a constant column is harmless
    assert set(rows.Z[:, 0]) == set(X[:50, 0])


@pytest.mark.torch
@pytest.mark.parametrize("family", ["squared exponential", "Matern 5/2", "Matern 3/2", "Matern 1/2"])
def test_the_peers_exact_gp_is_scikit_learns(family, exact_torch):
    rng = np.random.default_rng(6)
    X, y, z = rng.standard_normal((30, 2)), rng.standard_normal(30), rng.standard_normal((1, 2))
    theta = np.array([0.3, -0.2, 0.5, -1.0])
    shape = kernels.RBF if family == "squared exponential" else partial(kernels.Matern, nu=float(Fraction(family[7:])))
    kernel = kernels.ConstantKernel(np.exp(theta[0])) * shape(np.exp(theta[1:3])) + kernels.WhiteKernel(
        np.exp(theta[3])
    )
    one = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
    value, gradient = exact_torch.evidence(family, theta, *exact_torch._batch(X[None], y[None]))
    wanted, slopes = one.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(wanted, rel=1e-9)
    assert gradient == pytest.approx(slopes, rel=1e-6, abs=1e-8)
    learnt = exact_torch.Learnt(family, theta, value, False)
    scale = np.exp(-theta[1:3])
    *answer, misfit = exact_torch.posteriors(learnt, (X * scale)[None], y[None], z * scale)
    expected = one.predict(z, return_std=True)
    model = exact_torch.One(learnt, X, y)
    assert np.ravel(answer) == pytest.approx(np.ravel(expected), rel=1e-8)
    assert np.ravel(model.predict(z)) == pytest.approx(np.ravel(expected), rel=1e-8)
    others = [GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(*_without(i, X, y)) for i in range(30)]
    expected = np.ravel([other.predict(X[i : i + 1], return_std=True) for i, other in enumerate(others)]).reshape(30, 2)
    mean, std = model.leave_one_out(np.arange(30))
    assert np.column_stack([mean, std]) == pytest.approx(expected, rel=1e-7)
    assert misfit[0] == pytest.approx(np.mean(np.abs(y - mean) / std) * (np.pi / 2) ** 0.5, rel=1e-7)


def _without(i, X, y):
    return np.delete(X, i, axis=0), np.delete(y, i)


@pytest.mark.torch
def test_nearest_neighbours_predict_a_held_out_row_without_it(exact_torch, monkeypatch):
    rng = np.random.default_rng(8)
    X = rng.standard_normal((300, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300)
    theta = np.array([0.0, 0.0, 0.0, np.log(0.01)])
    monkeypatch.setattr(exact_torch, "local_theta", lambda *_: exact_torch.Learnt("Matern 5/2", theta, 0.0, False))
    held_out = np.array([3, 50, 200])
    (result,) = peers.NearestNeighbours([32]).each(X, y, X[:5], np.inf, held_out=held_out)
    (alone,) = peers.NearestNeighbours([32]).each(*_without(held_out[:1], X, y), X[held_out[:1]], np.inf)
    assert result.held_out.mean[0] == pytest.approx(alone.answer.mean[0], rel=1e-9)
    assert result.held_out.std[0] == pytest.approx(alone.answer.std[0], rel=1e-9)
    assert len(result.answer.mean) == 5


def test_held_out_rows_are_a_tenth_and_fixed():
    rows = accuracy.Rows(np.zeros((500, 1)), np.arange(500.0), np.zeros((1, 1)), np.zeros(1))
    assert len(np.unique(rows.held_out)) == 50
    assert np.array_equal(rows.held_out, rows.held_out)


@pytest.mark.slow
def test_boosted_trees_hold_rows_out_and_find_the_function():
    rng = np.random.default_rng(9)
    X = rng.uniform(-2, 2, (1500, 1))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(1500)
    Z = np.linspace(-1.9, 1.9, 50)[:, None]
    held_out = np.arange(0, 1500, 10)
    with threadpool_limits(1):  # threads that wait for each other are very slow on a busy machine
        result = boosting.ScikitLearnTrees().run(X, y, Z, 0.5, held_out)
    assert metrics.rmse(np.sin(2 * Z[:, 0]), result.answer.mean) < 0.1
    assert len(result.held_out.mean) == len(held_out)
    assert metrics.rmse(y[held_out], result.held_out.mean) > 0.08  # their targets were not seen
    assert 0.05 < np.median(result.answer.std) < 0.4


def test_a_deadline_passes_and_can_be_shared():
    times = iter([0.0, 1.0, 5.0, 6.0, 11.0])
    limit = deadline.Deadline.after(10.0, lambda: next(times))
    assert limit.left == 9.0
    first = limit.sooner(0.2)  # 5 s are left at 5 s, then it is 6 s
    assert first.end == 7.0
    assert limit.passed
    assert deadline.Deadline.after(np.inf, deadline.CPU).sooner(0.5).left == np.inf


def test_no_more_queries_than_allowed_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(accuracy, "MOST_QUERIES", 10)
    data = {"X": np.arange(100.0)[:, None], "y": np.arange(100.0), "test_mask": np.arange(100)[:, None] < 40}
    rows = accuracy.Rows.of(data, accuracy.SETS["pol"], 0)
    again = accuracy.Rows.of(data, accuracy.SETS["pol"], 0)
    assert len(rows.truth) == 10
    assert rows.fingerprint == again.fingerprint


def save_losses(folder, who, shift=0.0, queries="a", split=0, **more):
    """The losses of a run as its process would keep them."""
    values = np.random.default_rng(5).standard_normal(50) + shift
    path = comparison.losses_path(folder, "elevators", split, who)
    np.savez(path, rmse=values, nlpd=values, crps=values, queries=queries, **more)


def test_runs_are_read_from_their_files(tmp_path):
    for split in (0, 1):
        path = comparison.run_path(tmp_path, "elevators", split, "ours")
        path.write_text(json.dumps([row("GigaGP", split=split)]))
    path = comparison.run_path(tmp_path, "elevators", 0, "ours", no_cap=True)
    path.write_text(json.dumps([row("GigaGP, no cap")]))
    assert sorted((r["who"], r["split"]) for r in comparison.runs(tmp_path)) == [
        ("GigaGP", 0), ("GigaGP", 1), ("GigaGP, no cap", 0),
    ]  # fmt: skip


def test_only_ours_is_measured_again_after_a_commit(tmp_path):
    path = tmp_path / "run.json"
    assert not accuracy.has_result(path, "ours")
    path.write_text(json.dumps([row("GigaGP", commit="of another day")]))
    assert not accuracy.has_result(path, "ours")
    assert accuracy.has_result(path, "svgp")
    path.write_text(json.dumps([row("SVGP-1024", error="boom")]))
    assert not accuracy.has_result(path, "svgp")


def test_versus_pairs_losses_of_the_same_queries_only(tmp_path):
    rows = [row("GigaGP"), row("NN-GP, 32 neighbours"), row("NN-GP, 64 neighbours")]
    save_losses(tmp_path, "GigaGP")
    save_losses(tmp_path, "NN-GP, 32 neighbours", 1.0)
    save_losses(tmp_path, "NN-GP, 64 neighbours", 1.0, queries="b")
    result = comparison.versus(rows, tmp_path)
    assert {v["who"] for v in result} == {"NN-GP, 32 neighbours"}
    assert [v["column"] for v in result] == ["rmse", "nlpd", "crps"]
    assert all(v["verdict"] == "win" and v["difference"] == pytest.approx(-1) for v in result)


def test_ours_is_compared_with_the_recalibrated_distribution_as_well(tmp_path):
    rows = [row("GigaGP"), row("CatBoost")]
    save_losses(tmp_path, "GigaGP")
    save_losses(tmp_path, "CatBoost", 1.0, recalibrated_nlpd=np.full(50, -9.0), recalibrated_crps=np.full(50, 9.0))
    verdicts = {v["column"]: v["verdict"] for v in comparison.versus(rows, tmp_path)}
    assert (verdicts["nlpd"], verdicts["recalibrated_nlpd"], verdicts["recalibrated_crps"]) == ("win", "loss", "win")


def test_splits_are_compared_alone_and_together(tmp_path):
    rows = [row(who, split=split) for who in ("GigaGP", "CatBoost") for split in (0, 1)]
    for split in (0, 1):
        save_losses(tmp_path, "GigaGP", split=split)
        save_losses(tmp_path, "CatBoost", 1.0 + split, split=split)
    result = {tuple(v["splits"]): v["difference"] for v in comparison.versus(rows, tmp_path) if v["column"] == "nlpd"}
    assert result == {(0,): pytest.approx(-1), (1,): pytest.approx(-2), (0, 1): pytest.approx(-1.5)}


@pytest.mark.parametrize(("low", "verdict", "met"), [(-0.2, "win", True), (-0.01, "tie", True), (0.01, "loss", False)])
def test_one_loss_to_a_peer_misses_the_bar(low, verdict, met):
    compared = [
        {"set": "elevators", "who": who, "splits": [0], "column": "nlpd", "verdict": v, "difference": d, "low": d}
        for who, v, d in (("LightGBM", "win", -8.0), ("CatBoost", verdict, low))
    ]
    (result,) = (b for b in comparison.bars([row("GigaGP")], compared) if "peers" in b["what"])
    assert (result["met"], result["measured"]) == (met, low)
    assert "CatBoost" in result["what"]


def test_bars_are_of_sets_whose_split_0_was_measured():
    assert comparison.bars([row("GigaGP", split=1)], []) == []
    result = {b["what"]: b["met"] for b in comparison.bars([row("GigaGP", rmse=0.38, nlpd=0.3)], [])}
    assert result == {"elevators RMSE": False, "elevators NLPD": True}
    both = [row("GigaGP", rmse=0.38), row("GigaGP", rmse=0.33, split=1)]
    assert {b["what"]: b["met"] for b in comparison.bars(both, [])}["elevators RMSE, mean of 2 splits"]


def test_coverage_is_judged_where_rows_are_enough_to_tell():
    """Two standard errors of 80% are below 1.5 points from 2,845 rows on, those of 50% from 4,445 rows on."""
    off = {"0.5": 0.52, "0.8": 0.78, "0.95": 0.951}
    mine = [row("GigaGP", answered=2845), row("GigaGP", answered=2844, split=1, coverage=off)]
    result = {b["what"]: b for b in comparison.bars(mine, []) if "intervals" in b["what"]}
    assert {what.removeprefix("elevators "): b["measured"] for what, b in result.items()} == {
        "50% intervals, off by, all 2 splits together": pytest.approx(0.02 * 2844 / 5689),
        "80% intervals, off by at most, 1 of 2 splits": 0.0,
        "80% intervals, off by, all 2 splits together": pytest.approx(0.02 * 2844 / 5689),
        "95% intervals, off by at most, 2 of 2 splits": pytest.approx(0.001),
        "95% intervals, off by, all 2 splits together": pytest.approx(0.001 * 2844 / 5689),
    }
    assert all(b["met"] for b in result.values())
    (missed,) = (b for b in comparison.bars([row("GigaGP", answered=9000, coverage=off)], []) if "50%" in b["what"])
    assert not missed["met"]


def test_misses_of_coverage_are_counted_and_compared_with_those_of_chance():
    """Against intervals that cover what they claim, drawn many times."""
    rng, n, repeats = np.random.default_rng(0), 4573, 4000
    shares = {f"{p:g}": rng.binomial(n, p, repeats) / n for p in (0.5, 0.8, 0.95)}
    rows = [
        row("GigaGP", split=i, answered=n, coverage={level: share[i] for level, share in shares.items()})
        for i in range(repeats)
    ]
    few, peer = row("GigaGP", answered=100, coverage={"0.5": 0.1}), row("GPBoost", answered=n, coverage={"0.5": 0.1})
    judged, missed, by_chance = comparison.coverage_misses([*rows, few, peer])
    assert judged == 3 * repeats
    assert missed == sum(np.sum(abs(share - float(level)) > 0.015) for level, share in shares.items())
    assert by_chance == pytest.approx(missed, rel=0.15)
    assert missed > 100


def test_the_page_shows_bars_caps_failures_and_wins():
    again = {"nlpd": 0.38, "crps": 0.19, "coverage": {"0.5": 0.5, "0.8": 0.8, "0.95": 0.94}}
    rows = [
        row("GigaGP", rmse=0.35, cap=None), row("NN-GP, 32 neighbours", capped=True, answered=25, recalibrated=again),
        row("NN-GP, 32 neighbours, no cap", cap=None, no_cap=True),
        {"set": "elevators", "split": 0, "method": "svgp", "who": "SVGP-1024", "cap": 30.0, "error": "boom",
         "no_cap": False, "commit": "def", "date": "2026-11-16"},
    ]  # fmt: skip
    versus = [
        {"set": "elevators", "who": "NN-GP, 32 neighbours", "splits": splits, "column": "nlpd", "difference": -0.1,
         "low": -0.2, "high": -0.05, "verdict": "win"}
        for splits in ([0], [0, 1])
    ]  # fmt: skip
    result = {"machine": accuracy.machine(), "rows": rows, "versus": versus, "bars": comparison.bars(rows, versus)}
    page = accuracy_page.page(result)
    assert "| elevators RMSE | 0.35 | <= 0.358 | met |" in page
    assert "| 0.380 | 0.1900 | 50.0 / 80.0 / 94.0 | 30 s, capped, 50% answered |" in page
    assert "| NN-GP, 32 neighbours |  | -0.1 (-0.2 to -0.05) win |" in page
    assert "| NN-GP, 32 neighbours | 0 / 0 / 0 | 1 / 0 / 0 |" in page
    assert "Over splits 0, 1:" in page
    assert "| SVGP-1024 | boom |" in page
    assert "commit def (SVGP-1024)" in page
    assert "No peer is better than ours" in page
    assert "has not been measured beside" not in page
    assert "not been measured beside these peers on elevators" in accuracy_page.page({**result, "rows": rows[1:]})
    lost = accuracy_page.losses_table([{**versus[0], "verdict": "loss", "low": 0.05, "high": 0.2, "difference": 0.1}])
    assert "| elevators | NN-GP, 32 neighbours | NLPD | 0.1 (0.05 to 0.2) |" in lost
    assert "Ties" not in lost
    tied = accuracy_page.losses_table([{**versus[0], "verdict": "tie", "low": -0.1, "high": 0.3, "difference": 0.1}])
    assert tied.index("Ties in which") < tied.index("| NLPD | 0.1 (-0.1 to 0.3) |")


@pytest.fixture
def compared():
    """Ours and two peers, one of which learnt from a part of the rows and is better once recalibrated."""
    part = {"nlpd": 0.30, "crps": 0.19, "coverage": {"0.5": 0.5, "0.8": 0.8, "0.95": 0.94}}
    rows = [
        row("GigaGP", cap=None, commit="ours"),
        row("GPBoost Vecchia, 50,000 rows", method="gpboost", rmse=0.39, nlpd=0.5, answered=25, recalibrated=part),
        row("LightGBM", method="lightgbm", rmse=0.37, nlpd=0.45, capped=True),
        row("CatBoost", method="catboost", set="pol", rmse=0.37, nlpd=0.45),
    ]
    versus = [
        {"set": "elevators", "who": who, "splits": [0], "column": column, "difference": d, "low": d, "high": d,
         "verdict": "loss" if d > 0 else "win"}
        for who, column, d in (("GPBoost Vecchia, 50,000 rows", "recalibrated_nlpd", 0.1), ("LightGBM", "nlpd", -0.05))
    ]  # fmt: skip
    return {"machine": accuracy.machine(), "rows": rows, "versus": versus, "bars": comparison.bars(rows, versus)}


def test_the_readme_has_the_best_peer_of_each_score(compared):
    text = accuracy_page.with_summary("a\n<!-- accuracy -->\nold\n<!-- /accuracy -->\nb\n", compared)
    assert text.startswith("a\n<!-- accuracy -->\n\n| ")
    assert text.endswith("<!-- /accuracy -->\nb\n")
    assert "old" not in text
    best = "0.3700 (LightGBM) | 0.450 (LightGBM) | 0.300 (GPBoost Vecchia, 50,000 rows, 50% of the queries)"
    assert f"| elevators, 100 rows | 0.3600 | 0.400 | {best} |" in text
    assert "GigaGP: commit ours, 2026-11-16. Peers: GPBoost Vecchia, LightGBM, CatBoost (not run: NN-GP, exact" in text
    assert "NLPD 1 / 0 / 0; recalibrated NLPD 0 / 0 / 1." in text


def test_the_page_says_what_was_run_and_what_was_not(compared):
    run, missing = accuracy_page.conditions(compared["rows"]), accuracy_page.not_run(compared["rows"])
    assert "| LightGBM | elevators | 30 s | 1 of 1 | abc (2026-11-16) |" in run
    assert "| LightGBM | pol |" in missing
    assert "| SVGP-1024 | elevators, pol |" in missing
    assert "| GPBoost Vecchia | 0 / 0 / 0 |" in accuracy_page.tally_table(compared["versus"])


def test_one_part_of_the_page_of_benchmarks_is_written_anew(compared):
    title = "Accuracy against peers, defaults"
    old = f"| Leaf floor | kept |\n| {title} | old |\n| Progress | kept |\n\n## {title}\n\nold\n\n## Choices\n\nkept\n"
    text = render.with_part(old, "accuracy", compared)
    assert "old" not in text
    assert text.count("kept") == 3
    assert f"| {title} | elevators RMSE | 0.36 | <= 0.358 | **missed** |\n" in text
    assert "Measured 2026-11-16, commit ours." in text


def test_the_section_on_small_tables_shows_means_and_missed_bars():
    runs = [
        {"table": "yacht", "split": split, "method": method, "rows": 277, "rmse": rmse + 0.02 * split, "nlpd": -1.0,
         "crps": 0.1, "coverage": 0.95, "seconds": 1.0, "commit": "abc", "date": "2026-11-17"}
        for method, rmse in (("ours", 0.20), ("scikit_learn", 0.10)) for split in (0, 1)
    ]  # fmt: skip
    runs.append({**runs[0], "split": 2, "rmse": 9.0})  # scikit-learn's GP does not have this split
    assert small_tables.means([]) == {}
    means = small_tables.means(runs)
    bars = small_tables.bars("yacht", means)
    text = "\n".join(small_tables_page.section({"runs": runs, "tables": {"yacht": means}, "bars": bars}))
    assert "| yacht | 277 | 2 | 0.2100, -1.000 | 0.1100, -1.000 | 95.0% |" in text
    assert "| yacht | 1.909 **missed** | 0.000 | 0.950 |" in text


def test_scikit_learns_optimiser_ends_where_its_own_evidence_leads():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(60)
    y = (y - y.mean()) / y.std()
    rows = small_tables.Rows(X[:50], (y[:50] - y[:50].mean()) / y[:50].std(), X[50:], y[50:])
    fast, slow = (small_tables.ScikitLearn(own)(rows) for own in (False, True))
    np.testing.assert_allclose(fast.mean, slow.mean, atol=1e-3)
    np.testing.assert_allclose(fast.std, slow.std, rtol=1e-2)

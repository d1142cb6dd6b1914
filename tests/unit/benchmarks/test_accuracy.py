"""The accuracy comparison's own arithmetic: scores, paired differences, rows of a split, bars, merging, the page."""

import sys
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from gigagp import metrics

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
accuracy, accuracy_page, peers, scores = map(import_module, ("accuracy", "accuracy_page", "peers", "scores"))


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def exact_torch():
    return import_module("exact_torch")


@pytest.fixture
def gaussian():
    rng = np.random.default_rng(0)
    mean, std = rng.standard_normal(4000), np.exp(rng.standard_normal(4000) / 3)
    return mean + std * rng.standard_normal(4000), mean, std


def said(mean, std, quantiles=None):
    return peers.Said(mean, std, 1.0, 1.0, quantiles=quantiles)


def row(who, **more):
    base = {
        "set": "elevators", "split": 0, "method": "ours" if who == "GigaGP" else "neighbours", "who": who,
        "rmse": 0.36, "nlpd": 0.40, "crps": 0.2, "coverage": {"0.5": 0.5, "0.8": 0.8, "0.95": 0.95}, "cap": 30.0,
        "capped": False, "rows": 100, "queries": 50, "answered": 50, "fit_seconds": 2.0, "predict_seconds": 1.0,
        "gb": 0.5, "evaluation_seconds": None, "commit": "abc", "date": "2026-11-16",
    }  # fmt: skip
    return base | more


def test_losses_average_to_nlpd(gaussian):
    y, mean, std = gaussian
    assert scores.log_losses(y, mean, std).mean() == pytest.approx(metrics.nlpd(y, mean, std), rel=1e-12)


def test_a_gaussians_quantiles_give_its_crps_and_coverage(gaussian):
    y, mean, std = gaussian
    quantiles = mean[:, None] + std[:, None] * ndtri(scores.LEVELS)
    plain = scores.scores(y, said(mean, std))
    given = scores.scores(y, said(mean, std, quantiles))
    assert given["crps"] == pytest.approx(plain["crps"], rel=3e-3)
    assert given["coverage"] == plain["coverage"]
    assert plain["coverage"]["0.95"] == metrics.coverage(y, mean, std)


def test_wider_quantiles_cover_more(gaussian):
    y, mean, std = gaussian
    wide = scores.coverages(y, mean[:, None] + 2 * std[:, None] * ndtri(scores.LEVELS))
    assert all(wide[level] > float(level) + 0.02 for level in wide)


def test_paired_interval_is_that_of_the_differences():
    rng = np.random.default_rng(1)
    theirs = 10 * rng.standard_normal(2500)
    apart = rng.standard_normal(2500)
    found = scores.paired([theirs + apart], [theirs])
    assert found.mean == pytest.approx(apart.mean())
    assert found.high - found.mean == pytest.approx(1.96 * apart.std(ddof=1) / 50, rel=1e-4)


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
    answer = exact_torch.posteriors(learnt, (X * scale)[None], y[None], z * scale)
    expected = one.predict(z, return_std=True)
    assert np.ravel(answer) == pytest.approx(np.ravel(expected), rel=1e-8)
    assert np.ravel(exact_torch.One(learnt, X, y).say(z)) == pytest.approx(np.ravel(expected), rel=1e-8)


def test_no_more_queries_than_allowed_and_the_same_each_time(monkeypatch):
    monkeypatch.setattr(accuracy, "MOST_QUERIES", 10)
    data = {"X": np.arange(100.0)[:, None], "y": np.arange(100.0), "test_mask": np.arange(100)[:, None] < 40}
    rows = accuracy.Rows.of(data, accuracy.SETS["pol"], 0)
    again = accuracy.Rows.of(data, accuracy.SETS["pol"], 0)
    assert len(rows.truth) == 10
    assert rows.fingerprint == again.fingerprint


def test_merging_replaces_a_method_and_keeps_the_rest():
    before = [row("GigaGP"), row("NN-GP, 32 neighbours"), row("NN-GP, 64 neighbours"), row("GigaGP", split=1)]
    merged = accuracy.merged(before, [row("NN-GP, 32 neighbours", nlpd=0.1)])
    assert [(r["who"], r["split"], r["nlpd"]) for r in merged] == [
        ("GigaGP", 0, 0.40), ("NN-GP, 32 neighbours", 0, 0.1), ("GigaGP", 1, 0.40),
    ]  # fmt: skip


def test_versus_pairs_losses_of_the_same_queries_only(results):
    rows = [row("GigaGP"), row("NN-GP, 32 neighbours"), row("NN-GP, 64 neighbours")]
    losses = np.random.default_rng(5).standard_normal(50)
    (results / "accuracy").mkdir()
    for who, shift, queries in ((rows[0], 0, "a"), (rows[1], 1, "a"), (rows[2], 1, "b")):
        np.savez(accuracy.losses_path("elevators", 0, who["who"]), losses=losses + shift, queries=queries)
    (found,) = accuracy.versus(rows)
    assert (found["who"], found["splits"], found["verdict"]) == ("NN-GP, 32 neighbours", [0], "win")
    assert found["difference"] == pytest.approx(-1)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict", "met"),
    [
        ({}, {"nlpd": 0.5, "fit_seconds": 9.0}, "win", True),
        ({}, {"nlpd": 0.5, "fit_seconds": 1.0}, "win", False),  # better, but slower
        ({}, {"nlpd": 0.41, "fit_seconds": 9.0}, "tie", False),
    ],
)
def test_a_rival_is_beaten_by_a_win_in_no_more_time(ours, theirs, verdict, met):
    rows = [row("GigaGP", **ours), row("NN-GP, 32 neighbours", nlpd=9.0), row("NN-GP, 64 neighbours", **theirs)]
    compared = [
        {"set": "elevators", "who": f"NN-GP, {count} neighbours", "splits": [0], "verdict": v, "difference": d}
        for count, v, d in ((32, "win", -8.6), (64, verdict, -0.1))
    ]
    found = next(b for b in accuracy.bars(rows, compared) if "NN-GP" in b["what"])
    assert found["met"] is met


def test_bars_are_of_split_0_and_of_what_was_measured():
    assert accuracy.bars([row("GigaGP", split=1)], []) == []
    found = {b["what"]: b["met"] for b in accuracy.bars([row("GigaGP", rmse=0.38)], [])}
    assert found == {"elevators RMSE": False, "elevators NLPD": False, "elevators 50% intervals, off by": True,
        "elevators 80% intervals, off by": True, "elevators 95% intervals, off by": True,
    }  # fmt: skip


def test_the_exact_gps_evaluation_bounds_our_time_on_kin40k():
    mine = row("GigaGP", set="kin40k_classic")
    exact = row("exact GP", set="kin40k_classic", method="exact", evaluation_seconds=2.0)
    found = next(b for b in accuracy.bars([mine, exact], []) if "exact" in b["what"])
    assert found["bar"] == "<= 3.2"  # a tenth of 16 of them
    assert found["met"]


def test_the_page_shows_bars_caps_failures_and_wins(monkeypatch, tmp_path):
    monkeypatch.setattr(accuracy_page, "FIGURES", tmp_path)
    rows = [
        row("GigaGP"), row("NN-GP, 32 neighbours", capped=True, answered=25),
        {"set": "elevators", "split": 0, "method": "svgp", "who": "SVGP-1024", "cap": 30.0, "error": "boom",
         "commit": "abc", "date": "2026-11-16"},
    ]  # fmt: skip
    versus = [
        {"set": "elevators", "who": "NN-GP, 32 neighbours", "splits": [0], "difference": -0.1, "low": -0.2,
         "high": -0.05, "verdict": "win"},
    ]  # fmt: skip
    found = {"machine": accuracy.machine(), "rows": rows, "versus": versus, "bars": accuracy.bars(rows, versus)}
    page = accuracy_page.page(found)
    assert "| elevators RMSE | 0.36 | <= 0.37 | met |" in page
    assert "| 30 s, cap, 50% answered | -0.100 (-0.200 to -0.050) | win |" in page
    assert "| SVGP-1024 | boom (cap 30 s) |" in page
    assert (tmp_path / "accuracy.png").stat().st_size > 0

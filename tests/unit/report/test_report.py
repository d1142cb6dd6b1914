"""The page: its numbers are those of the rows, it needs nothing else, and text from users is text."""

import json
import re
from copy import copy
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from gigagp import HGPRegressor, InvalidInput, InvalidParameter, kernels, load, metrics
from gigagp.cli import app
from gigagp.model import neighbourhood
from gigagp.model.fit_report import Candidate
from gigagp.model.fit_warnings import ParameterAtBound
from gigagp.report import scoring, write_report
from gigagp.report.advice import advice_on_fit, advice_on_scores, assess_intervals
from gigagp.report.held_out import score_held_out_rows
from gigagp.report.page import _model
from gigagp.report.scoring import Score, ScoreCollector

pytestmark = pytest.mark.filterwarnings("ignore:.*bound")
NASTY = '<script>alert("1")</script>&$x^2$'


@pytest.fixture(scope="module")
def table(wave):
    X, y = wave
    return pd.DataFrame({"a": X[:, 0], NASTY: X[:, 1], "y": y})


@pytest.fixture(scope="module")
def model(table):
    return HGPRegressor(leaf_size=40, random_state=0).fit(table[:500], "y")


@pytest.fixture(scope="module")
def pages(model, table, tmp_path_factory):
    """With data and without; each is written when it is first needed."""
    folder = tmp_path_factory.mktemp("pages")

    class Pages(dict):
        def __missing__(self, name):
            path = folder / f"{name}.html"
            report = write_report(model, path, *([table[500:]] if name == "data" else []))
            assert (report.evaluation is None) == (name != "data")
            self[name] = path.read_text()
            return self[name]

    return Pages()


class Page(HTMLParser):
    """Ids, links, tags and visible text."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href"):
                self.links.append(value)

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


@pytest.mark.parametrize("name", ["data", pytest.param("held_out", marks=pytest.mark.slow)])
def test_a_page_needs_nothing_else(pages, name):
    page = Page(pages[name])
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\((?!#)|@import", pages[name])
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.tags.count("svg") == page.tags.count("figure") == 12


@pytest.mark.parametrize("name", ["data", pytest.param("held_out", marks=pytest.mark.slow)])
def test_text_from_users_is_text(pages, name):
    page = Page(pages[name])
    assert "script" not in page.tags
    assert NASTY in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)


def test_the_numbers_are_those_of_the_rows(pages, model, table):
    evaluation, text = model.evaluate(table[500:]), Page(pages["data"]).text
    for number in (f"{evaluation.rmse:.4g}", f"{evaluation.nlpd:.4g}", f"{evaluation.coverage[0.95]:.1%}", "500"):
        assert number in text
    for quantity in model.units_.parameters(model.kernel_, model.noise_variance_):
        assert quantity.name in text
        assert f"{quantity.value:.4g}" in text
    for choice in model.report_.choices:
        assert f"{choice.what}: {choice.name}" in text
    for stage, spent in model.report_.seconds.items():
        assert stage in text
        assert f"{spent:.2f}" in text


def test_pictures_take_their_colours_from_the_page(pages):
    drawings = re.findall(r"<svg.*?</svg>", pages["data"], re.S)
    for drawing in drawings:
        assert "var(--ink)" in drawing
        assert "#0072b2" not in drawing
        assert "fill: #ffffff" not in drawing, "the background is the page's"
    css = pages["data"].split("<style>")[1].split("</style>")[0]
    used = {name for drawing in drawings for name in re.findall(r"var\((--\w+)\)", drawing)}
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")
    assert all(f"{name}:" in light and f"{name}:" in dark for name in used)


def blocks_of(model, frame, sizes):
    """The frame's rows, in blocks of these sizes, as `evaluate` tells them."""
    scores = ScoreCollector(model, seed=5)
    start = 0
    for size in sizes:
        part = frame[start : start + size]
        scores(part.drop(columns="y").to_numpy(), part["y"].to_numpy(), model.predict_distribution(part))
        start += size
    return scores


def test_scores_do_not_depend_on_blocks_and_the_sample_is_bounded(model, table, monkeypatch):
    monkeypatch.setattr(scoring, "SAMPLE", 50)
    one, many = blocks_of(model, table, [600]), blocks_of(model, table, [64] * 9 + [24])
    assert all((a == b).all() for a, b in zip(one.sample(), many.sample(), strict=True))
    assert len(one.sample()[1]) == 50
    assert sum(len(part[0]) for part in many.sampled.parts) <= 50 + 64 + 50
    assert (one.pit_counts == many.pit_counts).all()
    for a, b in zip(one.by_region(), many.by_region(), strict=True):
        assert (a.name, a.rows) == (b.name, b.rows)
        assert (a.rmse, a.nlpd, a.spread) == pytest.approx((b.rmse, b.nlpd, b.spread))


def test_scores_are_the_metrics_of_their_rows(model, table):
    scores = blocks_of(model, table, [600])
    X, y = table.drop(columns="y").to_numpy(), table["y"].to_numpy()
    mean, std = model.predict(table, return_std=True)
    leaf = scores.regions.leaf(X)
    groups = [(scores.all_rows(), np.ones(600, bool))]
    groups += [(score, scores.regions.of(X, leaf) == n) for n, score in enumerate(scores.by_region())]
    groups += [(score, leaf == int(score.name)) for score in scores.worst_leaves(3, 5)]
    assert sum(score.rows for score in scores.by_region()) == 600
    predicted = model.predict_distribution(table)
    low, high = predicted.interval(0.95)
    for score, here in groups:
        rows = y[here], mean[here], std[here]
        assert score.rows == here.sum()
        assert score.rmse == pytest.approx(metrics.rmse(*rows[:2]))
        assert score.nlpd == pytest.approx(-predicted[here].log_pdf(y[here]).mean())
        assert score.coverage == pytest.approx(metrics.inside(y[here], low[here], high[here]))
        assert score.spread == pytest.approx(np.sqrt(np.mean(((rows[0] - rows[1]) / rows[2]) ** 2)))
    assert scores.by_region()[0].centre == pytest.approx(X[scores.regions.of(X, leaf) == 0].mean(axis=0))
    worst = [score.nlpd for score in scores.worst_leaves(100, 5)]
    assert worst == sorted(worst, reverse=True)


def test_held_out_rows_are_predicted_without_themselves(table):
    model = HGPRegressor(leaf_size=40, method="neighbourhood", neighbours=32, random_state=0).fit(table, "y")
    scored = ScoreCollector(model, seed=0)
    assert "from its neighbours without itself" in score_held_out_rows(model, scored, 0)
    assert scored.rows == model.report_.rows
    near = model.predictor_.neighbourhood
    with model.predictor_.engine() as engine:
        prediction = neighbourhood.predict(near, near.store.X[7:8], engine, held_out=np.array([7]))
    mean, std = model.predictor_.in_units(prediction, latent=False)
    _, ys, means, stds = scored.sample()
    scale, centre = model.units_.height, model.model_.target.centre[0]
    (at,) = np.flatnonzero(np.isclose(ys, near.store.y[7] * scale + centre))
    assert means[at] == pytest.approx(mean[0])
    assert stds[at] == pytest.approx(std[0])


def test_few_experts_are_scored_where_they_are_large(model, monkeypatch):
    monkeypatch.setattr("gigagp.report.held_out._WORK_BUDGET", 1.0)
    committee = copy(model).set_params(method="committee")
    scored = ScoreCollector(committee, seed=0)
    assert " 4 of " in score_held_out_rows(committee, scored, 0)
    assert scored.rows == pytest.approx(4 * 40, abs=10)


def score(**changes):
    usual = Score("r", 1000, 0.1, 0.0, 0.95, 0.0, 1.0, np.zeros(1))
    return replace(usual, **changes)


@pytest.mark.parametrize(
    ("changes", "assessment"),
    [
        ({}, "calibrated"),
        ({"coverage": 0.90}, "too narrow"),
        ({"coverage": 0.99}, "too wide"),
        ({"coverage": 0.90, "rows": 30}, "calibrated"),
        ({"coverage": 0.945, "rows": 10**6}, "calibrated"),
    ],
)
def test_intervals_are_assessed_beyond_chance_and_by_a_size_that_matters(changes, assessment):
    assert assess_intervals(score(**changes)) == assessment


def test_every_warning_says_what_to_do():
    cases = {
        "hardly better": (score(rmse=0.95), [], 0, 0),
        "too narrow": (score(coverage=0.8), [], 0, 0),
        "too wide": (score(coverage=1.0), [], 0, 0),
        "1 of 2 regions": (score(), [score(), score(coverage=0.8)], 0, 0),
        "lie below": (score(bias=0.5), [], 0, 0),
        "lie above": (score(bias=-0.5), [], 0, 0),
        "far from all": (score(), [], 100, 0),
        "values are missing": (score(), [], 0, 3),
    }
    assert advice_on_scores(score(), [score()], 1.0, 0, 0, "y") == []
    for words, (whole, regions, far, missing) in cases.items():
        (advice,) = advice_on_scores(whole, regions, 1.0, far, missing, "y")
        assert words in advice.text
        assert advice.remedy


def test_warnings_of_a_fit_are_in_plain_words(model):
    warnings = (
        ParameterAtBound("lengthscale[0]", "upper", 1e3, 1e3),
        ParameterAtBound("lengthscale[1]", "upper", 1e3, 1e3),
        ParameterAtBound("noise_variance", "lower", 1e-6, 1e-6),
    )
    stages = (replace(model.report_.stages[-1], converged=False, message="TOO MANY"),)
    fitted = load_copy(model)
    fitted.model_ = replace(
        fitted.model_,
        report=replace(model.report_, warnings=warnings, stages=stages, jitter=1e-8, jittered_experts=2, dropped=50),
    )
    texts = [advice.text for advice in advice_on_fit(fitted)]
    assert texts[0] == f"The model ignores 2 columns: a, {NASTY}."
    for words in ("noise_variance ended", "TOO MANY", "2 experts", "50 rows (9.1%)"):
        assert any(words in text for text in texts)
    assert len(texts) == 5


def load_copy(model):
    copy = HGPRegressor()
    copy.__dict__.update(vars(model))
    return copy


def test_rows_far_from_the_training_rows_are_counted(model):
    frame = pd.DataFrame({"a": [0.0, 1e3], NASTY: [0.0, 1e3], "y": [3.0, 3.0]})
    assert blocks_of(model, frame, [2]).rows_far_from_data() == 1


MODELS = {
    "one column": lambda X, y: HGPRegressor(leaf_size=100, dtype="float32", random_state=0).fit(X[:, :1], y),
    "no metric": lambda X, y: HGPRegressor(kernels.Linear(), partition="random", leaf_size=100, random_state=0).fit(
        X, y
    ),
    "one expert": lambda X, y: HGPRegressor(leaf_size=1000, random_state=0).fit(
        np.column_stack([X, np.ones(len(y))])[:80], y[:80]
    ),
    "constant": lambda X, y: HGPRegressor(partition="stratified", leaf_size=100, random_state=0).fit(X, 0 * y),
}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow if kind in ("one column", "one expert") else ()) for kind in MODELS],
)
def test_any_model_has_a_page(kind, wave, tmp_path, no_pictures):
    write_report(MODELS[kind](*wave), tmp_path / "p.html", title=kind)
    page = Page((tmp_path / "p.html").read_text())
    assert kind in page.text
    assert page.tags.count("figure") >= 6
    assert not re.search(r"\bnan\b", page.text)


def test_other_choices_are_listed_as_they_come(model):
    report = replace(model.report_, choices=(Candidate("rule", "healed", 0.25, True),))
    assert "rule: healed" in report.choices_html()


def test_what_cannot_be_written_is_refused_before_any_work(model, tmp_path, monkeypatch):
    monkeypatch.setattr("gigagp.report.ScoreCollector", None)
    (tmp_path / "file").write_text("")
    for path, cure in ((tmp_path / "file" / "p.html", "choose another folder"), (tmp_path / "p.md", r"\.html")):
        with pytest.raises(InvalidParameter, match=cure):
            write_report(model, path)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InvalidParameter, match="choose another folder"):
        write_report(model, tmp_path / "p.html")


def test_many_columns_are_cut_and_counted(model, monkeypatch):
    monkeypatch.setattr("gigagp.report.sections._MAX_COLUMNS", 3)
    text = Page(_model(model)).text
    assert "(3 of 4)" in text
    assert "noise_variance" in text


@pytest.mark.slow
def test_a_page_is_whole_or_not_there_and_the_same_for_the_same_rows(pages, model, table, tmp_path):
    path = tmp_path / "new" / "p.html"
    holes = table.assign(a=np.nan)
    with pytest.raises(InvalidInput, match="missing"):
        write_report(model, path, holes)
    assert not path.parent.exists()
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(InvalidParameter, match="overwrite=True"):
        write_report(model, path, table)
    done = write_report(model, path, table[500:], overwrite=True)
    assert done.evaluation.rows == done.rows == 100
    assert [p.name for p in path.parent.iterdir()] == ["p.html"]
    seconds = re.compile(r"took [\d.]+ s")
    assert seconds.sub("", path.read_text()) == seconds.sub("", pages["data"])


def test_the_command(model, table, tmp_path, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    model.save("m")
    table.to_parquet("t.parquet")
    result = CliRunner().invoke(app, ["report", "m", "t.parquet", "-o", "r.html", "--title", "Waves", "--json"])
    assert result.exit_code == 0, result.stderr
    output = json.loads(result.stdout)
    assert output["scores"]["rmse"] == load("m").evaluate("t.parquet").rmse
    assert output["bytes"] == (tmp_path / "r.html").stat().st_size
    assert all(set(each) == {"text", "cure"} for each in output["warnings"])
    assert "<h1>Waves</h1>" in (tmp_path / "r.html").read_text()
    assert CliRunner().invoke(app, ["report", "m", "-o", "r.html"]).exit_code == 1

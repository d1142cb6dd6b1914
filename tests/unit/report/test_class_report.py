"""The page of a classifier: its numbers are those of the rows, it needs nothing else, and text from users is text."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, log_loss, precision_score, recall_score, roc_auc_score
from test_report import Page
from typer.testing import CliRunner

from gigagp import HGPClassifier
from gigagp.cli import app
from gigagp.kernels import Matern32
from gigagp.report import write_report
from gigagp.report.class_advice import advice_on_classes
from gigagp.report.class_scoring import ClassScoreCollector

pytestmark = pytest.mark.filterwarnings("ignore:.*bound")
NASTY = '<script>alert("1")</script>&$x^2$'


def rows(count, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 2))
    edges = [0.0] if classes == 2 else [-0.6, 0.6]
    codes = np.digitize(X[:, 0] + 0.5 * rng.normal(size=count), edges)
    labels = np.array(["ant", NASTY, "cat"])[codes]
    return pd.DataFrame({"a": X[:, 0], NASTY: X[:, 1], "kind": labels})


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def model(request):
    table = rows(700, request.param)
    kernel = Matern32(4.0, [1.0, 3.0], variance_bounds=(4.0, 4.0), lengthscale_bounds=(1.0, 3.0))
    return HGPClassifier(kernel, neighbours=32, random_state=0).fit(table[:400], "kind"), table[400:]


@pytest.fixture(scope="module")
def pages(model, tmp_path_factory):
    """With data and without; each is written when it is first needed."""
    fitted, table = model
    folder = tmp_path_factory.mktemp("pages")

    class Pages(dict):
        def __missing__(self, name):
            report = write_report(fitted, folder / f"{name}.html", *([table] if name == "data" else []))
            assert (report.evaluation is None) == (name != "data")
            self[name] = (folder / f"{name}.html").read_text()
            return self[name]

    return Pages()


@pytest.mark.parametrize("name", ["data", pytest.param("held_out", marks=pytest.mark.slow)])
def test_a_page_needs_nothing_else_and_text_from_users_is_text(pages, name):
    page = Page(pages[name])
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\((?!#)|@import", pages[name])
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert page.tags.count("svg") == page.tags.count("figure") == 7
    assert "script" not in page.tags
    assert NASTY in page.text
    assert not re.search(r"\b(nan|inf|None)\b", page.text)


def test_the_numbers_are_those_of_the_rows(pages, model):
    fitted, table = model
    text, evaluation, truth = Page(pages["data"]).text, fitted.evaluate(table), table["kind"].to_numpy()
    p, guess = fitted.predict_proba(table), fitted.predict(table)
    assert f"{log_loss(truth, p, labels=fitted.classes_):.4g}" in text
    assert f"{evaluation.accuracy:.1%}" in text
    assert f"{evaluation.calibration_error:.2%}" in text
    if p.shape[1] == 2:
        area = re.search(r"([\d.]+)\s*area under the ROC curve", text)
        assert float(area[1]) == pytest.approx(roc_auc_score(truth == fitted.classes_[1], p[:, 1]), abs=2e-4)
    for label in fitted.classes_:
        for score in (recall_score, precision_score):
            assert f"{score(truth == label, guess == label):.1%}" in text
    for count in confusion_matrix(truth, guess, labels=fitted.classes_).ravel():
        assert f"{count:,}" in text


def test_scores_do_not_depend_on_blocks(model):
    fitted, table = model
    X = table.drop(columns="kind").to_numpy()
    codes = np.searchsorted(fitted.classes_, table["kind"].to_numpy())
    p = fitted.predict_proba(table)
    one, many = (ClassScoreCollector(fitted, seed=3) for _ in range(2))
    one(X, codes, p)
    for start in range(0, len(X), 70):
        here = slice(start, start + 70)
        many(X[here], codes[here], p[here])
    np.testing.assert_array_equal(one.confusion, many.confusion)
    for a, b in zip(one.by_region(), many.by_region(), strict=True):
        assert (a.name, a.rows) == (b.name, b.rows)
        assert (a.log_loss, a.accuracy) == pytest.approx((b.log_loss, b.accuracy))
    assert sum(score.rows for score in one.by_region()) == len(X)


def test_advice_is_given_where_probabilities_are_wrong_and_not_where_they_are_right(model):
    fitted, table = model
    rng, X = np.random.default_rng(0), table.drop(columns="kind").to_numpy()
    number, labels = len(fitted.classes_), [str(label) for label in fitted.classes_]
    p = rng.dirichlet(np.ones(number), len(X))
    codes = (p.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
    right, wrong = (ClassScoreCollector(fitted, seed=0) for _ in range(2))
    right(X, codes, p)
    assert advice_on_classes(right, labels, 0) == []
    wrong(X, np.zeros(len(X), int), p)
    texts = " ".join(each.text for each in advice_on_classes(wrong, labels, 7))
    assert "not calibrated" in texts
    assert "7 rows were not scored" in texts


def test_the_command_writes_the_page_of_a_classifier(model, tmp_path):
    fitted, table = model
    fitted.save(tmp_path / "model")
    table.to_parquet(tmp_path / "new.parquet")
    arguments = ["report", str(tmp_path / "model"), str(tmp_path / "new.parquet"), "-o", str(tmp_path / "r.html")]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["rows"] == len(table)
    assert answer["scores"]["log_loss"] == pytest.approx(fitted.evaluate(table).log_loss)
    assert "log loss" in (tmp_path / "r.html").read_text()

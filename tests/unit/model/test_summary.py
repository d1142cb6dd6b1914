"""Models and reports in a notebook: scikit-learn's diagram, and what was learnt, in the user's units."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from gigagp import HGPRegressor, load
from gigagp.markup import Html, markup, table, tag
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import ParameterAtBound
from gigagp.model.summary import summary_html
from gigagp.model.units import Quantity
from gigagp.tree import Tree


@pytest.fixture(scope="module")
def model(wave):
    X, y = wave
    frame = pd.DataFrame({"<b>depth": 1e3 * X[:, 0], "width": X[:, 1], "yield": y})
    return HGPRegressor(leaf_size=100, random_state=0).fit(frame, "yield")


def test_what_is_not_markup_is_escaped():
    assert markup("<&>\"'") == "&lt;&amp;&gt;&quot;&#x27;"
    assert markup(Html("<p>")) == "<p>"
    assert tag("a", "1 < 2", tag("b", "x"), class_="c", aria_label='"') == (
        '<a class="c" aria-label="&quot;">1 &lt; 2<b>x</b></a>'
    )
    assert "<td>&lt;i&gt;</td>" in table(["a", "b"], [["1", "<i>"]])


def test_a_model_that_is_not_fitted_is_scikit_learns_diagram():
    html = HGPRegressor()._repr_html_()
    assert "Fitted: 600 rows" not in html
    assert "HGPRegressor" in html
    assert "sk-container" in html


def test_a_fitted_model_shows_what_it_has_learnt(model, tmp_path):
    html = model._repr_html_()
    assert "sk-container" in html
    assert model._repr_mimebundle_()["text/html"].count("Fitted: 600 rows") == 1
    known = {q.name: q for q in model.units_.parameters(model.kernel_, model.noise_variance_)}
    depth = known["lengthscale[<b>depth]"]
    assert depth.value == pytest.approx(np.exp(model.theta_[1]) * model.units_.widths[0])
    assert depth.value > 100, "a thousand times the column's original length"
    summary = html[html.index("Fitted: 600 rows") :]
    for part in (f"{depth.value:.4g}", "lengthscale[&lt;b&gt;depth]", "yield^2", "1 → 6", "training"):
        assert part in summary
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")._repr_html_()
    assert again[again.index("Fitted: 600 rows") :] == summary


def test_as_text_there_is_no_html(model):
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()


def test_inside_a_pipeline_the_diagram_is_scikit_learns(wave):
    pipeline = make_pipeline(StandardScaler(), HGPRegressor(leaf_size=100, random_state=0)).fit(*wave)
    assert "Fitted: 600 rows" not in estimator_html_repr(pipeline)


def test_many_parameters_are_counted(model):
    many = [Quantity(f"p{i}", 1.0, "") for i in range(30)]
    html = summary_html(model.report_, Tree.regular(1, 6), many)
    assert "p29" in html
    assert "p11" not in html
    assert "and 18 more parameters" in html


def test_a_report_shows_stages_choices_and_warnings(model):
    report: FitReport = model.report_
    html = report._repr_html_()
    for stage in report.stages:
        assert f"<td>{stage.evidence_per_point:.4f}</td>" in html
    for choice in report.choices:
        assert f"{choice.what}: {choice.name}" in html
    assert html.count("chosen") == len({choice.what for choice in report.choices if choice.chosen})
    assert html.count("<table") == html.count("</table>") == 3
    warned = replace(
        report, warnings=tuple(ParameterAtBound(f"<{n}>", "upper", 1.0, 1.0) for n in range(7))
    )._repr_html_()
    assert "&lt;4&gt;" in warned
    assert "&lt;5&gt;" not in warned
    assert "and 2 more" in warned


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the notebook's own machinery
def test_in_a_real_notebook():
    words = "to run this test install nbclient and ipykernel"
    nbclient, nbformat = (pytest.importorskip(name, reason=words) for name in ("nbclient", "nbformat"))
    pytest.importorskip("ipykernel", reason=words)
    code = [
        "from gigagp import HGPRegressor\nfrom gigagp.datasets import robot_arm\nfrom gigagp.kernels import Matern52\n"
        "model = HGPRegressor(Matern52(), leaf_size=100, random_state=0).fit(*robot_arm(300))",
        "model",
        "model.report_",
    ]
    cells = [nbformat.v4.new_code_cell(each) for each in code]
    done = nbclient.NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=600).execute()
    for cell, part in zip(done.cells[1:], ("Fitted: 300 rows", "evidence per point"), strict=True):
        (output,) = cell.outputs
        assert part in output.data["text/html"]
        assert output.data["text/plain"]

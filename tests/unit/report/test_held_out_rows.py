"""Rows that a fit holds out: the model remembers them, and commands and pages name them."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gigagp
from gigagp import HGPRegressor
from gigagp.cli import app
from gigagp.data.sources import Share
from gigagp.errors import InvalidParameter
from gigagp.kernels import Matern32
from gigagp.report import write_report

FIXED = Matern32(1.0, 1.0, variance_bounds=(1.0, 1.0), lengthscale_bounds=(1.0, 1.0))
pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(scope="module")
def rows():
    x = np.random.default_rng(0).uniform(0, 5, (200, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(x[:, 0]) + 0.1 * x[:, 1]})


def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.stderr
    return result


def test_a_model_remembers_the_rows_that_it_has_not_seen(rows, tmp_path):
    share = Share(0.2, seed=3)
    model = HGPRegressor(FIXED, noise_bounds=(0.01, 0.01)).fit(rows, "y", share=share.others)
    assert model.held_out_ == share
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    assert loaded.held_out_ == share
    scores = loaded.evaluate(rows, share=loaded.held_out_)
    assert scores.rows == int(share.mask(0, 200).sum())
    np.testing.assert_allclose(scores.rmse, model.evaluate(rows[share.mask(0, 200)]).rmse)
    assert HGPRegressor(FIXED, noise_bounds=(0.01, 0.01)).fit(rows, "y").held_out_ is None


@pytest.mark.slow
def test_commands_score_the_rows_that_the_fit_held_out(rows, tmp_path):
    rows.to_csv(tmp_path / "rows.csv", index=False)
    fit = ["fit", tmp_path / "rows.csv", "-t", "y", "--kernel", "matern32", "--noise", "0.01", "--test-fraction", "0.2"]
    fitted = json.loads(run(*fit, "-o", tmp_path / "model", "--json").stdout)
    again = run("evaluate", tmp_path / "model", tmp_path / "rows.csv", "--held-out", "--json")
    scores = json.loads(again.stdout)
    assert scores["rows"] == fitted["held_out"]["rows"] < 200
    assert scores["rmse"] == fitted["held_out"]["rmse"]
    page = tmp_path / "page.html"
    run("report", tmp_path / "model", tmp_path / "rows.csv", "--held-out", "-o", page)
    assert f"{scores['rows']:,} rows that the fit held out" in page.read_text()
    run("report", tmp_path / "model", tmp_path / "rows.csv", "-o", page, "--overwrite")
    assert "most of them are training rows" in page.read_text()


def test_models_of_all_rows_hold_out_none(rows, tmp_path):
    model = HGPRegressor(FIXED, noise_bounds=(0.01, 0.01)).fit(rows, "y")
    model.save(tmp_path / "model")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    wrong = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--held-out"])
    assert wrong.exit_code == 1
    assert "--test-fraction" in wrong.stderr
    with pytest.raises(InvalidParameter, match="selects rows of data"):
        write_report(model, tmp_path / "page.html", share=Share(0.5))
    write_report(model, tmp_path / "page.html", rows, target="y")
    assert "If the model was fitted to these rows" in (tmp_path / "page.html").read_text()

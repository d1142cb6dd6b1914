"""Counts on the command line: fitted, evaluated, predicted, and what is wrong with other targets."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gigagp.cli import app

pytestmark = pytest.mark.filterwarnings("ignore")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("counts") / "rows.csv"
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 6, 200)
    pd.DataFrame({"a": a, "calls": rng.poisson(np.exp(np.sin(a)))}).to_csv(path, index=False)
    return path


def test_counts_are_fitted_evaluated_and_predicted(rows, tmp_path):
    words = ("fit", rows, "--target", "calls", "-o", tmp_path / "model", "--neighbours", "32", "--kernel", "matern32")
    result = run(*words, "--likelihood", "poisson", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["looks_like"] is None
    evaluation = json.loads(run("evaluate", tmp_path / "model", rows, "--json").stdout)
    assert evaluation["coverage"]["0.8"] == pytest.approx(0.8, abs=0.08)
    out = tmp_path / "p.parquet"
    assert run("predict", tmp_path / "model", rows, "-o", out, "--quantiles", "0.05,0.95").exit_code == 0
    quantiles = pq.read_table(out)["q0.95"].to_numpy()
    assert (quantiles == np.floor(quantiles)).all()
    assert pq.read_table(out)["q0.05"].to_numpy().min() >= 0


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--likelihood", "counts"), "likelihood must be one of"),
        (("--likelihood", "gamma"), "positive numbers"),
        (("--likelihood", "poisson", "--partition", "random"), "neighbouring rows"),
        (("--likelihood", "poisson", "--noise-column", "a"), "Gaussian noise"),
        (("--likelihood", "poisson", "--task", "classify"), "--likelihood is for numbers"),
    ],
)
def test_what_is_wrong_is_said(rows, tmp_path, extra, message):
    result = run("fit", rows, "--target", "calls", "-o", tmp_path / "m", *extra)
    assert result.exit_code != 0
    assert message in result.stderr
    assert not (tmp_path / "m").exists()

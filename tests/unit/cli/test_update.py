"""`gigagp update` learns and forgets rows of a saved model."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gigagp
from gigagp import HGPRegressor
from gigagp.cli import app


def frame(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 2))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.standard_normal(n)})


@pytest.fixture
def folder(tmp_path):
    model = HGPRegressor(kernel="matern52", method="neighbourhood", neighbours=15, random_state=0, n_jobs=1)
    model.fit(frame(120, 0), "y").save(tmp_path / "model")
    frame(60, 1).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, ["update", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_model_learns_a_file_and_forgets(folder):
    before = gigagp.load(folder / "model")
    told = run(folder / "model", folder / "new.csv", "--max-rows", "150")
    assert (told["rows"], told["learnt"], told["forgotten"], told["scored"]) == (150, 60, 30, 60)
    after = gigagp.load(folder / "model")
    assert after.n_rows_ == 150
    expected = before.partial_fit(frame(60, 1)).forget(max_rows=150)
    queries = frame(5, 2)[["a", "b"]]
    np.testing.assert_allclose(after.predict(queries), expected.predict(queries), rtol=1e-9)
    run(folder / "model", "--older-than", "0", "--column", "a", "--compact")
    assert gigagp.load(folder / "model").n_rows_ < 150


def test_an_update_that_does_nothing_is_an_error(folder):
    result = CliRunner().invoke(app, ["update", str(folder / "model")])
    assert result.exit_code != 0
    assert "nothing to do" in result.stderr


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["model", "no.csv"], "no.csv"),
        (["no", "new.csv"], "save one there first"),
        (["model", "wrong.csv"], "'b'"),
        (["model", "new.csv", "--target", "z"], "'z'"),
        (["model", "--older-than", "1"], "column"),
    ],
)
def test_what_the_user_can_cure_is_one_line_and_the_model_stays(folder, words, cure, monkeypatch):
    frame(5, 1)[["a", "y"]].to_csv(folder / "wrong.csv", index=False)
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(app, ["update", *words])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert cure in line
    assert gigagp.load(folder / "model").n_rows_ == 120


def test_auto_recalibrates(folder):
    new = frame(300, 3)
    new["y"] += np.random.default_rng(1).standard_normal(300)
    new.to_csv(folder / "noisy.csv", index=False)
    before = gigagp.load(folder / "model").report_.calibration
    run(folder / "model", folder / "noisy.csv", "--auto")
    assert gigagp.load(folder / "model").report_.calibration != before

"""`gigagp update` learns and forgets rows of a saved model."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import gigagp
from gigagp import HGPClassifier, HGPRegressor
from gigagp.cli import app
from gigagp.kernels import Matern52


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
        (["model", "gap.csv"], "missing"),
        (["model", "new.csv", "--missing", "often"], "missing"),
    ],
)
def test_what_the_user_can_cure_is_one_line_and_nothing_is_left_behind(folder, words, cure, monkeypatch):
    frame(5, 1)[["a", "y"]].to_csv(folder / "wrong.csv", index=False)
    frame(5, 1).assign(a=[1.0, None, 2.0, 3.0, 4.0]).to_csv(folder / "gap.csv", index=False)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    result = CliRunner().invoke(app, ["update", *words])
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert cure in line
    assert sorted(folder.rglob("*")) == before
    assert gigagp.load(folder / "model").n_rows_ == 120


def labelled(n, seed):
    rows = frame(n, seed)
    return rows.assign(y=np.where(rows["y"] + np.random.default_rng(9).standard_normal(n) > 0, "high", "low"))


def test_a_model_of_classes_learns_a_file(folder):
    model = HGPClassifier(kernel=Matern52(), neighbours=15, random_state=0, n_jobs=1)
    model.fit(labelled(120, 0), "y").save(folder / "classes")
    labelled(60, 1).to_csv(folder / "labels.csv", index=False)
    content = run(folder / "classes", folder / "labels.csv")
    assert (content["rows"], content["scored"]) == (180, 60)
    assert "rmse" not in content
    assert gigagp.load(folder / "classes").n_rows_ == 180
    result = CliRunner().invoke(app, ["update", str(folder / "classes"), str(folder / "labels.csv"), "--auto"])
    assert "for models of numbers" in result.stderr


def test_auto_recalibrates(folder):
    new = frame(300, 3)
    new["y"] += np.random.default_rng(1).standard_normal(300)
    new.to_csv(folder / "noisy.csv", index=False)
    before = gigagp.load(folder / "model").report_.calibration
    run(folder / "model", folder / "noisy.csv", "--auto")
    assert gigagp.load(folder / "model").report_.calibration != before

"""Classes on the command line: guessed from the target, fitted, evaluated, predicted and inspected."""

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
def folder(tmp_path_factory):
    """A file with a text target, and a model of it."""
    path = tmp_path_factory.mktemp("classes")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    label = np.where(X[:, 0] + 0.3 * rng.normal(size=300) > 0, "yes", "no")
    pd.DataFrame(X, columns=["a", "b"]).assign(label=label).to_csv(path / "rows.csv", index=False)
    words = ("fit", path / "rows.csv", "--target", "label", "-o", path / "model", "--neighbours", "32", "--kernel")
    result = run(*words, "matern32", "--test-fraction", "0.2", "--json")
    assert result.exit_code == 0, result.stderr
    return path, result


def test_a_text_target_is_taken_as_a_class_and_said_so(folder):
    _, result = folder
    assert "--task classify" in result.stderr
    assert json.loads(result.stdout)["held_out"]["log_loss"] < 0.5


def test_evaluate_predict_and_inspect(folder):
    path, _ = folder
    evaluation = json.loads(run("evaluate", path / "model", path / "rows.csv", "--json").stdout)
    assert evaluation["accuracy"] > 0.8
    assert run("predict", path / "model", path / "rows.csv", "-o", path / "p.parquet").exit_code == 0
    table = pq.read_table(path / "p.parquet")
    assert table.column_names == ["label", "p_no", "p_yes"]
    np.testing.assert_allclose(table["p_no"].to_numpy() + table["p_yes"].to_numpy(), 1.0)
    assert set(table["label"].to_pylist()) == {"no", "yes"}
    names = [each["name"] for each in json.loads(run("inspect", path / "model", "--json").stdout)["parameters"]]
    assert not any("noise" in name for name in names)


def test_bad_input_is_explained(folder, tmp_path):
    path, _ = folder
    words = ("fit", path / "rows.csv", "--target", "label", "-o", tmp_path / "m")
    for extra, message in (
        (("--task", "regress"), "not a number"),
        (("--task", "guess"), "--task must be one of"),
        (("--combine", "poe"), "--combine is for numbers"),
        (("--noise-column", "a"), "is for numbers"),
        (("--warp", "maybe"), "--warp must be one of"),
        (("--warp", "yes", "--no-standardize"), "warp=True needs standardize=True"),
    ):
        result = run(*words, *extra)
        assert result.exit_code == 1
        assert message in result.stderr
    frame = pd.read_csv(path / "rows.csv")
    frame.loc[7, "label"] = "maybe"
    frame.to_csv(tmp_path / "new.csv", index=False)
    result = run("evaluate", path / "model", tmp_path / "new.csv")
    assert result.exit_code == 1
    assert "'maybe'" in result.stderr
    assert run("predict", path / "model", path / "rows.csv", "-o", tmp_path / "q.parquet", "--latent").exit_code == 1

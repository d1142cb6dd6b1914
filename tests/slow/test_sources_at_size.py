"""Two million rows, wherever they come from, give one model. Run by `make test-slow`."""

from __future__ import annotations

import gc
import os
import tempfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from gigagp import HGPRegressor
from gigagp.datasets import robot_arm
from gigagp.metrics import coverage, rmse

pytestmark = pytest.mark.slow

ROWS = 2_000_000
QUERIES = 20_000
FORMS = ("npy", "parquet", "csv", "pandas", "arrays on disk", "parquet on disk")
NAMES = [f"joint{d}" for d in range(1, 9)]


@pytest.fixture(scope="module")
def data():
    X, y = robot_arm(ROWS + QUERIES)
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    X, y = data[:2]
    folder = tmp_path_factory.mktemp("files")
    table = pa.table({**{name: X[:, d] for d, name in enumerate(NAMES)}, "distance": y})
    np.save(folder / "t.npy", np.column_stack([X, y]))
    pq.write_table(table, folder / "t.parquet", row_group_size=300_000)
    pa.csv.write_csv(table, folder / "t.csv")
    return folder


def said(model, queries):
    return [part.tobytes() for part in (model.theta_, *model.predict(queries, return_std=True))]


@pytest.fixture(scope="module")
def from_arrays(data):
    """Theta and predictions from arrays in memory, the reference."""
    X, y, Z, truth = data
    model = HGPRegressor(random_state=0).fit(X, y)
    mean, std = model.predict(Z, return_std=True)
    assert rmse(truth, mean) < 0.05 * truth.std()
    assert 0.92 < coverage(truth, mean, std) < 0.98
    return said(model, Z)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_theta_and_predictions(form, data, files, from_arrays, tmp_path, monkeypatch):
    X, y, Z, _ = data
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = {
        "npy": (files / "t.npy", "x8"),
        "parquet": (files / "t.parquet", "distance"),
        "csv": (files / "t.csv", "distance"),
        "pandas": (pd.DataFrame(X, columns=NAMES).assign(distance=y), "distance"),
        "arrays": (X, y),
    }[form.removesuffix(" on disk")]
    on_disk = form.endswith("on disk")
    model = HGPRegressor(memory="256MB" if on_disk else "4GB", random_state=0).fit(*source)
    assert model.model_.store.mapped == on_disk
    named = hasattr(model, "feature_names_in_")
    assert said(model, pd.DataFrame(Z, columns=NAMES) if named else Z) == from_arrays
    del model
    gc.collect()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("partition", ["random", "stratified"])
def test_dealt_partitions_on_disk_as_in_memory(partition, data, files):
    X, y, Z, _ = data
    X, y = X[:600_000], y[:600_000]
    settings = {"partition": partition, "dtype": "float64", "random_state": 0}
    one = HGPRegressor(**settings, memory="4GB").fit(X, y)
    other = HGPRegressor(**settings, memory="100MB").fit(X, y)
    assert other.model_.store.mapped
    assert not one.model_.store.mapped
    assert said(one, Z[:500]) == said(other, Z[:500])

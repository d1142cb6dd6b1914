"""The first pass over the data, in ranges: the same bits as in one pass, whoever reads them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from engine_models import ingested, write_ingested
from gigagp.data.copies import CopySearch
from gigagp.data.scan import scan
from gigagp.data.sources import Rows, open_rows
from gigagp.engines import open_engine
from gigagp.errors import InvalidInput
from gigagp.fit.scanning import scan_rows
from gigagp.likelihoods import Poisson


def content(scanned):
    """Every bit of a scan."""
    parts = [scanned.inputs.state(), scanned.target.state(), *vars(scanned.sample).values()]
    return [np.asarray(part).tobytes() for part in (*parts, *vars(scanned.extremes).values())]


@pytest.fixture
def small_ranges(monkeypatch):
    monkeypatch.setattr("gigagp.fit.scanning.BLOCK", 512)
    monkeypatch.setattr("gigagp.data.sources.base._EVERY", 512)
    monkeypatch.setattr("gigagp.fit.scanning._LEAST_ROWS", 1000)
    monkeypatch.setattr("gigagp.data.scan._LEAST_SAMPLE", 100)
    monkeypatch.setattr("gigagp.data.scan._SAMPLE_ROWS", 100)
    real = Rows.ranges
    monkeypatch.setattr(Rows, "ranges", lambda rows, about: real(rows, about, 512))


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    y = np.round(rng.gamma(2.0, 2.0, 20_000))  # among the extremes many are equal
    return pd.DataFrame({"a": 1e6 + rng.standard_normal(20_000), "b": rng.standard_normal(20_000) ** 3, "y": y})


@pytest.mark.parametrize(("row_group", "ranges"), [(777, 14), (4096, 5), (20_000, 1)])
@pytest.mark.parametrize("workers", [1, 3])
def test_ranges_give_the_scan_of_all_rows(table, row_group, ranges, workers, small_ranges, tmp_path):
    table.to_parquet(tmp_path / "t.parquet", row_group_size=row_group)
    rows = open_rows(tmp_path / "t.parquet", "y")
    assert len(rows.ranges(1000)) == ranges
    whole, heard = scan(open_rows(table, "y").blocks(512), 7), []
    with open_engine("threads", workers) as engine:
        parts = scan_rows(rows, 7, None, engine, heard.append)
    assert content(parts) == content(whole)
    assert heard[-1] == len(table)
    np.testing.assert_allclose(parts.inputs.mean, table[["a", "b"]].mean(), rtol=1e-12)
    np.testing.assert_allclose(parts.inputs.deviation, table[["a", "b"]].std(ddof=0), rtol=1e-9)
    assert sorted(table["y"])[-256:] == sorted(parts.extremes.y)[-256:]
    assert sorted(table["y"])[:256] == sorted(parts.extremes.y)[:256]


def test_a_value_that_is_missing_is_named_as_in_one_pass(table, small_ranges, tmp_path):
    table.loc[[9_000, 15_000], "b"] = np.nan
    table.to_parquet(tmp_path / "t.parquet", row_group_size=1500)
    rows = open_rows(tmp_path / "t.parquet", "y")
    with open_engine("threads", 2) as engine, pytest.raises(InvalidInput) as error:
        scan_rows(rows, 7, None, engine, lambda rows: None)
    with pytest.raises(InvalidInput) as serial:
        scan(rows.blocks(512), 7)
    assert str(error.value) == str(serial.value)
    assert "row 9000" in str(error.value)


def test_targets_that_a_likelihood_cannot_have_are_refused_in_ranges_too(table, small_ranges):
    table.loc[12_345, "y"] = -1.0
    with open_engine("threads", 2) as engine, pytest.raises(InvalidInput, match=r"-1 at row 12345"):
        scan_rows(open_rows(table, "y"), 7, Poisson(), engine, lambda rows: None)


def test_rows_that_are_left_out_are_read_in_one_pass(table, small_ranges):
    table.loc[5, "a"] = np.nan
    rows = open_rows(table, "y", missing="drop")
    assert rows.ranges(1000) is None
    with open_engine("threads", 2) as engine:
        assert scan_rows(rows, 7, None, engine, lambda rows: None).rows == len(table) - 1


def test_a_file_that_is_shorter_than_it_says_is_an_error(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet", row_group_size=1000)
    rows = open_rows(tmp_path / "t.parquet", "y")
    rows.n_rows += 500
    with pytest.raises(InvalidInput, match="should have 20500 rows, and has 20000"):
        list(rows.blocks(512, *rows.ranges(1, 512)[-1]))


def test_ingestion_does_not_depend_on_the_engine(tmp_path, monkeypatch):
    """Processes and Dask are compared in tests/unit/engines."""
    write_ingested(tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups > 5
    results = []
    for name, workers, memory in (("serial", 1, 1 << 22), ("threads", 2, 1 << 22), ("threads", 3, 1 << 20)):
        folder = tmp_path / f"{name}{workers}"
        folder.mkdir()
        with open_engine(name, workers) as engine:
            results.append(ingested(engine, tmp_path / "t.parquet", folder, monkeypatch, memory))
        assert [path.name for path in folder.iterdir()] == ["store"]
    assert results[0] == results[1] == results[2]


def test_copies_are_found_in_ranges(table, small_ranges, tmp_path):
    twice = pd.concat([table, table[::7]], ignore_index=True)
    twice.to_parquet(tmp_path / "t.parquet", row_group_size=777)
    rows = open_rows(tmp_path / "t.parquet", "y")
    search = CopySearch(1 << 30, rows.n_rows)
    with open_engine("threads", 3) as engine:
        scan_rows(rows, 7, None, engine, lambda rows: None, search)
    assert search.n_rows == len(twice)
    copies = search.copies(rows)
    np.testing.assert_array_equal(np.flatnonzero(copies.has(0, len(twice))), np.arange(len(table), len(twice)))

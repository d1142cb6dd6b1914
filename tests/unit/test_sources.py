"""Rows are the same wherever they come from, in blocks of one size, in bounded memory."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import subprocess
import sys
import tempfile
import tracemalloc
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gigagp.data.sources import Encoding, open_rows, open_source
from gigagp.errors import InvalidInput, InvalidParameter

numbers = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
words = st.text("ab1 ,\"'\né=", min_size=1, max_size=3).filter(lambda text: text.strip())
KINDS = {
    "float": (numbers, pa.float64()),
    "integer": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "boolean": (st.booleans(), pa.bool_()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (moments, pa.timestamp("us")),
    "time": (st.times(), pa.time64("us")),
    "text": (words, pa.string()),
    "code": (st.integers(-12, 12), pa.int32()),
    "flag": (st.booleans(), pa.bool_()),
}


@st.composite
def tables(draw, kinds=tuple(KINDS)):
    """A pyarrow table: target first, then one column of each chosen kind."""
    n = draw(st.integers(1, 40))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5, unique=True))
    columns = {"y": pa.array(draw(st.lists(numbers, min_size=n, max_size=n)), pa.float64())}
    for kind in chosen:
        values, type_ = KINDS[kind]
        columns[kind] = pa.array(draw(st.lists(values, min_size=n, max_size=n)), type_)
    return pa.table(columns)


def write_parts(folder, table, rows, row_group):
    """Files of `rows` rows each, which are in order by name."""
    os.makedirs(folder)
    for i, start in enumerate(range(0, len(table), rows)):
        pq.write_table(table.slice(start, rows), f"{folder}/part-{i:03}.parquet", row_group_size=row_group)
    Path(folder, "_SUCCESS").touch()
    Path(folder, "README.txt").touch()


def forms(table, folder, rows, row_group):
    """The same table in every form that keeps names."""
    pq.write_table(table, f"{folder}/t.parquet", row_group_size=row_group)
    write_parts(f"{folder}/parts", table, rows, row_group)
    pa.csv.write_csv(table, f"{folder}/t.csv")
    with gzip.open(f"{folder}/t.csv.gz", "wb") as file:
        file.write(Path(f"{folder}/t.csv").read_bytes())
    chunked = pa.concat_tables([table.slice(start, rows) for start in range(0, len(table), rows)])
    yield chunked
    yield table.combine_chunks().to_batches()[0]
    yield table.to_pandas()
    yield table.to_pandas(types_mapper=pd.ArrowDtype)
    yield pl.from_arrow(table)
    yield f"{folder}/t.parquet"
    yield Path(folder, "parts")
    yield f"{folder}/parts/part-*.parquet"
    yield Path(folder, "parts").as_uri()
    yield pa.dataset.dataset(f"{folder}/parts", exclude_invalid_files=True)
    yield f"{folder}/t.csv"
    yield f"{folder}/t.csv.gz"


def joined(rows, size=65536, start=0):
    """All blocks together, after a look at their shapes."""
    blocks = list(rows.blocks(size, start))
    assert [block.first_row for block in blocks] == list(range(start, start + len(blocks) * size, size))
    assert all(len(block.X) == size for block in blocks[:-1])
    assert all(block.X.flags.c_contiguous and block.X.shape[1] == rows.n_features for block in blocks)
    if rows.target:
        assert all(len(block.y) == len(block.X) and block.y.dtype == float for block in blocks)
        return np.column_stack([np.concatenate([block.X for block in blocks]), np.concatenate([b.y for b in blocks])])
    return np.concatenate([block.X for block in blocks])


@given(tables(), st.integers(1, 50), st.integers(1, 20), st.integers(1, 20))
def test_same_bits_from_every_form(table, size, rows, row_group):
    one_hot = [name for name in ("text", "code", "flag") if name in table.column_names]
    reference = open_rows(table, "y", categorical=one_hot)
    expected = joined(reference)
    assert expected.shape == (len(table), reference.n_features + 1)
    with tempfile.TemporaryDirectory() as folder:
        for form in forms(table, folder, rows, row_group):
            other = open_rows(form, "y", categorical=one_hot)
            assert joined(other, size).tobytes() == expected.tobytes(), form
            assert other.encoding == reference.encoding
            assert (other.n_rows, other.n_dropped) == (len(table), 0)
            start = size * (len(table) // (2 * size))
            assert joined(other, size, start).tobytes() == expected[start:].tobytes(), form
            again = open_rows(form, encoding=reference.encoding)
            assert joined(again, size).tobytes() == np.ascontiguousarray(expected[:, :-1]).tobytes(), form


@given(tables(kinds=("float",)), st.integers(1, 50), st.sampled_from("CF"), st.sampled_from(["<f8", ">f8", "f4"]))
def test_arrays_and_npy_match_tables(table, size, order, dtype):
    with np.errstate(over="ignore"):
        both = np.array([table["float"], table["y"]]).T.astype(dtype, order=order)
    both[~np.isfinite(both)] = 0
    expected = joined(open_rows(pa.table({"a": both[:, 0].astype("=" + dtype[-2:])}), both[:, 1]))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/both.npy", both)
        np.save(f"{folder}/y.npy", both[:, 1])
        for rows in (
            open_rows(both[:, :1], both[:, 1]),
            open_rows(both[:, :1].tolist(), both[:, 1].tolist()),
            open_rows(both, -1),
            open_rows(f"{folder}/both.npy", "x1"),
            open_rows(Path(folder, "both.npy"), 1),
            open_rows(f"file://{folder}/both.npy", Path(folder, "y.npy"), drop=["x1"]),
            open_rows(both.astype(object), f"{folder}/y.npy", features="x0"),
        ):
            assert rows.feature_names == ["x0"]
            assert joined(rows, size).tobytes() == expected.tobytes()


@given(tables(), st.integers(1, 9), st.data())
def test_rows_with_missing_values_are_dropped_and_counted(table, size, data):
    gaps = data.draw(st.lists(st.booleans(), min_size=len(table), max_size=len(table)).filter(lambda g: not all(g)))
    column = data.draw(st.sampled_from(table.column_names))
    one_hot = [name for name in ("text", "code", "flag") if name in table.column_names]
    whole = table.filter(pa.array(gaps), null_selection_behavior="drop") if False else table
    clean = whole.filter(pa.compute.invert(pa.array(gaps)))
    holes = table.set_column(
        table.column_names.index(column), column, pa.compute.if_else(pa.array(gaps), None, table[column])
    )
    reference = open_rows(table, "y", categorical=one_hot).encoding
    expected = joined(open_rows(clean, "y", encoding=reference))
    with tempfile.TemporaryDirectory() as folder:
        for form in forms(holes, folder, 7, 5):
            rows = open_rows(form, "y", encoding=reference, missing="drop", keep=[])
            assert (rows.n_rows, rows.n_dropped) == (None, None)
            assert joined(rows, size).tobytes() == expected.tobytes(), form
            assert (rows.n_rows, rows.n_dropped) == (len(clean), sum(gaps))
            start = size * (len(clean) // (2 * size))
            assert joined(rows, size, start).tobytes() == expected[start:].tobytes()

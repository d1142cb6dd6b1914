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
from hypothesis import given
from hypothesis import strategies as st

from gigagp.data.sources import Encoding, open_rows, open_source
from gigagp.errors import InvalidInput

numbers = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
words = st.text("ab1 ,\"'\né=", min_size=1, max_size=3).filter(lambda text: text.strip())
KINDS = {
    "float": (numbers, pa.float64()),
    "integer": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "boolean": (st.booleans(), pa.bool_()),
    "date": (st.dates(), pa.date32()),
    "timestamp": (moments, pa.timestamp("us")),
    "time": (st.times().map(lambda time: time.replace(microsecond=0)), pa.time32("s")),
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
        column = draw(st.lists(values, min_size=n, max_size=n))
        # Text that is another in every row of a longer table is refused.
        columns[kind] = pa.array([*column[1:], column[-1]] if kind == "text" else column, type_)
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
    clean = table.filter(pa.compute.invert(pa.array(gaps)))
    holes = table.set_column(
        table.column_names.index(column), column, pa.compute.if_else(pa.array(gaps), None, table[column])
    )
    reference = open_rows(table, "y", categorical=one_hot).encoding
    expected = joined(open_rows(clean, "y", encoding=reference))
    with tempfile.TemporaryDirectory() as folder:
        for form in forms(holes, folder, 7, 5):
            rows = open_rows(form, "y", encoding=reference, missing="drop")
            assert (rows.n_rows, rows.n_dropped) == (None, None)
            assert joined(rows, size).tobytes() == expected.tobytes(), form
            assert (rows.n_rows, rows.n_dropped) == (len(clean), sum(gaps))
            start = size * (len(clean) // (2 * size))
            assert joined(rows, size, start).tobytes() == expected[start:].tobytes()


@given(tables(), st.integers(1, 50), st.integers(1, 20))
def test_kept_columns_are_carried_along(table, size, rows):
    table = table.append_column("key", pa.array(range(len(table)), pa.int64()))
    gaps = pa.array([i % 3 == 1 for i in range(len(table))])
    table = table.set_column(0, "y", pa.compute.if_else(gaps, None, table["y"]))
    one_hot = [name for name in ("text", "code", "flag") if name in table.column_names]
    expected = table.filter(pa.compute.invert(gaps)).select(["key", "y"]).to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        for form in forms(table, folder, rows, rows):
            opened = open_rows(form, "y", categorical=one_hot, keep=["key", "y"], missing="drop")
            assert opened.feature_names == open_rows(form, "y", categorical=one_hot, drop=["key"]).feature_names
            blocks = list(opened.blocks(size))
            assert all(len(block.kept) == len(block.X) for block in blocks)
            kept = pa.concat_tables([block.kept for block in blocks])
            if "csv" in str(form):  # a CSV has no types, and its keys are text
                assert kept.schema.field("key").type == pa.string()
                kept = kept.set_column(0, "key", kept["key"].cast(pa.int64()))
            assert kept.to_pylist() == expected


def test_kept_columns_of_objects_have_one_type():
    frame = pd.DataFrame({"a": [1.0, 2.0], "key": pd.Series([None, "k"], dtype=object)})
    kept = [block.kept for block in open_rows(frame, keep="key").blocks(1)]
    assert pa.concat_tables(kept)["key"].to_pylist() == [None, "k"]


@pytest.mark.parametrize("rows", [3, 17, 40])
@pytest.mark.parametrize("row_group", [2, 7, 40])
def test_reading_can_start_at_any_block(tmp_path, rows, row_group):
    table = pa.table({"a": np.arange(40.0)})
    write_parts(tmp_path / "parquet", table, rows, row_group)
    (tmp_path / "csv").mkdir()
    for start in range(0, 40, rows):
        pa.csv.write_csv(table.slice(start, rows), tmp_path / "csv" / f"{start:02}.csv")
    dataset = pa.dataset.dataset(tmp_path / "parquet", exclude_invalid_files=True)
    for form in (tmp_path / "parquet", tmp_path / "csv", dataset, table):
        opened = open_rows(form)
        for size in (5, 8, 39):
            for start in range(0, 50, size):
                values = [value for block in opened.blocks(size, start) for value in block.X[:, 0]]
                assert values == list(range(start, 40)), (form, size, start)
                assert opened.n_rows in (None, 40)


def test_conversions():
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 500000)
    values = {
        "int": pa.array([2**53 + 1, None]),
        "bool": pa.array([True, None]),
        "half": pa.array([np.float16(0.5), None], pa.float16()),
        "single": pa.array([0.1, None], pa.float32()),
        "decimal": pa.array([Decimal("0.1"), None], pa.decimal128(30, 20)),
        "wide": pa.array([Decimal("0.1"), None], pa.decimal256(60, 20)),
        "date32": pa.array([dt.date(1970, 1, 3), None]),
        "date64": pa.array([dt.date(1969, 12, 31), None], pa.date64()),
        "timestamp": pa.array([moment, None], pa.timestamp("ms")),
        "zoned": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
        "time": pa.array([dt.time(1, 0, 0, 250000), None], pa.time64("us")),
        "duration": pa.array([dt.timedelta(days=1), None], pa.duration("s")),
    }
    expected = [2.0**53, 1, 0.5, float(np.float32(0.1)), 0.1, 0.1, 2, -1, -0.5, -0.5, 3600.25, 86400]
    batch = next(open_source(pa.table(values)).batches(list(values), 10))
    for name, number in zip(values, expected, strict=True):
        np.testing.assert_array_equal(batch.numbers(name), [number, np.nan], name)


@pytest.mark.parametrize("unit", ["W", "D", "h", "m", "s", "ms", "us", "ns"])
def test_times_of_numpy(unit):
    moments = np.array(["1969-01-01", "2024-02-29", "NaT"], "M8[s]").astype(f"M8[{unit}]")
    spans = (moments - moments[0]).astype(f"m8[{unit}]")
    days, lengths = (next(open_source(v[:, None]).batches(["x0"], 9)).numbers("x0") for v in (moments, spans))
    np.testing.assert_array_equal(lengths[:2], (moments[:2] - moments[0]).astype("m8[s]").astype(float))
    unit_of_result = "D" if unit in "WD" else "s"
    np.testing.assert_array_equal(days[:2], moments[:2].astype(f"M8[{unit_of_result}]").astype(float))
    assert np.isnan([days[2], lengths[2]]).all()


def test_the_unit_of_a_time_does_not_change_its_number():
    for milliseconds in (1577836800123, -1577836800123, 1):
        numbers = {
            seconds
            for unit, factor in (("ms", 1), ("us", 10**3), ("ns", 10**6))
            for form in (
                np.array([[milliseconds * factor]], f"M8[{unit}]"),
                pa.table({"x0": pa.array([milliseconds * factor], pa.timestamp(unit))}),
            )
            for seconds in open_rows(form).blocks().__next__().X.ravel()
        }
        assert numbers == {milliseconds / 1000}


def test_single_precision_stays():
    X = np.ones((3, 2), np.float32)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": [1, 2, 3]})
    assert next(open_rows(X).blocks()).X.dtype == np.float32
    assert next(open_rows(table, "c").blocks()).X.dtype == np.float32
    assert next(open_rows(table, "a").blocks()).X.dtype == np.float64
    assert next(open_rows(table, "a").blocks()).y.dtype == np.float64


def test_levels_are_numbered_in_order():
    table = pa.table({"n": [10, 9, 10], "c": ["red", "blue", "red"], "f": [True, False, True], "x": [1.0, 2.0, 3.0]})
    rows = open_rows(table, categorical=["c", "n", "f"])
    assert rows.feature_names == ["n", "c", "f", "x"]
    assert [feature.categories for feature in rows.encoding.features] == [
        ("9", "10"), ("blue", "red"), ("false", "true"), None,
    ]  # fmt: skip
    np.testing.assert_array_equal(next(rows.blocks()).X[:2], [[1, 1, 1, 1], [0, 0, 0, 2]])
    assert rows.encoding.category_places == (0, 1, 2)


def test_text_is_a_category_unless_most_of_it_are_numbers(tmp_path):
    frame = pd.DataFrame({"zip": ["02134", "10001", "02134"], "word": ["u", "v", "7"], "x": [1.0, 2.0, 3.0]})
    for data in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        rows = open_rows(data)
        assert rows.encoding.category_places == (0, 1)
        np.testing.assert_array_equal(next(rows.blocks()).X, [[0, 1, 1], [1, 2, 2], [0, 0, 3]])
    (tmp_path / "a.csv").write_text("x,y\n1.5,1\n2.5,2\nn/k,3\n")  # a typing error, not a category
    with pytest.raises(InvalidInput, match=r"has type string .'n/k' at row 2"):
        open_rows(tmp_path / "a.csv", "y")


def test_models_of_earlier_versions_read_a_column_per_level():
    old = {"named": True, "features": [{"column": "c", "kind": "category", "categories": ["u", "v"]}]}
    encoding = Encoding.from_dict(old)
    assert encoding.feature_names == ["c=u", "c=v"]
    X = next(open_rows(pa.table({"c": ["v", "u", "new"]}), encoding=encoding).blocks()).X
    np.testing.assert_array_equal(X, [[0, 1], [1, 0], [0, 0]])


def test_integers_in_float_arrays_and_pandas_categories_are_categories():
    rows = open_rows(np.array([[1.0, 5], [2, 5], [1, 6]]), categorical=["x1"])
    assert rows.encoding.features[1].categories == ("5", "6")
    frame = pd.DataFrame({"c": pd.Categorical(["u", "v", "u"], categories=["w", "v", "u"]), "o": [1, None, 2]})
    rows = open_rows(frame, categorical=["c", "o"], missing="drop")
    assert [feature.categories for feature in rows.encoding.features] == [("u", "v"), ("1", "2")]
    assert sum(len(block.X) for block in rows.blocks()) == 2


def test_encoding_survives_json_and_selects_by_name():
    fitted = open_rows(pa.table({"a": [1.0, 2.0], "c": ["u", "v"], "y": [0.0, 1.0]}), "y", categorical="c")
    encoding = Encoding.from_dict(json.loads(json.dumps(fitted.encoding.to_dict())))
    assert encoding == fitted.encoding
    other = pa.table({"extra": ["?"], "c": ["v"], "a": [7]})
    np.testing.assert_array_equal(next(open_rows(other, encoding=encoding).blocks()).X, [[7, 1]])
    new = pa.table({"c": ["other", "v", "another"], "a": [7, 8, 9]})  # all levels that are new have one number
    np.testing.assert_array_equal(next(open_rows(new, encoding=encoding).blocks()).X, [[7, 3], [8, 1], [9, 3]])


def test_columns_without_names_are_matched_by_place():
    encoding = open_rows(np.ones((3, 3)), 1).encoding
    assert [feature.column for feature in encoding.features] == ["x0", "x2"]
    for data, options in ((np.array([[5.0, 6.0]]), {}), (np.array([[5.0, 0.0, 6.0]]), {"target": 1})):
        np.testing.assert_array_equal(next(open_rows(data, encoding=encoding, **options).blocks()).X, [[5, 6]])
    frame = pd.DataFrame({"b": [5.0], "a": [6.0]})
    np.testing.assert_array_equal(next(open_rows(frame, encoding=encoding).blocks()).X, [[5, 6]])


def test_csv_is_read_as_the_model_says(tmp_path):
    fitted = open_rows(pa.table({"t": pa.array([1500000], pa.time64("us")), "d": [dt.datetime(1970, 1, 2)]}))
    (tmp_path / "a.csv").write_text("d,t\n1970-01-02,00:00:00.25\n")
    X = next(open_rows(tmp_path / "a.csv", encoding=fitted.encoding).blocks()).X
    np.testing.assert_array_equal(X, [[0.25, 86400]])


def test_csv_integers_may_become_fractions_later(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,\n" * 600_000 + "1.5,2\n")
    rows = open_rows(tmp_path / "a.csv", missing="drop")
    assert [block.X.tolist() for block in rows.blocks()] == [[[1.5, 2]]]
    assert rows.n_dropped == 600_000


def test_csv_text_may_hold_line_breaks(tmp_path):
    (tmp_path / "a.csv").write_text("c,y\n" + ('"' + "u\n" * 50 + '",1\n') * 30_000)
    rows = open_rows(tmp_path / "a.csv", "y", categorical="c")
    assert rows.encoding.features[0].categories == ("u\n" * 50,)
    assert sum(len(block.X) for block in rows.blocks()) == rows.n_rows == 30_000


def test_hive_folders_become_columns(tmp_path):
    for year in (2021, 2020):
        for kind in ("a b", "c"):
            folder = tmp_path / f"year={year}" / f"kind={kind.replace(' ', '%20')}"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"x": [float(year), 0.5]}), folder / "f.parquet", row_group_size=1)
    for where in (tmp_path, f"{tmp_path}/year=*", f"{tmp_path}/**/*.parquet", f"{tmp_path.as_uri()}/year=202*"):
        rows = open_rows(where, categorical=["kind"])
        assert rows.encoding.features[2].categories == ("a b", "c")
        expected = [[2020, 2020, 0], [0.5, 2020, 0], [2020, 2020, 1], [0.5, 2020, 1], [2021, 2021, 0]]
        np.testing.assert_array_equal(joined(rows, 3)[:5], expected)
        np.testing.assert_array_equal(joined(rows, 3, 3)[:2], expected[3:5])
    assert open_rows(f"{tmp_path}/year=2020/kind=c/f.parquet").feature_names == ["x"]
    (tmp_path / "year=2022" / "kind=__HIVE_DEFAULT_PARTITION__").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "year=2022" / "kind=__HIVE_DEFAULT_PARTITION__" / "f.parquet")
    rows = open_rows(tmp_path, categorical=["kind"], missing="drop")
    assert (len(joined(rows)), rows.n_dropped) == (8, 1)


def test_globs(tmp_path):
    for name in ("a1", "a2", "b1", "[x]"):
        (tmp_path / f"{name}.csv").write_text("v\n1\n")
    for glob, count in (("*.csv", 4), ("a?.csv", 2), ("[ab]1.csv", 2), ("[!a]1.csv", 1), ("[x].csv", 1), ("**", 4)):
        assert joined(open_rows(tmp_path / glob)).shape == (count, 1), glob


def test_filtered_dataset(tmp_path):
    pq.write_table(pa.table({"a": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    dataset = pa.dataset.dataset(tmp_path / "a.parquet").filter(pa.dataset.field("a") > 1.5)
    np.testing.assert_array_equal(joined(open_rows(dataset), 1), [[2], [3]])
    np.testing.assert_array_equal(joined(open_rows(dataset), 1, 1), [[3]])


def test_fingerprints_follow_the_data(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0], "c": ["u", "v", "u"]})
    changed = table.set_column(0, "a", [[1.0, 2.0, 3.5]])
    for one, other in (
        (table, changed),
        (table, table.set_column(1, "c", [["u", "v", "v"]])),
        (table, table.rename_columns(["b", "c"])),
        (table.to_pandas(), changed.to_pandas()),
        (pl.from_arrow(table), pl.from_arrow(changed)),
        (np.eye(2), np.ones((2, 2))),
        (np.eye(2), np.eye(2, dtype=np.float32)),
        (pa.dataset.dataset(table), pa.dataset.dataset(changed)),
    ):
        assert open_source(one).fingerprint() == open_source(one).fingerprint() != open_source(other).fingerprint()
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert open_source(chunks).fingerprint() == open_source(table).fingerprint()
    plain = open_rows(table, drop="c")
    assert plain.fingerprint() == open_rows(table, features=["a"]).fingerprint()
    assert plain.fingerprint() != open_rows(table, drop="c", missing="drop").fingerprint()
    assert plain.fingerprint() != open_rows(table, [1, 2, 3], drop="c").fingerprint()


WRITERS = {
    "npy": lambda path, values: np.save(path, np.array(values)[:, None]),
    "parquet": lambda path, values: pq.write_table(pa.table({"a": values}), path),
    "csv": lambda path, values: path.write_text("a\n" + "".join(f"{value}\n" for value in values)),
}


def test_files_have_one_fingerprint_in_every_process_until_they_change(tmp_path):
    paths = [tmp_path / f"data.{end}" for end in WRITERS]
    for path in paths:
        WRITERS[path.suffix[1:]](path, [1.0, 2.0])
    here = [open_rows(path).fingerprint() for path in paths]
    program = (
        "import sys; from gigagp.data.sources import open_rows;"
        "print(*(open_rows(path).fingerprint() for path in sys.argv[1:]))"
    )
    there = subprocess.run([sys.executable, "-c", program, *paths], capture_output=True, text=True, check=True).stdout
    assert there.split() == here
    for path, fingerprint in zip(paths, here, strict=True):
        status = os.stat(path)
        WRITERS[path.suffix[1:]](path, [1.0, 3.0])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same name, size and time: the content still tells
        assert open_rows(path).fingerprint() != fingerprint


@pytest.mark.parametrize("end", WRITERS)
def test_a_source_that_changes_between_passes_is_refused(tmp_path, end):
    path = tmp_path / f"data.{end}"
    WRITERS[end](path, [1.0, 2.0])
    rows = open_rows(path)
    list(rows.blocks())
    WRITERS[end](path, [1.0, 2.0, 3.0])
    with pytest.raises(InvalidInput, match="changed after it was opened"):
        list(rows.blocks())
    path.unlink()
    with pytest.raises(InvalidInput, match=r"no such file|No such file"):
        list(rows.blocks())


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    blocks = open_rows(path).blocks(1)
    next(blocks)
    path.write_text("a\n1\n2\n3\n")
    with pytest.raises(InvalidInput, match="changed after it was opened"):
        list(blocks)


def test_a_new_file_in_the_folder_is_refused(tmp_path):
    WRITERS["parquet"](tmp_path / "a.parquet", [1.0])
    rows = open_rows(tmp_path)
    (tmp_path / "notes.txt").touch()
    list(rows.blocks())
    WRITERS["parquet"](tmp_path / "b.parquet", [1.0])
    with pytest.raises(InvalidInput, match=r"new files since it was opened: b\.parquet"):
        list(rows.blocks())


@pytest.mark.parametrize(
    ("end", "n", "limit"), [("npy", 2_000_000, 8e6), ("parquet", 2_000_000, 32e6), ("csv", 500_000, 48e6)]
)
def test_memory_is_bounded(tmp_path, end, n, limit):
    """128 MB of numbers, or 70 MB of text; the Parquet is one row group."""
    path = tmp_path / f"big.{end}"
    if end == "npy":
        np.save(path, np.ones((n, 8)))
    else:
        table = pa.table({f"x{j}": np.arange(n) * (1 + j / 7) for j in range(8)})
        pa.csv.write_csv(table, path) if end == "csv" else pq.write_table(table, path, row_group_size=n)
        del table
    before, peak, n_rows = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    try:
        for block in open_rows(path).blocks(16_384):
            n_rows += len(block.X)
            peak = max(peak, pa.total_allocated_bytes() - before + tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert n_rows == n
    assert peak < limit


def test_arrays_and_npy_do_without_other_libraries(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(3))
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'pandas', 'polars']));"
        "import numpy as np; from gigagp.data.sources import open_rows;"
        f"[list(open_rows(data, 0).blocks()) for data in (np.eye(3), {str(tmp_path / 'a.npy')!r})]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_kept_columns_of_a_csv_have_types_that_fit_all_rows(tmp_path):
    columns = {
        "whole": (["1", "", "-3"], [1, None, -3]),
        "late": (["1", "2", "3.5"], [1.0, 2.0, 3.5]),
        "postal": (["02134", "10001", "7"], ["02134", "10001", "7"]),
        "flag": (["true", "false", "true"], [True, False, True]),
        "day": (["2020-01-01", "2020-01-02", ""], [dt.date(2020, 1, 1), dt.date(2020, 1, 2), None]),
        "moment": (["2020-01-01 10:00:00", "2020-01-02", ""],
                   [dt.datetime(2020, 1, 1, 10), dt.datetime(2020, 1, 2), None]),
        "word": (["1", "2", "x"], ["1", "2", "x"]),
    }  # fmt: skip
    lines = [
        ",".join(["x", *columns]),
        *(",".join(["1.5", *row]) for row in zip(*(c[0] for c in columns.values()), strict=True)),
    ]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    kept = next(open_rows(tmp_path / "a.csv", keep=list(columns), typed=True).blocks()).kept
    assert kept.to_pydict() == {name: values for name, (_, values) in columns.items()}
    assert kept.schema.field("whole").type == pa.int64()
    as_text = next(open_rows(tmp_path / "a.csv", keep=list(columns)).blocks()).kept
    assert as_text["late"].to_pylist() == ["1", "2", "3.5"]

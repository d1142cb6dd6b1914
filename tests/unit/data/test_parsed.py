"""Rows of files that are parsed once: the same blocks, row numbers, ranges, fingerprints and errors as the files."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gigagp.data.sources import open_rows
from gigagp.data.sources.parsed import ParsedSource, parsed_once
from gigagp.errors import InvalidInput


def made(rows=50):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"number": rng.standard_normal(rows), "code": rng.integers(0, 4, rows) * 10})
    table["text"] = np.where(table.code > 10, "many", "few")
    table["a"], table["b"] = rng.standard_normal((2, rows))
    return table


@pytest.fixture(params=["csv", "parquet", "parts"])
def path(request, tmp_path):
    table = made()
    if request.param == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path / "t.csv"
    if request.param == "parquet":
        levels = table.assign(text=table.text.astype("category"))  # a dictionary of Arrow
        pq.write_table(pa.Table.from_pandas(levels, preserve_index=False), tmp_path / "t.parquet", row_group_size=7)
        return tmp_path / "t.parquet"
    (tmp_path / "parts").mkdir()
    for number in range(5):
        table[10 * number : 10 * number + 10].to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
    return tmp_path / "parts"


def test_the_same_rows_as_those_of_the_files(path, tmp_path):
    options = {"categorical": ["code"]}
    for target, other in (("a", "b"), ("b", "a")):
        files = open_rows(path, target, drop=[other], **options)
        with parsed_once(files.source, [*files.columns_read, other], tmp_path) as source:
            assert isinstance(source, ParsedSource)
            parsed = open_rows(source, target, drop=[other], **options)
            assert parsed.n_rows == files.n_rows
            for rows in (parsed, pickle.loads(pickle.dumps(parsed))):  # workers get a copy
                assert rows.encoding == files.encoding
                assert rows.fingerprint() == files.fingerprint()
                assert rows.ranges(1, 8) == files.ranges(1, 8)
                for size, start in ((8, 0), (8, 16), (50, 0), (64, 0), (13, 39)):
                    pairs = zip(rows.blocks(size, start), files.blocks(size, start), strict=True)
                    for one, two in pairs:
                        assert one.first_row == two.first_row
                        np.testing.assert_array_equal(one.X, two.X)
                        np.testing.assert_array_equal(one.y, two.y)
    assert not list(tmp_path.glob("gigagp-tmp-*"))


def test_errors_name_the_file_and_the_row(tmp_path):
    table = made()
    table.loc[33, "b"] = np.nan
    (tmp_path / "parts").mkdir()
    for number in range(5):
        table[10 * number : 10 * number + 10].to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
    files = open_rows(tmp_path / "parts", "a", drop=["b"])
    with parsed_once(files.source, [*files.columns_read, "b"], None) as source:
        with pytest.raises(InvalidInput, match=r"3\.csv.*row 3"):
            list(open_rows(source, "b", drop=["a"]).blocks())
        (tmp_path / "parts" / "9.csv").write_text("later")
        with pytest.raises(InvalidInput, match="run again"):
            list(open_rows(source, "a", drop=["b"]).blocks())


def test_what_is_in_memory_stays_there(tmp_path):
    source = open_rows(made(), "a").source
    with parsed_once(source, ["a"], tmp_path) as same:
        assert same is source

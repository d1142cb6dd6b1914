"""What cannot be read is refused with one message that says what, where, and what to do."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from gigagp.data.sources import Encoding, open_rows, open_source
from gigagp.errors import InvalidInput, InvalidParameter

TABLE = pa.table({"alpha": [1.0, 2.0, 3.0], "beta": [1, 2, 3], "colour": ["r", "g", "r"]})
NUMBERS = TABLE.drop(["colour"])
FITTED = open_rows(TABLE, "beta", categorical="colour").encoding


def refuses(*words, data, target=None, error=InvalidInput, **options):
    """Opening and reading fails with a message that has all the words."""
    with pytest.raises(error) as caught:
        list(open_rows(data, target, **options).blocks())
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def array(*values, **options):
    return pa.table({"a": pa.array(values, **options)})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths(here):
    for name in ("no.parquet", "no.csv", "no", "folder/"):
        refuses("no such file or folder", name, str(here), data=name)
    refuses("cannot open no.npy: No such file", str(here), data="no.npy")
    refuses("no files match z*.parquet", str(here), ".csv.gz", data="z*.parquet")
    Path("empty").mkdir()
    refuses("no files match empty", data="empty")
    Path("a.txt").touch()
    refuses("a.txt is of no known format", ".parquet", ".csv.gz", ".npy", data="a.txt")
    refuses("cannot open a[z-a].csv", data="a[z-a].csv")
    refuses("cannot open nofs://a/b.parquet", data="nofs://a/b.parquet")
    Path("mixed").mkdir()
    pq.write_table(NUMBERS, "mixed/a.parquet")
    Path("mixed/b.csv").write_text("a\n1\n")
    refuses("mixed holds files of several formats", data="mixed")


def test_messages_hold_no_passwords():
    with pytest.raises(InvalidInput) as caught:
        open_source("file://me:secret@/no/such.parquet")
    assert "secret" not in str(caught.value)


def test_nothing_there(here):
    empty = NUMBERS.slice(0, 0)
    np.save("none.npy", np.empty((0, 2)))
    pq.write_table(empty, "none.parquet")
    Path("none.csv").write_text("a,b\n")
    frames = empty, empty.to_pandas(), pl.from_arrow(empty), np.empty((0, 2)), pa.dataset.dataset(empty)
    for data in (*frames, "none.npy", "none.parquet", "none.csv"):
        refuses("has no rows", data=data)
    refuses("has no rows: all 2 have missing values", data=array(None, None, type=pa.float64()), missing="drop")
    refuses("X has no columns", data=np.empty((3, 0)))
    refuses("the table has no columns", data=pd.DataFrame(index=[0, 1]))
    refuses("no features are left", "'alpha', 'beta'", data=NUMBERS, target="alpha", drop="beta")
    Path("blank.csv").touch()
    refuses("cannot read blank.csv", "Empty", data="blank.csv")


@pytest.mark.parametrize("role", ["target", "features", "drop", "keep", "categorical"])
def test_unknown_columns(role):
    options = {role: "alfa" if role == "target" else ["alfa"]}
    refuses(f"{role}: the table has no column 'alfa'", "Did you mean 'alpha'?", "'beta'", data=NUMBERS, **options)


def test_unknown_places():
    refuses("target: X has no column 'x7'", "'x2'", data=np.eye(3), target=7)
    refuses("drop: X has no column '1.5'", data=np.eye(3), drop=[1.5])


def test_contradictions(here):
    refuses("'alpha' is both the target and a feature", data=NUMBERS, target="alpha", features=["alpha", "beta"])
    wrong = {"error": InvalidParameter, "data": TABLE}
    refuses("column 'alpha' is in both features and drop", features=["alpha"], drop=["alpha"], **wrong)
    refuses("features names a column twice", features=["alpha", "alpha"], **wrong)
    refuses("categorical: column 'colour' is not a feature", categorical="colour", drop="colour", **wrong)
    refuses("missing must be one of 'drop', 'error', 'keep', 'model'; got 'skip'", missing="skip", **wrong)
    refuses("the model uses those it was fitted with", encoding=FITTED, features=["alpha"], **wrong)
    with pytest.raises(InvalidParameter, match="multiple of size"):
        list(open_rows(NUMBERS).blocks(2, 1))
    Path("twice.csv").write_text("a,a\n1,2\n")
    for data in (pd.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"]), "twice.csv"):
        refuses("two columns called 'a'", data=data)


@pytest.mark.parametrize(
    ("data", "type_", "encodable"),
    [
        (array("1.5", "2", "v"), "string ('v' at row 2", True),
        (array("1.5", "2", "v").to_pandas(), "string ('v' at row 2", True),
        (pl.from_arrow(array("1.5", "2", "v")), "string ('v' at row 2", True),
        (array(b"u"), "binary", False),
        (array([1]), "list<", False),
        (array({"x": 1}), "struct<", False),
        (array(None, None), "null", False),
        (pd.DataFrame({"a": pd.period_range("2020", periods=2, freq="M")}), "period", False),
    ],
)
def test_columns_that_are_not_numbers(data, type_, encodable):
    cures = ["drop=['a']", *(["categorical=['a']"] if encodable else [])]
    refuses("column 'a' of the table has type", type_, "not a number", *cures, data=data)
    refuses("the target, column 'a' of the table, has type", "not a number", data=data, target="a")
    if not encodable:
        refuses("column 'a' of the table", "cannot be categorical", data=data, categorical="a")


def test_arrays_that_are_not_numbers():
    refuses("column 'x0' of X has type string", data=np.array([["1.5", 1.0]], object))
    refuses("columns 'x0' (string), 'x1' (string) of X are not numbers", data=np.array([["1.5", "2.5"]]))
    refuses("column 'x0' of X mixes types", "u", data=np.array([["u"], [1.0]], object))
    refuses("'a' of the table has type object (values of mixed", data=pd.DataFrame({"a": ["u", 1]}, dtype=object))
    refuses("X has type complex128", data=np.eye(2) * 1j)
    refuses("X must have two dimensions", "reshape(-1, 1)", data=[1.0, 2.0])
    refuses("X must have two dimensions", "it has 3", data=np.ones((2, 2, 2)))
    refuses("X is not an array", data=[[1, 2], [3]])
    for data in ({"a": [1]}, None, 3.0, scipy.sparse.csr_array(np.eye(2))):
        refuses("cannot read X from a " + type(data).__name__, data=data)
    for data in (pl.LazyFrame({"a": [1]}), NUMBERS.to_reader()):
        refuses("cannot read rows from a", type(data).__name__, "write it to Parquet", data=data)


def test_targets_beside_the_data(here):
    X = np.ones((3, 1))
    for y in ([1, 2], pd.Series([1, 2]), pl.Series([1, 2]), pa.array([1, 2]), np.ones((2, 1))):
        refuses("X has 3 rows and y has 2", data=X, target=y)
    refuses("y has 2 columns", data=X, target=np.ones((3, 2)))
    refuses("y has type string ('u' at row 0", data=X, target=["u", "v", "w"])
    refuses("cannot read y from a float", data=X, target=0.5)
    for y in ([1, np.nan, 3], [1, None, 3], pd.Series([1, None, 3]), pl.Series([1, None, 3])):
        refuses("y has a missing value (null or NaN) at row 1", data=X, target=y)
    refuses("y has infinity at row 2", data=X, target=[1, 2, np.inf])
    Path("a.csv").write_text("a\n1\n")
    refuses("the target must be one of its columns", data="a.csv", target=[1])
    refuses("an array or an .npy file; got a.csv", data=X, target=Path("a.csv"))


def test_missing_and_infinite_values_name_column_file_and_row(here):
    Path("parts").mkdir()
    for i, values in enumerate(([1.0, 2.0], [3.0, 4.0, None, float("inf")])):
        pq.write_table(pa.table({"a": [0.0] * len(values), "b": values}), f"parts/{i}.parquet", row_group_size=1)
    refuses("column 'b' of parts/1.parquet has a missing value", "row 2", 'missing="drop"', data="parts")
    refuses("column 'b' of parts/1.parquet has infinity at row 3", data="parts", missing="drop")
    refuses("the target, column 'b' of parts/1.parquet, has a missing value", "row 2", data="parts", target="b")
    Path("a.csv").write_text("a,b\n1,2\n3,\n4,inf\n")
    refuses("column 'b' of a.csv has a missing value", "row 1", data="a.csv")
    refuses("column 'b' of a.csv has infinity at row 2", data="a.csv", missing="drop")
    refuses("column 'a' of the table has a missing value", "row 1", data=array("u", None), categorical="a")
    for data in (pd.DataFrame({"a": [1, None]}), pl.DataFrame({"a": [1, None]}), array(1, None)):
        refuses("column 'a' of the table has a missing value", "row 1", data=data)
    X = np.ones((5, 3))
    X[4, 0] = X[3, 1] = np.nan
    refuses("column 'x1' of X has a missing value", "row 3", data=X)
    refuses("column 'x1' of X has a missing value", "row 3", data=np.ma.masked_invalid(X))
    np.save("x.npy", X)
    refuses("column 'x1' of x.npy has a missing value", "row 3", data="x.npy")


def test_categories():
    twice = [*range(1001), *range(1001)]
    refuses("more than 1000 categories", "drop=['a']", data=array(*twice), target="a", labels=())
    open_rows(array(*twice), categorical="a")
    words = "column 'a' of the table has another value in every row", "drop=['a']"
    refuses(*words, data=array(*(f"row {i}" for i in range(20))))
    open_rows(array(*(f"row {i}" for i in range(19))))
    refuses("column 'a' of the table is empty", data=array(None, type=pa.string()), categorical="a")
    other = TABLE.set_column(2, "colour", [["r", "blue", "r"]])
    words = "column 'colour' of the table has the class 'blue' at row 1", "'g', 'r'", "fit again"
    refuses(*words, data=other, target="colour", labels=["g", "r"])


def test_prediction_with_other_columns():
    words = "the table has no column 'alpha'", "It has 'beta', 'colour'"
    refuses(*words, data=TABLE.drop(["alpha"]), encoding=FITTED)
    refuses("X has 3 features, but the model is expecting 2 features", data=np.ones((2, 3)), encoding=FITTED)
    dates = TABLE.set_column(0, "alpha", pa.array([1, 2, 3], pa.date32()))
    refuses("column 'alpha' of the table is a date, and was a number", data=dates, encoding=FITTED)
    words = TABLE.set_column(0, "alpha", [["u", "v", "w"]])
    refuses("column 'alpha' of the table has type string", data=words, encoding=FITTED)


def test_indices_written_by_pandas_are_no_features(here):
    frame = NUMBERS.to_pandas().set_index(pd.Index([5, 7, 6]))
    frame.to_csv("a.csv")
    frame.to_parquet("a.parquet")
    refuses("column '' looks like an index", "drop=['']", data="a.csv")
    refuses("column '__index_level_0__' looks like an index", data="a.parquet")
    assert open_rows("a.csv", drop="").feature_names == ["alpha", "beta"]


def test_mixed_schemas(here):
    Path("parts").mkdir()
    pq.write_table(pa.table({"a": [1.0]}), "parts/1.parquet")
    pq.write_table(pa.table({"a": [1]}), "parts/2.parquet")
    refuses("column 'a' is int64 in parts/2.parquet and double in parts/1.parquet", data="parts")
    pq.write_table(pa.table({"a": [1.0], "b": [1]}), "parts/2.parquet")
    refuses("column 'b' is int64 in parts/2.parquet and missing in parts/1.parquet", data="parts")
    refuses("in parts/2.parquet", data="parts/*.parquet")
    refuses("in parts/2.parquet", data="part*")
    Path("tables").mkdir()
    Path("tables/1.csv").write_text("a,b\n1,2\n")
    Path("tables/2.csv").write_text("b,c\n1,2\n")
    refuses("tables/1.csv has a column 'a', but tables/2.csv does not", data="tables")
    Path("tables/2.csv").write_text("b,a\n1,u\n")
    refuses("column 'a' of tables/2.csv holds 'u' at row 0", data="tables")


def test_damaged_parquet(here):
    values = np.random.default_rng(0).standard_normal((3000, 2))
    pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), "a.parquet", row_group_size=1000)
    whole = Path("a.parquet").read_bytes()
    page = pq.read_metadata("a.parquet").row_group(1).column(0).data_page_offset
    for name, content in (
        ("row group 1 of a.parquet", whole[:page] + b"\xff" * 60 + whole[page + 60 :]),
        ("a.parquet", whole[:-100]),
        ("a.parquet", whole[: len(whole) // 2]),
        ("a.parquet", b""),
    ):
        Path("a.parquet").write_bytes(content)
        refuses(f"cannot read {name}: ", "write it again", data="a.parquet")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", ["row 1 of a.csv has 1 fields where the header has 2: '3'"]),
        ("a,b\n1,2\n3,4,5\n", ["row 1 of a.csv has 3 fields", "'3,4,5'"]),
        ("a,b\n1,2\n3,?\n", ["column 'b' of a.csv", "'?' at row 1", "drop=['b']"]),
        ("a,b\n" + "1,2\n" * 300_000 + "3,?\n", ["column 'b' of a.csv holds '?' at row 300000", "not a number"]),
        ("a,b\n" + "1,true\n" * 200_000 + "3,?\n", ["column 'b' of a.csv holds '?' at row 200000", "not a bool"]),
        ("1,2\n3,4\n", ["the first line of a.csv contains numbers", "names of the columns"]),
        ("a;b\n1;2\n", ["'a;b'", "separated by commas"]),
        ("a,b\n1,2\n" * 2 + '3,"4\n' + "1,2\n" * 300_000, ["a.csv"]),
        ("a,b\n1," + "2" * 3_000_000 + "\n", ["a line of more than"]),
    ],
    ids=["short", "long", "slip", "late", "late-boolean", "headless", "semicolon", "quote", "wide"],
)
def test_damaged_csv(here, text, words):
    Path("a.csv").write_text(text)
    refuses(*words, data="a.csv")
    Path("a.csv.gz").write_bytes(gzip.compress(text.encode()))
    refuses(*(word.replace("a.csv", "a.csv.gz") for word in words), data="a.csv.gz")


def test_damaged_gzip_and_foreign_text(here):
    packed = gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)
    for content in (packed[:-20], b"a,b\n1,2\n"):
        Path("a.csv.gz").write_bytes(content)
        refuses("cannot read a.csv.gz", data="a.csv.gz")
    Path("a.csv").write_bytes("é,b\n1,2\n".encode("latin-1"))
    refuses("cannot read a.csv", "utf-8", data="a.csv")


def test_damaged_npy(here):
    np.save("a.npy", np.ones((100, 3)))
    whole = Path("a.npy").read_bytes()
    for content in (whole[:-50], b"", b"not an array", whole.replace(b"{", b"(")):
        Path("a.npy").write_bytes(content)
        refuses("cannot read a.npy", "numpy.save", data="a.npy")
    np.save("a.npy", np.array([[1, "u"]], object))
    refuses("cannot read a.npy", "objects", data="a.npy")
    with open("a.npy", "wb") as file:
        np.savez(file, a=np.ones(3))
    refuses("cannot read a.npy", "numpy.save", data="a.npy")
    np.save("a.npy", np.zeros(3, [("a", float)]))
    refuses("a.npy has type", data="a.npy")


def test_text_that_is_not_utf8_is_an_error_that_names_the_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"y": [1.0, 2.0], "colour": ["red", "green"]}), "a.parquet", use_dictionary=False)
    content = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(content.replace(b"green", b"gr\xffen"))
    refuses("'colour' of a.parquet contains text that is not UTF-8", data="a.parquet", target="y", categorical="colour")


@given(st.data())
def test_damaged_files_give_rows_or_one_error(tmp_path_factory, data):
    """Bytes changed or cut off, in files of every format: never another kind of error."""
    folder = tmp_path_factory.mktemp("damaged")
    pq.write_table(TABLE, folder / "a.parquet", row_group_size=2)
    (folder / "a.csv").write_text("alpha,beta,colour\n1.0,1,r\n2.0,2,g\n3.0,3,r\n")
    (folder / "a.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    np.save(folder / "a.npy", np.eye(3))
    path = folder / data.draw(st.sampled_from(["a.parquet", "a.csv", "a.csv.gz", "a.npy"]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    options = {} if path.suffix == ".npy" else {"categorical": "colour"}
    try:
        rows = open_rows(path, "x1" if path.suffix == ".npy" else "beta", **options)
        assert sum(len(block.X) for block in rows.blocks(2)) == rows.n_rows
    except InvalidInput:
        pass


def leaves(value, path=()):
    """Paths to every value in nested dicts and lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))


@given(st.data())
def test_encodings_that_were_tampered_with(data):
    """A value replaced by another of any type: refused, or still an encoding that describes itself."""
    given_ = json.loads(json.dumps(FITTED.to_dict()))
    path = data.draw(st.sampled_from(list(leaves(given_))))
    value = data.draw(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()) | st.just({}))
    if path:
        inner = given_
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
    else:
        given_ = value
    try:
        encoding = Encoding.from_dict(given_)
    except InvalidInput:
        return
    assert encoding.to_dict() == given_


def test_all_bad_columns_are_named_at_once():
    table = pd.DataFrame({"a": [1.0, 2.0], "list": [[1], [2]], "complex": [1j, 2j], "y": [0.0, 1.0]})
    refuses("'list' (list<item: int64>), 'complex' (complex128", data=table, target="y")
    rows = open_rows(table, "y", drop=["list", "complex"])
    assert rows.feature_names == ["a"]
    refuses("drop: the table has no columns 'lists', 'b'. Did you mean 'list'?", data=table, drop=["lists", "b"])
    names = pd.DataFrame({"first": [f"n{i}" for i in range(30)], "last": [f"m{i}" for i in range(30)], "y": range(30)})
    refuses("columns 'first', 'last' of the table have another value in every row", data=names, target="y")
    gaps = pd.DataFrame({"a": [1.0, None], "b": [None, 2.0], "c": [1.0, 2.0], "y": [0.0, 1.0]})
    found = "column 'b' of the table has a missing value (null or NaN) at row 0; such values are also in 'a'"
    cure = 'fit with missing="model" to learn from such rows; missing="drop" leaves such rows out; or fill them in'
    refuses(f"{found}; {cure}", data=gaps, target="y")
    encoding = open_rows(gaps, "y", missing="drop").encoding
    cure = 'fit with missing="model" to predict such rows; missing="drop" predicts NaN for such rows; or fill them in'
    refuses(f"{found}; {cure}", data=gaps, encoding=encoding)
    refuses("has no columns 'a', 'c', which the model reads", data=gaps[["b"]], encoding=encoding)


def test_a_date_is_no_target():
    table = pd.DataFrame({"a": [1.0, 2.0], "day": pd.to_datetime(["2020-01-01", "2020-01-02"])})
    refuses("column 'day' of the table, is a timestamp, and predictions are numbers", data=table, target="day")


def test_dates_and_timestamps_are_read_as_the_model_does():
    days = pd.DataFrame({"day": ["2020-01-01", "2020-01-03"]})  # text that is read as dates
    instants = pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-01-03"])})
    for fitted, other in ((days, instants), (instants, days)):
        encoding = open_rows(fitted).encoding
        read = [next(open_rows(each, encoding=encoding).blocks()).X for each in (fitted, other)]
        np.testing.assert_array_equal(*read)

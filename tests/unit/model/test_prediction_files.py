"""Files are predicted as `predict` predicts, in parts, and are whole or not there, whatever interrupts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
import shutil
import tempfile
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

import gigagp
from gigagp import HGPRegressor, InvalidInput, InvalidParameter
from gigagp.data import parts as parts_module
from gigagp.errors import DiskFull
from gigagp.kernels import Constant, Matern32, SquaredExponential
from gigagp.memory import budget as memory_budget
from gigagp.model import committee_prediction, prediction_files, predictor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # small data, much noise
N = 100  # queries


def small(**settings):
    shape = {"kernel": SquaredExponential(), "leaf_size": 30, "sharing": 2}
    return HGPRegressor(**(shape | settings), random_state=0, engine="serial")


@pytest.fixture(scope="module")
def rows():
    """Columns of a table: two numbers, a whole number, a category, the target and keys."""
    rng = np.random.default_rng(3)
    n = 300
    a, b, c = rng.uniform(-2, 2, n), rng.uniform(-1, 1, n), rng.integers(0, 5, n)
    colour = rng.choice(["red", "green", "blue"], n)
    y = np.sin(a) + b * c + (colour == "red") + 0.1 * rng.standard_normal(n)
    return pa.table({"a": a, "b": b, "c": c, "colour": colour, "y": y})


@pytest.fixture(scope="module")
def named(rows):
    """A model that knows its columns by name."""
    return small().fit(rows, "y", categorical="colour")


@pytest.fixture(scope="module")
def unnamed(rows):
    """A model fitted from arrays."""
    return small().fit(np.column_stack([rows["a"], rows["b"], rows["c"]]), rows["y"].to_numpy())


@pytest.fixture(scope="module")
def queries(rows):
    """With keys, in another order, with a column that no model knows."""
    table = rows.slice(0, N).append_column("id", pa.array([f"row {i}" for i in range(N)]))
    return table.append_column("extra", pa.array(range(N))).select(["id", "colour", "c", "extra", "b", "a"])


@contextmanager
def at_once(count):
    """So many queries in a part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictor, "_FEWEST_QUERIES", 1)
        patch.setattr(committee_prediction, "QUERIES_AT_ONCE", count)
        patch.setattr(prediction_files, "_BLOCKS_PER_WORKER", 1)
        yield


def forms(table, folder):
    """The table in every form that keeps names."""
    pq.write_table(table, f"{folder}/t.parquet", row_group_size=17)
    os.makedirs(f"{folder}/parts")
    for i, start in enumerate(range(0, len(table), 33)):
        pq.write_table(table.slice(start, 33), f"{folder}/parts/{i}.parquet")
    pa.csv.write_csv(table, f"{folder}/t.csv")
    return {
        "arrow": table,
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "dataset": pa.dataset.dataset(f"{folder}/parts"),
        "parquet": f"{folder}/t.parquet",
        "folder": Path(folder, "parts"),
        "glob": f"{folder}/parts/*.parquet",
        "csv": f"{folder}/t.csv",
    }


def hidden(output):
    return output.with_name(f".{output.name}.gigagp")


def same_bits(values, expected):
    return np.asarray(values).tobytes() == np.asarray(expected).tobytes()


# What is written


FORMS = ["arrow", "pandas", "polars", "dataset", "parquet", "folder", "glob", "csv"]


@given(
    st.sampled_from(FORMS),
    st.integers(2, 7),
    st.lists(st.floats(0.001, 0.999), max_size=3, unique=True),
    st.booleans(),
    st.integers(1, N),
)
@example("parquet", 0, [0.05, 0.5, 0.95], False, N)
def test_a_file_says_what_predict_says(named, queries, form, size, quantiles, latent, n):
    table = queries.slice(0, n)
    mean, std = named.predict(table, return_std=True, latent=latent)
    with tempfile.TemporaryDirectory() as folder, at_once(1 << size):
        data, output = forms(table, folder)[form], Path(folder, "out.parquet")
        report = named.predict_file(data, output, quantiles=quantiles, keep=["id", "c"], latent=latent)
        assert (report.output, report.rows, report.dropped) == (output, n, 0)
        assert (report.resumed, report.discarded) == (0, "")
        assert report.seconds > 0
        found = pq.read_table(output)
        assert found.column_names == ["id", "c", "mean", "std", *(f"q{q!r}" for q in quantiles)]
        assert found["id"].to_pylist() == table["id"].to_pylist()
        assert found["c"].to_pylist() == table["c"].to_pylist()
        assert same_bits(found["mean"], mean)
        assert same_bits(found["std"], std)
        if quantiles and not latent:
            expected = named.predict_quantiles(table, quantiles)
            assert same_bits(np.column_stack([found[f"q{q!r}"] for q in quantiles]), expected)
        assert not hidden(output).exists()
        assert same_bits(named.predict(data), mean)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "float32"},
        {"partition": "stratified"},
        {"partition": "random", "combine": "rbcm"},
        {"combine": "grbcm"},
        {"kernel": SquaredExponential() * Matern32() + Constant()},
    ],
    ids=repr,
)
def test_a_query_is_answered_alike_whoever_is_asked_with_it(settings, wave):
    X, y = wave
    settings = {"sharing": 1 if settings.get("partition") else 2, **settings}
    model = HGPRegressor(leaf_size=60, random_state=0, engine="serial", **settings).fit(X[:400], y[:400])
    X = X[300:500]
    whole = model.predict(X, return_std=True)
    for size in (3, 17, 64, 150):
        parts = [model.predict(X[i : i + size], return_std=True) for i in range(0, len(X), size)]
        assert all(
            same_bits(np.concatenate(part), expected)
            for part, expected in zip(zip(*parts, strict=True), whole, strict=True)
        )


def test_columns_by_place_for_a_model_without_names(unnamed, queries, tmp_path):
    table = queries.select(["a", "b", "c"])
    X = np.column_stack([table["a"], table["b"], table["c"]])
    mean, std = unnamed.predict(X, return_std=True)
    np.save(tmp_path / "q.npy", X)
    every = {**forms(table, tmp_path), "npy": tmp_path / "q.npy", "array": X, "list": X.tolist()}
    with at_once(16):
        for form, data in every.items():
            report = unnamed.predict_file(data, tmp_path / "out" / f"{form}.parquet")
            found = pq.read_table(report.output)
            assert found.column_names == ["mean", "std"]
            assert same_bits(found["mean"], mean), form
            assert same_bits(found["std"], std), form
            if form != "pandas":  # as scikit-learn has it, a frame must have the names of the fit
                assert same_bits(unnamed.predict(data), mean), form
        kept = unnamed.predict_file(np.column_stack([X, np.arange(N)]), tmp_path / "kept.parquet", keep=["x3"])
    assert pq.read_table(kept.output)["x3"].to_pylist() == list(range(N))
    for data in (queries, X[:, :2]):
        with pytest.raises(InvalidInput, match="expecting 3 features"):
            unnamed.predict_file(data, tmp_path / "x.parquet")


def test_columns_by_name_for_a_model_of_a_frame(rows, queries, tmp_path):
    frame = rows.select(["a", "b", "c"]).to_pandas()
    model = small().fit(frame, rows["y"].to_numpy())
    expected = model.predict(queries.select(["a", "b", "c"]).to_pandas())
    with at_once(16):
        for form, data in forms(queries, tmp_path).items():
            table = pq.read_table(model.predict_file(data, tmp_path / "out" / f"{form}.parquet").output)
            assert same_bits(table["mean"], expected), form
            if form != "pandas":
                assert same_bits(model.predict(data), expected), form
    with pytest.raises(InvalidInput, match="has no column 'c', which the model reads"):
        model.predict_file(queries.drop_columns("c"), tmp_path / "x.parquet")


def test_rows_with_missing_values_keep_their_places_and_keys(named, queries, tmp_path):
    gaps = pa.array([i % 3 == 1 for i in range(N)])
    holes = queries.set_column(5, "a", pa.compute.if_else(gaps, None, queries["a"]))
    clean = queries.filter(pa.compute.invert(gaps))
    with at_once(8):
        for form, data in forms(holes, tmp_path).items():
            report = named.predict_file(data, tmp_path / "o" / f"{form}.parquet", keep="id", missing="drop")
            assert (report.rows, report.dropped) == (N, int(pa.compute.sum(gaps).as_py()))
            table = pq.read_table(report.output)
            assert table["id"].to_pylist() == queries["id"].to_pylist()
            assert np.isnan(table["std"].to_numpy()).tolist() == gaps.to_pylist()
            table = table.filter(pa.compute.invert(gaps))
            assert same_bits(table["mean"], named.predict(clean)), form


def test_schema_and_row_groups(named, queries, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "ROW_GROUP", 32)
    files = []
    for count in (4, 16, 64, 256):
        with at_once(count):
            report = named.predict_file(queries, tmp_path / f"{count}.parquet", quantiles=0.5, keep=["c", "id"])
        file = pq.ParquetFile(report.output)
        assert [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)] == [32, 32, 32, 4]
        assert file.schema_arrow.types == [pa.int64(), pa.string(), pa.float64(), pa.float64(), pa.float64()]
        about = json.loads(file.schema_arrow.metadata[b"gigagp"])
        assert (about["version"], about["quantiles"], about["latent"]) == (gigagp.__version__, [0.5], False)
        assert (about["rows"], about["dropped"]) == (N, 0)
        files.append(report.output.read_bytes())
    assert len(set(files)) == 1  # how many are in memory at once does not tell


def test_wide_kept_columns_make_smaller_row_groups(named, queries, tmp_path, monkeypatch):
    wide = queries.append_column("text", pa.array([str(i) * 5000 for i in range(N)]))
    monkeypatch.setattr(prediction_files, "_GROUP_BYTES", 200_000)
    file = pq.ParquetFile(named.predict_file(wide, tmp_path / "o.parquet", keep="text").output)
    assert file.metadata.row_group(0).num_rows == 16


def test_the_output_can_be_read_as_data(named, queries, tmp_path):
    named.predict_file(queries, tmp_path / "o.parquet", keep=["a", "id"])
    again = small().fit(tmp_path / "o.parquet", "mean", drop=["id"])
    assert list(again.feature_names_in_) == ["a", "std"]


# In bounded memory


def test_queries_held_at_once_follow_the_budget(rows, monkeypatch):
    counts = {}
    for memory in ("64MiB", "256MiB", "4GiB", "64GiB"):
        model = small(memory=memory).fit(rows, "y", categorical="colour")
        budget, answering = memory_budget(memory), model.predictor_
        counts[memory] = answering.queries_at_once(budget), answering.queries_at_once(budget, 10_000)
        assert all(count & (count - 1) == 0 for count in counts[memory])
        assert counts[memory][0] * 8 * model.n_features_in_ < budget
    assert counts["64MiB"][0] < counts["256MiB"][0] < counts["4GiB"][0] == counts["64GiB"][0]
    assert counts["64MiB"][1] < counts["64MiB"][0]
    assert counts["64GiB"][0] == committee_prediction.QUERIES_AT_ONCE


def test_memory_is_bounded(unnamed, tmp_path, monkeypatch):
    """24 MB of queries, 16 MB of answers; parts of 8,192."""
    n = 1_000_000
    np.save(tmp_path / "q.npy", np.random.default_rng(0).uniform(-1, 1, (n, 3)))
    np.save(tmp_path / "few.npy", np.zeros((2, 3)))
    unnamed.predict_file(tmp_path / "few.npy", tmp_path / "few.parquet")  # modules that are imported do not count
    monkeypatch.setattr(predictor.Predictor, "predict", lambda self, X, *_, **__: (X[:, 0].copy(), np.ones(len(X))))
    for whole in (unnamed.predict_file, unnamed.predict):
        output = [tmp_path / "o.parquet"] if whole == unnamed.predict_file else []
        peaks = []
        for _ in range(2):  # other threads of this process may allocate meanwhile, such as those of Dask
            (tmp_path / "o.parquet").unlink(missing_ok=True)
            before = pa.total_allocated_bytes()
            tracemalloc.start()
            with at_once(8192):
                whole(tmp_path / "q.npy", *output)
            peaks.append(tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before)
            tracemalloc.stop()
        assert min(peaks) < (8e6 if output else 32e6)  # what `predict` returns is in memory
        assert not output or len(pq.read_table(*output)) == n


# Interruptions


class Stopped(BaseException):
    """As a Ctrl-C, or the end of the process."""


def counted(monkeypatch, stop=None):
    """How many queries are answered; after `stop` calls no more."""
    answered, plain = [], predictor.Predictor.predict

    def answer(self, X, *rest, **options):
        if len(answered) == stop:
            raise Stopped
        answered.append(len(X))
        return plain(self, X, *rest, **options)

    monkeypatch.setattr(predictor.Predictor, "predict", answer)
    return answered


@pytest.mark.parametrize(
    ("form", "missing"), [("parquet", "error"), ("csv", "drop"), ("arrow", "drop"), ("dataset", "error")]
)
def test_the_same_call_goes_on_where_it_was_stopped(named, queries, tmp_path, form, missing):
    data = forms(queries, tmp_path)[form]
    options = {"quantiles": [0.1], "keep": ["id"], "missing": missing}
    with at_once(16):
        quiet = named.predict_file(data, tmp_path / "quiet.parquet", **options).output.read_bytes()
        output = tmp_path / "new" / "o.parquet"
        for stop in range(7):
            with pytest.MonkeyPatch.context() as patch:
                answered = counted(patch, stop)
                with pytest.raises(Stopped):
                    named.predict_file(data, output, **options)
                assert not output.exists()
                assert hidden(output).exists() == (stop > 0)
            with pytest.MonkeyPatch.context() as patch:
                answered = counted(patch)
                report = named.predict_file(data, output, **options)
            assert (sum(answered), report.resumed, report.rows) == (N - 16 * stop, 16 * stop, N)
            assert output.read_bytes() == quiet
            assert os.listdir(output.parent) == ["o.parquet"]
            shutil.rmtree(output.parent)


@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir", "rmdir", "unlink"])
def test_whatever_call_of_the_system_fails_nothing_is_lost(named, queries, tmp_path, monkeypatch, call):
    """The first, second, ... such call fails with a full disk; the next attempt ends with the same file."""
    with at_once(32):
        quiet = named.predict_file(queries, tmp_path / "quiet.parquet", keep="id").output.read_bytes()
        output = tmp_path / "new" / "o.parquet"
        plain, errors = getattr(os, call), []
        for stop in range(100):
            output.parent.mkdir()
            output.write_bytes(b"old")
            calls = []

            def failing(*args, calls=calls, stop=stop, **kwargs):
                calls.append(args)
                if len(calls) == stop + 1:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return plain(*args, **kwargs)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, call, failing)
                try:
                    named.predict_file(queries, output, keep="id", overwrite=True)
                except DiskFull as error:
                    errors.append(str(error))
            assert output.read_bytes() in (b"old", quiet)
            named.predict_file(queries, output, keep="id", overwrite=True)
            assert output.read_bytes() == quiet
            assert os.listdir(output.parent) == ["o.parquet"]
            shutil.rmtree(output.parent)
            if len(calls) <= stop:
                break
        assert all("No space left on device; make room" in error for error in errors)
        assert len(errors) == stop or call in ("mkdir", "rmdir", "unlink")  # some of these may fail


def test_a_full_disk_in_the_middle_of_a_part(named, queries, tmp_path, monkeypatch):
    with at_once(32):
        writes = []

        def full(writer, table, **_):
            writes.append(len(table))
            if len(writes) == 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            return plain(writer, table)

        plain = pq.ParquetWriter.write_table
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pq.ParquetWriter, "write_table", full)
            with pytest.raises(DiskFull, match=r"make room on the disk of .*; 64 rows are done, and the same call"):
                named.predict_file(queries, tmp_path / "o.parquet")
        assert not (tmp_path / "o.parquet").exists()
        assert [path.name[-33:] for path in sorted(hidden(tmp_path / "o.parquet").iterdir())] == [
            "manifest.json", "000000000000-000000000032.parquet", "000000000032-000000000064.parquet",
        ]  # fmt: skip
        assert named.predict_file(queries, tmp_path / "o.parquet").resumed == 64


def test_too_little_room_is_found_before_it_is_used(named, queries, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DiskFull, match="the prediction needs"):
        named.predict_file(queries, tmp_path / "a" / "o.parquet")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_may_not_be_written(named, queries, tmp_path, monkeypatch, number):
    def refuse(path, *_, **__):
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    for output in (tmp_path / "o.parquet", tmp_path / "new" / "o.parquet"):
        with pytest.raises(InvalidParameter, match=rf"{os.strerror(number)}; choose another"):
            named.predict_file(queries, output)
    assert os.listdir(tmp_path) == []


def test_a_bad_row_in_the_middle(named, queries, tmp_path):
    values = queries["a"].to_numpy().copy()
    values[70] = np.inf
    bad = queries.set_column(5, "a", pa.array(values))
    pq.write_table(bad, tmp_path / "q.parquet")
    output = tmp_path / "o.parquet"
    with at_once(32):
        for _ in range(2):
            with pytest.raises(InvalidInput, match=r"q\.parquet has infinity at row 70; .*; 64 rows are done, and the"):
                named.predict_file(tmp_path / "q.parquet", output)
            assert not output.exists()
            assert len(list(hidden(output).glob("part-*.parquet"))) == 2
    with at_once(128), pytest.raises(InvalidInput, match=r"at row 70; .*; no part is done yet, and the call may be"):
        named.predict_file(tmp_path / "q.parquet", tmp_path / "new" / "folder" / "o.parquet")
    assert not (tmp_path / "new").exists()
    pq.write_table(queries, tmp_path / "q.parquet")
    report = named.predict_file(tmp_path / "q.parquet", output)
    assert (report.resumed, report.rows) == (0, N)
    assert "another data" in report.discarded
    assert sorted(os.listdir(tmp_path)) == ["o.parquet", "q.parquet"]


def stopped(model, data, output, **options):
    """An interrupted call: two parts of 32 are done."""
    with at_once(32), pytest.MonkeyPatch.context() as patch:
        counted(patch, 2)
        with pytest.raises(Stopped):
            model.predict_file(data, output, **options)
    assert hidden(output).is_dir()


def test_what_another_call_left_is_thrown_away_and_reported(named, rows, queries, tmp_path):
    output, other = tmp_path / "o.parquet", tmp_path / "other.parquet"
    quiet = named.predict_file(queries, other).output.read_bytes()
    refitted = small().fit(rows.slice(1), "y", categorical="colour")
    for model, data, options, why in (
        (refitted, queries, {}, "another model"),
        (named, queries.slice(1), {}, "another data"),
        (named, queries, {"quantiles": [0.5]}, "another options"),
        (named, queries, {"keep": ["id"]}, "another data and options"),
        (named, queries, {"latent": True}, "another options"),
        (named, queries, {"missing": "drop"}, "another data and options"),
        (refitted, queries.slice(1), {}, "another data and model"),
    ):
        stopped(model, data, output, **options)
        with at_once(32):
            report = named.predict_file(queries, output)
        assert report.resumed == 0
        assert report.discarded == f"unfinished work in {hidden(output)}: {why}"
        assert output.read_bytes() == quiet
        assert not hidden(output).exists()
        output.unlink()


def test_settings_that_do_not_change_answers_do_not_begin_anew(named, rows, queries, tmp_path):
    named.save(tmp_path / "model")
    quiet = named.predict_file(queries, tmp_path / "quiet.parquet").output.read_bytes()
    output = tmp_path / "o.parquet"
    again = small().fit(rows, "y", categorical="colour").set_params(engine="threads", n_jobs=2, memory="1GB")
    for model in (gigagp.load(tmp_path / "model"), pickle.loads(pickle.dumps(named)), again):
        stopped(named, queries, output)
        for larger in (128, 16):
            with at_once(larger):
                assert model.predict_file(queries, output, overwrite=True).resumed == (64 if larger == 128 else 0)
            assert output.read_bytes() == quiet
        output.unlink()
    stopped(named, queries, output)
    with at_once(8):  # less memory than before
        assert named.predict_file(queries, output).resumed == 64
    assert output.read_bytes() == quiet


def test_settings_that_change_answers_do(named, rows):
    def of(model):
        return prediction_files.fingerprint(model.predictor_.state())

    y = rows["y"].to_numpy().copy()
    y[7] += 1e-9
    models = [
        named,
        *(
            pickle.loads(pickle.dumps(named)).set_params(**new)
            for new in ({"combine": "gpoe"}, {"experts_per_query": 2})
        ),
        small(dtype="float32").fit(rows, "y", categorical="colour"),
        small(standardize=False).fit(rows, "y", categorical="colour"),
        small(standardize=False).fit(rows.set_column(4, "y", pa.array(y)), "y", categorical="colour"),
    ]
    assert len({of(model) for model in models}) == len(models)


def test_the_last_steps_may_be_interrupted_too(named, queries, tmp_path, monkeypatch):
    output = tmp_path / "o.parquet"
    quiet = named.predict_file(queries, tmp_path / "quiet.parquet").output.read_bytes()
    for interrupted in ("publish", "clear"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.Parts, interrupted, lambda *_: (_ for _ in ()).throw(Stopped))
            with pytest.raises(Stopped):
                named.predict_file(queries, output)
        assert output.exists() == (interrupted == "clear")
        with pytest.MonkeyPatch.context() as patch:
            answered = counted(patch)
            report = named.predict_file(queries, output)
        assert answered == []
        assert (report.rows, report.dropped) == (N, 0)
        assert output.read_bytes() == quiet
        assert not hidden(output).exists()
        output.unlink()


@pytest.mark.parametrize("damage", ["truncated", "gone", "flipped", "manifest"])
def test_damaged_parts_are_made_again(named, queries, tmp_path, damage):
    output = tmp_path / "o.parquet"
    with at_once(16):
        quiet = named.predict_file(queries, tmp_path / "quiet.parquet").output.read_bytes()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.Parts, "publish", lambda *_: (_ for _ in ()).throw(Stopped))
            with pytest.raises(Stopped):
                named.predict_file(queries, output)
        (part,) = hidden(output).glob("part-*-000000000032-000000000048.parquet")
        raw = bytearray(part.read_bytes())
        if damage == "truncated":
            part.write_bytes(raw[:-5])
        elif damage == "gone":
            part.unlink()
        elif damage == "manifest":
            (hidden(output) / "manifest.json").write_text("{}")
        else:
            column = pq.read_metadata(part).row_group(0).column(0)
            start = column.dictionary_page_offset or column.data_page_offset
            raw[start + column.total_compressed_size - 1] ^= 1  # the last byte of a page, which its checksum covers
            part.write_bytes(raw)
            with pytest.raises(InvalidInput, match=r"-000000000048\.parquet was damaged .* repeat the call"):
                named.predict_file(queries, output)
        report = named.predict_file(queries, output)
    assert report.resumed == (0 if damage == "manifest" else N - 16)
    assert (f"unfinished work in {hidden(output)}" in report.discarded) == (damage in ("truncated", "manifest"))
    assert output.read_bytes() == quiet


def test_files_of_others_are_left_alone(named, queries, tmp_path):
    output = tmp_path / "o.parquet"
    hidden(output).mkdir()
    mine = hidden(output) / "diary.txt"
    mine.write_text("dear diary")
    with pytest.raises(InvalidInput, match=r"diary\.txt was not written by gigagp; remove it, or choose another"):
        named.predict_file(queries, output)
    assert mine.read_text() == "dear diary"
    shutil.rmtree(hidden(output))
    hidden(output).write_text("a file")
    with pytest.raises(InvalidParameter, match="Not a directory; choose another output"):
        named.predict_file(queries, output)
    assert hidden(output).read_text() == "a file"


def test_two_calls_do_not_write_the_same_file(named, queries, tmp_path):
    output = tmp_path / "o.parquet"
    hidden(output).mkdir()
    handle = os.open(hidden(output), os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(InvalidParameter, match="another process is writing"):
        named.predict_file(queries, output)
    assert hidden(output).exists()
    os.close(handle)
    assert named.predict_file(queries, output).rows == N


# On workers, which read, answer and write blocks on their own


@pytest.fixture(scope="module")
def near(rows):
    """A model whose queries are answered independently of each other."""
    return small(method="neighbourhood", neighbours=8).fit(rows, "y", categorical="colour")


def on_threads(model):
    return pickle.loads(pickle.dumps(model)).set_params(engine="threads", n_jobs=2)


@pytest.fixture
def two_threads(near):
    return on_threads(near)


def parts_of(output):
    return sorted(hidden(output).glob("part-*.parquet"))


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_blocks_of_any_size_on_threads_give_the_same_file(near, two_threads, queries, tmp_path, form, missing):
    gaps = pa.array([missing == "drop" and i % 7 == 3 for i in range(N)])
    table = queries.set_column(5, "a", pa.compute.if_else(gaps, None, queries["a"]))
    data, options = forms(table, tmp_path)[form], {"keep": ["id"], "quantiles": [0.1], "missing": missing}
    quiet = near.predict_file(data, tmp_path / "quiet.parquet", **options).output
    mean, std = near.predict(queries, return_std=True)
    found, complete = pq.read_table(quiet), ~np.array(gaps)
    assert found["id"].to_pylist() == queries["id"].to_pylist()
    assert same_bits(found["mean"].to_numpy()[complete], mean[complete])
    assert same_bits(found["std"].to_numpy()[complete], std[complete])
    assert np.isnan(found["mean"].to_numpy()[~complete]).all()
    for size in (2, 16, 128):
        with at_once(size):
            report = two_threads.predict_file(data, tmp_path / f"{size}.parquet", **options)
        assert (report.rows, report.dropped) == (N, int(np.sum(~complete)))
        assert report.output.read_bytes() == quiet.read_bytes()


@given(st.sets(st.integers(0, 12)), st.integers(0, 5), st.booleans(), st.sampled_from(["parquet", "csv"]))
@example({1, 12}, 3, True, "parquet")
def test_whichever_blocks_are_missing_they_are_made(near, queries, gone, size, joined, form):
    """A killed call leaves any of the blocks; the next one may have more or less memory."""
    with tempfile.TemporaryDirectory() as folder:
        data, output = forms(queries, folder)[form], Path(folder, "out.parquet")
        with at_once(8):
            quiet = near.predict_file(data, Path(folder, "quiet.parquet")).output.read_bytes()
            with pytest.MonkeyPatch.context() as patch:
                interrupted = "publish" if joined else "complete"
                patch.setattr(parts_module.Parts, interrupted, lambda *_: (_ for _ in ()).throw(Stopped))
                with pytest.raises(Stopped):
                    on_threads(near).predict_file(data, output)
        assert len(parts_of(output)) == 13
        for path in [path for i, path in enumerate(parts_of(output)) if i in gone]:
            path.unlink()
        with at_once(1 << size):
            report = on_threads(near).predict_file(data, output)
        assert report.resumed == N - 8 * len(gone) + (4 if 12 in gone else 0)
        assert (report.rows, report.discarded) == (N, "")
        assert output.read_bytes() == quiet
        assert not hidden(output).exists()


def test_parts_of_a_worker_that_outlives_its_call_are_not_used(near, queries, tmp_path):
    """A worker of an earlier call, with another model or with other borders, writes its part during the next call."""
    output, late = tmp_path / "o.parquet", []
    quiet = near.predict_file(queries, tmp_path / "quiet.parquet").output.read_bytes()
    for settings, size in (({"calibrate": False}, 8), ({}, 32)):
        with at_once(size), pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.Parts, "publish", lambda *_: (_ for _ in ()).throw(Stopped))
            with pytest.raises(Stopped):
                pickle.loads(pickle.dumps(near)).set_params(**settings).predict_file(queries, output)
        late += [(path.name, path.read_bytes()) for path in parts_of(output)]
        shutil.rmtree(hidden(output))
    stop = iter([False, False, True])
    accept = parts_module.Parts.accept

    def accepting(parts, first, end):
        accept(parts, first, end)
        for name, content in late:
            (parts.folder / name).write_bytes(content)
        if next(stop, False):
            raise Stopped

    with at_once(8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts_module.Parts, "accept", accepting)
            with pytest.raises(Stopped):
                near.predict_file(queries, output)
        assert len(parts_of(output)) == 3 + len(late)
        report = near.predict_file(queries, output)
    assert report.resumed == N  # the parts of 32 rows belong to the same prediction
    assert output.read_bytes() == quiet


def test_a_model_of_several_targets_and_one_of_classes_on_threads(queries, rows, tmp_path):
    X = np.column_stack([rows["a"], rows["b"], rows["c"]])
    Y = np.column_stack([rows["y"], rows["a"].to_numpy() ** 2])
    models = [small(method="neighbourhood", neighbours=8).fit(X, Y)]
    models.append(gigagp.HGPClassifier(random_state=0, engine="serial", neighbours=8).fit(X, rows["colour"].to_numpy()))
    for number, model in enumerate(models):
        one = model.predict_file(X, tmp_path / f"one{number}.parquet").output.read_bytes()
        with at_once(16):
            model.set_params(engine="threads", n_jobs=2).predict_file(X, tmp_path / f"two{number}.parquet")
        assert (tmp_path / f"two{number}.parquet").read_bytes() == one


def test_a_bad_row_stops_all_workers_and_the_done_rows_stay(two_threads, queries, tmp_path):
    values = queries["a"].to_numpy().copy()
    values[70] = np.inf
    pq.write_table(queries.set_column(5, "a", pa.array(values)), tmp_path / "q.parquet", row_group_size=16)
    with at_once(4), pytest.raises(InvalidInput, match=r"at row 70; .*; \d+ rows are done, and the same call") as error:
        two_threads.predict_file(tmp_path / "q.parquet", tmp_path / "o.parquet")
    done = int(str(error.value).split()[-16])
    assert 64 <= done <= 4 * len(parts_of(tmp_path / "o.parquet")) <= 96  # blocks under way are finished afterwards


# The border


def test_an_existing_file_is_replaced_only_when_told(named, queries, tmp_path):
    output = tmp_path / "o.parquet"
    output.write_bytes(b"precious")
    for prepare in (lambda: None, lambda: hidden(output).mkdir()):
        prepare()
        with pytest.raises(InvalidParameter, match=r"o\.parquet exists; give overwrite=True to replace it"):
            named.predict_file(queries, output)
        assert output.read_bytes() == b"precious"
    assert named.predict_file(queries, output, overwrite=True).rows == N
    assert len(pq.read_table(output)) == N
    with pytest.raises(InvalidParameter, match="exists"):
        named.predict_file(queries, output)


def test_an_output_through_a_link_goes_where_the_link_leads(named, queries, tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "o.parquet").symlink_to(tmp_path / "far" / "o.parquet")
    report = named.predict_file(queries, tmp_path / "o.parquet")
    assert report.output == tmp_path / "far" / "o.parquet"
    assert len(pq.read_table(tmp_path / "o.parquet")) == N


@pytest.mark.parametrize(
    ("output", "options", "message"),
    [
        ("o.txt", {}, "must end in .parquet, .pq, .csv; got"),
        ("", {}, "output must be a path"),
        (None, {}, "output must be a path, or an address such as s3://bucket/key; got None"),
        ("folder.parquet", {}, "is not a file"),
        ("q.parquet", {"overwrite": True}, "would lie among the data"),
        ("o.parquet", {"quantiles": [0.5, 1.0]}, r"quantiles must be numbers between 0 and 1.*got \[0.5, 1.0\]"),
        ("o.parquet", {"quantiles": "many"}, "quantiles must be numbers between 0 and 1"),
        ("o.parquet", {"quantiles": [0.5, 0.5]}, "predicted columns must be different; got q0.5 twice"),
        ("o.parquet", {"keep": ["std"]}, "keep: the prediction writes a column 'std' of its own; rename"),
        ("o.parquet", {"keep": ["q0.5"], "quantiles": [0.5]}, "column 'q0.5' of its own"),
        ("o.parquet", {"keep": ["key"]}, "keep: .* has no column 'key'"),
        ("o.parquet", {"keep": ["id", "id"]}, "keep names a column twice"),
        ("o.parquet", {"missing": "ignore"}, "missing must be one of"),
    ],
)
def test_what_cannot_be_asked_for(named, queries, tmp_path, monkeypatch, output, options, message):
    monkeypatch.chdir(tmp_path)
    Path("folder.parquet").mkdir()
    table = queries.append_column("std", queries["a"]).append_column("q0.5", queries["a"])
    pq.write_table(table, "q.parquet")
    before = Path("q.parquet").read_bytes()
    with pytest.raises((InvalidParameter, InvalidInput), match=message):
        named.predict_file("q.parquet", output, **options)
    assert sorted(os.listdir()) == ["folder.parquet", "q.parquet"]
    assert Path("q.parquet").read_bytes() == before


def test_the_output_may_not_lie_among_the_data(named, queries, tmp_path):
    pq.write_table(queries, tmp_path / "q.parquet")
    for data in (tmp_path, tmp_path.as_uri()):
        with pytest.raises(InvalidParameter, match="would lie among the data"):
            named.predict_file(data, tmp_path / "deep" / "o.parquet")
    assert os.listdir(tmp_path) == ["q.parquet"]


def test_the_output_may_not_lie_among_the_data_at_an_address(named, queries, tmp_path, monkeypatch):
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "there").mkdir()
    pq.write_table(queries, tmp_path / "there" / "q.parquet")
    address = f"fsspec+file://{tmp_path}"
    for data, output in (("there", "q"), ("there", "deep/o"), ("there/", "o"), ("there/q.parquet", "q")):
        with pytest.raises(InvalidParameter, match="would lie among the data"):
            named.predict_file(f"{address}/{data}", f"{address}/there/{output}.parquet", overwrite=True)
    assert named.predict_file(f"{address}/there", f"{address}/there.parquet").rows == N
    assert os.listdir(tmp_path / "there") == ["q.parquet"]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_file_that_could_not_be_uploaded_is_not_predicted_again(named, queries, tmp_path, monkeypatch, form):
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "there").mkdir()
    expected = named.predict_file(queries, tmp_path / f"o.{form}").output.read_bytes()
    address = f"fsspec+file://{tmp_path}/there/o.{form}"

    def failing(*_):
        raise OSError("the connection is lost")

    def fail_to_upload(data):
        with monkeypatch.context() as patch:
            patch.setattr("gigagp.data.objects.shutil.copyfileobj", failing)
            with pytest.raises(DiskFull, match="the connection is lost"):
                named.predict_file(data, address, overwrite=True)
        assert os.listdir(tmp_path / "there") == []

    fail_to_upload(queries)
    with monkeypatch.context() as patch:
        patch.setattr(prediction_files, "_predict_here", None)
        report = named.predict_file(queries, address)
    assert (report.rows, report.dropped, report.resumed) == (N, 0, N)
    assert (tmp_path / "there" / f"o.{form}").read_bytes() == expected
    fail_to_upload(queries)
    fail_to_upload(queries.slice(3))
    named.predict_file(queries, address)
    assert (tmp_path / "there" / f"o.{form}").read_bytes() == expected


def test_data_that_cannot_be_predicted(named, queries, tmp_path):
    output = tmp_path / "o.parquet"
    for data, message in (
        (queries.slice(0, 0), "has no rows"),
        (queries.set_column(5, "a", pa.nulls(N, pa.float64())), "missing value .* at row 0"),
        (tmp_path / "nothing.parquet", "no such file"),
        (3, "cannot read X from a int"),
    ):
        with pytest.raises(InvalidInput, match=message):
            named.predict_file(data, output)
    with pytest.raises(NotFittedError):
        HGPRegressor().predict_file(queries, output)
    assert os.listdir(tmp_path) == []


def test_a_kept_column_that_parquet_cannot_hold(named, queries, tmp_path):
    odd = queries.append_column("odd", pa.array([(1, 2, 3)] * N, pa.month_day_nano_interval()))
    with pytest.raises(InvalidParameter, match=r"keep: a column cannot be written as Parquet .*; leave it out"):
        named.predict_file(odd, tmp_path / "o.parquet", keep="odd")
    assert os.listdir(tmp_path) == []


def test_kept_columns_are_as_they_were(named, queries, tmp_path):
    kept = {
        "flag": pa.array([i % 2 == 0 for i in range(N)]),
        "moment": pa.array(range(N), pa.timestamp("us", "UTC")),
        "gaps": pa.array([None if i % 5 else i for i in range(N)], pa.int16()),
        "list": pa.array([[i, i] for i in range(N)]),
        "word": pa.array(["x"] * N).dictionary_encode(),
    }
    table = queries
    for name, values in kept.items():
        table = table.append_column(name, values)
    with at_once(16):
        found = pq.read_table(named.predict_file(table, tmp_path / "o.parquet", keep=list(kept)).output)
    for name, values in kept.items():
        assert found[name].to_pylist() == values.to_pylist()
        assert found.schema.field(name).type == (pa.string() if name == "word" else values.type)


def test_progress_is_said_when_asked_for(named, queries, tmp_path, capsys):
    with at_once(64):
        named.predict_file(queries, tmp_path / "o.parquet")
        assert capsys.readouterr().out == ""
        pickle.loads(pickle.dumps(named)).set_params(verbose=1).predict_file(queries, tmp_path / "p.parquet")
    assert capsys.readouterr().out == "[gigagp] predicted 64 rows of 100\n[gigagp] predicted 100 rows of 100\n"


def test_pandas_frames_of_unnamed_models_stay_scikit_learns(unnamed, queries):
    frame = pd.DataFrame(queries.select(["a", "b", "c"]).to_pandas())
    with pytest.warns(UserWarning, match="X has feature names, but HGPRegressor was fitted without feature names"):
        unnamed.predict(frame)


def test_a_csv_file_has_the_same_numbers(named, queries, tmp_path):
    with at_once(16):
        named.predict_file(queries, tmp_path / "o.csv", keep=["id", "extra"], quantiles=[0.9])
        named.predict_file(queries, tmp_path / "o.parquet", keep=["id", "extra"], quantiles=[0.9])
    expected = pq.read_table(tmp_path / "o.parquet").replace_schema_metadata(None)
    assert pa.csv.read_csv(tmp_path / "o.csv").equals(expected)  # to the last bit
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "o.parquet"]
    with pytest.raises(InvalidParameter, match="exists"):
        named.predict_file(queries, tmp_path / "o.csv")

"""Data in files, larger than the budget: the same model as from arrays in memory; and nothing is lost when it fails."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import gzip
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gigagp import HGPRegressor, datasets
from gigagp.data import folders
from gigagp.data.folders import TemporaryFolder
from gigagp.errors import DiskFull, InvalidInput, InvalidParameter
from gigagp.fit import fitting
from gigagp.kernels import SquaredExponential
from gigagp.model import committee_prediction

N = 1700
ON_DISK = 88 * N  # bytes: less than the rows take in memory, enough for the index of those that are dealt
SHAPES = {
    "local": {"partition": "local", "leaf_size": 50, "kernel": SquaredExponential()},
    "random": {"partition": "random", "leaf_size": 50, "sharing": 2},
    "stratified": {"partition": "stratified", "levels": 2, "branching": 5},
}
every_partition = pytest.mark.parametrize("partition", SHAPES)


@pytest.fixture(scope="module")
def rows():
    """Rows with ties in one column."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (N + 300, 3))
    X[:, 2] = np.round(X[:, 2])
    y = 3 + 2 * np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(N + 300)
    return X[:N], y[:N], X[N:]


def table(X, y=None):
    return pd.DataFrame(X, columns=["a", "b", "c"]) if y is None else table(X).assign(t=y)


@pytest.fixture(scope="module")
def files(rows, tmp_path_factory):
    X, y, _ = rows
    folder, frame = tmp_path_factory.mktemp("files"), table(X, y)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    np.save(folder / "both.npy", np.column_stack([X, y]))
    frame.to_parquet(folder / "t.parquet", row_group_size=333)
    (folder / "parts").mkdir()
    for i, start in enumerate(range(0, N, 600)):
        frame[start : start + 600].to_parquet(folder / "parts" / f"{i}.parquet", row_group_size=77, index=False)
    frame.to_csv(folder / "t.csv", index=False)
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    return folder


FORMS = {
    "npy": lambda X, y, f: (f / "both.npy", "x3"),
    "npy and npy": lambda X, y, f: (str(f / "X.npy"), str(f / "y.npy")),
    "npy and array": lambda X, y, f: (f / "X.npy", y),
    "parquet": lambda X, y, f: (f / "t.parquet", "t"),
    "parquet folder": lambda X, y, f: (f / "parts", "t"),
    "csv": lambda X, y, f: (f / "t.csv", "t"),
    "csv.gz": lambda X, y, f: (f / "t.csv.gz", "t"),
    "pandas": lambda X, y, f: (table(X, y), "t"),
    "pandas and array": lambda X, y, f: (table(X), y),
    "polars": lambda X, y, f: (pl.from_pandas(table(X, y)), "t"),
    "arrow": lambda X, y, f: (pa.Table.from_pandas(table(X, y)), "t"),
}


def model(partition="local", **others):
    return HGPRegressor(**(SHAPES[partition] | {"random_state": 0} | others))


def answers(fitted, queries):
    """All that a fit decides, to the bit."""
    mean, std = fitted.predict(queries, return_std=True)
    report = fitted.report_
    return (
        fitted.theta_.tobytes(), mean.tobytes(), std.tobytes(), fitted.n_leaves_, fitted.noise_variance_,
        fitted.tree_.depth, report.evidence_trace, report.theta_trace.tobytes(), report.points_per_leaf,
        report.points_per_expert, report.stages, report.rows,
    )  # fmt: skip


@pytest.fixture(scope="module")
def in_memory(rows):
    """What a model of the arrays answers, for each partition."""
    return cache(lambda partition: answers(model(partition).fit(*rows[:2]), rows[2]))


def same_bits(partition, form, memory, rows, files, expected):
    X, y, Z = rows
    data = (X, y) if form is None else FORMS[form](X, y, files)
    named = form is not None and "npy" not in form
    fitted = model(partition, memory=memory).fit(*data)
    assert fitted.model_.store.mapped == (memory is not None)
    assert hasattr(fitted, "feature_names_in_") == named
    assert fitted.n_features_in_ == 3
    assert answers(fitted, table(Z) if named else Z) == expected(partition)


@pytest.mark.parametrize(("form", "memory"), [*zip(FORMS, cycle([None, ON_DISK])), ("parquet folder", None)], ids=str)
def test_the_same_bits_from_every_source(form, memory, rows, files, small_sizes, in_memory):
    same_bits("local", form, memory, rows, files, in_memory)


@every_partition
@pytest.mark.parametrize("form", [None, "csv"], ids=str)
def test_the_same_bits_in_memory_and_on_disk(partition, form, rows, files, small_sizes, in_memory):
    same_bits(partition, form, ON_DISK, rows, files, in_memory)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": None},
        {"training": "progressive", "leaf_size": 8},
        *(
            pytest.param(further, marks=pytest.mark.slow)
            for further in (
                {"dtype": "float32"},
                {"standardize": False},
                {"sharing": 1.0, "n_restarts": 1},
                {"combine": "grbcm"},
            )
        ),
        {"partition": "stratified", "leaf_size": 40, "sharing": 3, "combine": "grbcm"},
        {"partition": "random", "dtype": "float32", "training": "progressive", "leaf_size": 8},
    ],
    ids=str,
)
def test_every_setting_gives_the_same_bits_on_disk(settings, rows, small_sizes):
    X, y, Z = rows
    memory = 60 * N if settings.get("dtype") == "float32" else ON_DISK
    if settings.get("partition") == "random":  # whose index takes more than rows of four bytes per number
        X, Z = (np.column_stack([part, part**2]) for part in (X, Z))
        memory = 80 * N
    settings = SHAPES["local"] | {"random_state": 1} | settings
    expected = answers(HGPRegressor(**settings).fit(X, y), Z)
    fitted = HGPRegressor(**settings, memory=memory, engine="threads", n_jobs=3).fit(X, y)
    assert fitted.model_.store.mapped
    assert answers(fitted, Z) == expected


def test_queries_from_every_source_are_answered_alike(rows, files, small_sizes, tmp_path, monkeypatch):
    Z = rows[2]
    fitted = model().fit(files / "t.parquet", "t")
    expected = fitted.predict(table(Z), return_std=True)
    frame = table(Z)[["c", "a", "b"]].assign(other="text")
    frame.to_parquet(tmp_path / "z.parquet", row_group_size=37)
    frame.to_csv(tmp_path / "z.csv", index=False)
    np.save(tmp_path / "z.npy", Z)
    for at_once in (committee_prediction.QUERIES_AT_ONCE, 64):
        monkeypatch.setattr(committee_prediction, "QUERIES_AT_ONCE", at_once)
        for queries in (tmp_path / "z.parquet", tmp_path / "z.csv", tmp_path / "z.npy", frame, pl.from_pandas(frame)):
            got = fitted.predict(queries, return_std=True)
            assert [part.tobytes() for part in got] == [part.tobytes() for part in expected]


@pytest.mark.filterwarnings("ignore:.*ended at its")
@pytest.mark.parametrize("missing", ["drop", "model"])
def test_categories_and_missing_values_on_disk(missing, rows, small_sizes, tmp_path):
    X, y, Z = rows
    frame = table(X, y).assign(kind=np.where(X[:, 0] > 0, "warm", "cold"))
    frame.loc[[5, 900], "b"] = np.nan
    frame.loc[17, "t"] = np.nan
    frame.to_parquet(tmp_path / "t.parquet")
    queries = table(Z).assign(kind="cold")
    how = {"categorical": ["kind"], "missing": missing}
    one = model().fit(frame, "t", **how)
    other = model(memory=ON_DISK).fit(tmp_path / "t.parquet", "t", **how)
    assert other.model_.store.mapped
    assert answers(one, queries) == answers(other, queries)
    for fitted in (one, other):
        dropped = 3 if missing == "drop" else 1  # the row without target
        assert fitted.report_.dropped == dropped
        assert fitted.report_.rows == N - dropped
        names = ["a", "b", "c", "kind"] if missing == "drop" else ["a", "b", "b is missing", "c", "kind"]
        assert fitted.feature_names_in_.tolist() == names


def test_names_of_an_earlier_fit_are_forgotten(rows, files, small_sizes):
    Z = rows[2]
    fitted = model().fit(files / "t.parquet", "t")
    fitted.fit(files / "both.npy", "x3")
    fitted.predict(Z)  # without a warning
    assert not hasattr(fitted, "feature_names_in_")


# Where the store is


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's folder for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def left(folder):
    """Everything in a folder that is there."""
    gc.collect()
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*")) if folder.exists() else []


@pytest.mark.parametrize("given", [False, True])
def test_a_temporary_store_lives_as_long_as_its_model(given, rows, small_sizes, temporary, tmp_path):
    X, y, Z = rows
    store = tmp_path / "chosen" / "deeper" if given else None
    where, elsewhere = (store, temporary) if given else (temporary, tmp_path / "chosen")
    fitted = model(memory=ON_DISK).fit(X, y, store=store)
    before = answers(fitted, Z)
    assert left(elsewhere) == []
    (own,) = where.iterdir()
    assert sorted(p.name for p in own.iterdir()) == [".lock", "store"]
    stored = sum(p.stat().st_size for p in (own / "store").iterdir())
    assert stored < 1.2 * N * 4 * 8
    again = fitted.fit(X, y, store=store)
    assert own.name not in os.listdir(where)
    assert len(os.listdir(where)) == 1
    assert answers(again, Z) == before
    copy = pickle.loads(pickle.dumps(fitted))
    del fitted, again
    assert left(where) == []
    assert answers(copy, Z) == before
    shutil.rmtree(where)


def test_rows_that_fit_need_no_store(rows, small_sizes, temporary, tmp_path):
    model().fit(*rows[:2], store=tmp_path / "chosen")
    assert left(temporary) == []
    assert not (tmp_path / "chosen").exists()


def test_a_store_and_a_checkpoint_are_one_too_many(rows, tmp_path):
    with pytest.raises(InvalidParameter, match="pass store= or checkpoint=, not both"):
        model().fit(*rows[:2], store=tmp_path / "a", checkpoint=tmp_path / "b")
    assert left(tmp_path) == []


def test_what_killed_processes_left_is_swept_and_what_live_ones_have_is_not(tmp_path):
    code = (
        "import sys; from gigagp.data.folders import TemporaryFolder; "
        f"own = TemporaryFolder({str(tmp_path)!r}); (own.path / 'rows').write_text('x'); "
        "print(own.path, flush=True); sys.stdin.read()"
    )
    live, killed = (
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    )
    try:
        theirs, stale = (Path(process.stdout.readline().strip()) for process in (live, killed))
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        foreign, empty = tmp_path / "gigagp-tmp-foreign", tmp_path / "gigagp-tmp-empty"
        (foreign / "deep").mkdir(parents=True)
        empty.mkdir()  # of a process killed before it could lock it
        (tmp_path / "gigagp-tmp-link").symlink_to(foreign)
        assert stale.exists()
        own = TemporaryFolder(tmp_path)
        assert not stale.exists()
        assert not empty.exists()
        assert (theirs / "rows").exists()
        assert (foreign / "deep").exists()
        second = TemporaryFolder(tmp_path)  # in one process, too, a folder in use is left alone
        assert own.path.exists()
        own.remove()
        assert not own.path.exists()
        assert second.path.exists()
    finally:
        for process in (live, killed):
            process.communicate()
    assert live.returncode == 0
    assert not theirs.exists()


def test_a_forked_child_does_not_remove_the_folder(tmp_path, monkeypatch):
    own = TemporaryFolder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        own.remove()
    assert own.path.exists()


def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    made, make = [], tempfile.mkdtemp

    def swept(**where):
        made.append(make(**where))
        if len(made) < 3:
            os.rmdir(made[-1])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    own = TemporaryFolder(tmp_path)
    assert str(own.path) == made[2]
    assert os.listdir(tmp_path) == [own.path.name]


def test_a_folder_that_is_swept_while_it_is_locked_is_made_again(tmp_path, monkeypatch):
    real, swept = fcntl.flock, []

    def flock(lock, how):
        if not swept:  # whoever swept had the lock until now
            swept.append(Path(lock.name).parent)
            shutil.rmtree(swept[0])
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    own = TemporaryFolder(tmp_path)
    assert own.path.exists()
    assert own.path != swept[0]
    assert os.listdir(tmp_path) == [own.path.name]


# Failures


@pytest.fixture(scope="module")
def own_mounts():
    """What is mounted here ends with this process, however it ends: nobody else sees it, nobody has to remove it."""
    new_mounts = 0x20000  # CLONE_NEWNS of sched.h
    if ctypes.CDLL(None).unshare(new_mounts):
        pytest.skip("disks can only be mounted by root")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@pytest.fixture
def disk(tmp_path, own_mounts):
    """A function that makes a small disk of its own."""
    mounted = []

    def mount(options):
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("disks can only be mounted by root")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def small_files(most):
    """The system refuses to write more than so many bytes into a file, as it does where a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Unharmed:
    """A fitted model, and what it answers; `check` after a fit of it that failed."""

    def __init__(self, rows):
        self.X, self.y, self.Z = rows
        self.model = model().fit(self.X[:300, :2], self.y[:300])
        self.before = answers(self.model, self.Z[:, :2])
        self.model.set_params(memory=ON_DISK)

    def fails(self, error, match, *data, **how):
        with pytest.raises(error, match=match) as kept:
            self.model.fit(*(data or (self.X, self.y)), **how)
        assert pickle.loads(pickle.dumps(kept.value)).args == kept.value.args
        assert self.model.n_features_in_ == 2
        assert answers(self.model, self.Z[:, :2]) == self.before
        return kept  # whoever has the traceback


@pytest.fixture
def unharmed(rows, small_sizes, temporary):
    return Unharmed(rows)


def test_a_disk_without_room_is_found_before_writing(unharmed, temporary, tmp_path, monkeypatch):
    free = shutil._ntuple_diskusage(10**12, 10**12, (64 << 20) + 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: free)
    monkeypatch.setattr("gigagp.fit.store_writer.FileBuckets", lambda *_: pytest.fail("something was written"))
    match = (
        r"the expert store needs \d+\.\d KiB on the disk of .* beside a reserve of 64 MiB that we leave free, but only "
        r"64 MiB are free; make room for another \d+\.\d KiB, or choose a folder on another disk"
    )
    kept = unharmed.fails(DiskFull, match)
    assert left(temporary) == []
    kept = unharmed.fails(DiskFull, match, store=tmp_path / "chosen")
    assert left(tmp_path / "chosen") == []
    kept = unharmed.fails(DiskFull, match, checkpoint=tmp_path / "kept")
    assert left(tmp_path / "kept") == ["evaluations.log", "manifest.json", "scan.npz"]
    assert kept


@pytest.mark.parametrize(
    ("partition", "most"), [("local", 100), ("random", 9000), ("local", 20_000), ("stratified", 40_000)]
)
def test_a_file_that_cannot_be_written_is_a_clear_error(partition, most, unharmed, temporary, rows):
    """Buckets first, or the store's inputs, of 8 * 3 * N bytes, or the index."""
    unharmed.model.set_params(**({"leaf_size": None} | SHAPES[partition]))
    with small_files(most):
        kept = unharmed.fails(DiskFull, r"(sorting the rows|writing the expert store) in .* failed: File too large")
    assert left(temporary) == []
    assert kept


@pytest.mark.parametrize(("most", "there"), [(100, []), (4000, ["evaluations.log", "manifest.json"])])
def test_a_checkpoint_that_cannot_be_written_is_a_clear_error(most, there, unharmed, tmp_path):
    with small_files(most):
        kept = unharmed.fails(
            DiskFull, "writing the checkpoint in .* failed: File too large", checkpoint=tmp_path / "kept"
        )
    assert left(tmp_path / "kept") == there
    assert kept


def test_a_disk_that_fills_up(unharmed, disk, monkeypatch, rows):
    """Past the check of its room: someone else writes to it too."""
    monkeypatch.setattr(folders, "check_space", lambda *_: None)
    place = disk("size=56k")
    kept = unharmed.fails(DiskFull, "failed: No space left on device", store=place)
    assert left(place) == []
    kept = unharmed.fails(DiskFull, "failed: No space left on device", checkpoint=place / "kept")
    assert not [name for name in left(place) if "partial" in name or "buckets" in name or "store" in name]
    subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
    X, y, Z = rows
    resumed = model(memory=ON_DISK).fit(X, y, checkpoint=place / "kept")
    assert answers(resumed, Z) == answers(model().fit(X, y), Z)
    del resumed
    assert kept


def test_a_folder_that_is_read_only(unharmed, disk):
    place = disk("size=8m,ro")
    kept = unharmed.fails(InvalidParameter, "cannot write in .*: Read-only file system; choose another", store=place)
    kept = unharmed.fails(InvalidParameter, "cannot make the folder .*Read-only file system", store=place / "new")
    kept = unharmed.fails(InvalidParameter, "cannot make the folder .*Read-only", checkpoint=place / "new")
    kept = unharmed.fails(DiskFull, "writing the checkpoint in .* failed: Read-only file system", checkpoint=place)
    assert kept


def test_a_file_is_no_folder(unharmed, tmp_path):
    (tmp_path / "file").write_text("mine")
    for role in ("store", "checkpoint"):
        unharmed.fails(InvalidParameter, "cannot make the folder .*file", **{role: tmp_path / "file"})
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "memory"), [("both.npy", ON_DISK), ("t.parquet", None), ("t.csv", None), ("t.csv.gz", ON_DISK)]
)
def test_a_source_that_changes_between_the_passes(name, memory, files, unharmed, temporary, tmp_path, monkeypatch):
    source = tmp_path / name
    shutil.copyfile(files / name, source)
    real = fitting.scan_rows

    def then_changed(*arguments):
        found = real(*arguments)
        raw = source.read_bytes()
        source.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        return found

    monkeypatch.setattr(fitting, "scan_rows", then_changed)
    unharmed.model.set_params(memory=memory)
    target = "x3" if name.endswith("npy") else "t"
    kept = unharmed.fails(InvalidInput, f"{name} changed after it was opened", source, target)
    assert left(temporary) == []
    assert kept


def test_a_damaged_row_group(files, unharmed, temporary, tmp_path):
    source = tmp_path / "t.parquet"
    pq.write_table(pq.read_table(files / "t.parquet"), source, row_group_size=333, write_page_checksum=True)
    column = pq.ParquetFile(source).metadata.row_group(3).column(1)
    raw = bytearray(source.read_bytes())
    raw[column.data_page_offset + column.total_compressed_size // 2] ^= 8
    source.write_bytes(raw)
    kept = unharmed.fails(InvalidInput, r"cannot read row group 3 of .*t\.parquet: .*CRC", source, "t")
    kept = unharmed.fails(InvalidInput, "row group 3", source, "t", checkpoint=tmp_path / "kept")
    assert left(tmp_path / "kept") == ["evaluations.log", "manifest.json"]
    assert left(temporary) == []
    assert kept


def test_sources_that_are_none(rows, unharmed, temporary, tmp_path):
    X, y, _ = rows
    parts = tmp_path / "parts"
    parts.mkdir()
    table(X, y).to_parquet(parts / "0.parquet")
    table(X, y).astype("float32").to_parquet(parts / "1.parquet")
    unharmed.fails(InvalidInput, "mixed schemas: column 'a' is float in .*1.parquet and double", parts, "t")
    for rows_, name in ((0, "no rows"), (1, "has 1 row; a fit needs at least 2")):
        for end, write in (("parquet", pd.DataFrame.to_parquet), ("csv", pd.DataFrame.to_csv)):
            path = tmp_path / f"{rows_}.{end}"
            write(table(X[:rows_], y[:rows_]), path, index=False)
            unharmed.fails(InvalidInput, name, path, "t")
    assert left(temporary) == []


def test_errors_while_training_remove_the_store(unharmed, temporary, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gigagp.fit.theta_training.train_on_groups", fail)
    with pytest.raises(KeyboardInterrupt) as kept:
        unharmed.model.fit(unharmed.X, unharmed.y)
    assert left(temporary) == []
    assert answers(unharmed.model, unharmed.Z[:, :2]) == unharmed.before
    assert kept


def test_settings_are_refused_before_the_store_is_made(unharmed, temporary):
    unharmed.model.set_params(engine="gpu")
    with pytest.raises(InvalidParameter, match="engine must be"):
        unharmed.model.fit(unharmed.X, unharmed.y)
    assert left(temporary) == []


def test_real_rows_are_learnt_on_disk(small_sizes):
    X, y = datasets.robot_arm(2400)
    fitted = HGPRegressor(SquaredExponential(), leaf_size=100, memory=100 * 2000, random_state=0).fit(
        X[:2000], y[:2000]
    )
    assert fitted.model_.store.mapped
    mean = fitted.predict(X[2000:])
    assert np.sqrt(np.mean((mean - y[2000:]) ** 2)) < 0.35 * y.std()

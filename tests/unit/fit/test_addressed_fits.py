"""Stores and checkpoints at addresses: the same bits as in folders. tests/slow/test_s3.py has S3, and a cluster.

The address is one of fsspec's, whose objects are files; this also tests file systems other than S3.
"""

from __future__ import annotations

import gc
import os
import shutil

import numpy as np
import pytest

from gigagp import HGPRegressor
from gigagp.data.folders import TemporaryFolder
from gigagp.data.mirrors import Mirror
from gigagp.data.scaled import ArrayRows
from gigagp.data.scan import Sample
from gigagp.data.sources import parsed
from gigagp.engines import ThreadsEngine
from gigagp.errors import DamagedFile, DiskFull, FolderInUse, InvalidInput, InvalidParameter
from gigagp.fit import checkpoint_objects
from gigagp.fit.bucket_runs import ObjectRuns
from gigagp.fit.bucket_sort import FileBuckets
from gigagp.fit.checkpoint import open_checkpoint
from gigagp.fit.checkpoint_objects import LogObjects
from gigagp.fit.store_objects import StoreObjects
from gigagp.fit.store_writer import DiskStorage, write_store
from gigagp.kernels import SquaredExponential
from gigagp.partition import LocalPartition, Shape

N = 1700
ON_DISK = 88 * N


class Elsewhere(ThreadsEngine):
    """Threads that write and read as if they were on other machines."""

    one_machine = False


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (N, 3))
    return X, 3 + 2 * np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(N)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder behind the address, and the address; and a cache of its own."""
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "there").mkdir()
    return tmp_path / "there", f"fsspec+file://{tmp_path}/there"


def model(**settings):
    return HGPRegressor(
        **{"leaf_size": 50, "kernel": SquaredExponential(), "random_state": 0, "memory": ON_DISK, **settings}
    )


def answers(fitted, Z):
    mean, std = fitted.predict(Z, return_std=True)
    return fitted.theta_.tobytes(), mean.tobytes(), std.tobytes(), fitted.report_.evidence_trace


def left(folder):
    gc.collect()
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) if folder.exists() else []


def stored(X, y, folder, engine, address=None):
    """The files of a store as bytes, with the store at an address or not."""
    mirror = None if address is None else Mirror.temporary(address)
    folder = folder if mirror is None else mirror.folder
    remote = None if mirror is None else StoreObjects(mirror, mirror.home)
    storage = DiskStorage(folder / "store", 1 << 16, "of a test", mirror, remote=remote)
    data, keys = ArrayRows(X, y), np.arange(300)
    sample = Sample(keys.astype(np.uint64), keys, X[:300], y[:300])
    rng = np.random.default_rng(0)
    write_store(LocalPartition(), data, Shape(leaf_size=50), np.ones(3), sample, 5, rng, storage, engine)
    return {path.name: path.read_bytes() for path in (folder / "store").iterdir()}, storage, mirror


def spoilt(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("kind", [ThreadsEngine, Elsewhere])
def test_a_store_has_the_same_bytes(kind, rows, small_sizes, place, tmp_path):
    expected, _, _ = stored(*rows, tmp_path, ThreadsEngine(1))
    with kind(2) as engine:
        here, storage, mirror = stored(*rows, tmp_path, engine, place[1])
    assert here == expected
    assert mirror.home.names() == ["store"], "no runs are left"
    shutil.rmtree(mirror.folder / "store")  # as on another machine
    store, _ = storage.existing()
    assert {path.name: path.read_bytes() for path in (mirror.folder / "store").iterdir()} == expected
    parts = list((place[0]).glob("gigagp-tmp-*/store/X.npy/0*"))
    assert len(parts) > 3
    shutil.rmtree(mirror.folder / "store")
    parts[2].write_bytes(spoilt(parts[2].read_bytes()))
    with pytest.raises(DamagedFile, match=r"store/X\.npy/\d+ has changed"):
        storage.existing()
    (place[0] / mirror.home.address.rpartition("/")[2] / "store" / "manifest.json").unlink()
    assert storage.existing() is None, "a store without a manifest is not complete"
    assert store.X.shape == rows[0].shape


def test_runs_that_change_are_an_error(rows, place, small_sizes):
    data = ArrayRows(*rows)
    with Elsewhere(2) as engine:
        mirror = Mirror.temporary(place[1])
        runs = ObjectRuns(mirror.home.below(".buckets"))
        buckets = FileBuckets(data, lambda first, X: (X[:, 0] > 0).astype(int), 3, runs, 1 << 16, engine)
    X, _ = buckets.take(1)
    assert X.tobytes() == rows[0][rows[0][:, 0] > 0].tobytes()
    paths = sorted(place[0].glob("gigagp-tmp-*/.buckets/*/*.rows"))
    content = paths[-1].read_bytes()
    for change, what in ((content[:-9], "has changed"), (spoilt(content), "has changed"), (None, "was removed")):
        paths[-1].unlink() if change is None else paths[-1].write_bytes(change)
        with pytest.raises(DamagedFile, match=f"rows {what} since it was written"):
            buckets.take(1)
    buckets.end()
    assert mirror.home.names() == []


def test_a_fit_leaves_nothing_at_the_address_of_its_store(rows, small_sizes, place, tmp_path):
    X, y = rows
    expected = answers(model().fit(X, y), X[:50])
    fitted = model().fit(X, y, store=place[1])
    assert fitted.model_.store.mapped
    assert answers(fitted, X[:50]) == expected
    assert [name for name in left(place[0]) if "store/X.npy" in name]
    del fitted
    assert left(place[0]) == []
    assert left(tmp_path / "cache") == []


def test_a_fit_that_fails_leaves_nothing(rows, small_sizes, place, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr("gigagp.fit.store_objects.PartIndex", fails)
    with pytest.raises(OSError, match="no space left"):
        model().fit(*rows, store=place[1])
    assert left(place[0]) == []
    assert left(tmp_path / "cache") == []


def test_an_address_that_cannot_be_used_is_a_sentence(rows, small_sizes):
    with pytest.raises(InvalidParameter, match=r"cannot open nowhere://bucket/folder: .*nowhere"):
        model().fit(*rows, store="nowhere://bucket/folder")


def test_predictions_into_a_file_at_an_address(rows, small_sizes, place, tmp_path, monkeypatch):
    X, y = rows
    fitted = model(memory=None, method="neighbourhood", neighbours=16).fit(X, y)
    np.save(tmp_path / "Z.npy", X)
    fitted.predict_file(tmp_path / "Z.npy", tmp_path / "here.parquet")
    address = f"{place[1]}/deeper/o.parquet"
    assert fitted.predict_file(tmp_path / "Z.npy", address).output == address
    assert (place[0] / "deeper" / "o.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()
    assert left(tmp_path / "cache") == []
    with pytest.raises(InvalidParameter, match=r"deeper/o\.parquet exists; give overwrite=True"):
        fitted.predict_file(tmp_path / "Z.npy", address)
    with pytest.raises(InvalidParameter, match=r"must end in \.parquet, \.pq, \.csv"):
        fitted.predict_file(tmp_path / "Z.npy", f"{place[1]}/o.txt")

    def breaks(source, to, size):
        to.write(source.read(100))
        raise OSError("the connection broke")

    with monkeypatch.context() as patch:
        patch.setattr("gigagp.data.objects.shutil.copyfileobj", breaks)
        with pytest.raises(DiskFull, match=r"cannot write .*/deeper/o2\.parquet: the connection broke"):
            fitted.predict_file(tmp_path / "Z.npy", f"{place[1]}/deeper/o2.parquet")
    assert os.listdir(place[0] / "deeper") == ["o.parquet"], "nothing half-written"
    done = fitted.predict_file(tmp_path / "Z.npy", f"{place[1]}/deeper/o2.parquet")
    assert done.resumed == done.rows == N, "only the upload is repeated"
    assert (place[0] / "deeper" / "o2.parquet").read_bytes() == (tmp_path / "here.parquet").read_bytes()


class Stopped(Exception):
    pass


def stop_after(steps):
    """A listener that ends a fit after so many steps of training."""
    seen = []

    def tell(event):
        seen.append(event)
        if len([each for each in seen if each.stage == "training"]) > steps:
            raise Stopped

    return tell


@pytest.mark.parametrize("memory", [None, ON_DISK])
def test_a_fit_resumes_on_another_machine(rows, small_sizes, place, tmp_path, monkeypatch, memory):
    X, y = rows
    expected = answers(model(memory=memory).fit(X, y), X[:50])
    with pytest.raises(Stopped):
        model(memory=memory).fit(X, y, checkpoint=place[1], progress=stop_after(3))
    names = left(place[0])
    assert {"manifest.json", "scan.npz", "evaluations/000000000000000"} <= set(names)
    assert ("store/manifest.json" in names) == (memory is not None)
    assert not [name for name in names if "gigagp" in name], "it is not in use"
    assert left(tmp_path / "cache") == []
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "another machine"))
    monkeypatch.setattr("gigagp.fit.fitting.scan_rows", lambda *_: pytest.fail("the scan is there"))
    monkeypatch.setattr("gigagp.fit.store_writer.FileBuckets", lambda *_: pytest.fail("the store is there"))
    resumed = model(memory=memory).fit(X, y, checkpoint=place[1])
    assert answers(resumed, X[:50]) == expected
    monkeypatch.setattr("gigagp.fit.checkpoint.EvaluationLog._append", lambda *_: pytest.fail("all is recorded"))
    assert answers(model(memory=memory).fit(X, y, checkpoint=place[1]), X[:50]) == expected
    with pytest.raises(InvalidInput, match=r"there is the checkpoint of another fit \(data: .*\); choose another"):
        model(memory=memory).fit(X, y + 1, checkpoint=place[1])
    del resumed
    assert left(tmp_path / "another machine") == []


def test_two_fits_at_one_address(rows, small_sizes, place):
    def another(event):
        with pytest.raises(FolderInUse, match=r"there is in use by another fit \(process \d+ on .*\); wait until"):
            model().fit(*rows, checkpoint=place[1])
        raise Stopped

    with pytest.raises(Stopped):
        model().fit(*rows, checkpoint=place[1], progress=another)
    assert os.listdir(place[0] / "gigagp-leases") == []


def test_what_is_no_checkpoint_is_left_alone(rows, small_sizes, place):
    (place[0] / "diary.txt").write_text("dear diary")
    with pytest.raises(InvalidInput, match=r"neither empty nor a checkpoint of gigagp \(diary\.txt\); choose another"):
        model().fit(*rows, checkpoint=place[1])
    assert left(place[0]) == ["diary.txt"]


def test_a_log_that_cannot_be_read_does_not_block_the_address(place, monkeypatch):
    def unreadable(*_):
        raise InvalidInput("cannot read: the server does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_objects, "LogObjects", unreadable)
        with pytest.raises(InvalidInput, match="does not answer"):
            checkpoint_objects.CheckpointObjects(place[1], ("manifest.json",))
    checkpoint_objects.CheckpointObjects(place[1], ("manifest.json",)).release()


def test_an_interrupted_end_does_not_block_the_address(place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    opened = open_checkpoint(place[1], {}, 0, 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(LogObjects, "push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.close()
    open_checkpoint(place[1], {}, 0, 1 << 30).close()


def test_a_damaged_checkpoint_is_named_by_its_address(place):
    open_checkpoint(place[1], {}, 0, 1 << 30).close()
    (place[0] / "manifest.json").write_text("no manifest")
    with pytest.raises(DamagedFile, match=r"^fsspec\+file://.*/there/manifest\.json is damaged: it is not JSON"):
        open_checkpoint(place[1], {}, 0, 1 << 30)


class Held:
    def check(self):
        pass


def test_the_log_is_in_segments(place, monkeypatch):
    monkeypatch.setattr("gigagp.fit.checkpoint_objects._SEGMENT", 10)
    folder = Mirror.temporary(place[1]).home.below("log")
    log, content = LogObjects(folder, Held()), b""
    for number in range(12):
        log.append(b"%03d " % number)
        content += b"%03d " % number
        log.push()
        assert LogObjects(folder, Held()).content == content
    assert folder.names() == [f"{start:015d}" for start in (0, 12, 24, 36)]
    log.cut(30)
    log.append(b"new")
    assert LogObjects(folder, Held()).content == content[:36], "not more than was there"
    log.push()
    assert LogObjects(folder, Held()).content == content[:30] + b"new"
    (place[0] / folder.address.rpartition("there/")[2] / f"{12:015d}").unlink()
    assert LogObjects(folder, Held()).content == content[:12], "up to the first gap"


def test_rows_that_are_parsed_once_are_kept_in_the_cache(rows, place, tmp_path, monkeypatch):
    """Not in a folder of the working directory that has the address as its name."""
    folders = []
    monkeypatch.setattr(parsed, "TemporaryFolder", lambda folder: folders.append(folder) or TemporaryFolder(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    np.savetxt("t.csv", np.column_stack(rows)[:40], delimiter=",", header="a,b,y,z", comments="")
    model(targets="separate", memory=None).fit("t.csv", ["y", "z"], store=place[1])
    assert folders == [tmp_path / "cache"]
    assert os.listdir() == ["t.csv"]

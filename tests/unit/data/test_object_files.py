"""Objects at addresses, leases on them, and files in parts. The address is one of fsspec's, whose objects are files."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from gigagp.data import leases, object_files, objects
from gigagp.data.folders import output_path
from gigagp.data.leases import Lease, TemporaryObjects
from gigagp.data.mapped_file import MappedFile
from gigagp.data.mirrors import Mirror
from gigagp.data.object_files import RemoteArray, RemoteFile, forget_copies
from gigagp.data.objects import ObjectFolder
from gigagp.errors import DamagedFile, DiskFull, FolderInUse, InvalidParameter
from gigagp.model.remote_folders import check_fit_folders, local_copy, uploading
from gigagp.model.remote_outputs import RemoteOutput
from gigagp.model.saving import check_destination


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder behind the address, and the address."""
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "there").mkdir()
    return tmp_path / "there", ObjectFolder(f"fsspec+file://{tmp_path}/there")


def test_objects_are_written_whole_and_read_in_part(place):
    folder, objects = place
    objects.put("a/b", b"0123456789")
    objects.put("a/b", memoryview(b"9876543210"))
    assert objects.get("a/b") == b"9876543210"
    assert objects.get("a/b", 3, 2) == b"65"
    assert objects.get("a/c") is None
    assert pickle.loads(pickle.dumps(objects)).below("a").get("b") == b"9876543210"
    assert list(objects.files()) == ["a/b"], "and no half-written object"
    assert objects.names() == ["a"]
    assert objects.has("a/b")
    objects.remove("a/b")
    objects.remove("a/b")
    assert not objects.has("a/b")
    objects.below("a").clear()
    objects.below("a").clear()
    assert os.listdir(folder) == []


def test_an_object_that_cannot_be_written_is_a_sentence(place):
    folder, objects = place
    (folder / "file").write_text("not a folder")
    with pytest.raises(DiskFull, match=r"cannot write fsspec\+file://.*/there/file/x: "):
        objects.put("file/x", b"1")


@pytest.mark.parametrize("address", ["s3://", "s3://?scheme=http", "s3:///"])
def test_an_address_without_a_bucket_is_refused(address):
    with pytest.raises(InvalidParameter, match=r"names no bucket; give one such as s3://bucket/folder"):
        check_fit_folders(address, None)
    with pytest.raises(InvalidParameter, match=r"names no bucket; give one such as s3://bucket/folder"):
        RemoteOutput("s3://o.parquet", overwrite=False)


def test_addresses_of_this_machine_are_refused():
    """Otherwise they would be names of folders in the working directory."""
    for call in (lambda: check_fit_folders("file:///a", None), lambda: check_destination("file:///a")):
        with pytest.raises(InvalidParameter, match="folder must be a path, without file://; got 'file:///a'"):
            call()
    with pytest.raises(InvalidParameter, match=r"file:///a is an address, .* give a path"):
        output_path("file:///a")


def write_model(folder, content):
    (folder / "0").mkdir(parents=True)
    for name in ("manifest.json", "0/manifest.json", "0/X.npy"):
        (folder / name).write_bytes(content)


def test_a_model_is_uploaded_with_its_folders(place):
    address = f"{place[1].address}/deep/model"
    for content in (b"1", b"22"):
        with uploading(address, overwrite=True) as folder:
            write_model(folder, content)
        assert place[1].below("deep/model").names() == ["0", "manifest.json"]
        assert [(local_copy(address) / name).read_bytes() for name in ("0/X.npy", "manifest.json")] == [content] * 2


def test_a_file_whose_upload_fails_is_not_left_in_part(place, tmp_path, monkeypatch):
    def failing(source, target, size):
        target.write(source.read(1))
        raise OSError("the connection is lost")

    monkeypatch.setattr(objects.shutil, "copyfileobj", failing)
    saved = uploading(place[1].address, overwrite=False)
    folder = saved.__enter__()
    folder.mkdir()
    (folder / "manifest.json").write_bytes(b"123")
    with pytest.raises(DiskFull, match="the connection is lost"):
        saved.__exit__(None, None, None)
    assert place[1].names() == []


def test_a_file_that_another_process_removes_after_its_own_upload_is_uploaded(place, tmp_path, monkeypatch):
    """The same prediction, called a second time during the first upload."""
    path, copy = tmp_path / "o.csv", objects.shutil.copyfileobj
    path.write_bytes(b"mean\n1\n")

    def copy_and_remove(*arguments):
        copy(*arguments)
        path.unlink()

    monkeypatch.setattr(objects.shutil, "copyfileobj", copy_and_remove)
    place[1].upload("o.csv", path)
    assert place[1].get("o.csv") == b"mean\n1\n"


@pytest.fixture
def array(place, tmp_path, monkeypatch):
    """An array of ten rows in a file, in parts of about two rows, and the array at the address."""
    monkeypatch.setattr(object_files, "_PART", 50)
    np.save(tmp_path / "a.npy", np.arange(30.0).reshape(10, 3))
    here = np.load(tmp_path / "a.npy", mmap_mode="r")
    _, objects = place
    return here, Mirror(objects, objects, tmp_path).reference(MappedFile.of(here), objects)


def test_only_the_parts_that_are_needed_are_read(array, place):
    here, there = array
    (name,) = os.listdir(place[0])
    parts = sorted(part for part in os.listdir(place[0] / name) if part != "index")
    for part in parts:
        if not 128 + 24 * 4 - 50 < int(part) < 128 + 24 * 6:
            (place[0] / name / part).unlink()
    assert there.open(slice(4, 6))[4:6].tolist() == here[4:6].tolist()
    assert there.open(np.array([5, 4]))[5].tolist() == here[5].tolist()
    for rows in (slice(3, 10), np.array([4, 9]), None):
        with pytest.raises(DamagedFile, match=r"a\.npy/\d+ was removed since it was written; fit again"):
            there.open(rows)


def test_all_parts_are_the_file(array, tmp_path):
    here, there = array
    again = pickle.loads(pickle.dumps(there))
    assert again == there
    assert again.open().tolist() == here.tolist()
    assert again.file.local().read_bytes() == (tmp_path / "a.npy").read_bytes()
    copy = again.file.local()
    forget_copies(str(there.file.address))
    assert not copy.exists()
    assert there.open().tolist() == here.tolist()


@pytest.mark.parametrize("which", ["index", "000000000000150"])
def test_an_object_that_has_changed_is_an_error(array, place, which):
    (name,) = os.listdir(place[0])
    path = place[0] / name / which
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DamagedFile, match=f"{which} has changed since it was written"):
        array[1].open()


def test_no_space_for_a_copy_is_a_sentence(array, monkeypatch):
    monkeypatch.setattr("gigagp.data.folders.shutil.disk_usage", lambda _: type("", (), {"free": 10}))
    with pytest.raises(DiskFull, match=r"a copy of .*a\.npy needs .* make room for another"):
        array[1].open()


def test_a_file_is_uploaded_once_and_again_when_it_has_changed(place, tmp_path):
    objects, path = place[1], tmp_path / "f"
    mirror = Mirror(objects, objects, tmp_path)
    path.write_bytes(b"one")
    first = mirror.uploaded(path, objects)
    assert mirror.uploaded(path, objects) is first
    path.write_bytes(b"three")
    assert mirror.uploaded(path, objects) != first
    assert first.local().read_bytes() == b"one"
    assert RemoteFile.at(objects, first.name) == first
    assert isinstance(RemoteArray(first, 0, (3,), "u1").open(), np.memmap)


def test_a_lease_says_who_uses_a_folder(place):
    objects = place[1]
    first, temporary = Lease(objects, "fit"), TemporaryObjects(objects)
    assert first.rival("fit") is None
    second = Lease(objects, "fit")
    assert second.rival("fit") == f"process {os.getpid()} on {os.uname().nodename}"
    first.release()
    second.release()
    assert Lease(objects, "fit").rival("fit") is None
    temporary.folder.put("x", b"1")
    temporary.remove()
    assert objects.names() == ["gigagp-leases"]


def test_what_a_killed_process_has_left_is_removed(place, monkeypatch):
    objects = place[1]
    dead, temporary = Lease(objects, "fit"), TemporaryObjects(objects)
    temporary.folder.put("x", b"1")
    for path in (place[0] / "gigagp-leases").iterdir():
        os.utime(path, (1, 1))
    own = Lease(objects, "fit")
    assert own.rival("fit") is not None, "what is of this process is in use"
    own.release()
    monkeypatch.setattr(leases, "_ours", set())
    live = Lease(objects, "fit")
    assert live.rival("fit") is None
    assert objects.names() == ["gigagp-leases"]
    assert objects.below("gigagp-leases").names() == [live.name]
    dead.check()
    dead.renew()  # it was only stopped for long
    with pytest.raises(FolderInUse, match="taken over by another fit"):
        dead.check()
    assert objects.below("gigagp-leases").names() == [live.name]


def test_a_process_of_this_machine_that_has_ended_is_known_at_once(place):
    objects = place[1]
    code = f"from gigagp.data.leases import *; import os; Lease(ObjectFolder({objects.address!r}), 'fit'); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
    (name,) = objects.below("gigagp-leases").names()
    left = objects.below("gigagp-leases").get(name)
    lease = Lease(objects, "fit")
    assert lease.rival("fit") is None
    lease.release()
    machine, _, number = left.decode().rpartition(":")
    for other in (f"{machine}0:{number}", f"{machine}:{os.getpid()}", f"{machine}:1", "process 1 on nowhere", ""):
        objects.below("gigagp-leases").put("fit-other", other.encode())
        lease = Lease(objects, "fit")
        assert lease.rival("fit") is not None
        lease.release()


def test_a_lease_that_is_released_meanwhile_is_no_rival(place, monkeypatch):
    first, get = Lease(place[1], "fit"), ObjectFolder.get

    def get_after_release(*arguments):
        first.release()
        return get(*arguments)

    monkeypatch.setattr(ObjectFolder, "get", get_after_release)
    assert Lease(place[1], "fit").rival("fit") is None


def test_a_lease_is_renewed(place, monkeypatch):
    monkeypatch.setattr(leases, "_RENEW_SECONDS", 0.01)
    lease = Lease(place[1], "fit")
    path = place[0] / "gigagp-leases" / lease.name
    os.utime(path, (1, 1))
    for _ in range(1000):
        if path.stat().st_mtime > 1:
            break
        leases.threading.Event().wait(0.01)
    assert path.stat().st_mtime > 1
    lease.release()
    assert not path.exists()

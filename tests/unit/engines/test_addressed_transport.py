"""Values that are sent to workers which share no folder with this process: all files are read from an address."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gigagp.data.leases import TemporaryObjects
from gigagp.data.mirrors import Mirror
from gigagp.data.object_files import RemoteArray
from gigagp.data.row_lists import IndexLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.engines.base import OverLeaves
from gigagp.engines.shards import ShardFiles
from gigagp.engines.transport import Depot, forget_values, mapped_store, unpack
from gigagp.tree import Tree


class Large:
    travels_once = True

    def __init__(self, content):
        self.content = content


@pytest.fixture
def depot(tmp_path, monkeypatch):
    """A depot whose files are at an address, and the mirror of a store."""
    monkeypatch.setenv("GIGAGP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "depot").mkdir()
    mirror = Mirror.temporary(f"fsspec+file://{tmp_path}/there")
    return Depot(tmp_path / "depot", mirror, TemporaryObjects(mirror.base)), mirror


def test_values_need_no_file_of_this_machine(depot, tmp_path):
    rng = np.random.default_rng(0)
    X, by_column = rng.standard_normal((20_000, 3)), np.asfortranarray(rng.standard_normal((200, 100)))
    store, value = ExpertStore(X, X[:, 0].copy()), Large({"X": X, "few": np.arange(3)})
    packed = depot[0].pack((store, by_column, value, "text"))
    assert len(packed.data) < 10_000
    shutil.rmtree(tmp_path / "depot")
    again, columns, large, text = unpack(packed.data)
    assert text == "text"
    assert again.X.tobytes() == X.tobytes()
    assert again.mapped
    assert columns.tolist() == by_column.tolist()
    assert columns.flags.f_contiguous
    assert large.content["X"].tobytes() == X.tobytes()
    forget_values(depot[1].base.address)
    assert list((tmp_path / "cache").rglob("*.npy")) == []
    assert unpack(packed.data)[1].tolist() == by_column.tolist()


@pytest.mark.parametrize("consecutive", [True, False])
def test_a_shard_has_the_rows_of_its_leaves(depot, consecutive):
    folder, rng = depot[1].folder, np.random.default_rng(0)
    np.save(folder / "X.npy", rng.standard_normal((400, 3)))
    np.save(folder / "y.npy", rng.standard_normal(400))
    arrays = [np.load(folder / name, mmap_mode="r") for name in ("X.npy", "y.npy")]
    store = ExpertStore(*arrays)
    lists = Runs(np.arange(0, 401, 40)) if consecutive else IndexLists.of([np.arange(i, 400, 10) for i in range(10)])
    over, tree = OverLeaves(store, lists, None, lambda *_: None), Tree.balanced(10)
    files = depot[0].files(store)
    assert all(isinstance(file, RemoteArray) for file in files)
    there, here = (ShardFiles.of(each, over, tree.cut(4)[1:3]).load() for each in (files, store.files))
    assert there.checksum == here.checksum
    assert there.X.tobytes() == here.X.tobytes()
    assert depot[0].files(store) == files, "nothing is uploaded again"
    assert mapped_store(files).y.tobytes() == store.y.tobytes()

"""The expert store: which of its mapped pages stay in memory, and how its rows become those of a saved model."""

import errno
import os
import re
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from gigagp.data.array_files import ArrayFiles
from gigagp.data.row_lists import Runs
from gigagp.data.store import ExpertStore, PlacedWriter, open_store, read_rows, write_rows

ROWS = 50_000


def resident(path):
    """Bytes of a mapped file that are in this process's memory."""
    entries = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return sum(1024 * int(re.search(r"Rss:\s+(\d+) kB", entry)[1]) for entry in entries)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rows_within_the_limit_are_mapped_at_once_and_stay(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((ROWS, 4)), rng.standard_normal(ROWS)
    files = ArrayFiles(tmp_path, write_rows(tmp_path, ExpertStore(X, y)))
    size = X.nbytes + y.nbytes
    for limit, kept in ((size // 2, False), (2 * size, True)):
        store = read_rows(files, ROWS, 4, "float64", verify=False)
        assert resident(tmp_path / "X.npy") == 0
        store.keep_mapped(limit)
        assert (resident(tmp_path / "X.npy") >= X.nbytes) == kept
        assert store.X[::100].sum() == X[::100].sum()
        assert resident(tmp_path / "X.npy") > 0
        store.release()
        assert (resident(tmp_path / "X.npy") >= X.nbytes) == kept
        np.testing.assert_array_equal(store.y, y)
        del store


def on_disk(folder, rows=50, noisy=False):
    """A store in a folder, of one part."""
    rng = np.random.default_rng(0)
    X, targets = rng.standard_normal((rows, 2)), rng.uniform(1, 2, (rows, 3) if noisy else rows)
    folder.mkdir()
    writer = PlacedWriter(folder, rows, 2, X.dtype, noisy)
    checksums = [writer.places.write(0, X, targets)]
    writer.finish(Runs(np.array([0, 20, rows])), "rows", [rows], checksums)
    return open_store(folder)[0]


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("linkable", [True, False])
def test_rows_of_a_store_are_linked_where_that_is_possible(tmp_path, monkeypatch, noisy, linkable):
    store = on_disk(tmp_path / "store", noisy=noisy)
    if not linkable:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EXDEV, "another file system")))
    (tmp_path / "model").mkdir()
    entries = write_rows(tmp_path / "model", store)
    X = (tmp_path / "model" / "X.npy").stat()
    assert (X.st_nlink == 2) == linkable
    shutil.rmtree(tmp_path / "store")
    copy = read_rows(ArrayFiles(tmp_path / "model", entries), 50, 2, "float64", verify=True)
    for name in ("X", "y", "row_noise"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(store, name))


def test_files_that_have_changed_are_not_linked(tmp_path):
    store = on_disk(tmp_path / "store")
    os.utime(tmp_path / "store" / "y.npy", ns=(1, 1))
    (tmp_path / "model").mkdir()
    write_rows(tmp_path / "model", store)
    assert (tmp_path / "model" / "X.npy").stat().st_nlink == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_given_back_where_more_is_mapped_than_was_read(tmp_path, monkeypatch):
    store = on_disk(tmp_path / "store")
    assert store.X.sum() != 0
    store.touched(1)
    assert resident(tmp_path / "store" / "X.npy") > 0
    monkeypatch.setattr("gigagp.data.store._MOST_MAPPED", 0)
    store.touched(1)
    assert resident(tmp_path / "store" / "X.npy") == 0

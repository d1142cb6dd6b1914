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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("scattered", [True, False])
def test_scattered_rows_are_read_in_pieces_whose_pages_are_given_back(tmp_path, monkeypatch, scattered):
    """Held-out rows lie anywhere: each would map some MB around itself, together more than all memory."""
    X, y = np.arange(4.0 * ROWS).reshape(-1, 4), np.arange(float(ROWS))
    row_noise = np.column_stack([y + 1, y + 2])
    files = ArrayFiles(tmp_path, write_rows(tmp_path, ExpertStore(X, y, row_noise)))
    mapped = read_rows(files, ROWS, 4, "float64", verify=False)
    window = 1 << 14
    monkeypatch.setattr("gigagp.data.mapped_pages.WINDOW", window)
    monkeypatch.setattr("gigagp.data.store.WINDOW", window)
    store = ExpertStore(*mapped._given[:1], mapped.y, mapped._given[1], release=8 * window)
    release = Mock(side_effect=store.release)
    monkeypatch.setattr(store, "release", release)
    rows = np.random.default_rng(0).permutation(ROWS)[:500] if scattered else np.arange(100, 200)
    for found, expected in zip(store.gather(rows), (X[rows], y[rows]), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert not found.flags.writeable
    np.testing.assert_array_equal(store.noise_of(rows), row_noise[rows])
    assert (release.call_count > 10) == scattered
    assert (resident(tmp_path / "X.npy") == 0) == scattered


def test_tasks_have_fewer_queries_where_these_are_scattered():
    """What a task maps can only be given back when it has ended."""
    store = ExpertStore(np.zeros((10, 3)), np.zeros(10))
    assert store.queries_together(1) > 1 << 20  # rows in memory
    store._maps = [range(16 << 30)]  # something as long as the file
    few, some, many = (store.queries_together(queries) for queries in (100, 10_000, 1_000_000))
    assert few < some < many
    assert few == 16
    store._kept = True
    assert store.queries_together(1) > 1 << 20

"""Buckets in files: each part of the data is sorted by a task that may be repeated."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

from gigagp.data import scaled
from gigagp.data.scaled import ArrayRows
from gigagp.engines import open_engine
from gigagp.fit.bucket_runs import FolderRuns
from gigagp.fit.bucket_sort import FileBuckets, RowLayout, SortTask

N, COUNT = 3000, 90


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.setattr(scaled, "BLOCK", 128)
    monkeypatch.setattr("gigagp.data.scaling.BLOCK", 128)
    X = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
    return ArrayRows(X, np.arange(N, dtype=np.float32))


def by_value(first, X):
    return (np.abs(X[:, 0]) * 40).astype(np.int64) % (COUNT - 1)  # the last bucket is empty


@pytest.mark.parametrize("memory", [1 << 14, 1 << 16, 1 << 30])
@pytest.mark.parametrize("divisible", [True, False])
def test_buckets_have_their_rows_whatever_the_memory(rows, memory, divisible, tmp_path, monkeypatch):
    if not divisible:
        monkeypatch.setattr(ArrayRows, "ranges", lambda rows, about: None)
    with open_engine("threads", 2) as engine:
        buckets = FileBuckets(rows, by_value, COUNT, FolderRuns(str(tmp_path / "buckets")), memory, engine)
    ids = by_value(0, rows.X)
    assert buckets.sizes.tolist() == np.bincount(ids, minlength=COUNT).tolist()
    for bucket in range(COUNT):
        X, y = buckets.take(bucket)
        assert y.tolist() == np.flatnonzero(ids == bucket).tolist()
        assert X.tobytes() == rows.X[ids == bucket].tobytes()
    files = (tmp_path / "buckets").rglob("*.rows")
    assert sum(path.stat().st_size for path in files) == N * 4 * 4, "each row is written once"


def test_files_of_buckets_that_are_stored_are_removed_in_groups(rows, tmp_path):
    with open_engine("serial", 1) as engine:
        buckets = FileBuckets(rows, by_value, COUNT, FolderRuns(str(tmp_path / "buckets")), 1 << 20, engine)

    def size():
        return sum(path.stat().st_size for path in (tmp_path / "buckets").rglob("*.rows"))

    left = [size()]
    for bucket in np.flatnonzero(buckets.sizes).tolist():
        buckets.take(bucket)
        buckets.remove(bucket)
        left.append(size())
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0
    assert sum(a > b for a, b in pairwise(left)) > 50, "a little at a time"


def test_a_repeated_task_changes_nothing_and_leaves_nothing(rows, tmp_path):
    task = SortTask(rows, by_value, RowLayout.of(rows), FolderRuns(str(tmp_path)), np.array([0, 30, COUNT]), 400)
    first = task((0, 0, 1000, None), None)
    (tmp_path / ".000001-of-a-killed-worker").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.rows")}
    again = task((0, 0, 1000, None), None)
    assert [run.rows.tolist() for run in first] == [run.rows.tolist() for run in again]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.rows")} == before
    assert sorted(os.listdir(tmp_path)) == [".000001-of-a-killed-worker", "000000"]
    assert len(first) == 3, "runs of 400 rows"


def sort_task(rows, assign, folder):
    return SortTask(rows, assign, RowLayout.of(rows), FolderRuns(str(folder)), np.array([0, COUNT]), 400)


def test_a_task_that_fails_leaves_nothing(rows, tmp_path):
    def fails(first, X):
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        SortTask(rows, fails, RowLayout.of(rows), FolderRuns(str(tmp_path)), np.array([0, COUNT]), 400)(
            (0, 0, 1000, None), None
        )
    assert os.listdir(tmp_path) == []


def test_a_repeated_task_that_fails_says_why(rows, tmp_path):
    def fails(first, X):
        raise OSError("no space")

    (tmp_path / "000000").mkdir()  # what the task wrote when it ran before
    with pytest.raises(OSError, match="no space"):
        SortTask(rows, fails, RowLayout.of(rows), FolderRuns(str(tmp_path)), np.array([0, COUNT]), 400)(
            (0, 0, 1000, None), None
        )
    assert os.listdir(tmp_path) == ["000000"]

"""The log of updates: what was acknowledged is read back, what was half-written is never seen."""

import os

import numpy as np
import pytest

from gigagp.data.update_log import FORGET, MAGIC, NAME, ROWS, RowsRecord, UpdateLog, read
from gigagp.errors import DamagedFile, DiskFull, FolderInUse


def contents(folder, start=0):
    return [(record.kind, record.content) for record in read(folder / NAME, start)]


def test_records_are_read_back_in_order(tmp_path):
    log = UpdateLog(tmp_path)
    first = log.append(ROWS, b"one")
    log.append(FORGET, b"")
    assert contents(tmp_path) == [(ROWS, b"one"), (FORGET, b"")]
    assert contents(tmp_path, first) == [(FORGET, b"")]
    log.close()
    log = UpdateLog(tmp_path)
    log.append(ROWS, b"three")
    log.close()
    log.close()
    assert [content for _, content in contents(tmp_path)] == [b"one", b"", b"three"]


def test_one_writer_at_a_time_which_leaves_nothing_if_it_writes_nothing(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    log = UpdateLog(folder)
    with pytest.raises(FolderInUse, match="open for updates"):
        UpdateLog(folder)
    log.close()
    UpdateLog(folder).close()
    assert list(tmp_path.rglob("*")) == [folder]
    log = UpdateLog(folder)
    log.append(ROWS, b"one")
    log.close()
    assert sorted(tmp_path.rglob("*")) == [folder, folder / NAME]


def test_a_log_cut_at_any_byte_has_all_whole_records_and_takes_more(tmp_path):
    log = UpdateLog(tmp_path)
    ends = [len(MAGIC), *(log.append(ROWS, bytes([65 + i]) * (5 * i)) for i in range(4))]
    log.close()
    whole = (tmp_path / NAME).read_bytes()
    for size in (*range(0, len(whole), 7), len(whole) - 1):
        (tmp_path / NAME).write_bytes(whole[:size])
        expected = sum(end <= size for end in ends[1:])
        assert len(contents(tmp_path)) == expected
        log = UpdateLog(tmp_path)
        log.append(ROWS, b"after")
        log.close()
        assert contents(tmp_path)[-1] == (ROWS, b"after")
        assert len(contents(tmp_path)) == expected + 1


def test_a_changed_byte_is_damage_unless_it_is_in_the_last_record(tmp_path):
    log = UpdateLog(tmp_path)
    first = log.append(ROWS, b"a" * 40)
    log.append(ROWS, b"b" * 40)
    log.close()
    whole = (tmp_path / NAME).read_bytes()
    for place in (first - 1, first - 30):  # in the content
        (tmp_path / NAME).write_bytes(whole[:place] + b"X" + whole[place + 1 :])
        with pytest.raises(DamagedFile, match="wrong checksum"):
            contents(tmp_path)
    (tmp_path / NAME).write_bytes(whole[:-1] + b"X")
    assert contents(tmp_path) == [(ROWS, b"a" * 40)]
    (tmp_path / NAME).write_bytes(b"something else entirely")
    with pytest.raises(DamagedFile, match="not a log"):
        contents(tmp_path)


def test_records_cannot_be_moved(tmp_path):
    log = UpdateLog(tmp_path)
    first = log.append(ROWS, b"a" * 10)
    log.append(ROWS, b"b" * 10)
    log.close()
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(MAGIC + whole[first:])
    assert contents(tmp_path) == []


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_survive_as_bytes(noisy, dtype):
    rng = np.random.default_rng(0)
    noise = rng.uniform(size=(7, 2)).astype(dtype) if noisy else None
    record = RowsRecord(
        rng.uniform(size=(7, 3)).astype(dtype), rng.uniform(size=7).astype(dtype), noise, np.arange(7), np.ones(2)
    )
    again = RowsRecord.of(record.to_bytes())
    for name in ("X", "y", "arrivals", "score"):
        np.testing.assert_array_equal(getattr(again, name), getattr(record, name))
    assert again.X.dtype == dtype
    np.testing.assert_array_equal(again.row_noise, noise) if noisy else None


def test_bytes_that_are_no_rows_are_refused():
    good = RowsRecord(np.ones((2, 3)), np.ones(2), None, np.arange(2), np.empty(0)).to_bytes()
    bad = RowsRecord(np.full((2, 3), np.nan), np.ones(2), None, np.arange(2), np.empty(0)).to_bytes()
    for content in (b"", good[:-1], good + b"x", bad, b"\xff" * len(good)):
        with pytest.raises(ValueError, match="record of rows"):
            RowsRecord.of(content)


@pytest.mark.parametrize("offset", [0, 5, 9, 13])  # in the mark, the kind, and the low and high bytes of the length
def test_a_damaged_header_does_not_hide_the_records_behind_it(tmp_path, offset):
    log = UpdateLog(tmp_path)
    first = log.append(ROWS, b"a" * 40)
    second = log.append(ROWS, b"b" * 40)
    log.append(ROWS, b"GGPR" * 10)
    log.close()
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[: first + offset] + b"X" + whole[first + offset + 1 :])
    with pytest.raises(DamagedFile, match="others follow it"):
        contents(tmp_path)
    with pytest.raises(DamagedFile, match="others follow it"):
        UpdateLog(tmp_path)
    (tmp_path / NAME).write_bytes(whole[: second + offset] + b"X" + whole[second + offset + 1 :])
    assert len(contents(tmp_path)) == 2
    (tmp_path / NAME).write_bytes(whole[: second - 1] + b"X" + whole[second:-1])  # before one that is not complete
    with pytest.raises(DamagedFile, match="others follow it"):
        contents(tmp_path)


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_log_that_could_not_be_created_is_created_by_the_next_record(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(28, "No space left on device")

    log = UpdateLog(tmp_path)
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(DiskFull):
        log.append(ROWS, b"one")
    monkeypatch.undo()
    log.append(ROWS, b"two")
    log.close()
    assert contents(tmp_path) == [(ROWS, b"two")]

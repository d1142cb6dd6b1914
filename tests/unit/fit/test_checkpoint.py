"""A fit that was stopped goes on with the same call, and ends with the same bits as one that was not."""

from __future__ import annotations

import gc
import json
import os
import struct
import zlib
from contextlib import contextmanager
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gigagp import HGPRegressor
from gigagp.combine import Healed
from gigagp.data.scaling import Moments
from gigagp.data.sources.rows import Rows
from gigagp.data.store import PlacedWriter, StorePlaces
from gigagp.errors import DamagedFile, InvalidInput
from gigagp.expert import Evidence
from gigagp.fit import checkpoint, fitting
from gigagp.fit.checkpoint import EvaluationLog
from gigagp.kernels import Matern32, SquaredExponential
from gigagp.model.fingerprint import described
from gigagp.partition import LocalPartition, StratifiedPartition

N = 850
SHAPES = {
    "local": {"leaf_size": 50, "kernel": SquaredExponential(), "method": "neighbourhood", "neighbours": 16},
    "random": {"partition": "random", "leaf_size": 50, "sharing": 2},
    "stratified": {"partition": "stratified", "levels": 2, "branching": 4},
}
PLACES = {"in memory": None, "on disk": 88 * N}
in_every_place = pytest.mark.parametrize("memory", PLACES.values(), ids=PLACES)
NAMES = ["a", "b", "c"]


def slowly(*values):
    """A further case of a law that has a quick one."""
    return pytest.param(*values, marks=pytest.mark.slow)


class Stop(Exception):
    """The fit ends here."""


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(8)
    X = rng.uniform(-2, 2, (N + 50, 3))
    y = np.sin(2 * X).sum(axis=1) + 0.1 * rng.standard_normal(N + 50)
    return X[:N], y[:N], X[N:]


@pytest.fixture(scope="module")
def source(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "t.parquet"
    frame = pd.DataFrame(rows[0], columns=NAMES).assign(t=rows[1])
    frame.loc[3, "a"] = np.nan
    frame.to_parquet(path, row_group_size=200)
    return path


@pytest.fixture(scope="module")
def uninterrupted(rows):
    """What a fit of the arrays without a checkpoint decides, for each partition; ask for it under `small_sizes`."""
    return cache(lambda partition: answers(model(partition).fit(*rows[:2]), rows[2]))


@pytest.fixture(scope="module")
def uninterrupted_from_file(rows, source):
    """The same of the rows in the file."""
    queries = pd.DataFrame(rows[2], columns=NAMES)
    return cache(lambda partition: answers(model(partition).fit(source, "t", missing="drop"), queries))


def model(partition="local", **others):
    return HGPRegressor(**(SHAPES[partition] | {"random_state": 0, "training": "full"} | others))


def answers(fitted, queries):
    """All that a fit decides, to the bit."""
    mean, std = fitted.predict(queries, return_std=True)
    report = fitted.report_
    return (
        fitted.theta_.tobytes(), mean.tobytes(), std.tobytes(), fitted.n_leaves_, report.evidence_trace,
        report.theta_trace.tobytes(), report.stages, report.rows, report.dropped, report.points_per_leaf,
        report.points_per_expert, report.jitter, report.warnings,
    )  # fmt: skip


def check_clean(folder):
    """No trace of anything unfinished."""
    gc.collect()
    names = [str(p.relative_to(folder)) for p in folder.rglob("*")]
    assert not [name for name in names if "partial" in name or "buckets" in name or "old" in name], names
    assert {"manifest.json", "scan.npz", "evaluations.log"} <= set(names)


def forbid(monkeypatch, *names):
    for name in names:
        monkeypatch.setattr(name, lambda *_, name=name, **__: pytest.fail(f"{name} was called"))


@contextmanager
def stopping(owner, name, calls):
    """When the method has been called so many times, it raises Stop; which must happen."""
    real, count = getattr(owner, name), []

    def counted(*arguments, **others):
        if len(count) == calls:
            raise Stop
        count.append(name)
        return real(*arguments, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        try:
            yield
        except Stop:
            return
    pytest.fail(f"{name} was called {len(count)} times only")


# Stopped anywhere


@pytest.mark.parametrize(
    ("partition", "memory"),
    [("local", PLACES["on disk"]), slowly("random", None), slowly("stratified", PLACES["on disk"])],
)
def test_stopped_after_every_single_evaluation(partition, memory, rows, small_sizes, tmp_path, monkeypatch):
    """One evaluation a run, each in a process of its own as far as the model knows: none is lost, none done twice."""
    X, y, Z = rows
    quiet = model(partition, memory=memory).fit(X, y)
    real, made = EvaluationLog._append, []

    def append(log, record):
        if made:
            raise Stop  # evaluated, and not yet recorded
        made.append(record)
        real(log, record)

    monkeypatch.setattr(EvaluationLog, "_append", append)
    runs = 0
    while True:
        made.clear()
        try:
            resumed = model(partition, memory=memory).fit(X, y, checkpoint=tmp_path)
            break
        except Stop:
            runs += 1
            assert len(made) == 1
    extra = sum(stage.name == "rough theta" for stage in quiet.report_.stages)
    assert runs + len(made) in range(quiet.report_.evaluations, quiet.report_.evaluations + 2 + extra)
    assert answers(resumed, Z) == answers(quiet, Z)
    check_clean(tmp_path)


@pytest.mark.parametrize(
    "how",
    [
        {"training": "progressive", "leaf_size": 8},
        {"kernel": None, "method": "auto"},
        slowly({"n_restarts": 2}),
        slowly({"combine": "grbcm", "method": "committee"}),
    ],
)
def test_stopped_in_longer_ways_to_train(how, rows, small_sizes, tmp_path):
    X, y, Z = rows
    quiet = model(**how).fit(X, y)
    for calls in (0, 1, 5, 20):
        with stopping(EvaluationLog, "_append", calls):
            model(**how).fit(X, y, checkpoint=tmp_path)
    assert answers(model(**how).fit(X, y, checkpoint=tmp_path), Z) == answers(quiet, Z)


BLOCKS = -(-N // 256)


@pytest.mark.parametrize(
    ("partition", "stop"),
    [
        ("local", BLOCKS - 1),
        ("local", 2 * BLOCKS - 1),
        ("stratified", 2 * BLOCKS + 1),
        *(slowly("local", stop) for stop in (0, 2, BLOCKS, 2 * BLOCKS + 1)),
        *(slowly("random", stop) for stop in (BLOCKS, 2 * BLOCKS - 1)),
        slowly("stratified", BLOCKS + 1),
    ],
)
def test_stopped_while_rows_are_read(
    partition, stop, rows, source, small_sizes, tmp_path, monkeypatch, uninterrupted_from_file
):
    """In the scan, in the pass that deals them into buckets, or in the pass after that."""
    Z, real, seen = rows[2], Rows.blocks, []

    def blocks(self, *how):
        for block in real(self, *how):
            if len(seen) == stop:
                raise Stop
            seen.append(block)
            yield block

    def run():
        return model(partition, memory=88 * N).fit(source, "t", missing="drop", checkpoint=tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "blocks", blocks)
        try:
            run()
            assert stop >= 2 * BLOCKS  # only some partitions read the rows three times
        except Stop:
            check_no_store(tmp_path)
    resumed = run()
    assert answers(resumed, pd.DataFrame(Z, columns=NAMES)) == uninterrupted_from_file(partition)
    assert resumed.report_.dropped == 1
    check_clean(tmp_path)


def check_no_store(folder):
    gc.collect()
    assert set(os.listdir(folder)) <= {"manifest.json", "scan.npz", "evaluations.log"}


@pytest.mark.parametrize(
    ("partition", "writer", "name", "calls"),
    [
        ("local", StorePlaces, "write", 0),
        ("stratified", StorePlaces, "write", 2),
        slowly("random", StorePlaces, "write", 2),
        slowly("local", PlacedWriter, "finish", 0),
    ],
)
def test_stopped_while_the_store_is_written(partition, writer, name, calls, rows, small_sizes, tmp_path, uninterrupted):
    X, y, Z = rows
    with stopping(writer, name, calls):
        model(partition, memory=88 * N).fit(X, y, checkpoint=tmp_path)
    check_no_store(tmp_path)
    resumed = model(partition, memory=88 * N).fit(X, y, checkpoint=tmp_path)
    assert answers(resumed, Z) == uninterrupted(partition)
    check_clean(tmp_path)


@pytest.mark.parametrize("partition", ["local", slowly("random"), slowly("stratified")])
def test_what_a_kill_leaves_behind_is_removed(partition, rows, small_sizes, tmp_path, uninterrupted):
    """Files that no exception handler could remove."""
    X, y, Z = rows
    quiet = uninterrupted(partition)
    (tmp_path / "manifest.json.partial").write_text('{"form')
    with stopping(fitting, "scan_rows", 0):
        model(partition, memory=88 * N).fit(X, y, checkpoint=tmp_path)
    (tmp_path / "scan.npz.partial").write_bytes(b"half a scan")
    for memory in (88 * N, 88 * N, None):  # before there is a store; after; where none is needed
        (tmp_path / ".buckets").mkdir()
        (tmp_path / ".buckets" / "000001.rows").write_bytes(b"half a row")
        (tmp_path / ".store.partial-1-2").mkdir()
        (tmp_path / ".store.partial-1-2" / "X.npy").write_bytes(b"half a store")
        resumed = model(partition, memory=memory).fit(X, y, checkpoint=tmp_path)
        assert resumed.model_.store.mapped == (memory is not None)
        assert answers(resumed, Z) == quiet
        check_clean(tmp_path)


def stopped(*_):
    raise Stop


# The log


@pytest.fixture(scope="module")
def finished(rows, tmp_path_factory):
    """A completed checkpoint in memory, and what its model says."""
    X, y, Z = rows
    folder = tmp_path_factory.mktemp("finished")
    expected = answers(model("random").fit(X, y, checkpoint=folder), Z)
    return folder, expected, (folder / "evaluations.log").read_bytes()


def resumes(finished, rows, log):
    folder, expected, whole = finished
    (folder / "evaluations.log").write_bytes(log)
    X, y, Z = rows
    assert answers(model("random").fit(X, y, checkpoint=folder), Z) == expected
    assert (folder / "evaluations.log").read_bytes() == whole


several = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@several
@given(share=st.floats(0, 1))
def test_a_log_torn_at_any_byte(share, finished, rows):
    resumes(finished, rows, finished[2][: int(share * len(finished[2]))])


@several
@given(garbage=st.binary(min_size=1, max_size=60))
def test_garbage_after_the_log(garbage, finished, rows):
    resumes(finished, rows, finished[2] + garbage)


@several
@given(place=st.integers(0, 10**9), bit=st.integers(0, 7), zeros=st.integers(0, 40))
def test_a_log_with_a_flipped_bit_and_zeros_at_its_end(place, bit, zeros, finished, rows):
    """Zeros are what some file systems leave of what was not yet written when the power failed."""
    log = bytearray(finished[2])
    log[place % len(log)] ^= 1 << bit
    resumes(finished, rows, bytes(log) + bytes(zeros))


def test_a_log_of_another_path(finished, rows, tmp_path):
    X, y, _ = rows
    model("random", random_state=1).fit(X, y, checkpoint=tmp_path)
    other = (tmp_path / "evaluations.log").read_bytes()
    resumes(finished, rows, other)
    at = len(finished[2]) // 3
    resumes(finished, rows, finished[2][:at] + other)
    record = struct.calcsize("<II") + struct.unpack_from("<II", finished[2])[0]
    resumes(finished, rows, finished[2][: 3 * record] + other)
    resumes(finished, rows, finished[2][:record] + finished[2][2 * record :])  # one is missing


def test_records_are_evaluations_in_order(tmp_path):
    """Length, CRC, what was asked, what was answered."""
    asked = []

    def evidence(theta, leaves):
        asked.append((theta, leaves))
        return Evidence(theta.sum() * np.arange(9.0), 0.5)

    def run(log, thetas):
        function = log.recorded(evidence)
        try:
            return [function(theta, leaves) for theta, leaves in thetas]
        finally:
            log.close()

    some = np.array([1, 5])
    questions = [(np.array([1.0, 2.0]), None), (np.array([1.0, 2.0]), some), (np.array([1.0, 2.0 + 1e-15]), None)]
    first = run(EvaluationLog(tmp_path / "log", "mine"), questions)
    assert len(asked) == 3
    raw, at = (tmp_path / "log").read_bytes(), 0
    for answer in first:
        length, crc = struct.unpack_from("<II", raw, at)
        record = raw[at + 8 : at + 8 + length]
        assert zlib.crc32(record) == crc
        assert record.endswith(np.append(answer.sums, 0.5).tobytes())
        at += 8 + length
    assert at == len(raw)
    again = run(EvaluationLog(tmp_path / "log", "mine"), questions)
    assert len(asked) == 3, "all were known"
    for a, b in zip(first, again, strict=True):
        assert a.sums.tobytes() == b.sums.tobytes()
        assert a.jitter == b.jitter
        b.sums[0] = 1  # the answer is the caller's own
    run(EvaluationLog(tmp_path / "log", "mine"), [questions[0], (questions[0][0], np.array([1, 6]))])
    assert len(asked) == 4, "other leaves are another question"
    run(EvaluationLog(tmp_path / "log", "mine"), questions)
    assert len(asked) == 6, "and what came after it was forgotten"
    assert (tmp_path / "log").read_bytes() == raw
    log = EvaluationLog(tmp_path / "log", "mine")
    log.recorded(evidence)
    run(log, questions[:1])
    assert len(asked) == 7, "the same question to another function"
    run(EvaluationLog(tmp_path / "log", "another's"), questions[:1])
    assert len(asked) == 8, "the same question about other data"


# What a checkpoint is of


OTHERS = {
    "kernel": [
        SquaredExponential(1.0, 1.5000001),
        SquaredExponential(1.0, 1.5, lengthscale_bounds=(0.01, 10)),
        Matern32(1.0, 1.5),
        SquaredExponential(1.0, 1.5) + SquaredExponential(0.5, 1.5),
    ],
    "partition": ["random", LocalPartition(), StratifiedPartition(), StratifiedPartition(3)],
    "leaf_size": [61],
    "sharing": [2],
    "combine": [Healed(2), Healed(3)],
    "experts_per_query": [2],
    "training": ["progressive"],
    "dtype": ["float32"],
    "standardize": [False],
    "noise_bounds": [(1e-6, 9.0), (1e-6, 10.000000000000002)],
    "n_restarts": [1],
    "random_state": [1, None, np.random.default_rng(5), np.random.RandomState(5)],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OTHERS.items() for value in values], ids=str
)
def test_other_settings_are_refused(name, value, rows, tmp_path, monkeypatch):
    X, y, _ = rows
    own = {"kernel": SquaredExponential(1.0, 1.5), "leaf_size": 60, "random_state": 0}

    def begin(**settings):
        try:
            HGPRegressor(**settings).fit(X[:200], y[:200], checkpoint=tmp_path)
        except Stop:
            return True

    monkeypatch.setattr(fitting, "scan_rows", stopped)
    assert begin(**own)
    before = (tmp_path / "manifest.json").read_bytes()
    with pytest.raises(InvalidInput, match=rf"is the checkpoint of another fit \({name}: .* there, .* here\); choose"):
        begin(**(own | {name: value}))
    assert begin(**own, engine="serial", n_jobs=2, memory="1GB", verbose=0), "these change nothing of the model"
    assert begin(**(own | {"kernel": SquaredExponential(1.0, 1.5), "noise_bounds": (1e-6, 10.0)}))
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["evaluations.log", "manifest.json"]


def test_objects_are_described_by_what_they_hold_and_not_by_where_they_lie():
    for one, same in (
        (StratifiedPartition(3), StratifiedPartition(3)),
        (Healed(2.5), Healed(2.5)),
        (SquaredExponential(1, [1, 2]) * Matern32(2.0), SquaredExponential(1, [1, 2]) * Matern32(2.0)),
        ([1.0, 2.0], np.array([1.0, 2.0])),
        (3, np.int64(3)),
        (0.1, np.float64(0.1)),
    ):
        assert described(one) == described(same)
        assert "0x" not in described(one)
    assert described(np.linspace(0, 1, 3000)) != described(np.linspace(0, 1, 3000) + 1e-16 * (np.arange(3000) == 1500))


@pytest.mark.parametrize("seeded", [lambda: np.random.default_rng(5), lambda: np.random.RandomState(5), lambda: None])
def test_generators_and_no_seed_at_all_go_on_with_their_numbers(seeded, rows, tmp_path):
    X, y, Z = rows
    shape = SHAPES["random"]
    for calls in (3, 4):
        with stopping(EvaluationLog, "_append", calls):
            model(**shape | {"random_state": seeded()}).fit(X, y, checkpoint=tmp_path)
    resumed = model(**shape | {"random_state": seeded()}).fit(X, y, checkpoint=tmp_path)
    seed = json.loads((tmp_path / "manifest.json").read_text())["seed"]
    log = tmp_path / "evaluations.log"
    length, _ = struct.unpack_from("<II", log.read_bytes())
    assert log.stat().st_size // (length + 8) >= resumed.report_.evaluations
    assert answers(resumed, Z) == answers(model(**shape | {"random_state": seed}).fit(X, y), Z)
    assert resumed.theta_.tobytes() != model(**shape | {"random_state": seed + 1}).fit(X, y).theta_.tobytes()


def test_other_data_are_refused(rows, source, tmp_path, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(fitting, "scan_rows", stopped)

    def begin(folder, *data, **how):
        with pytest.raises((Stop, InvalidInput)) as kept:
            model().fit(*data, checkpoint=tmp_path / folder, **how)
        return str(kept.value)

    assert begin("a", X, y) == ""
    assert begin("a", X.copy(), y.copy()) == ""
    for other in ((X[:-1], y[:-1]), (X + 1e-9, y), (X, y + 1e-9), (X[::-1], y), (np.asfortranarray(X)[:, ::-1], y)):
        assert "another fit (data:" in begin("a", *other)
    assert "data:" in begin("a", X[:, :2], y)
    assert begin("b", source, "t", missing="drop") == ""
    assert "another fit (data:" in begin("b", source, "t")
    assert "features: a, b, c there, a, b here" in begin("b", source, "t", missing="drop", drop=["c"])
    status = source.stat()
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    assert "another fit (data:" in begin("b", source, "t", missing="drop")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_other_versions_are_refused(rows, tmp_path, monkeypatch):
    X, y, _ = rows
    model().fit(X[:300], y[:300], checkpoint=tmp_path)
    for name in ("gigagp", "numpy", "scipy", "numba", "machine"):
        versions = checkpoint._versions() | {name: "0.0.7"}
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "_versions", lambda versions=versions: versions)
            with pytest.raises(InvalidInput, match=rf"another fit \({name}: .* there, 0\.0\.7 here\)"):
                model().fit(X[:300], y[:300], checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 0)
        with pytest.raises(InvalidInput, match="written by a newer gigagp"):
            model().fit(X[:300], y[:300], checkpoint=tmp_path)


def test_folders_that_are_no_checkpoints(rows, tmp_path):
    X, y, _ = rows
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidInput, match="is neither empty nor a checkpoint of gigagp; choose another folder"):
        model().fit(X, y, checkpoint=tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InvalidInput, match="not the manifest of a gigagp-checkpoint"):
        model().fit(X, y, checkpoint=tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DamagedFile, match=r"manifest\.json is damaged"):
        model().fit(X, y, checkpoint=tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["manifest.json", "thesis.tex"]


# What is kept


@in_every_place
def test_a_completed_checkpoint_is_not_computed_again(memory, rows, source, small_sizes, tmp_path, monkeypatch):
    Z = pd.DataFrame(rows[2], columns=NAMES)
    table = pd.read_parquet(source)
    source = tmp_path / "with_copies.parquet"
    pd.concat([table, table.iloc[[5, 9]]], ignore_index=True).to_parquet(source)
    how = {"missing": "drop", "checkpoint": tmp_path / "new" / "folder"}
    first = answers(model(memory=memory).fit(source, "t", **how), Z)
    files = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with monkeypatch.context() as patch:
        forbid(patch, "gigagp.fit.fitting.scan_rows", "gigagp.fit.training.expert.evidence")
        if memory is not None:
            forbid(patch, "gigagp.data.sources.rows.Rows.blocks")
        again = model(memory=memory).fit(source, "t", **how)
    assert answers(again, Z) == first
    assert (again.report_.dropped, again.report_.copies) == (1, 2)
    assert files == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    check_clean(how["checkpoint"])


def test_a_checkpoint_goes_on_in_more_or_less_memory(rows, small_sizes, tmp_path):
    X, y, Z = rows
    for memory, calls in ((88 * N, 4), (None, 3), (88 * N, 10), (None, 2)):
        with stopping(EvaluationLog, "_append", calls):
            model(memory=memory).fit(X, y, checkpoint=tmp_path)
    assert answers(model().fit(X, y, checkpoint=tmp_path), Z) == answers(model().fit(X, y), Z)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 is how they begin", "half", "flipped"], ids=str)
def test_a_damaged_scan_is_made_again(damage, rows, finished, monkeypatch):
    X, y, Z = rows
    folder, expected, _ = finished
    path = folder / "scan.npz"
    whole = path.read_bytes()
    if damage == "half":
        damage = whole[: len(whole) // 2]
    elif damage == "flipped":
        at = whole.index(X.tobytes()[:4]) if X.tobytes()[:4] in whole else len(whole) // 2
        damage = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    path.write_bytes(damage)
    assert answers(model("random").fit(X, y, checkpoint=folder), Z) == expected
    assert path.read_bytes()[:4] == whole[:4]
    forbid(monkeypatch, "gigagp.fit.fitting.scan_rows")
    assert answers(model("random").fit(X, y, checkpoint=folder), Z) == expected


def test_a_damaged_store_is_not_used(rows, small_sizes, tmp_path):
    X, y, Z = rows
    expected = answers(model(memory=88 * N).fit(X, y, checkpoint=tmp_path), Z)
    path = tmp_path / "store" / "y.npy"
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(DamagedFile, match=r"y\.npy is damaged"):
        model(memory=88 * N).fit(X, y, checkpoint=tmp_path)
    for file in (tmp_path / "store").iterdir():
        file.unlink()
    (tmp_path / "store").rmdir()
    assert answers(model(memory=88 * N).fit(X, y, checkpoint=tmp_path), Z) == expected


def test_the_scan_is_kept_to_the_bit(rows, finished):
    X, y, _ = rows
    with np.load(finished[0] / "scan.npz") as held:
        for name, data in (("inputs", X), ("target", y[:, None])):
            assert held[name].tobytes() == Moments.of(data).state().tobytes()


def test_a_checkpoints_store_stays_when_the_model_goes(rows, small_sizes, tmp_path):
    X, y, _ = rows
    fitted = model(memory=88 * N).fit(X, y, checkpoint=tmp_path)
    del fitted
    gc.collect()
    assert (tmp_path / "store" / "X.npy").exists()

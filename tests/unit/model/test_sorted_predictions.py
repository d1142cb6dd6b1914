"""Queries that are sorted by place before they are answered give the file that blocks give, whatever interrupts."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import gigagp
from gigagp import HGPRegressor, InvalidInput
from gigagp.data import folders
from gigagp.data import parts as parts_module
from gigagp.kernels import SquaredExponential
from gigagp.model import committee_prediction, prediction_files, predictor, sorted_predictions

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # small data, much noise
N = 100  # queries
BLOCK = 8
OPTIONS = {"keep": ["id"], "quantiles": [0.1]}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-2, 2, 3000), rng.uniform(-1, 1, 3000)
    return pa.table({"a": a, "b": b, "y": np.sin(a) + b + 0.1 * rng.standard_normal(3000)})


@pytest.fixture(scope="module")
def model(rows):
    settings = {"kernel": SquaredExponential(), "method": "neighbourhood", "neighbours": 8}
    return HGPRegressor(**settings, random_state=0, engine="serial").fit(rows, "y")


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(4)
    inputs = {"a": rng.uniform(-2, 2, N), "b": rng.uniform(-1, 1, N)}
    return pa.table({"id": [f"row {i}" for i in range(N)], **inputs})


@contextmanager
def blocks_of(size, buckets=0):
    """So many queries per block; all queries are sorted by so many buckets, or each block on its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictor, "_FEWEST_QUERIES", 1)
        patch.setattr(committee_prediction, "QUERIES_AT_ONCE", size)
        patch.setattr(prediction_files, "_BLOCKS_PER_WORKER", 1)
        patch.setattr(prediction_files, "_buckets", lambda *_: buckets)
        yield patch


def on_threads(model):
    return pickle.loads(pickle.dumps(model)).set_params(engine="threads", n_jobs=2)


def hidden(output):
    return output.with_name(f".{output.name}.gigagp")


def written(table, folder, form):
    path = folder / f"q.{form}"
    if form == "csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=17)
    return path


def quiet(model, data, folder, **options):
    """The file that blocks give, each on its own."""
    with blocks_of(BLOCK):
        return model.predict_file(data, folder / "quiet.parquet", **options).output.read_bytes()


class Stopped(BaseException):
    """As a Ctrl-C, or the end of the process."""


def counted(patch, stop=None):
    """How many queries are answered; after `stop` calls no more."""
    answered, plain = [], predictor.Predictor.predict

    def answer(self, X, *rest, **options):
        if len(answered) == stop:
            raise Stopped
        answered.append(len(X))
        return plain(self, X, *rest, **options)

    patch.setattr(predictor.Predictor, "predict", answer)
    return answered


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize("missing", ["error", "drop"])
def test_sorted_queries_give_the_file_of_blocks(model, queries, tmp_path, form, missing):
    """Also in an order of their own, with gaps, from sources that only this process reads, with empty buckets."""
    gaps = pa.array([missing == "drop" and i % 7 == 3 for i in range(N)])
    table = queries.set_column(1, "a", pa.compute.if_else(gaps, None, queries["a"]))
    data, options = written(table, tmp_path, form), OPTIONS | {"missing": missing}
    expected = quiet(model, data, tmp_path, **options)
    for size, buckets in ((4, 3), (32, 1000)):  # of 1,000 buckets most are empty
        for each in (model, on_threads(model)):
            with blocks_of(size, buckets):
                report = each.predict_file(data, tmp_path / "o.parquet", overwrite=True, **options)
            assert (report.rows, report.dropped, report.resumed) == (N, sum(gaps.to_pylist()), 0)
            assert report.output.read_bytes() == expected
            assert not hidden(report.output).exists()


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_stopped_call_goes_on_where_it_was(model, queries, tmp_path, form):
    """Answers of an interrupted call are not computed again, and blocks whose parts are written stay."""
    data, output = written(queries, tmp_path, form), tmp_path / "o.parquet"
    expected = quiet(model, data, tmp_path, **OPTIONS)
    for stop in (1, 4):
        with blocks_of(BLOCK, 5) as patch:
            answered = counted(patch, stop)
            with pytest.raises(Stopped):
                model.predict_file(data, output, **OPTIONS)
        assert list(hidden(output).glob("queries-*"))
        with blocks_of(BLOCK, 5) as patch:
            rest = counted(patch)
            report = model.predict_file(data, output, overwrite=True, **OPTIONS)
        assert report.resumed == sum(answered) > 0
        assert sum(rest) == N - sum(answered)
        assert output.read_bytes() == expected
        output.unlink()


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_merge_goes_on_with_the_blocks_that_are_missing(model, queries, tmp_path, form, keep):
    data, output, options = written(queries, tmp_path, form), tmp_path / "o.parquet", OPTIONS if keep else {}
    expected, accept = quiet(model, data, tmp_path, **options), parts_module.Parts.accept
    with blocks_of(BLOCK, 5) as patch:
        stop = iter([False, False, True])

        def accepting(parts, first, end):
            accept(parts, first, end)
            if next(stop):
                raise Stopped

        patch.setattr(parts_module.Parts, "accept", accepting)
        with pytest.raises(Stopped):
            model.predict_file(data, output, **options)
    assert len(list(hidden(output).glob("part-*"))) == 3
    with blocks_of(BLOCK, 5) as patch:
        answered = counted(patch)
        report = model.predict_file(data, output, **options)
    assert (report.resumed, sum(answered)) == (N, 0)
    assert output.read_bytes() == expected


def test_what_is_sorted_already_needs_no_more_space(model, queries, tmp_path):
    """A call that had just enough space can be resumed."""
    data, output = written(queries, tmp_path, "parquet"), tmp_path / "o.parquet"
    expected = quiet(model, data, tmp_path)
    with blocks_of(BLOCK, 5) as patch:
        patch.setattr(sorted_predictions.MergeRun, "__call__", lambda *_: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            model.predict_file(data, output)
    free = folders._RESERVE + 16 * 2 * N  # for parts and the file: mean and standard deviation of each query
    with blocks_of(BLOCK, 5) as patch:
        patch.setattr(folders.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        model.predict_file(data, output)
    assert output.read_bytes() == expected


def test_a_call_with_more_memory_or_other_buckets_goes_on(model, queries, tmp_path):
    """What was sorted otherwise is sorted again; parts stay, and one call may sort where another did not."""
    data, output = written(queries, tmp_path, "parquet"), tmp_path / "o.parquet"
    expected = quiet(model, data, tmp_path)
    for buckets in ((0, 5), (5, 0), (5, 6)):
        with blocks_of(BLOCK, buckets[0]) as patch:
            counted(patch, 3)
            with pytest.raises(Stopped):
                model.predict_file(data, output)
        with blocks_of(2 * BLOCK, buckets[1]):
            report = model.predict_file(data, output)
        assert report.resumed == (3 * BLOCK if buckets[0] == 0 else 0)
        assert output.read_bytes() == expected
        assert not hidden(output).exists()
        output.unlink()


@pytest.mark.parametrize("kind", ["queries", "answers"])
def test_damaged_files_are_made_again(model, queries, tmp_path, kind):
    data, output = written(queries, tmp_path, "parquet"), tmp_path / "o.parquet"
    expected = quiet(model, data, tmp_path)
    with blocks_of(BLOCK, 5) as patch:
        patch.setattr(sorted_predictions.MergeRun, "__call__", lambda *_: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            model.predict_file(data, output)
    damaged = sorted(hidden(output).glob(f"{kind}-*"))[2]
    damaged.write_bytes(damaged.read_bytes()[:50])
    with blocks_of(BLOCK, 5):
        with pytest.raises(InvalidInput, match=r"was damaged .* removed; repeat the call"):
            model.predict_file(data, output)
        assert not damaged.exists()
        model.predict_file(data, output)
    assert output.read_bytes() == expected


def test_buckets_are_ranges_of_the_rows(model, rows):
    """A training row is a query of the bucket in which its group of boxes begins, unless boxes overlap."""
    answering, count = model.predictor_, 50
    near, X = answering.neighbourhood, np.column_stack([rows["a"], rows["b"]])
    ids = answering.buckets(count)(X)
    groups = np.unique(ids)
    assert 1 < len(groups) < count  # groups of boxes are larger than these buckets
    nearest = np.array([predictor.neighbourhood.nearest_rows(near, z)[0] for z in answering.scaled(X[:200])])
    own = groups[np.searchsorted(groups, nearest * count // len(X), side="right") - 1]
    assert np.mean(own == ids[:200]) > 0.85  # two groups, of which chance would hit half


def test_several_targets_and_classes(rows, tmp_path):
    X = np.column_stack([rows["a"], rows["b"]])[:300]
    Y = np.column_stack([rows["y"][:300], X[:, 0] ** 2])
    settings = {"random_state": 0, "engine": "serial", "neighbours": 8}
    models = [HGPRegressor(method="neighbourhood", kernel=SquaredExponential(), **settings).fit(X, Y)]
    models.append(gigagp.HGPClassifier(**settings).fit(X, (X[:, 0] > X[:, 1]).astype(np.int8)))
    queries = X[:N].copy()
    queries[::9, 0] = queries[16:48, 0] = np.nan  # blocks without any label have the type of the others
    for number, each in enumerate(models):
        expected = each.predict_file(queries, tmp_path / f"{number}.parquet", missing="drop").output.read_bytes()
        for buckets in (0, 5):
            with blocks_of(16, buckets):
                report = each.predict_file(queries, tmp_path / f"{number}-{buckets}.parquet", missing="drop")
            assert report.output.read_bytes() == expected


def test_queries_are_sorted_only_where_the_model_exceeds_memory(model, queries, tmp_path, monkeypatch):
    """And where there are several blocks."""
    model.save(tmp_path / "model")
    mapped = gigagp.load(tmp_path / "model")
    files = mapped.predictor_.mapped_files
    assert {Path(name).name for name in files} == {"X.npy", "y.npy"}
    assert not model.predictor_.mapped_files
    size = sum(files.values())
    sort = sorted_predictions.SortBlock.__call__
    sorted_blocks = []
    monkeypatch.setattr(sorted_predictions.SortBlock, "__call__", lambda *rest: sorted_blocks.append(1) or sort(*rest))
    monkeypatch.setattr(predictor, "_FEWEST_QUERIES", 1)
    for each, budget, at_once, expected in (
        (mapped, size, BLOCK, 0),
        (mapped, size - 1, BLOCK, 13),
        (mapped, size - 1, 128, 0),
        (model, size - 1, BLOCK, 0),
    ):
        sorted_blocks.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gigagp.estimators.number_predictions.memory.budget", lambda _, b=budget: b)
            patch.setattr(predictor.Predictor, "queries_at_once", lambda *_, q=at_once: q)
            patch.setattr(prediction_files, "_BLOCKS_PER_WORKER", 1)
            each.predict_file(queries, tmp_path / "o.parquet", overwrite=True)
        assert len(sorted_blocks) == expected

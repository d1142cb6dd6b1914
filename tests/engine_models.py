"""Small models, fitted on an engine and compared bit by bit with those of the serial engine."""

from __future__ import annotations

import gc
import os
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from gigagp import HGPClassifier, HGPRegressor
from gigagp.data.scaled import StreamedRows, scaled_targets
from gigagp.data.scan import Sample
from gigagp.data.sources import open_rows
from gigagp.data.sphere import InputScaling
from gigagp.engines.dask import DaskEngine
from gigagp.fit.scanning import scan_rows
from gigagp.fit.store_objects import StoreObjects
from gigagp.fit.store_writer import DiskStorage, write_store
from gigagp.kernels import Matern32
from gigagp.partition import LocalPartition, Shape

MODELS = {
    "local": {"partition": "local", "leaf_size": 40},
    "random": {"partition": "random", "levels": 2, "branching": 4, "sharing": 2},
    "stratified": {"partition": "stratified", "leaf_size": 60},
    "progressive": {"partition": "local", "leaf_size": 10, "training": "progressive"},
    "grbcm": {"partition": "local", "leaf_size": 60, "combine": "grbcm"},
    "npae": {"partition": "local", "leaf_size": 60, "combine": "npae"},
    "all experts": {"partition": "stratified", "leaf_size": 60, "combine": "grbcm", "experts_per_query": None},
}
ROWS = 600


@cache
def data(rows=ROWS):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, np.sin(2 * X).sum(axis=1) + 0.2 * rng.standard_normal(rows)


def fitted(engine, name="local", rows=ROWS, arguments=None, **settings):
    """arguments : further arguments of `fit`."""
    model = HGPRegressor(**MODELS[name], random_state=3, engine=engine, **settings)
    return model.fit(*data(rows), **(arguments or {}))


def answers(model):
    """Theta and predictions, as bytes."""
    mean, std = model.predict(data()[0][:150] + 0.01, return_std=True)
    return [model.theta_.tobytes(), mean.tobytes(), std.tobytes()]


@cache
def expected(name="local", rows=ROWS):
    """The answers of the serial engine."""
    return answers(fitted("serial", name, rows))


def class_answers(engine):
    """Theta, probabilities and held-out scores of a model of three classes, as bytes."""
    X, y = data(300)
    model = HGPClassifier(Matern32(4.0, [1.0, 1.0]), leaf_size=60, neighbours=32, random_state=3, engine=engine)
    model.fit(X, np.digitize(y, [-0.5, 0.5]), sample_weight=np.where(X[:, 0] < 0, 1.0, 2.0))
    scores = np.array([candidate.score for candidate in model.report_.choices])
    return [model.theta_.tobytes(), model.predict_proba(X[:150] + 0.01).tobytes(), scores.tobytes()]


@cache
def expected_classes():
    """What the serial engine answers."""
    return class_answers("serial")


class Stepwise(DaskEngine):
    """Does something before some of its sums."""

    def __init__(self, client, **before):
        super().__init__(client)
        self.before, self.step = {int(name[4:]): call for name, call in before.items()}, 0

    def sum(self, tree, leaf_value):
        self.step += 1
        self.before.get(self.step, lambda: None)()
        return super().sum(tree, leaf_value)

    def owners(self):
        """The number of shards of each worker."""
        holders = [who for who in self.client.who_has(self._loaded.shards).values() if who]
        return {worker: sum(worker in who for who in holders) for worker in self.client.nthreads()}


def check_out_of_core(engine, folder, rows=ROWS, **roles):
    """Rows of a Parquet file that exceed the memory budget give the same theta, and the store is deleted.

    roles : arguments of `fit` that name further columns
    """
    X, y = data(rows)
    numbers = {name: np.linspace(0.1, 0.2, len(y)) for name in roles.values()}
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y, **numbers}).to_parquet(folder / "t.parquet")

    def theta(engine):
        model = HGPRegressor(leaf_size=40, random_state=3, engine=engine, memory=1 << 14)
        return model.fit(folder / "t.parquet", "y", **roles, store=folder / "store").theta_.tobytes()

    assert theta(engine) == theta("serial")
    gc.collect()
    assert os.listdir(folder / "store") == []


INGESTED = 150_000  # rows of which blocks make several ranges


def write_ingested(path, rows=INGESTED):
    """A Parquet file whose row groups begin in the middle of blocks."""
    X = np.random.default_rng(2).standard_normal((rows, 3)).astype(np.float32)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": np.round(X[:, 2], 1)})  # many targets are equal
    pq.write_table(table, path, row_group_size=rows // 7)


def ingested(engine, path, folder, monkeypatch, memory=1 << 22, mirror=None):
    """Every byte that the scan and the store of a file's rows consist of.

    mirror : the folder is its own, and the store is at its address too
    """
    monkeypatch.setattr("gigagp.fit.scanning._LEAST_ROWS", 1)  # this process alone divides the work
    monkeypatch.setattr("gigagp.fit.store_writer.bucket_rows", lambda columns: 20_000)
    rows = open_rows(path, "y")
    engine.use_folder(folder if mirror is None else mirror)
    scanned = scan_rows(rows, 5, None, engine, lambda rows: None)
    inputs, target, dtype = InputScaling(scanned.inputs.scaling()), scanned.target.scaling(), np.dtype(np.float32)
    data = StreamedRows(rows, scanned.rows, inputs, target, dtype)
    sample = scanned.sample
    sample = Sample(sample.keys, sample.rows, inputs.apply(sample.X, dtype), scaled_targets(sample.y, target, dtype))
    remote = None if mirror is None else StoreObjects(mirror, mirror.home)
    storage = DiskStorage(folder / "store", memory, "of a test", remote=remote)
    metric, rng = np.array([1.0, 3.0]), np.random.default_rng(0)
    where = engine.that_reads(data.paths)
    write_store(LocalPartition(), data, Shape(leaf_size=200), metric, sample, 5, rng, storage, where)
    parts = [scanned.inputs.state(), scanned.target.state(), *vars(sample).values(), *vars(scanned.extremes).values()]
    content = {path.name: path.read_bytes() for path in sorted((folder / "store").iterdir())}
    return {**content, "scan": b"".join(np.ascontiguousarray(part).tobytes() for part in parts)}


def check_large_tasks(engine, monkeypatch, rows=ROWS):
    """Tasks too large for a message are sent through files, which stay for as long as they are needed."""
    model, Z = fitted("serial", rows=rows), np.random.default_rng(1).uniform(-2, 2, (2_000, 2))
    monkeypatch.setattr("gigagp.engines.transport._LARGE", 256)  # bytes; this process alone packs tasks
    serial = model.predict(Z)
    np.testing.assert_array_equal(model.set_params(engine=engine).predict(Z), serial)


def check_prediction_file(model, folder, **options):
    """A model predicts the same file, byte by byte, on its engine and on the serial one."""
    np.save(folder / "Z.npy", data()[0])
    model.predict_file(folder / "Z.npy", folder / "there.parquet", **options)
    model.set_params(engine="serial").predict_file(folder / "Z.npy", folder / "here.parquet", **options)
    assert (folder / "there.parquet").read_bytes() == (folder / "here.parquet").read_bytes()

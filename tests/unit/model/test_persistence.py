"""Models on disk, and in pickles: what comes back answers with the same bits, and what is no model is refused."""

import copy
import errno
import io
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import damage
import gigagp
from gigagp import HGPRegressor, InvalidInput, InvalidParameter
from gigagp.combine import GRBCM, NPAE, Healed, PoE, Rule
from gigagp.combine.base import natural, weighted_average
from gigagp.data import array_files, folders
from gigagp.data.array_files import write_array
from gigagp.data.row_lists import Runs
from gigagp.engines import SerialEngine, ThreadsEngine
from gigagp.errors import DamagedFile, DiskFull
from gigagp.fit import fitting, store_writer
from gigagp.kernels import (
    Constant,
    Kernel,
    Linear,
    Matern12,
    Parameter,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
)
from gigagp.model.block_tree import BlockTree
from gigagp.model.model_format import BLOCK_TREE, SKEWED_VERSION, VERSION
from gigagp.partition import IndexLists, LocalPartition, Partition, RandomPartition, StratifiedPartition
from gigagp.tree import Tree

pytestmark = pytest.mark.filterwarnings("ignore:.*bound", "ignore:.*no metric")

WAYS = {
    "default": {"kernel": None},
    "neighbours": {"method": "neighbourhood", "neighbours": 16},
    "cells only": {"sharing": 1},
    "float32": {"dtype": "float32"},
    "float32 as a type": {"dtype": np.float32, "partition": "random"},
    "stratified": {"partition": "stratified"},
    "stratified, shared": {"partition": StratifiedPartition(3), "sharing": 2, "leaf_size": None, "levels": 2},
    "random, shared, float32": {"partition": "random", "sharing": 2, "dtype": "float32"},
    "communication": {"combine": "grbcm", "partition": RandomPartition()},
    "communication, local": {"combine": GRBCM(), "partition": LocalPartition()},
    "npae": {"combine": NPAE(), "experts_per_query": 2},
    "paper's PoE": {"combine": PoE("y"), "partition": "random", "experts_per_query": None},
    "healed": {"combine": Healed(3.0), "partition": "random"},
    "not standardised": {"standardize": False},
    "one leaf": {"leaf_size": 1000},
    "levels": {"leaf_size": None, "levels": 3, "branching": 2},
    "composed": {"kernel": (RationalQuadratic(alpha=2.0) + Periodic(period=3.0)) * Constant(2.0) + Linear(ard=False)},
    "isotropic": {"kernel": Matern12(2.0, 0.7, ard=False, lengthscale_bounds=(0.1, 10.0))},
    "settings of NumPy": {"leaf_size": np.int64(60), "noise_bounds": np.array([1e-5, 1.0]), "n_jobs": np.int32(1)},
    "other settings": {"memory": "1GB", "n_jobs": 1, "training": "progressive", "n_restarts": 1, "verbose": 0},
}  # fmt: skip
SOME_WAYS = (
    "default", "neighbours", "communication", "composed", "one leaf", "other settings", "float32",
    "float32 as a type", "stratified, shared", "npae", "paper's PoE", "settings of NumPy",
)  # fmt: skip
some_ways = pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in SOME_WAYS else pytest.mark.slow) for way in WAYS]
)


@pytest.fixture(scope="module")
def data(wave):
    X, y = wave
    return X[:240], y[:240]


@pytest.fixture(scope="module")
def model(data):
    return fitted(data, method="committee")


@pytest.fixture(scope="module")
def random_model(data):
    """Another model of the same data."""
    return fitted(data, partition="random")


@pytest.fixture(scope="module")
def model_of(data):
    """The model of each way, fitted once for all tests that read it."""
    return cache(lambda way: fitted(data, **WAYS[way]))


def fitted(data, **settings):
    return HGPRegressor(**{"kernel": SquaredExponential(), "leaf_size": 40, "random_state": 0, **settings}).fit(*data)


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def assert_same(one, other, X):
    """All that a user can ask of the two is the same, to the bit."""
    for how in ({}, {"return_std": True}, {"return_std": True, "latent": True}):
        np.testing.assert_array_equal(one.predict(X, **how), other.predict(X, **how))
    np.testing.assert_array_equal(one.predict_quantiles(X, [0.1, 0.9]), other.predict_quantiles(X, [0.1, 0.9]))
    for a, b in zip(*(m.log_marginal_likelihood(eval_gradient=True) for m in (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.kernel_ == other.kernel_
    assert one.model_.committee.kernel == other.model_.committee.kernel
    assert (one.noise_variance_, one.n_leaves_, repr(one.tree_)) == (
        other.noise_variance_,
        other.n_leaves_,
        repr(other.tree_),
    )
    assert one.n_features_in_ == other.n_features_in_
    assert list(getattr(one, "feature_names_in_", [])) == list(getattr(other, "feature_names_in_", []))
    assert set(vars(one)) == set(vars(other))
    assert repr(one.report_) == repr(other.report_)
    for each in fields(one.report_):
        a, b = getattr(one.report_, each.name), getattr(other.report_, each.name)
        assert type(a) is type(b)
        np.testing.assert_equal(a, b)


@some_ways
def test_a_loaded_model_is_the_same_to_the_bit(way, model_of, data, tmp_path):
    model = model_of(way)
    model.save(tmp_path / "model")
    loaded = HGPRegressor.load(tmp_path / "model")
    assert_same(model, loaded, data[0][:50])
    for name, value in model.get_params(deep=False).items():
        given, got = ("float32", loaded.dtype) if value is np.float32 else (value, getattr(loaded, name))
        if hasattr(given, "__dict__") and not isinstance(given, Kernel | Rule):
            assert (type(given), vars(given)) == (type(got), vars(got))
        else:
            np.testing.assert_equal(tuple(given) if isinstance(given, np.ndarray) else given, got)
    loaded.save(tmp_path / "again")
    assert_same(model, gigagp.load(tmp_path / "again", verify=False), data[0][:50])


def test_models_without_codes_of_rows_predict_the_same(model_of, data, tmp_path):
    model = model_of("neighbours")
    model.save(tmp_path / "model")
    codes, loaded = (each.model_.neighbourhood.tree.codes for each in (model, gigagp.load(tmp_path / "model")))
    assert len(codes) > model.model_.store.X.size
    np.testing.assert_array_equal(codes, loaded)
    files = json.loads((tmp_path / "model" / "manifest.json").read_text())["files"]
    rewrite(tmp_path / "model", files={name: entry for name, entry in files.items() if name != "block_codes.npy"})
    earlier = gigagp.load(tmp_path / "model")
    assert len(earlier.model_.neighbourhood.tree.codes) == 0
    assert_same(model, earlier, data[0][:50])


@pytest.mark.parametrize(("names", "version"), [(("block_lows", "block_highs"), 8), (("block_sides",), 9)])
def test_models_of_earlier_versions_get_a_new_tree_of_boxes(model_of, data, tmp_path, names, version):
    model, folder = model_of("neighbours"), tmp_path / "model"
    model.save(folder)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    for name in names:
        files |= write_array(folder, name, np.zeros(3))
    for name in BLOCK_TREE:
        (folder / f"{name}.npy").unlink()
        del files[f"{name}.npy"]
    rewrite(folder, files=files, version=version)
    assert_same(model, gigagp.load(folder), data[0][:50])


def test_a_trusted_folder_is_only_mapped(model_of, data, tmp_path, monkeypatch):
    model, folder = model_of("neighbours"), tmp_path / "model"
    model.save(folder)
    monkeypatch.setattr("gigagp.model.boxes.Boxes.__init__", lambda *_: pytest.fail("boxes of cells were built"))
    monkeypatch.setattr("gigagp.model.router_format.block_starts", lambda *_: pytest.fail("blocks were counted"))
    monkeypatch.setattr(BlockTree, "of", lambda *_: pytest.fail("a tree was built"))
    trusted = gigagp.load(folder, verify="nothing")
    tree = trusted.model_.neighbourhood.tree
    assert all(isinstance(each.base, np.memmap) for each in (tree.starts, tree.frames, tree.corners, tree.first_below))
    np.testing.assert_array_equal(trusted.predict(data[0][:50]), model.predict(data[0][:50]))
    with pytest.raises(InvalidParameter, match=r'verify must be True, False or "nothing"; got 1\.5'):
        gigagp.load(folder, verify=1.5)


def test_skewed_errors_are_saved_in_a_version_of_their_own(tmp_path):
    """Earlier versions would read the shape as symmetric; and a shape whose mean is not zero is refused."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (800, 1))
    y = np.sin(X[:, 0]) + 0.2 * rng.exponential(1.0, 800)
    model = HGPRegressor(kernel="matern52", random_state=0).fit(X, y)
    assert model.report_.calibration.shape.centres.any()
    model.save(tmp_path / "model")
    assert_same(model, gigagp.load(tmp_path / "model"), X[:50])
    report = json.loads((tmp_path / "model" / "manifest.json").read_text())["report"]
    assert json.loads((tmp_path / "model" / "manifest.json").read_text())["version"] == SKEWED_VERSION
    centres = report["calibration"]["centres"]
    for wrong in (centres[:-1], [each + 1 for each in centres]):
        changed = {**report, "calibration": {**report["calibration"], "centres": wrong}}
        rewrite(tmp_path / "model", report=changed)
        with pytest.raises(InvalidInput, match="its calibration is not valid"):
            gigagp.load(tmp_path / "model")


def test_a_constant_target(data, tmp_path):
    model = HGPRegressor(leaf_size=60).fit(data[0], np.full(len(data[0]), 2.5))
    model.save(tmp_path / "model")
    assert_same(model, gigagp.load(tmp_path / "model"), data[0][:20])


def test_models_of_tables_remember_their_columns(data, tmp_path):
    X, y = data
    frame = pd.DataFrame(X, columns=["angle", "größe"]).assign(colour=["red", "blue", "green"] * 80, z=y)
    model = HGPRegressor(leaf_size=40, random_state=0).fit(frame, "z", categorical=["colour"])
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    assert_same(model, loaded, frame[::7])
    assert list(loaded.feature_names_in_) == ["angle", "größe", "colour"]
    frame.drop(columns="z").to_csv(tmp_path / "queries.csv", index=False)
    np.testing.assert_array_equal(loaded.predict(tmp_path / "queries.csv"), model.predict(tmp_path / "queries.csv"))
    assert np.isfinite(loaded.predict(frame.assign(colour="purple"))).all()  # a new level is answered
    plain = HGPRegressor(leaf_size=40, random_state=0).fit(frame[["angle", "größe"]], y)
    plain.save(tmp_path / "plain")
    assert_same(plain, gigagp.load(tmp_path / "plain"), frame[["angle", "größe"]])


@pytest.fixture
def on_disk(data, monkeypatch):
    """A model whose rows lie in a temporary store."""
    monkeypatch.setattr(store_writer, "bucket_rows", lambda columns: 100)
    monkeypatch.setattr(fitting, "_bytes_in_memory", lambda *_: 2**62)
    model = fitted(data, method="committee")
    assert model.model_.store.mapped
    return model


def copies(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return {"pickle": pickle.loads(pickle.dumps(model)), "joblib": joblib.load(file), "copy": copy.deepcopy(model)}


@some_ways
def test_pickles_and_copies_are_the_same_to_the_bit(way, model_of, data):
    model = model_of(way)
    for again in copies(model).values():
        assert_same(model, again, data[0][:20])


def test_pickles_of_mapped_models_are_on_their_own(on_disk, data, tmp_path):
    on_disk.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model")
    assert loaded.model_.store.mapped
    assert_same(on_disk, loaded, data[0])
    made = [*copies(on_disk).items(), *copies(loaded).items()]
    shutil.rmtree(tmp_path / "model")
    for way, again in made:
        assert not again.model_.store.mapped
        assert not again.model_.store.X.flags.writeable
        if way != "joblib":  # which writes an array wherever it meets it
            assert again.model_.committee.experts._store is again.model_.store  # not twice in memory
        assert_same(on_disk, again, data[0])
    assert_same(on_disk, loaded, data[0])  # what is mapped lives on


def test_a_loaded_model_can_be_changed_refitted_and_cloned(saved, model, data):
    loaded = gigagp.load(saved)
    assert clone(loaded).get_params() == clone(model).get_params()
    with pytest.raises(NotFittedError):
        clone(loaded).predict(data[0])
    loaded.set_params(combine="gpoe", experts_per_query=2)
    np.testing.assert_array_equal(
        loaded.predict(data[0]), copy.deepcopy(model).set_params(combine="gpoe", experts_per_query=2).predict(data[0])
    )
    again = gigagp.load(saved).fit(*data)
    np.testing.assert_array_equal(again.predict(data[0]), model.predict(data[0]))
    other = gigagp.load(saved).set_params(leaf_size=80, partition="random").fit(data[0][:, :1], data[1])
    assert (other.n_features_in_, other.n_leaves_) == (1, 3)
    assert_same(gigagp.load(saved), model, data[0])


def test_what_belongs_to_the_process_is_left_out(data, tmp_path):
    generators = [np.random.default_rng(1), np.random.RandomState(1)]
    with ThreadsEngine(2) as threads:
        for engine, name, generator in zip((SerialEngine(), threads), ("serial", "threads"), generators, strict=True):
            model = fitted(data, engine=engine, random_state=generator)
            model.save(tmp_path / name)
            loaded = gigagp.load(tmp_path / name)
            assert (loaded.engine, loaded.random_state) == (name, None)
            assert_same(model, loaded, data[0][:10])


def test_numbers_of_a_report_need_not_be_finite(data, tmp_path):
    model = fitted(data)
    stage = replace(model.report_.stages[0], evidence_per_point=-np.inf)
    trace = (np.nan, *model.report_.evidence_trace[1:])
    model.model_ = replace(
        model.model_, report=replace(model.report_, stages=(stage,), jitter=np.nan, evidence_trace=trace)
    )
    model.save(tmp_path / "model")
    assert_same(model, gigagp.load(tmp_path / "model"), data[0][:5])


def test_loading_runs_nothing(saved, model, data, monkeypatch):
    for module, name in ((pickle, "loads"), (pickle, "load"), (np, "load"), (np.lib.format, "read_array")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a file was interpreted"))
    assert_same(model, gigagp.load(saved), data[0])


def test_who_wrote_it_can_be_read(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["written_by"] == {"gigagp": gigagp.__version__, "numpy": np.__version__}
    assert {path.suffix for path in saved.iterdir()} == {".json", ".npy"}
    np.testing.assert_array_equal(np.load(saved / "theta.npy"), gigagp.load(saved).theta_)


class Mine(HGPRegressor):
    """A user's own estimator."""


def test_a_subclass_loads_as_itself(saved, model, data):
    assert type(Mine.load(saved)) is Mine
    assert_same(Mine.load(saved), model, data[0][:5])


# Classes of the user's own


class Cauchy(Kernel):
    """Parameters as class attributes, as docs/extending.md has it."""

    parameters = (Parameter("variance", (1.0,)), Parameter("scale", (2.0,)))

    def gram(self, theta, X, out=None):
        variance, scale = np.exp(theta)
        K = variance / (1 + ((X[:, None] - X[None]) ** 2).sum(axis=2) / scale**2)
        if out is None:
            return K
        out[: len(X), : len(X)] = K
        return out

    def pullback(self, theta, X, W, K):
        G = np.tril(W[: len(X), : len(X)] * K[: len(X), : len(X)])
        G = G + np.tril(G, -1).T
        ratio = ((X[:, None] - X[None]) ** 2).sum(axis=2) / np.exp(2 * theta[1])
        return np.array([G.sum(), (G * 2 * ratio / (1 + ratio)).sum()])


class Powered(Cauchy):
    """A constructor with an argument that is kept."""

    def __init__(self, power, shift=(0.0, 1.0)):
        self.power, self.shift, self._cache = power, shift, None

    def gram(self, theta, X, out=None):
        K = super().gram(theta, X) ** self.power
        if out is None:
            return K
        out[: len(X), : len(X)] = K
        return out

    def pullback(self, theta, X, W, K):
        base = super().gram(theta, X)
        return super().pullback(theta, X, W[: len(X), : len(X)] * self.power * base ** (self.power - 1), base)


class Forgetful(Cauchy):
    """One whose argument leaves a trace, but not its value."""

    def __init__(self, power=1):
        self._doubled = 2 * power


class Needy(Cauchy):
    def __init__(self, power):
        pass


class Average(Rule):
    name = "average"
    laws = frozenset()

    def __init__(self, weight=1.0):
        self.weight = weight

    def message(self, opinion):
        return natural(self.weight, opinion.mean, opinion.variance)

    def finish(self, total, prior, communication):
        return weighted_average(total)


class Halves(RandomPartition):
    """Cells and experts of its own: the experts hold more than the cells."""

    def __init__(self, more=5):
        self.more = more

    def split(self, X, shape, rng):
        n, half = len(X), len(X) // 2
        cells = Runs(np.array([0, half, n]))
        experts = IndexLists.of([np.arange(half + self.more), np.arange(half - self.more, n)])
        return Partition(rng.permutation(n), cells, experts, Tree.balanced(2))


def test_classes_of_the_users_own_must_be_handed_over(data, tmp_path):
    kernel, parts = Powered(2, shift=[0.5, np.float32(2)]) + Constant(0.5), Halves(7)
    model = fitted(data, kernel=kernel, combine=Average(2.0), partition=parts, engine="serial")
    model.save(tmp_path / "model")
    loaded = gigagp.load(tmp_path / "model", kernels=[Powered, Average, Halves])
    assert_same(model, loaded, data[0][:30])
    assert (loaded.kernel.left.power, loaded.kernel.left.shift, loaded.partition.more) == (2, (0.5, 2.0), 7)
    assert (len(loaded.model_.committee.experts[0]), len(loaded.model_.cells[0])) == (127, 120)
    with pytest.raises(InvalidInput, match=r"uses 'Powered', which is not a class of gigagp.*kernels="):
        gigagp.load(tmp_path / "model", kernels=[Average, Halves])
    with pytest.raises(InvalidParameter, match="kernels must be classes"):
        gigagp.load(tmp_path / "model", kernels=[Powered(1)])
    with pytest.raises(InvalidParameter, match="kernels must be classes"):
        gigagp.load(tmp_path / "model", kernels=[dict])


def test_what_could_not_be_made_again_is_not_saved(data, model, tmp_path):
    namesake = type("Constant", (Cauchy,), {})
    bad = {
        "not what its class creates": {"kernel": Forgetful(3)},
        "needs 'power'; keep it": {"kernel": Needy(3)},
        "two classes called Constant; rename": {"kernel": namesake()},
        "neither a plain value nor": {"verbose": object()},
        "nested too deeply": {"kernel": sum((Constant() for _ in range(150)), SquaredExponential())},
        "random_state cannot be saved": {"random_state": np.nan},
        "memory must be": {"memory": "much"},
        "combine must be": {"combine": Constant()},
        "plain value is an object": {"verbose": Constant()},
    }
    for message, settings in bad.items():
        other = copy.deepcopy(model).set_params(**settings)
        with pytest.raises(InvalidParameter, match=message):
            other.save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        HGPRegressor().save(tmp_path / "model")
    broken = copy.deepcopy(model)
    broken.model_.committee.router._places[0][0, 0] = 1e200
    with pytest.raises(InvalidParameter, match=r"could not be loaded again and is not saved: .*centres"):
        broken.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Folders


def test_only_a_model_is_replaced_and_only_when_told(model, random_model, data, tmp_path):
    folder = tmp_path / "a" / "b" / "model"
    model.save(folder)  # parents are made
    with pytest.raises(InvalidParameter, match="contains a model; pass overwrite=True"):
        model.save(folder)
    other = random_model
    other.save(str(folder), overwrite=True)
    assert_same(other, gigagp.load(str(folder)), data[0][:9])
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InvalidParameter, match=r"other than a gigagp model \(notes.txt\); choose another"):
        model.save(folder, overwrite=True)
    assert (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(InvalidParameter, match="is a file"):
        model.save(folder / "notes.txt", overwrite=True)
    with pytest.raises(InvalidParameter, match="cannot make the folder"):
        model.save(folder / "notes.txt" / "model")
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    assert_same(model, gigagp.load(tmp_path / "empty"), data[0][:9])
    for text in ("", "{}", '{"format": "theirs"}'):
        theirs = tmp_path / "theirs"
        theirs.mkdir(exist_ok=True)
        (theirs / "manifest.json").write_text(text)
        with pytest.raises(InvalidParameter, match="other than a gigagp model"):
            model.save(theirs, overwrite=True)
        assert (theirs / "manifest.json").read_text() == text


def test_a_damaged_model_may_be_replaced(saved, model, data):
    (saved / "X.npy").write_bytes(b"")
    (saved / "y.npy").unlink()
    model.save(saved, overwrite=True)
    assert_same(model, gigagp.load(saved), data[0][:9])


def test_a_model_may_be_saved_over_itself(saved, model, data):
    loaded = gigagp.load(saved)
    for _ in range(2):
        loaded.save(saved, overwrite=True)
    assert_same(model, loaded, data[0])
    assert_same(model, gigagp.load(saved), data[0])
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_links_are_followed(saved, random_model, tmp_path):
    (tmp_path / "current").symlink_to(saved)
    random_model.save(tmp_path / "current", overwrite=True)
    assert (tmp_path / "current").is_symlink()
    assert gigagp.load(saved).partition == gigagp.load(tmp_path / "current").partition == "random"


@pytest.mark.parametrize("folder", [None, 3, "", "a\0b", b"model"])
def test_a_folder_is_a_path(folder, model):
    for call in (model.save, gigagp.load):
        with pytest.raises(InvalidParameter, match="folder must be a path"):
            call(folder)


def test_without_the_systems_swap_models_are_still_replaced(saved, random_model, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    random_model.save(saved, overwrite=True)
    assert gigagp.load(saved).partition == "random"
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(saved, model):
    beside = saved.parent
    for name in (".model.partial-1-2", ".model.old-1-2", ".[model].partial-1-2"):
        (beside / name).mkdir()
    with folders.writing(beside / "model") as living:
        another = threading.Thread(target=model.save, args=(saved,), kwargs={"overwrite": True})
        another.start()
        another.join()
        names = {path.name for path in beside.iterdir()}
        assert names == {"model", living.name, ".[model].partial-1-2"}
        shutil.copytree(saved, living, dirs_exist_ok=True)
    model.save(beside / "[model]")
    assert {path.name for path in beside.iterdir()} == {"model", "[model]"}
    saved.rename(beside / ".model.old-3-4")  # killed between two renames
    with pytest.raises(InvalidParameter, match="contains a model"):
        model.save(saved)
    gigagp.load(saved)


KILLED = """
import os, sys
import gigagp
from gigagp.data import array_files
model = gigagp.load(sys.argv[1])
append = array_files.ArrayFile.append
def die(self, part):
    append(self, part)
    if self.path.name == sys.argv[3]:
        os.kill(os.getpid(), 9)
array_files.ArrayFile.append = die
model.save(sys.argv[2], overwrite=True)
"""


@pytest.mark.parametrize("at", ["X.npy", pytest.param("theta_trace.npy", marks=pytest.mark.slow)])
def test_a_kill_while_saving_loses_nothing(saved, model, random_model, data, at, tmp_path):
    final = tmp_path / "final"
    random_model.save(final)
    died = subprocess.run([sys.executable, "-c", KILLED, str(saved), str(final), at], check=False)
    assert died.returncode == -9
    assert gigagp.load(final).partition == "random"
    assert len(list(tmp_path.iterdir())) == 3
    model.save(final, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "final"}
    assert_same(model, gigagp.load(final), data[0][:9])


def test_readers_see_one_model_or_the_other(saved, model, random_model, data):
    other = random_model
    X = data[0][:3]
    answers = {m.predict(X).tobytes() for m in (model, other)}
    stop, seen = threading.Event(), set()

    def write():
        for _ in range(8):
            for each in (other, model):
                each.save(saved, overwrite=True)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not stop.is_set() or reads == 0:
        seen.add(gigagp.load(saved, verify=reads % 2 == 0).predict(X).tobytes())
        reads += 1
    writer.join()
    assert seen <= answers


@contextmanager
def small_files():
    """No file may grow beyond 2000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_leaves_nothing(model, tmp_path):
    with small_files(), pytest.raises(DiskFull, match=r"saving the model in .* failed: File too large"):
        model.save(tmp_path / "a" / "b" / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_appears_there_while_we_write_is_not_lost(model, tmp_path, monkeypatch, overwrite):
    append = array_files.ArrayFile.append

    def slowly(self, part):
        append(self, part)
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / "thesis.tex").write_text("mine")

    monkeypatch.setattr(array_files.ArrayFile, "append", slowly)
    with pytest.raises(InvalidParameter, match="other than a gigagp model"):
        model.save(tmp_path / "model", overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "thesis.tex").read_text() == "mine"


def test_writing_replaces_only_when_told(tmp_path):
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "old").touch()
    with pytest.raises(OSError, match="not empty"), folders.writing(tmp_path / "final", replace=False) as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["final", "old"]
    with folders.writing(tmp_path / "final") as folder:
        (folder / "new").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["final", "new"]


def test_a_write_that_fails_keeps_the_model_that_was_there(saved, model, random_model, data, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(array_files.ArrayFile, "append", fail)
    with pytest.raises(DiskFull, match=r"failed: No space left on device; nothing half-written is kept"):
        random_model.save(saved, overwrite=True)
    assert [path.name for path in saved.parent.iterdir()] == ["model"]
    assert_same(model, gigagp.load(saved), data[0][:9])


def test_space_is_looked_for_first(model, tmp_path, monkeypatch):
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 5))
    with pytest.raises(
        DiskFull,
        match=r"the model needs .* only 5 bytes are free; make room for another .* or choose",
    ):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(model, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InvalidParameter, match=r"cannot make the folder .*: Permission denied; choose another"):
        model.save(tmp_path / "model")


# Damage


def rewrite(folder, **changes):
    """The manifest with other fields, signed."""
    path = folder / "manifest.json"
    content = {**json.loads(path.read_text()), **changes}
    content.pop("checksum")
    folders.write_manifest(path, content)


def test_folders_of_others_and_of_the_future_are_refused(saved, tmp_path):
    with pytest.raises(InvalidInput, match=r"the folder \S*nothing does not exist; choose another folder"):
        gigagp.load(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match=r"is not a gigagp-model folder: it has no manifest.json; choose another"):
        gigagp.load(tmp_path)
    rewrite(saved, version=VERSION + 1)
    newer = rf"written by a newer gigagp \(version {VERSION + 1} .* knows {VERSION}\): upgrade"
    with pytest.raises(InvalidInput, match=newer):
        gigagp.load(saved)
    rewrite(saved, version=3)
    with pytest.raises(
        InvalidInput, match=r"was saved by gigagp 0\.1, .*; fit the model again on its data, or load it"
    ):
        gigagp.load(saved)
    rewrite(saved, version=4, format="gigagp-store")
    with pytest.raises(InvalidInput, match="is not the manifest of a gigagp-model"):
        gigagp.load(saved)
    rewrite(saved, format="gigagp-model", settings={"colour": "red"})
    with pytest.raises(InvalidInput, match=r"this version does not know \(colour\); upgrade"):
        gigagp.load(saved)


def test_damage_is_told_by_file_and_cure(saved):
    (saved / "tree.npy").unlink()
    with pytest.raises(DamagedFile, match=r"tree.npy is missing; restore the folder from a copy, or make it anew"):
        gigagp.load(saved)
    raw = (saved / "X.npy").read_bytes()
    (saved / "X.npy").write_bytes(raw[:-8])
    with pytest.raises(DamagedFile, match=r"X.npy is damaged: it has \d+ bytes, not what the manifest says"):
        gigagp.load(saved)


def test_without_verify_only_the_rows_are_believed(saved, model):
    raw = bytearray((saved / "X.npy").read_bytes())
    raw[-3] ^= 1
    (saved / "X.npy").write_bytes(raw)
    with pytest.raises(DamagedFile, match=r"X.npy is damaged: its checksum"):
        gigagp.load(saved)
    gigagp.load(saved, verify=False)
    raw = bytearray((saved / "theta.npy").read_bytes())
    raw[-8] ^= 1
    (saved / "theta.npy").write_bytes(raw)
    with pytest.raises(DamagedFile, match=r"theta.npy is damaged: its checksum"):
        gigagp.load(saved, verify=False)


def test_files_that_are_none_are_refused_without_waiting(saved):
    for name in ("y.npy", "manifest.json"):
        path = saved / name
        raw = path.read_bytes()
        for make in (
            os.mkfifo,
            Path.mkdir,
            lambda path: path.symlink_to("/dev/zero"),
            lambda path: path.symlink_to(path),
        ):
            path.unlink()
            make(path)
            with pytest.raises(InvalidInput, match=name):
                gigagp.load(saved)
            path.rmdir() if path.is_dir() else path.unlink()
            path.write_bytes(raw)
    with (saved / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # a hole
    with pytest.raises(DamagedFile, match="larger than any manifest"):
        gigagp.load(saved)


def put(value):
    def change(array):
        array.flat[-1] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("theta", put(800.0), "cannot be logarithms of parameters"),
        ("theta", put(-800.0), "cannot be logarithms of parameters"),
        ("theta", put(np.nan), "not finite"),
        ("theta", lambda theta: theta[1:], "does not hold what the manifest says, float64 of shape"),
        ("theta", lambda theta: theta.astype("float32"), "does not hold"),
        ("centres", put(-1e200), "cannot be distances"),
        ("metric", put(-1.0), "cannot be distances"),
        ("metric", put(1e200), "cannot be distances"),
        ("inputs", put(0.0), "scales are not positive"),
        ("target", put(-1.0), "scales are not positive"),
        ("X", put(np.inf), "not finite"),
        ("y", put(np.nan), "not finite"),
        ("X", np.asfortranarray, "does not hold"),
        ("outside", put(-1), "more points than exist"),
        ("outside", put(2**62), "more points than exist"),
        ("cells_starts", put(2**62), "it ends at 4611686018427387904, with 240 rows"),
        ("cells_starts", lambda starts: starts[::-1], "do not ascend from 0"),
        ("tree", put(7), "it has 7 leaves, but there are 6 experts"),
        ("tree", put(-1), "not a valid tree"),
        ("block_starts", put(2**62), "not those of the cells"),
        ("block_starts", lambda starts: starts[:-1], "not those of the cells"),
        ("block_frames", put(1e200), "cannot be distances"),
        ("block_corners", put(7), "not that of a tree of boxes"),
        ("block_below", put(2**62), "not that of a tree of boxes"),
    ],
)
def test_what_arrays_say_is_checked_even_if_signed(saved, name, change, message):
    path = saved / f"{name}.npy"
    np.save(path, change(np.load(path)))
    listed = json.loads((saved / "manifest.json").read_text())["files"]
    raw = path.read_bytes()
    rewrite(saved, files=listed | {path.name: {"bytes": len(raw), "checksum": damage.digest(raw)}})
    with pytest.raises(DamagedFile, match=rf"{name}.npy is damaged: .*{message}.*; restore the folder"):
        gigagp.load(saved)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rows", 10**15, "does not hold"),
        ("rows", True, "rows is True"),
        ("columns", 2**50, "its kernel does not fit its number of columns"),
        ("leaves", 0, "leaves is 0"),
        ("leaves", 2**50, "does not hold|bytes"),
        ("dtype", "object", "neither float32 nor float64"),
        ("levels", [2] * 1000, "it does not describe a valid tree"),
        ("levels", [2**50], "it does not describe a valid tree"),
        ("experts", "all", "it does not describe valid experts"),
        ("experts", "lists", "experts_starts.npy is missing"),
        ("communication", 2**50, "communication.npy is missing"),
        ("local", 1, "local is 1"),
        ("kernel", None, "it does not describe a valid kernel"),
        ("kernel", {"class": "Healed", "arguments": {}}, "it does not describe a valid kernel"),
        ("kernel", {"class": "Constant", "arguments": {"value": -1}}, "Constant cannot be made of .* positive"),
        ("kernel", {"class": "Constant", "arguments": {}, "parameters": []}, "no such parameters"),
        ("kernel", {"class": "Constant", "arguments": []}, "not arguments"),
        ("kernel", {"class": ["Constant"], "arguments": {}}, "not the name of a class"),
        ("feature_names", ["a"], "it does not have one name per column"),
        ("feature_names", ["a", 1], "not text"),
        ("encoding", {"named": True, "features": []}, "not an encoding"),
        ("report", None, "evaluations is None"),
        ("files", None, "lists no files"),
        ("settings", {"memory": "none"}, "memory must be"),
        ("settings", {"combine": {"class": "LocalPartition", "arguments": {}}}, "combine must be"),
    ],
)
def test_what_the_manifest_says_is_checked_even_if_signed(saved, field, value, message):
    rewrite(saved, **{field: value})
    with pytest.raises(DamagedFile, match=rf"is damaged: .*({message}).*; restore the folder"):
        gigagp.load(saved)


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    home = tmp_path_factory.mktemp("patients")
    damage.build(home / "whole")
    (home / "scratch").mkdir()
    return [damage.Patient(folder, home / "scratch") for folder in sorted((home / "whole").iterdir())]


def test_spoilt_folders_are_refused_or_answer_the_same(patients):
    """Some of those that tests/slow/test_damaged_models.py tries."""
    outcomes = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # models signed anew may be strange ones
        for case in range(300):
            outcomes.add(patients[case % len(patients)].suffer(np.random.default_rng(case))[1])
    assert outcomes == {"refused", "same", "another"}
    assert not Path(damage.Bomb.trace).exists()


def test_boxes_that_end_before_they_begin_are_damage(saved):
    loaded = gigagp.load(saved)
    router = loaded.model_.committee.router
    centres, lows, highs = router._places
    router._places = centres, highs, lows
    with pytest.raises(InvalidParameter, match=r"lows\.npy is damaged: a lower side of a box is above"):
        loaded.save(saved.parent / "upside_down")

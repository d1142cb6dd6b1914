"""Ways to spoil a folder of ours, and what must come of it: a clear error, or the same answers.

Run as a program it tries many on the folders below a home, under limits of time and memory that the system enforces.
"""

import copy
import json
import pickle
import resource
import shutil
import signal
import sys
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa

import gigagp
from gigagp import GigaGPError, HGPRegressor, InvalidInput
from gigagp.combine import GRBCM, Healed
from gigagp.data import folders
from gigagp.data.row_lists import Runs
from gigagp.data.store import PlacedWriter, open_store
from gigagp.kernels import Constant, Linear, Matern32, SquaredExponential
from gigagp.partition import IndexLists, StratifiedPartition

MANIFEST = "manifest.json"
SECONDS = 20  # a case, in which hundreds usually pass
WAITING = 10  # times as long may pass by the clock
BYTES = 1 << 30  # more than a whole run needs
HOSTILE = [
    None, True, False, 0, 1, 2, 3, -1, 7, 2**31, 2**62, 2**63, 10**30, 1.5, -0.5, 1e-300, 1e300, 1e999, "", "x", "nan",
    "cells", "lists", "local", "float32", "float64", "../X", "SquaredExponential", "LocalPartition", "NPAE", "GRBCM",
    [], [[]], {}, [1, 2, 3], [0.5], ["a"], {"a": 1}, {"class": "Healed", "arguments": {"temperature": -1}},
    {"class": "os.system", "arguments": {"command": "true"}}, {"class": "PoE", "arguments": {"target": "y"}},
    {"class": "Constant", "arguments": {}}, list(range(3000)), "long " * 5000,
]  # fmt: skip
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, -1e300, 1e-300, 5e-324, 1e38, 3.0]
INTEGERS = [0, -1, 1, 2, 3, 2**31, 2**62, -(2**63), 2**63 - 1, 100]


class Bomb:
    """What an object array could bring along: unpickled, it leaves a trace."""

    trace = "/tmp/gigagp-bomb-went-off"

    def __reduce__(self):
        return Path(self.trace).mkdir, ()


def nested(depth):
    return "[" * depth + "]" * depth


def texts():
    """Manifests that are none."""
    return [
        "", "null", "[]", "{}", "{", '"x"', "1", "NaN", nested(400), nested(900), nested(100_000), "\ufeff{}",
        "1" * 5000, "\0",
        '{"a":' * 400 + "1" + "}" * 400, '{"format": "gigagp-model"}', '{"format": "gigagp-store", "version": 1}',
        '{"format": "gigagp-model", "version": 2}', '{"format": "gigagp-model", "version": 1, "checksum": ""}',
    ]  # fmt: skip


# One file changed: bytes in, bytes out.


def flip(rng, raw):
    at, bit = int(rng.integers(len(raw))), 1 << int(rng.integers(8))
    return raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]


def scribble(rng, raw):
    at, n = int(rng.integers(len(raw))), int(rng.integers(1, 64))
    return raw[:at] + rng.bytes(min(n, len(raw) - at)) + raw[at + n :]


def truncate(rng, raw):
    return raw[: int(rng.integers(len(raw)))]


def extend(rng, raw):
    return raw + (rng.bytes(int(rng.integers(1, 300))) if rng.random() < 0.5 else bytes(int(rng.integers(1, 5000))))


def cut(rng, raw):
    a, b = np.sort(rng.integers(0, len(raw) + 1, 2))
    return raw[:a] + raw[b:]


def repeat(rng, raw):
    a, b = np.sort(rng.integers(0, len(raw) + 1, 2))
    return raw[:b] + raw[a:]


BYTEWISE = [flip, flip, scribble, truncate, extend, cut, repeat]


def lie(rng, raw):
    """A header of .npy that says something else."""
    text = raw[10:128].decode("latin-1")
    changes = [
        ("<f8", "<f4"), ("<f8", "<i8"), ("<f8", ">f8"), ("<f8", "|O"), ("<f8", "<c16"), ("<i8", "<f8"), ("<i8", "<u8"),
        ("<i8", "|O"), ("<f4", "<f8"), ("<f4", "|V4"), ("False", "True"), ("False", "1"), ("shape': (", "shape': (2, "),
        ("shape': (", "shape': (1" + "0" * int(rng.integers(1, 12))), ("shape': (", "shape': (-"), (",)", ",1)"),
        ("'descr'", "'Descr'"), (", }", ", 'x': 1}"), ("{", "(" * 20), ("(", "(9**9**9, "), ("shape", "shape\\"),
    ]  # fmt: skip
    old, new = changes[int(rng.integers(len(changes)))]
    text = text.replace(old, new, 1)
    text = text.rstrip() if len(text) > 118 else text
    body = pickle.dumps(np.array([Bomb()], object)) if new == "|O" else raw[128:]
    length = len(text) if rng.random() < 0.9 else int(rng.integers(65536))
    start = raw[:8] if rng.random() < 0.9 else raw[:6] + bytes(rng.integers(0, 4, 2).tolist())
    return start + length.to_bytes(2, "little") + text.encode("latin-1", "replace") + body


def renumber(rng, raw):
    """Other numbers, all else as it should be."""
    kind = np.float64 if b"<f8" in raw[:128] else np.float32 if b"<f4" in raw[:128] else np.int64
    array = np.frombuffer(raw[128:], kind).copy()
    if len(array) == 0:
        return raw
    how, at = int(rng.integers(5)), int(rng.integers(len(array)))
    if how == 0:
        rng.shuffle(array)
    elif how == 1:
        array[:] = array[at]
    elif how == 2:
        array = array[::-1]
    else:
        values = INTEGERS if kind is np.int64 else NUMBERS
        with np.errstate(over="ignore"):
            array[at] = kind(values[int(rng.integers(len(values)))])
    return raw[:128] + array.tobytes()


def reshape(rng, raw):
    """More or fewer numbers, and a header that says so."""
    kind = "<f8" if b"<f8" in raw[:128] else "<f4" if b"<f4" in raw[:128] else "<i8"
    array = np.frombuffer(raw[128:], kind)
    array = np.resize(array, max(0, len(array) + int(rng.integers(-3, 4)))) if len(array) else np.zeros(3)
    file = BytesIO()
    np.save(file, array.reshape(-1, 1) if rng.random() < 0.3 else array)
    return file.getvalue()


# The manifest as values.


def places(value, path=()):
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def hostile(rng):
    return copy.deepcopy(HOSTILE[int(rng.integers(len(HOSTILE)))])


def edit(rng, content):
    """One field of the manifest: another value, gone, moved, or a new one."""
    every = [path for path in places(content) if path and path[0] != "checksum"]
    path = every[int(rng.integers(len(every)))]
    within = content
    for key in path[:-1]:
        within = within[key]
    how = rng.random()
    if how < 0.1:
        del within[path[-1]]
    elif how < 0.2:
        other = content
        for key in every[int(rng.integers(len(every)))]:
            other = other[key]
        within[path[-1]] = json.loads(json.dumps(other))
    elif how < 0.3 and type(within[path[-1]]) in (int, float):
        within[path[-1]] += int(rng.choice([-1, 1, 2, 1000, -1000]))
    elif how < 0.35:
        (within if isinstance(within, dict) else content)["more"] = hostile(rng)
    else:
        within[path[-1]] = hostile(rng)


def signed(files, content):
    """The manifest with sizes and checksums that fit."""
    listed = content.get("files")
    for name, raw in files.items():
        if name != MANIFEST and isinstance(listed, dict) and isinstance(listed.get(name), dict):
            listed[name] = {"bytes": len(raw), "checksum": digest(raw)}
    content.pop("checksum", None)
    content["checksum"] = folders._checksum(content)
    return json.dumps(content).replace("Infinity", "1e999").encode()


def digest(raw):
    return folders.hashlib.blake2b(raw, digest_size=16).hexdigest()


def spoil(rng, whole):
    """Another content of a folder, what was done to it, and whether it was signed anew."""
    files, content = dict(whole), json.loads(whole[MANIFEST])
    names = sorted(set(files) - {MANIFEST})
    name = names[int(rng.integers(len(names)))]
    sign = bool(rng.random() < 0.5)
    how = rng.random()
    if how < 0.25:
        name = MANIFEST if rng.random() < 0.3 else name
        change = BYTEWISE[int(rng.integers(len(BYTEWISE)))]
        files[name] = change(rng, files[name])
        description, sign = f"{change.__name__} {name}", sign and name != MANIFEST
    elif how < 0.30:
        del files[name]
        description = f"remove {name}"
    elif how < 0.36:
        other = names[int(rng.integers(len(names)))]
        files[name], files[other] = files[other], files[name]
        description = f"swap {name} and {other}"
    elif how < 0.48:
        files[name] = lie(rng, files[name])
        description = f"lie in {name}"
    elif how < 0.62:
        files[name] = renumber(rng, files[name])
        description = f"renumber {name}"
    elif how < 0.68:
        files[name] = reshape(rng, files[name])
        description = f"reshape {name}"
    elif how < 0.70:
        text = texts()[int(rng.integers(len(texts())))]
        files[MANIFEST], description, sign = text.encode(), f"manifest {text[:40]!r}", False
    else:
        for _ in range(int(rng.integers(1, 4))):
            edit(rng, content)
        files[MANIFEST] = json.dumps(content).encode()
        description = "edit the manifest"
        sign = sign or bool(rng.random() < 0.5)
    if sign:
        files[MANIFEST] = signed(files, content)
    return files, description + (", signed" if sign else ""), sign


def build(home):
    """Small models of every kind, and two stores."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (120, 2))
    y = np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * rng.standard_normal(120)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": ["red", "green", "blue", "green"] * 30, "y": y})
    serial = {"engine": "serial", "random_state": 0}
    home.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # parameters at bounds
        HGPRegressor(leaf_size=15, **serial).fit(table, "y", categorical=["c"]).save(home / "local")
        kernel = SquaredExponential(lengthscale=0.5) * Constant(2.0) + Linear(ard=False)
        HGPRegressor(
            kernel, partition=StratifiedPartition(3), levels=2, branching=2, sharing=2, combine=GRBCM(),
            dtype="float32", **serial,
        ).fit(X, y).save(home / "stratified")  # fmt: skip
        HGPRegressor(
            Matern32(), partition="random", leaf_size=20, combine=Healed(3.0), standardize=False, experts_per_query=2,
            **serial,
        ).fit(X, y).save(home / "random")  # fmt: skip
        HGPRegressor(**serial).fit(X, np.full(120, 4.0)).save(home / "one")
    lists = {"runs": Runs(np.arange(0, 121, 20)), "groups": IndexLists.of([np.arange(9), np.arange(5, 120)])}
    for name, cells in lists.items():
        with folders.writing(home / name) as folder:
            writer = PlacedWriter(folder, 120, 2, X.dtype)
            checksums = [writer.places.write(first, X[first : first + 60], y[first : first + 60]) for first in (0, 60)]
            writer.finish(cells, "a source", [60, 120], checksums)


class Patient:
    """A folder that is spoilt and made whole again, and what it answers when whole."""

    def __init__(self, folder, scratch):
        self.whole = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.folder = scratch / folder.name
        shutil.copytree(folder, self.folder)
        self.is_store = json.loads(self.whole[MANIFEST])["format"] == "gigagp-store"
        self.queries = None if self.is_store else queries(gigagp.load(self.folder))
        self.expected = self.answer(True)

    def answer(self, verify):
        if self.is_store:
            store, cells = open_store(self.folder, verify=verify)
            return [store.X.copy(), store.y.copy(), *(cells[leaf] for leaf in range(len(cells)))]
        model = gigagp.load(self.folder, verify=verify)
        assert len(repr(model.report_)) > 0
        return model.predict(self.queries, return_std=True)

    def suffer(self, rng):
        """One case: what was done and what came of it. An AssertionError, or any other, is a failure."""
        files, description, sign = spoil(rng, self.whole)
        changed = {name for name in {*files, *self.whole} if files.get(name) != self.whole.get(name)}
        self._write(files, changed)
        verify = bool(rng.random() < 0.9)
        try:
            return description, self._judge(verify, trusted=sign or not verify)
        except BaseException as error:
            error.add_note(f"{self.folder.name}: {description}, verify={verify}")
            raise
        finally:
            self._write(self.whole, changed)

    def _write(self, files, names):
        for name in names:
            (self.folder / name).unlink(missing_ok=True)  # what is mapped stays as it is
            if name in files:
                (self.folder / name).write_bytes(files[name])

    def _judge(self, verify, trusted):
        try:
            got = self.answer(verify)
        except GigaGPError as error:
            refused = error
        else:
            refused = None
        if refused is not None:
            assert trusted or isinstance(refused, InvalidInput), "damage is found when the folder is read"
            assert 20 < len(str(refused)) < 600 or not isinstance(refused, InvalidInput), str(refused)
            assert "\n" not in str(refused)
            return "refused"
        same = len(got) == len(self.expected) and all(map(np.array_equal, got, self.expected))
        assert same or trusted, "other answers than the whole model's"
        if not self.is_store:
            assert all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(got, self.expected, strict=True))
        return "same" if same else "another"


def queries(model):
    """Twelve rows that a model of these tests may be asked about."""
    X = np.random.default_rng(5).uniform(-2, 2, (12, 2))
    if model.model_.encoding is None:
        return X
    return pa.table({"a": X[:, 0], "b": X[:, 1], "c": ["red", "blue", "green"] * 4})


def main(home, first, count):
    """Cases `first`, `first` + 1, ..; the folder `home` has whole ones, and a file that tells how far we are."""
    home = Path(home)
    scratch = home / f"scratch-{first}"
    scratch.mkdir()
    patients = [Patient(folder, scratch) for folder in sorted((home / "whole").iterdir())]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    seen = {}
    for case in range(first, first + count):
        (home / f"case-{first}").write_text(str(case))
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # not caught: the process ends, wherever it is
        signal.setitimer(signal.ITIMER_REAL, WAITING * SECONDS)  # other programs may use the cores meanwhile
        rng = np.random.default_rng(case)
        _, outcome = patients[case % len(patients)].suffer(rng)
        seen[outcome] = seen.get(outcome, 0) + 1
    for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
        signal.setitimer(timer, 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**seen, "peak": peak}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # models signed anew may be strange ones
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

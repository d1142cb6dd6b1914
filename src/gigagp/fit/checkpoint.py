"""Fits that survive: what has been found so far is kept in a folder, and the same call goes on from there.

The optimiser is not saved: it is deterministic, so it is run again over the recorded evaluations, which costs nothing,
and from the last one on over new ones. Theta and predictions come out the same to the bit.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.folder_lock import LOCK, FolderLock
from gigagp.data.scaling import Moments
from gigagp.data.scan import Sample, Scan
from gigagp.errors import InvalidInput
from gigagp.expert import Evidence
from gigagp.fit.training import Objective
from gigagp.model.fingerprint import described

FORMAT, VERSION = "gigagp-checkpoint", 1
_MANIFEST, _EVALUATIONS, _SCAN, _STORE = "manifest.json", "evaluations.log", "scan.npz", "store"
_BUCKETS = ".buckets"  # rows on their way into the store
_RECORD = struct.Struct("<II")  # length and CRC of what follows
_SYNC_SECONDS = 1.0  # of work that a machine that dies may lose


class Checkpoint:
    """A folder that belongs to one fit: these data, these settings, this version; locked until `close`.

    `identity` says what the fit is of; a folder of another fit is refused. `seed` is kept, so that a fit without
    random_state goes on with its own numbers.
    """

    def __init__(self, folder: Path, identity: dict[str, str], seed: int) -> None:
        self.folder, self.store_folder = folder, folder / _STORE
        identity = {**identity, **_versions()}
        folders.make(folder)
        with self._writing():
            self._lock = FolderLock(folder)
        try:
            self._open(identity, seed)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, identity: dict[str, str], seed: int) -> None:
        folder, manifest = self.folder, self.folder / _MANIFEST
        if manifest.exists():
            known = folders.read_manifest(manifest, FORMAT, VERSION)
            _check_same(folder, known.get("identity"), identity)
            self.seed = int(known["seed"])
        else:
            if any(p.name not in (f"{_MANIFEST}.partial", LOCK) for p in folder.iterdir()):
                raise InvalidInput(f"{folder} is neither empty nor a checkpoint of gigagp; choose another folder")
            self.seed = seed
            with self._writing():
                content = {"format": FORMAT, "version": VERSION, "identity": identity, "seed": seed}
                folders.write_manifest(manifest, content)
        folders.remove_leftovers(self.store_folder)
        shutil.rmtree(folder / _BUCKETS, ignore_errors=True)
        with self._writing():
            self.log = EvaluationLog(folder / _EVALUATIONS, described([sorted(identity.items()), self.seed]))

    def scanned(self, scan: Callable[[], Scan]) -> Scan:
        """The first pass over the data, from the folder if it has been made."""
        path = self.folder / _SCAN
        saved = _read_scan(path)
        if saved is not None:
            return saved
        scan_result = scan()
        with self._writing(), folders.writing_file(path, in_own_folder=True) as file:
            np.savez(file, allow_pickle=False, **_scan_arrays(scan_result))
        return scan_result

    def _writing(self) -> AbstractContextManager[None]:
        return folders.disk_errors("writing the checkpoint", self.folder)

    def close(self) -> None:
        self.log.close()
        self._lock.release()


class EvaluationLog:
    """Evaluations of the evidence in the order in which they were asked for; a torn last one is dropped.

    `fit` says whose evaluations they are: those of another fit are not taken for its own.
    """

    def __init__(self, path: Path, fit: str) -> None:
        self._path, self._fit, self._functions = path, fit, 0
        self._known: list[bytes] = []
        self._at, self._synced = 0, time.monotonic()
        whole = 0
        if path.exists():
            raw = path.read_bytes()
            while whole + _RECORD.size <= len(raw):
                length, crc = _RECORD.unpack_from(raw, whole)
                record = raw[whole + _RECORD.size : whole + _RECORD.size + length]
                if len(record) < length or zlib.crc32(record) != crc:
                    break
                self._known.append(record)
                whole += _RECORD.size + length
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        self._cut(whole)

    def recorded(self, evidence: Objective) -> Objective:
        """The same function, looked up where it has been evaluated before in this order."""
        function = f"{self._fit} {self._functions}".encode()
        self._functions += 1

        def remembered(theta: Array, leaves: Array | None) -> Evidence:
            asked = _asked(function, theta, leaves)
            if self._at < len(self._known):
                known = self._known[self._at]
                if known.startswith(asked):
                    self._at += 1
                    sums = np.frombuffer(known, dtype=float, offset=len(asked))
                    return Evidence(sums[:-1].copy(), float(sums[-1]))
                self._forget()  # another path was taken then: what follows belongs to it
            seen = evidence(theta, leaves)
            self._append(asked + np.append(seen.sums, seen.jitter).tobytes())
            return seen

        return remembered

    def _forget(self) -> None:
        del self._known[self._at :]
        self._cut(sum(_RECORD.size + len(record) for record in self._known))

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)

    def _append(self, record: bytes) -> None:
        with folders.disk_errors("writing the checkpoint", self._path.parent):
            self._file.write(_RECORD.pack(len(record), zlib.crc32(record)) + record)
            self._file.flush()
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        self._known.append(record)
        self._at += 1

    def close(self) -> None:
        self._file.close()


def _asked(function: bytes, theta: Array, leaves: Array | None) -> bytes:
    which = b"all" if leaves is None else np.asarray(leaves, np.int64).tobytes()
    return hashlib.blake2b(function + np.asarray(theta, float).tobytes() + which, digest_size=16).digest()


def _versions() -> dict[str, str]:
    """What the bits of a fit depend on."""
    names = ("gigagp", "numpy", "scipy", "numba", "llvmlite")
    return {**{name: metadata.version(name) for name in names}, "machine": platform.machine()}


def _check_same(folder: Path, known: Any, wanted: dict[str, str]) -> None:
    known = known if isinstance(known, dict) else {}
    differences = [
        f"{name}: {known.get(name)} there, {wanted.get(name)} here"
        for name in sorted({*known, *wanted})
        if known.get(name) != wanted.get(name)
    ]
    if differences:
        raise InvalidInput(
            f"{folder} is the checkpoint of another fit ({'; '.join(differences[:5])}); choose another folder, "
            "or remove it to begin anew"
        )


def _read_scan(path: Path) -> Scan | None:
    """The scan in that file; None if there is none, or only what is left of one: it is soon made again."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            return _scan_from({name: held[name] for name in held.files})
    except Exception:  # whatever zipfile and NumPy say of a damaged file
        return None


def _scan_arrays(found: Scan) -> dict[str, Array]:
    sample = found.sample
    arrays = {"keys": sample.keys, "rows": sample.rows, "X": sample.X, "y": sample.y}
    arrays["dropped"] = np.array(found.dropped)
    for name, moments in (("inputs", found.inputs), ("target", found.target)):
        arrays[name] = moments.state()
    return arrays


def _scan_from(held: dict[str, Array]) -> Scan:
    inputs, target = Moments.from_state(held["inputs"]), Moments.from_state(held["target"])
    sample = Sample(held["keys"], held["rows"], held["X"], held["y"])
    return Scan(inputs.count, inputs, target, sample, int(held["dropped"]))

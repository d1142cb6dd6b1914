"""Checkpoints: intermediate results of a fit are kept in a folder, and the same call resumes from there.

The state of the optimiser is not saved. It is deterministic, so it is run again over the recorded evaluations, which
costs nothing, and continues with new ones. Theta and predictions are the same to the bit.
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
from contextlib import AbstractContextManager, suppress
from dataclasses import fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.addresses import is_remote
from gigagp.data.folder_lock import LOCK, FolderLock
from gigagp.data.scaling import Moments
from gigagp.data.scan import Extremes, Sample, Scan
from gigagp.errors import GigaGPError, InvalidInput
from gigagp.expert import Evidence
from gigagp.fit.checkpoint_objects import CheckpointObjects, LogObjects
from gigagp.fit.training import Objective
from gigagp.model.fingerprint import described

FORMAT = "gigagp-checkpoint"
VERSION = 1
_MANIFEST = "manifest.json"
_EVALUATIONS = "evaluations.log"
_SCAN = "scan.npz"
_STORE = "store"  # folder
_BUCKETS = ".buckets"  # folder of rows that are being sorted into the store
_RECORD = struct.Struct("<II")  # length and CRC of what follows
_SYNC_SECONDS = 1.0  # seconds of work that may be lost if the machine crashes


class Checkpoint:
    """The folder of one fit: certain data, settings and versions; locked until `close`.

    `identity` describes the fit; the folder of another fit is refused. `seed` is kept, so that a fit without
    random_state continues with the same random numbers; so is the memory budget, which decides whether exact GPs on all
    rows are tried: a fit that is resumed with another budget is the same. `remote` is the checkpoint at an address of
    which the folder is a copy.
    """

    def __init__(
        self, folder: Path, identity: dict[str, str], seed: int, budget: int, remote: CheckpointObjects | None = None
    ) -> None:
        self.folder, self.store_folder = folder, folder / _STORE
        self._remote, self.mirror = remote, None if remote is None else remote.mirror
        identity = {**identity, **_versions()}
        folders.make(folder)
        with self._writing():
            self._lock = FolderLock(folder)
        try:
            self._open(identity, seed, budget)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, identity: dict[str, str], seed: int, budget: int) -> None:
        folder, manifest = self.folder, self.folder / _MANIFEST
        if manifest.exists():
            content = folders.read_manifest(manifest, FORMAT, VERSION)
            _check_same(str(folder), content.get("identity"), identity)
            self.seed, self.budget = int(content["seed"]), int(content.get("budget", budget))
        else:
            if any(p.name not in (f"{_MANIFEST}.partial", LOCK) for p in folder.iterdir()):
                raise InvalidInput(f"{folder} is neither empty nor a checkpoint of gigagp; choose another folder")
            self.seed, self.budget = seed, budget
            with self._writing():
                content = {"format": FORMAT, "version": VERSION, "identity": identity, "seed": seed, "budget": budget}
                folders.write_manifest(manifest, content)
            self._push(manifest)
        folders.remove_leftovers(self.store_folder)
        shutil.rmtree(folder / _BUCKETS, ignore_errors=True)
        with self._writing():
            log = None if self._remote is None else self._remote.log
            self.log = EvaluationLog(folder / _EVALUATIONS, described([sorted(identity.items()), self.seed]), log)

    def _push(self, path: Path) -> None:
        if self._remote is not None:
            self._remote.push(path)

    def scanned(self, scan: Callable[[], Scan]) -> Scan:
        """The result of the first pass over the data, from the folder where it is complete."""
        path = self.folder / _SCAN
        saved = _read_scan(path)
        if saved is not None:
            return saved
        scan_result = scan()
        with self._writing(), folders.writing_file(path, in_own_folder=True) as file:
            np.savez(file, allow_pickle=False, **_scan_arrays(scan_result))
        self._push(path)
        return scan_result

    def _writing(self) -> AbstractContextManager[None]:
        return folders.disk_errors("writing the checkpoint", self.folder)

    def close(self) -> None:
        try:
            self.log.close()
        finally:  # also after a second Ctrl-C, while the log is uploaded
            self._lock.release()
            if self._remote is not None:
                self._remote.release()


def open_checkpoint(place: str | os.PathLike[str], identity: dict[str, str], seed: int, budget: int) -> Checkpoint:
    """The checkpoint in a folder or at an address."""
    if not is_remote(place):
        return Checkpoint(Path(place), identity, seed, budget)
    remote = CheckpointObjects(str(place), (_MANIFEST, _SCAN))
    try:
        return Checkpoint(remote.folder, identity, seed, budget, remote)
    except BaseException as error:
        remote.release()
        remote.mirror.remove()
        if isinstance(error, InvalidInput):  # of the copy on this machine, which does not concern the user
            raise type(error)(str(error).replace(str(remote.folder), remote.name)) from None
        raise


class EvaluationLog:
    """Evaluations of the evidence in the order of the calls; an incomplete last one is dropped.

    `fit` identifies the fit, so that evaluations of another fit are not used. `remote` is the log at an address.
    """

    def __init__(self, path: Path, fit: str, remote: LogObjects | None = None) -> None:
        self._path, self._fit, self._functions, self._remote = path, fit, 0, remote
        self._records: list[bytes] = []
        self._at, self._synced = 0, time.monotonic()
        whole = 0
        if remote is not None:
            path.write_bytes(remote.content)
        if path.exists():
            raw = path.read_bytes()
            while whole + _RECORD.size <= len(raw):
                length, crc = _RECORD.unpack_from(raw, whole)
                record = raw[whole + _RECORD.size : whole + _RECORD.size + length]
                if len(record) < length or zlib.crc32(record) != crc:
                    break
                self._records.append(record)
                whole += _RECORD.size + length
        self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
        self._cut(whole)

    def recorded(self, evidence: Objective) -> Objective:
        """The same function, whose recorded values are used as long as the calls come in the recorded order."""
        function = f"{self._fit} {self._functions}".encode()
        self._functions += 1

        def evaluate(theta: Array, leaves: Array | None) -> Evidence:
            arguments = _digest(function, theta, leaves)
            if self._at < len(self._records):
                record = self._records[self._at]
                if record.startswith(arguments):
                    self._at += 1
                    sums = np.frombuffer(record, dtype=float, offset=len(arguments))
                    return Evidence(sums[:-1].copy(), float(sums[-1]))
                self._forget()  # the optimiser took another path then, to which the following records belong
            result = evidence(theta, leaves)
            self._append(arguments + np.append(result.sums, result.jitter).tobytes())
            return result

        return evaluate

    def _forget(self) -> None:
        del self._records[self._at :]
        self._cut(sum(_RECORD.size + len(record) for record in self._records))

    def _cut(self, size: int) -> None:
        self._file.truncate(size)
        self._file.seek(size)
        if self._remote is not None:
            self._remote.cut(size)

    def _append(self, record: bytes) -> None:
        with folders.disk_errors("writing the checkpoint", self._path.parent):
            written = _RECORD.pack(len(record), zlib.crc32(record)) + record
            self._file.write(written)
            self._file.flush()
            if self._remote is not None:
                self._remote.append(written)
            if time.monotonic() - self._synced > _SYNC_SECONDS:
                os.fsync(self._file.fileno())
                if self._remote is not None:
                    self._remote.push()
                self._synced = time.monotonic()
        self._records.append(record)
        self._at += 1

    def close(self) -> None:
        with suppress(OSError):  # on a full disk: an incomplete last record is dropped when the log is read
            self._file.close()
        with suppress(GigaGPError):  # the fit is over, or it has another error
            if self._remote is not None:
                self._remote.push()


def _digest(function: bytes, theta: Array, leaves: Array | None) -> bytes:
    which = b"all" if leaves is None else np.asarray(leaves, np.int64).tobytes()
    return hashlib.blake2b(function + np.asarray(theta, float).tobytes() + which, digest_size=16).digest()


@cache
def _versions() -> dict[str, str]:
    """Versions on which the bits of a fit depend."""
    names = ("gigagp", "numpy", "scipy", "numba", "llvmlite")
    return {**{name: metadata.version(name) for name in names}, "machine": platform.machine()}


def _check_same(folder: str, content: Any, identity: dict[str, str]) -> None:
    """Raise InvalidInput if a folder belongs to another fit."""
    saved = content if isinstance(content, dict) else {}
    differences = [
        f"{name}: {saved.get(name)} there, {identity.get(name)} here"
        for name in sorted({*saved, *identity})
        if saved.get(name) != identity.get(name)
    ]
    if differences:
        raise InvalidInput(
            f"{folder} is the checkpoint of another fit ({'; '.join(differences[:5])}); choose another folder, "
            "or remove it to start again"
        )


def _read_scan(path: Path) -> Scan | None:
    """The scan in that file; None if the file is missing or damaged, since a scan is quickly repeated."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _scan_from({name: arrays[name] for name in arrays.files})
    except Exception:  # of many kinds, raised by zipfile and NumPy for a damaged file
        return None


def _scan_arrays(scan: Scan) -> dict[str, Array]:
    sample = scan.sample
    arrays = {"keys": sample.keys, "rows": sample.rows, "X": sample.X, "y": sample.y}
    arrays["count"], arrays["dropped"], arrays["copies"] = (
        np.array(count) for count in (scan.rows, scan.dropped, scan.copies)
    )
    for name, array in vars(scan.extremes).items():
        arrays[f"extreme_{name}"] = array
    for name, moments in (("inputs", scan.inputs), ("target", scan.target)):
        arrays[name] = moments.state()
    return arrays


def _scan_from(arrays: dict[str, Array]) -> Scan:
    inputs, target = Moments.from_state(arrays["inputs"]), Moments.from_state(arrays["target"])
    sample = Sample(arrays["keys"], arrays["rows"], arrays["X"], arrays["y"])
    extremes = Extremes(*(arrays[f"extreme_{each.name}"] for each in fields(Extremes)))
    count, dropped, copies = (int(arrays[name]) for name in ("count", "dropped", "copies"))
    return Scan(count, inputs, target, sample, extremes, dropped, copies)

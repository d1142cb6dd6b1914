"""Fits that survive: what has been found so far is kept in a folder, and the same call goes on from there.

The optimiser is not saved: it is deterministic, so it is run again over the recorded evaluations, which costs nothing,
and from the last one on over new ones. Theta and predictions come out the same to the bit.
"""

from __future__ import annotations

import hashlib
import platform
import struct
import time
import zlib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.scaling import Moments
from gigagp.data.scan import Sample, Scan
from gigagp.errors import InvalidInput
from gigagp.expert import Evidence
from gigagp.training import Objective

FORMAT, VERSION = "gigagp-checkpoint", 1
_MANIFEST, _EVALUATIONS, _SCAN, _STORE = "manifest.json", "evaluations.log", "scan.npz", "store"
_RECORD = struct.Struct("<II")  # length and CRC of what follows
_SYNC_SECONDS = 1.0


class Checkpoint:
    """A folder that belongs to one fit: these data, these settings, this version.

    `identity` says what the fit is of; a folder of another fit is refused. `seed` is kept, so that a fit without
    random_state goes on with its own numbers.
    """

    def __init__(self, folder: Path, identity: dict[str, str], seed: int) -> None:
        self.folder, self.store_folder = folder, folder / _STORE
        identity = {**identity, **_versions()}
        folders.make(folder)
        manifest = folder / _MANIFEST
        if manifest.exists():
            known = folders.read_manifest(manifest, FORMAT, VERSION)
            _check_same(folder, known.get("identity"), identity)
            self.seed = int(known["seed"])
        elif any(folder.iterdir()):
            if any(not p.name.endswith(".partial") for p in folder.iterdir()):
                raise InvalidInput(f"{folder} is neither empty nor a checkpoint of gigagp; choose another folder")
            self.seed = seed
        else:
            self.seed = seed
        if not manifest.exists():
            content = {"format": FORMAT, "version": VERSION, "identity": identity, "seed": self.seed}
            folders.write_manifest(manifest, content)
        folders.remove_leftovers(self.store_folder)
        self.log = EvaluationLog(folder / _EVALUATIONS)

    def scanned(self, scan: Callable[[], Scan]) -> Scan:
        """The first pass over the data, from the folder if it has been made."""
        path = self.folder / _SCAN
        if path.exists():
            with np.load(path, allow_pickle=False) as held:
                return _scan_from({name: held[name] for name in held.files})
        found = scan()
        beside = path.with_name(path.name + ".partial")
        with folders.disk_errors("writing the checkpoint", self.folder), beside.open("wb") as file:
            np.savez(file, allow_pickle=False, **_scan_arrays(found))
        beside.replace(path)
        return found

    def close(self) -> None:
        self.log.close()


class EvaluationLog:
    """Evaluations of the evidence in the order in which they were asked for; a torn last one is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        self._ends = self._offsets()
        self._file.truncate(whole)
        self._file.seek(whole)

    def _offsets(self) -> list[int]:
        ends, at = [0], 0
        for record in self._known:
            at += _RECORD.size + len(record)
            ends.append(at)
        return ends

    @property
    def replayed(self) -> int:
        """How many evaluations were known before."""
        return len(self._ends) - 1

    def recorded(self, evidence: Objective) -> Objective:
        """The same function, looked up where it has been evaluated before in this order."""

        def remembered(theta: Array, leaves: Array | None) -> Evidence:
            asked = _asked(theta, leaves)
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
        self._file.truncate(self._ends[self._at])
        self._file.seek(self._ends[self._at])

    def _append(self, record: bytes) -> None:
        with folders.disk_errors("writing the checkpoint", self._path.parent):
            self._file.write(_RECORD.pack(len(record), zlib.crc32(record)) + record)
            self._file.flush()
        self._known.append(record)
        self._at += 1

    def close(self) -> None:
        self._file.close()


def _asked(theta: Array, leaves: Array | None) -> bytes:
    which = b"all" if leaves is None else np.asarray(leaves, np.int64).tobytes()
    return hashlib.blake2b(np.asarray(theta, float).tobytes() + which, digest_size=16).digest()


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


def _scan_arrays(found: Scan) -> dict[str, Array]:
    sample = found.sample
    arrays = {"keys": sample.keys, "rows": sample.rows, "X": sample.X, "y": sample.y}
    for name, moments in (("inputs", found.inputs), ("target", found.target)):
        arrays[name] = moments.state()
    return arrays


def _scan_from(held: dict[str, Array]) -> Scan:
    inputs, target = Moments.from_state(held["inputs"]), Moments.from_state(held["target"])
    return Scan(inputs.count, inputs, target, Sample(held["keys"], held["rows"], held["X"], held["y"]))

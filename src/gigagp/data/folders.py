"""Folders that are whole or not there: written beside, checked by sum, then renamed; temporary ones are removed."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gigagp.errors import DamagedFile, DiskFull, InvalidInput, InvalidParameter

_PREFIX, _LOCK = "gigagp-tmp-", ".lock"
_CHUNK = 1 << 22
_SPARE = 64 << 20  # bytes of disk left free


def checksum(path: Path) -> str:
    """BLAKE2b of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """JSON with a checksum of itself; appears under its name only when whole."""
    whole = {**content, "checksum": _of_content(content)}
    beside = path.with_name(path.name + ".partial")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(whole, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The manifest, if it is one of that kind, of a version known here, and undamaged."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"{path.parent} is not a {kind} folder: it has no {path.name}") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    try:
        content = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise DamagedFile(f"{path} is damaged: it is not JSON") from None
    if not isinstance(content, dict) or content.get("format") != kind:
        raise InvalidInput(f"{path} is not the manifest of a {kind}")
    found = content.get("version")
    if not isinstance(found, int) or found < 1:
        raise DamagedFile(f"{path} is damaged: its version is {found!r}")
    if found > version:
        raise InvalidInput(
            f"{path} was written by a newer gigagp (version {found} of the format; this one knows {version}): upgrade"
        )
    if content.pop("checksum", None) != _of_content(content):
        raise DamagedFile(f"{path} is damaged: its checksum does not fit its content")
    return content


def _of_content(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


@contextmanager
def writing(final: Path) -> Iterator[Path]:
    """A folder beside `final` to write into; at the end it takes that name, after an error it is removed.

    A whole folder of that name is replaced; there is never half of one.
    """
    partial = final.with_name(f".{final.name}.partial-{os.getpid()}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        yield partial
        _sync(partial)
        if final.exists():
            old = final.with_name(f".{final.name}.old-{os.getpid()}")
            shutil.rmtree(old, ignore_errors=True)
            final.rename(old)
            partial.rename(final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            partial.rename(final)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_leftovers(final: Path) -> None:
    """What a killed process left beside `final`; an old whole folder is put back if its successor never came."""
    if not final.parent.is_dir():
        return
    for old in sorted(final.parent.glob(f".{final.name}.old-*")):
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(final)
    for partial in final.parent.glob(f".{final.name}.partial-*"):
        shutil.rmtree(partial, ignore_errors=True)


def _sync(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def make(folder: Path) -> None:
    """The folder, made with its parents if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(f"cannot make the folder {folder}: {error.strerror}; choose another") from None


def check_space(folder: Path, wanted: int, what: str) -> None:
    """Refuse to begin what would fill the disk."""
    free = shutil.disk_usage(folder).free
    if free < wanted + _SPARE:
        raise DiskFull(
            f"{what} needs {wanted / 1e9:.2f} GB on the disk of {folder}, which has {free / 1e9:.2f} GB free; "
            "make room, or choose a folder on another disk"
        )


@contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Errors of the operating system, said in the user's words."""
    try:
        yield
    except OSError as error:
        raise DiskFull(f"{what} in {folder} failed: {error.strerror or error}; nothing half-written is kept") from error


class TemporaryFolder:
    """A folder that goes when its owner does: with `remove`, at the end of the process, or when it is forgotten.

    What a killed process leaves is removed by the next one: a live owner holds a lock.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        parent = Path(parent if parent is not None else tempfile.gettempdir())
        make(parent)
        _sweep(parent)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        except OSError as error:
            raise InvalidParameter(f"cannot write in {parent}: {error.strerror}; choose another folder") from None
        lock = (self.path / _LOCK).open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())


def _remove(path: Path, lock: Any, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        shutil.rmtree(path, ignore_errors=True)
        lock.close()


def _sweep(parent: Path) -> None:
    for folder in parent.glob(_PREFIX + "*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # in use, or not ours

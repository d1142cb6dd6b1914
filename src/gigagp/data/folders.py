"""Folders that are whole or not there: written beside, checked by sum, then renamed; temporary ones are removed."""

from __future__ import annotations

import ctypes
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from gigagp.errors import DamagedFile, DiskFull, InvalidInput, InvalidParameter
from gigagp.memory import size_text

_PREFIX, _LOCK = "gigagp-tmp-", ".lock"
_SPARE = 64 << 20  # bytes of disk kept in reserve
_MANIFEST_BYTES = 32 << 20  # no manifest is larger
_SENTENCE = 300  # characters of an error that may quote what it found
_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2


def damaged(path: Path, what: str) -> DamagedFile:
    """The error for a file of ours that is not as it was written."""
    what = what if len(what) <= _SENTENCE else what[:_SENTENCE] + " ..."
    return DamagedFile(f"{path} is damaged: {what}; restore the folder from a copy, or make it anew")


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """JSON with a checksum of itself; appears under its name only when whole."""
    whole = {**content, "checksum": _of_content(content)}
    beside = path.with_name(path.name + ".partial")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        if beside.stat().st_size > _MANIFEST_BYTES:
            raise InvalidParameter(f"{path} would exceed {_MANIFEST_BYTES >> 20} MiB: there are too many names in it")
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The manifest, if it is one of that kind, of a version known here, and undamaged."""
    content = _read_json(path, kind)
    if not isinstance(content, dict) or content.get("format") != kind:
        raise InvalidInput(f"{path} is not the manifest of a {kind}; choose another folder")
    found = content.get("version")
    if type(found) is not int or found < 1:
        raise damaged(path, "it has no version")
    if found > version:
        raise InvalidInput(
            f"{path} was written by a newer gigagp (version {found} of the format; this one knows {version}): upgrade"
        )
    if content.pop("checksum", None) != _of_content(content):
        raise damaged(path, "its checksum does not fit its content")
    return content


def is_of_kind(path: Path, kind: str) -> bool:
    """Whether this is a manifest of that kind, of whatever version and however damaged."""
    try:
        content = _read_json(path, kind)
    except InvalidInput:
        return False
    return isinstance(content, dict) and content.get("format") == kind


def _read_json(path: Path, kind: str) -> Any:
    try:
        if not path.is_file():  # a pipe would keep us waiting
            raise InvalidInput(f"{path.parent} is not a {kind} folder: it has no {path.name}; choose another folder")
        with path.open("rb") as file:
            raw = file.read(_MANIFEST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}; choose another folder") from None
    if len(raw) > _MANIFEST_BYTES:
        raise damaged(path, "it is larger than any manifest")
    try:
        content = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        _of_content(content)  # too deep to be read may also be too deep to be written
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON") from None
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _of_content(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


@contextmanager
def writing(final: Path, replace: bool = True) -> Iterator[Path]:
    """A folder beside `final` to write into; at the end it takes that name, after an error it is removed.

    A whole folder of that name is replaced, unless told not to; there is never half of one.
    """
    partial = final.with_name(f".{final.name}.partial-{os.getpid()}-{threading.get_ident()}")
    made = [parent for parent in final.parents if not parent.exists()]
    try:
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        with _locked(partial):
            yield partial
            for path in (*sorted(partial.iterdir()), partial):
                _sync(path)
            if replace and final.exists():
                _replace(partial, final)
            else:
                partial.rename(final)
        _sync(final.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in made:
            with suppress(OSError):
                parent.rmdir()
        raise


def check_output(output: str | os.PathLike[str], kind: str, endings: tuple[str, ...], overwrite: bool) -> Path:
    """Where a file is to be written; refused, before any work, where it cannot or must not."""
    final = Path(output).expanduser()
    if not final.name.lower().endswith(endings):
        raise InvalidParameter(f"the output is written as {kind}, and must end in {' or '.join(endings)}; got {output}")
    if final.is_dir():
        raise InvalidParameter(f"{final} is a folder; choose another output")
    if final.exists() and not overwrite:
        raise InvalidParameter(f"{final} exists; give overwrite=True to replace it, or choose another output")
    return final


def check_room(final: Path, wanted: int, what: str) -> None:
    """Refuse, before any work, a file that will not fit where it is to be, or may not be written there."""
    above = next(parent for parent in final.absolute().parents if parent.exists())
    check_space(above, wanted, what)
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise InvalidParameter(f"cannot write in {above}; choose another folder")


@contextmanager
def writing_file(final: Path) -> Iterator[IO[bytes]]:
    """A file that takes the name `final` when it is whole; after an error there is none."""
    partial = final.with_name(f".{final.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)


def _replace(partial: Path, final: Path) -> None:
    """`partial` takes the place of `final`: at once where the system swaps names, else with a moment between."""
    if _swap(partial, final):
        shutil.rmtree(partial, ignore_errors=True)
        return
    old = final.with_name(partial.name.replace(".partial-", ".old-"))
    shutil.rmtree(old, ignore_errors=True)
    final.rename(old)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _swap(one: Path, other: Path) -> bool:
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):  # not Linux, or an old one
        return False
    done: int = renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP)
    return done == 0


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """While a folder is being written its lock is held, so that it is not taken for a leftover."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _abandoned(folder: Path) -> bool:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(handle)
    return True


def remove_leftovers(final: Path) -> None:
    """What a killed process left beside `final`; an old whole folder is put back if its successor never came."""
    if not final.parent.is_dir():
        return
    name = glob.escape(final.name)
    for old in sorted(final.parent.glob(f".{name}.old-*")):
        if final.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(final)
    for partial in final.parent.glob(f".{name}.partial-*"):
        if _abandoned(partial):
            shutil.rmtree(partial, ignore_errors=True)


def _sync(path: Path) -> None:
    """What was written there is on the disk, not only on its way."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make(folder: Path) -> None:
    """The folder, made with its parents if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(f"cannot make the folder {folder}: {error.strerror}; choose another") from None


def check_space(folder: Path, wanted: int, what: str) -> None:
    """Refuse to begin what would fill the disk but for its reserve."""
    free = shutil.disk_usage(folder).free
    missing = wanted + _SPARE - free
    if missing > 0:
        raise DiskFull(
            f"{what} needs {size_text(wanted)} on the disk of {folder} beside a reserve of {size_text(_SPARE)} that we "
            f"leave free, but only {size_text(free)} are free; make room for another {size_text(missing)}, or choose a "
            "folder on another disk"
        )


@contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Errors of the operating system, said in the user's words."""
    try:
        yield
    except DiskFull:
        raise
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
            self.path, lock = _make_locked(parent)
        except OSError as error:
            raise InvalidParameter(f"cannot write in {parent}: {error.strerror}; choose another folder") from None
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())


def _make_locked(parent: Path) -> tuple[Path, IO[str]]:
    """A new folder and its lock, held; made again if a sweep of another process came between."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = (path / _LOCK).open("w")
            with suppress(OSError):  # some network disks have no locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if (path / _LOCK).exists():
                return path, lock
            lock.close()


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
        except FileNotFoundError:
            with suppress(OSError):  # its owner was killed before it had a lock, or is about to have one
                folder.rmdir()
        except OSError:
            continue  # in use, or not ours

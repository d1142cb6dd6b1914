"""Files and folders that are either complete or absent, manifests with checksums, and temporary folders.

Everything is written under a temporary name beside its final one and renamed when it is complete.
"""

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

_TEMPORARY_PREFIX = "gigagp-tmp-"  # of the names of temporary folders
_LOCK = ".lock"  # file in a temporary folder, locked while its owner lives
_RESERVE = 64 << 20  # bytes of the disk that are left free
_MANIFEST_BYTES = 32 << 20  # bytes of the largest manifest
_MESSAGE_CHARACTERS = 300  # characters of a reason that is quoted in an error
_AT_FDCWD = -100  # argument of renameat2: paths are relative to the working directory
_RENAME_EXCHANGE = 2  # flag of renameat2: exchange two names


def damaged(path: Path, what: str) -> DamagedFile:
    """The error for a file that differs from what gigagp wrote."""
    what = what if len(what) <= _MESSAGE_CHARACTERS else what[:_MESSAGE_CHARACTERS] + " ..."
    return DamagedFile(f"{path} is damaged: {what}; restore the folder from a copy, or make it anew")


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with a checksum of its content."""
    text = json.dumps({**content, "checksum": _checksum(content)}, indent=1, allow_nan=False)
    if len(text) > _MANIFEST_BYTES:  # JSON is ASCII: one byte per character
        raise InvalidParameter(f"{path} would exceed {_MANIFEST_BYTES >> 20} MiB: there are too many names in it")
    with writing_file(path, in_own_folder=True) as file:
        file.write(text.encode())


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a manifest; an error if it is of another kind, of a newer version, or damaged."""
    content = _read_json(path, kind)
    if not isinstance(content, dict) or content.get("format") != kind:
        raise InvalidInput(f"{path} is not the manifest of a {kind}; choose another folder")
    written = content.get("version")
    if type(written) is not int or written < 1:
        raise damaged(path, "it has no version")
    if written > version:
        raise InvalidInput(
            f"{path} was written by a newer gigagp (version {written} of the format; this one knows {version}): upgrade"
        )
    if content.pop("checksum", None) != _checksum(content):
        raise damaged(path, "its checksum does not fit its content")
    return content


def is_of_kind(path: Path, kind: str) -> bool:
    """Whether this is a manifest of that kind, of any version, damaged or not."""
    try:
        content = _read_json(path, kind)
    except InvalidInput:
        return False
    return isinstance(content, dict) and content.get("format") == kind


def _read_json(path: Path, kind: str) -> Any:
    try:
        if not path.parent.exists():
            raise InvalidInput(f"the folder {path.parent} does not exist; choose another folder")
        if not path.is_file():  # reading a pipe would block
            raise InvalidInput(f"{path.parent} is not a {kind} folder: it has no {path.name}; choose another folder")
        with path.open("rb") as file:
            raw = file.read(_MANIFEST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}; choose another folder") from None
    if len(raw) > _MANIFEST_BYTES:
        raise damaged(path, "it is larger than any manifest")
    try:
        content = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        _checksum(content)  # JSON nested too deeply for this is refused as well
    except (ValueError, RecursionError):
        raise damaged(path, "it is not JSON") from None
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _checksum(content: Any) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


@contextmanager
def writing(final: Path, replace: bool = True) -> Iterator[Path]:
    """A temporary folder that is renamed to `final` when it is complete, and removed after an error.

    replace : whether an existing folder of that name is replaced
    """
    partial = final.with_name(f".{final.name}.partial-{os.getpid()}-{threading.get_ident()}")
    new_parents = [parent for parent in final.parents if not parent.exists()]
    try:
        shutil.rmtree(partial, ignore_errors=True)
        make(partial)
        with _locked(partial):
            yield partial
            for path in (*sorted(partial.iterdir()), partial):
                sync(path)
            if replace and final.exists():
                _replace(partial, final)
            else:
                partial.rename(final)
        sync(final.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):
                parent.rmdir()
        raise


def output_path(output: str | os.PathLike[str]) -> Path:
    """The path of an output file; InvalidParameter for an address, where such files are not written."""
    if "://" in os.fspath(output):
        raise InvalidParameter(f"{output} is an address, but this output is a file of this machine; give a path")
    return Path(output).expanduser()


def check_output(output: str | os.PathLike[str], kind: str, endings: tuple[str, ...], overwrite: bool) -> Path:
    """The path of an output file; InvalidParameter, before any work, if it must not be written there."""
    final = output_path(output)
    if not final.name.lower().endswith(endings):
        raise InvalidParameter(f"the output is written as {kind}, and must end in {' or '.join(endings)}; got {output}")
    if final.is_dir():
        raise InvalidParameter(f"{final} is a folder; choose another output")
    if final.exists() and not overwrite:
        raise InvalidParameter(f"{final} exists; give overwrite=True to replace it, or choose another output")
    return final


def check_writable(final: Path, size: int, what: str) -> None:
    """Raise an error, before any work, if a file does not fit on its disk or may not be written there."""
    above = next(parent for parent in final.absolute().parents if parent.exists())
    check_space(above, size, what)
    if not (above.is_dir() and os.access(above, os.W_OK)):
        raise InvalidParameter(f"cannot write in {above}; choose another folder")


@contextmanager
def writing_file(final: Path, in_own_folder: bool = False) -> Iterator[IO[bytes]]:
    """A temporary file that is renamed to `final` when it is complete, and removed after an error.

    in_own_folder : whether only one process writes in the folder; the temporary file then has a fixed name, so that
        what a killed process leaves is overwritten by the next one
    """
    name = f"{final.name}.partial" if in_own_folder else f".{final.name}.partial-{os.getpid()}"
    partial = final.with_name(name)
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(final)
    except BaseException:
        with suppress(OSError):  # a second error must not hide the first
            partial.unlink()
        raise


def _replace(partial: Path, final: Path) -> None:
    """Replace the folder `final` by `partial`: in one step where the system can exchange names, else by two renames."""
    if _exchange(partial, final):
        shutil.rmtree(partial, ignore_errors=True)
        return
    old = final.with_name(partial.name.replace(".partial-", ".old-"))
    shutil.rmtree(old, ignore_errors=True)
    final.rename(old)
    partial.rename(final)
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):  # not Linux, or an old one
        return False
    status: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return status == 0


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder while it is written, so that other processes do not remove it as abandoned."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _abandoned(folder: Path) -> bool:
    """Whether no process holds the lock of a folder."""
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
    """Remove what a killed process left beside `final`; a folder that it was replacing gets its name back."""
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


def sync(path: Path) -> None:
    """Wait until what was written is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make(folder: Path) -> None:
    """Create a folder and its parents where they do not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidParameter(f"cannot make the folder {folder}: {error.strerror}; choose another") from None


def check_space(folder: Path, size: int, what: str) -> None:
    """Raise DiskFull if writing `size` bytes would use the reserve of the disk."""
    free = shutil.disk_usage(folder).free
    missing = size + _RESERVE - free
    if missing > 0:
        raise DiskFull(
            f"{what} needs {size_text(size)} on the disk of {folder} beside a reserve of {size_text(_RESERVE)} that "
            f"we leave free, but only {size_text(free)} are free; make room for another {size_text(missing)}, or "
            "choose a folder on another disk"
        )


@contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turn errors of the operating system into DiskFull, with the operation that failed."""
    try:
        yield
    except DiskFull:
        raise
    except OSError as error:
        raise DiskFull(f"{what} in {folder} failed: {error.strerror or error}; nothing half-written is kept") from error


class TemporaryFolder:
    """A folder that is removed by `remove`, at the end of the process, or when this object is garbage-collected.

    The owner holds a lock. Folders of killed processes, which hold none, are removed when the next one is created.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        parent = Path(parent if parent is not None else tempfile.gettempdir())
        make(parent)
        _remove_abandoned(parent)
        try:
            self.path, lock = _make_locked(parent)
        except OSError as error:
            raise InvalidParameter(f"cannot write in {parent}: {error.strerror}; choose another folder") from None
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())


def _make_locked(parent: Path) -> tuple[Path, IO[str]]:
    """Create a folder and lock it; repeat if another process removed it before it was locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=parent))
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


def _remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of processes that were killed."""
    for folder in parent.glob(_TEMPORARY_PREFIX + "*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            with suppress(OSError):  # its owner was killed before it had a lock, or has just created the folder
                folder.rmdir()
        except OSError:
            continue  # in use, or not ours

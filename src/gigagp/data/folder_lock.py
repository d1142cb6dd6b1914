"""A lock on a folder, so that one fit or one writer at a time works in it; the system releases it if its owner ends."""

from __future__ import annotations

import fcntl
import os
import platform
from contextlib import suppress
from pathlib import Path

from gigagp.errors import FolderInUse

LOCK = ".lock"
_NOTE_BYTES = 200  # bytes of the owner's note that are quoted in an error
_BY_A_FIT = (
    "{folder} is in use by another fit{owner}; wait until it has ended and repeat the call, or choose another folder"
)


class FolderLock:
    """A lock that is held from creation to `release`; FolderInUse is raised where another process or thread holds it.

    A file in the folder is locked (flock), and names the owner. The file that a killed owner leaves does no harm.

    path : the file, if it is not in the folder
    in_use : the message of FolderInUse, with the fields folder and owner
    """

    def __init__(self, folder: Path, path: Path | None = None, in_use: str = _BY_A_FIT) -> None:
        self._folder, self._path, self._in_use = folder, path or folder / LOCK, in_use
        self._handle = self._acquire()
        with suppress(OSError):  # The note only helps the reader of an error; a full disk must not matter here.
            os.ftruncate(self._handle, 0)
            os.write(self._handle, f"process {os.getpid()} on {platform.node()}".encode())

    def _acquire(self) -> int:
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(handle, _NOTE_BYTES).decode(errors="replace")
                os.close(handle)
                note = f" ({owner})" if owner else ""
                raise FolderInUse(self._in_use.format(folder=self._folder, owner=note)) from None
            except OSError:
                return handle  # Some network disks have no locks; there the user must see to it.
            if self._names(handle):
                return handle
            os.close(handle)  # The former owner removed the file between our opening and locking it: begin anew.

    def _names(self, handle: int) -> bool:
        """Whether the path still leads to the file that we have opened."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(handle))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Remove the file while it is still locked, then release the lock."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._handle)

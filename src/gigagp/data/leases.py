"""Leases: objects that say which process uses a folder at an address, renewed while the process lives.

S3 has no locks. A lease that was not renewed for two minutes belongs to a process that was killed; one of this machine
is recognised at once. Ages are differences of the times at which the server received the objects, so that the clocks of
the machines do not matter.
"""

from __future__ import annotations

import atexit
import os
import platform
import threading
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

from gigagp.data.objects import ObjectFolder
from gigagp.errors import DiskFull, FolderInUse, GigaGPError

LEASES = "gigagp-leases"  # folder beside what the leases are for
TEMPORARY = "gigagp-tmp"  # purpose of leases for temporary folders, which have their names
_RENEW_SECONDS = 20.0
_DEAD_SECONDS = 120.0

_ours: set[str] = set()  # names of the leases of this process, which lives even if it could not renew them


class Lease:
    """A lease in a folder, from creation to `release`. What processes that were killed have left is removed.

    purpose : first part of its name
    """

    def __init__(self, folder: ObjectFolder, purpose: str) -> None:
        self._leases, self.name = folder.below(LEASES), f"{purpose}-{uuid.uuid4().hex}"
        self._folder, self._lock, self._stop = folder, threading.RLock(), threading.Event()
        self._lost = False
        self._leases.put(self.name, _note())
        try:
            self._live = self._others()
        except BaseException:
            self._leases.remove(self.name)
            raise
        _ours.add(self.name)
        threading.Thread(target=_renew, args=(weakref.ref(self), self._stop), daemon=True).start()

    def rival(self, purpose: str) -> str | None:
        """Who held a lease of that purpose, besides this one, when it was created; None if nobody did."""
        return next((note for name, note in self._live.items() if name.startswith(f"{purpose}-")), None)

    def check(self) -> None:
        """Raise FolderInUse if another process has concluded that this one was killed."""
        if self._lost:
            raise FolderInUse(
                f"{self._folder.name} was taken over by another fit, because this one could not renew its lease for "
                f"{_DEAD_SECONDS:.0f} s; repeat the call when the other one has ended"
            )

    def _others(self) -> dict[str, str]:
        """The notes of other live leases, by name; dead ones are removed with their folders."""
        with self._leases.errors("read", DiskFull):
            listed = self._leases.files()
        own, live = listed.get(self.name, (0, None))[1], {}
        for name, (_, changed) in listed.items():
            if name == self.name or ".partial-" in name:
                continue
            note = self._leases.get(name)
            if note is None:  # released meanwhile
                continue
            owner, _, process = note.decode(errors="replace").partition("\n")
            late = own is not None and changed is not None and own - changed > _DEAD_SECONDS * 1e9
            if name in _ours or not (late or _has_ended(process)):
                live[name] = owner
                continue
            if name.startswith(f"{TEMPORARY}-"):
                self._folder.below(name).clear()
            self._leases.remove(name)
        return live

    def renew(self) -> None:
        with self._lock:
            if self._stop.is_set() or self._lost:
                return
            if self._leases.has(self.name):
                self._leases.put(self.name, _note())
            else:
                self._lost = True

    def end(self) -> None:
        """Renew it no longer: what belongs to it is removed by the next process that uses the folder."""
        with self._lock:
            self._stop.set()
            _ours.discard(self.name)

    def release(self) -> None:
        with self._lock:
            if not self._stop.is_set():
                self._stop.set()
                _ours.discard(self.name)
                with suppress(GigaGPError):  # it is removed by the next process that uses the folder
                    self._leases.remove(self.name)


def _renew(lease: weakref.ref[Lease], stop: threading.Event) -> None:
    while not stop.wait(_RENEW_SECONDS):
        held = lease()
        if held is None:
            return
        with suppress(Exception):  # the server may answer the next time
            held.renew()
        del held


def _note() -> bytes:
    """Who holds a lease: for the reader of an error, and in the second line for other processes of this machine."""
    return f"process {os.getpid()} on {platform.node()}\n{_machine()}:{os.getpid()}".encode()


def _machine() -> str:
    """What processes have in common that see each other: the running system, and the numbers of its processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # not Linux
        return ""


def _has_ended(process: str) -> bool:
    """Whether this was a process of this machine; False where that is not known."""
    machine, _, number = process.rpartition(":")
    if not machine or machine != _machine() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:  # it belongs to someone else
        return False
    return False


class TemporaryObjects:
    """A folder at an address that is removed by `remove`, at the end of the process, or with this object.

    Folders of processes that were killed are removed when the next one is created beside them.
    """

    def __init__(self, parent: ObjectFolder) -> None:
        lease = Lease(parent, TEMPORARY)
        self.parent, self.folder = parent, parent.below(lease.name)
        self.remove = weakref.finalize(self, _remove, self.folder, lease, os.getpid())
        atexit.register(self.remove)  # before pyarrow's own, after which there is no S3

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a temporary folder belongs to one process")


def _remove(folder: ObjectFolder, lease: Lease, owner: int) -> None:
    if os.getpid() != owner:  # in a forked child
        return
    try:
        folder.clear()
    except Exception:  # no server answers, or the interpreter is ending
        lease.end()
    else:
        lease.release()

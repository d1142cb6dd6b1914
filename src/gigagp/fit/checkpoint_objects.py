"""A checkpoint at an address: a copy of it on this machine is worked in, and what is written there is uploaded.

Each object is complete or absent, so that a fit can resume on another machine when this one is lost.
"""

from __future__ import annotations

from pathlib import Path

from gigagp.data.folders import TemporaryFolder
from gigagp.data.leases import LEASES, TEMPORARY, Lease
from gigagp.data.mirrors import Mirror
from gigagp.data.objects import ObjectFolder, cache_folder
from gigagp.errors import FolderInUse, InvalidInput

_FIT = "fit"  # purpose of the lease of a fit
_LOG = "evaluations"  # folder of the log
_SEGMENT = 1 << 16  # bytes from which on a segment of the log is left as it is
_BUCKETS = ".buckets"


class CheckpointObjects:
    """A checkpoint at an address, for one fit at a time, until `release`.

    files : names of the files that are copied to this machine; one without the first is no checkpoint
    """

    def __init__(self, address: str, files: tuple[str, ...]) -> None:
        base = ObjectFolder(address)
        self.name, self._base = base.name, base
        self._lease = Lease(base, _FIT)
        try:
            rival = self._lease.rival(_FIT)
            if rival is not None:
                raise FolderInUse(
                    f"{self.name} is in use by another fit ({rival}); wait until it has ended and repeat the call, or "
                    "choose another address; a fit that was killed on another machine blocks it for two minutes"
                )
            temporary = TemporaryFolder(cache_folder())
            self.folder = temporary.path / "checkpoint"
            self.folder.mkdir()
            self.mirror = Mirror(base, base, self.folder, temporary)
            self._pull(files)
            self.log = LogObjects(base.below(_LOG), self._lease)
        except BaseException:
            self._lease.release()
            raise

    def _pull(self, files: tuple[str, ...]) -> None:
        names = [name for name in self._base.names() if name != LEASES and not name.startswith(f"{TEMPORARY}-")]
        if names and files[0] not in names:
            raise InvalidInput(
                f"{self.name} is neither empty nor a checkpoint of gigagp ({', '.join(names[:3])}); choose another "
                "address, or remove what is there"
            )
        if _BUCKETS in names:  # of a fit that was killed
            self._base.below(_BUCKETS).clear()
        for name in files:
            content = self._base.get(name) if name in names else None
            if content is not None:
                (self.folder / name).write_bytes(content)

    def push(self, path: Path) -> None:
        """Upload a file of the copy."""
        self._lease.check()
        self._base.put(path.name, path.read_bytes())

    def release(self) -> None:
        self._lease.release()


class LogObjects:
    """A file to which records are appended, as objects: an object cannot be appended to, but replaced by a longer one.

    An object has the bytes from its name on, up to the next one.
    """

    def __init__(self, folder: ObjectFolder, lease: Lease) -> None:
        self._folder, self._lease = folder, lease
        self._content = bytearray()
        self._starts: list[int] = []  # of the objects
        self._pushed = 0
        for name in sorted(folder.names()):
            segment = folder.get(name)
            if not name.isdecimal() or int(name) != len(self._content) or segment is None:
                break
            self._starts.append(int(name))
            self._content += segment
        self._pushed = len(self._content)

    @property
    def content(self) -> bytes:
        return bytes(self._content)

    def append(self, content: bytes) -> None:
        self._content += content

    def cut(self, size: int) -> None:
        """Forget what follows."""
        if size >= len(self._content):
            return
        while self._starts and self._starts[-1] >= size:
            self._folder.remove(_segment(self._starts.pop()))
        del self._content[size:]
        self._pushed = min(self._pushed, self._starts[-1] if self._starts else 0, size)

    def push(self) -> None:
        """Upload what has been appended."""
        self._lease.check()
        if self._pushed == len(self._content):
            return
        if not self._starts or self._pushed - self._starts[-1] >= _SEGMENT:
            self._starts.append(self._pushed)
        self._folder.put(_segment(self._starts[-1]), bytes(self._content[self._starts[-1] :]))
        self._pushed = len(self._content)


def _segment(start: int) -> str:
    return f"{start:015d}"

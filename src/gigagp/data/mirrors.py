"""Files of a fit on this machine, and their copies at an address, where workers on other machines read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gigagp.data.folders import TemporaryFolder
from gigagp.data.leases import TemporaryObjects
from gigagp.data.mapped_file import MappedFile
from gigagp.data.object_files import RemoteArray, RemoteFile
from gigagp.data.objects import ObjectFolder, cache_folder


class Mirror:
    """A local folder whose files are, or will be when they are needed there, at an address.

    base : the address that the user has given
    home : the address of the fit, at or below that
    keeps : temporary folders that exist as long as this object, unless it is told to remove them
    """

    def __init__(self, base: ObjectFolder, home: ObjectFolder, folder: Path, *keeps: Any) -> None:
        self.base, self.home, self.folder, self._keeps = base, home, folder, keeps
        self._files: dict[tuple[str, int, int], RemoteFile] = {}  # by path, size and time of the last change
        self._count = 0

    @classmethod
    def temporary(cls, address: str) -> Mirror:
        """New temporary folders, one in the cache of this machine and one at the address."""
        base, folder = ObjectFolder(address), TemporaryFolder(cache_folder())
        try:
            objects = TemporaryObjects(base)
        except BaseException:
            folder.remove()
            raise
        return cls(base, objects.folder, folder.path, folder, objects)

    def add(self, path: Path, file: RemoteFile) -> None:
        """State that a file is at an address already."""
        self._files[_state(path)] = file

    def reference(self, file: MappedFile, folder: ObjectFolder) -> RemoteArray:
        """The same array for other machines; a file that is at no address yet is uploaded to this folder."""
        file.check()
        return RemoteArray(self.uploaded(Path(file.path), folder), file.offset, file.shape, file.dtype)

    def uploaded(self, path: Path, folder: ObjectFolder) -> RemoteFile:
        """The file at an address; uploaded to this folder if it is not at one."""
        state = _state(path)
        if state not in self._files:
            self._count += 1
            self._files[state] = RemoteFile.upload(folder, f"{self._count:06d}-{path.name}", path)
        return self._files[state]

    def has(self, path: str) -> bool:
        """Whether this file of this machine is one of the folder."""
        return Path(path).is_relative_to(self.folder)

    def remove(self) -> None:
        """Remove the temporary folders."""
        for kept in self._keeps:
            kept.remove()


def _state(path: Path) -> tuple[str, int, int]:
    status = os.stat(path)
    return os.path.abspath(path), status.st_size, status.st_mtime_ns

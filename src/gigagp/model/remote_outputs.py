"""Predictions into a file at an address such as s3://bucket/key."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Any

from gigagp.data import folders
from gigagp.data.addresses import is_remote, without_password
from gigagp.data.objects import ObjectFolder, cache_folder
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.model.fingerprint import fingerprint

FORMAT = "gigagp-output"
VERSION = 1


class RemoteOutput:
    """A file that is written on this machine, in the cache, and uploaded when it is complete.

    What an interrupted call has written is found again by the next one on this machine.
    """

    def __init__(self, address: str, overwrite: bool) -> None:
        base, mark, query = address.partition("?")
        parent, _, self._key = base.rpartition("/")
        self._folder, self._overwrite = ObjectFolder(parent + mark + query), overwrite
        self.name = f"{self._folder.name}/{self._key}"
        self.local = cache_folder() / "outputs" / fingerprint([self.name]) / self._key
        self._note = self.local.parent / "complete.json"
        self._check_free()
        folders.make(self.local.parent)

    def _check_free(self) -> None:
        with self._folder.errors("write", InvalidParameter, self._key):
            exists = self._key in self._folder.names()
            if not exists and not self._folder.names():
                self._folder.files()  # an error if there is no such bucket
        if exists and not self._overwrite:
            raise InvalidParameter(f"{self.name} exists; give overwrite=True to replace it, or choose another output")

    def check_apart(self, data: Any, paths: Iterable[str]) -> None:
        """Raise InvalidParameter if the output would replace a file that is read, or lie in the folder that is read.

        data : what the user called them
        paths : of the files that are read
        """
        inside = is_remote(data) and self.name.startswith(f"{without_password(data.partition('?')[0]).rstrip('/')}/")
        if inside or self._folder.place(self._key) in paths:
            raise InvalidParameter(f"{self.name} would lie among the data that are read; choose another output")

    def note(self, identity: dict[str, str], counts: dict[str, int]) -> None:
        """Note that the file is complete, and which prediction it is."""
        content = {"format": FORMAT, "version": VERSION, "identity": identity, "counts": counts, "file": self._state()}
        with folders.disk_errors("writing the prediction", self.local.parent):
            folders.write_manifest(self._note, content)

    def complete(self, identity: dict[str, str]) -> dict[str, int] | None:
        """The counts of the file if it is complete and of this prediction."""
        try:
            content = folders.read_manifest(self._note, FORMAT, VERSION)
            same = content["identity"] == identity and content["file"] == self._state()
        except (InvalidInput, FileNotFoundError):
            return None
        counts: dict[str, int] = content["counts"]
        return counts if same else None

    def _state(self) -> list[int]:
        """Size and time of the last change of the file."""
        status = self.local.stat()
        return [status.st_size, status.st_mtime_ns]

    def send(self) -> None:
        """Upload the file, and remove it here."""
        self._check_free()  # predictions take a while
        self._folder.upload(self._key, self.local)
        shutil.rmtree(self.local.parent, ignore_errors=True)

"""Files by path, folder, glob or URI, on any file system that pyarrow knows, in the order of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from gigagp.data.sources.base import Source, digest
from gigagp.data.sources.npy import ENDS
from gigagp.errors import InvalidInput

FORMATS = {".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".csv.gz": "CSV"}
_GLOB = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class File:
    """A file as it was when listed."""

    path: str  # on its file system
    inner: str  # below the folder that was asked for
    name: str  # what messages call it
    size: int
    mtime_ns: int | None


class Files:
    """What a path stands for."""

    def __init__(self, where: str) -> None:
        address, mark, query = where.partition("?") if "://" in where else (where, "", "")
        self.name = re.sub(r"//[^/@]*@", "//", address)  # no passwords in messages
        try:
            self.system, self._path = _locate(address, mark + query)
            self.found = self._list()
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(f"cannot open {self.name}: {error}") from error
        formats = {_format(file.path) for file in self.found}
        if len(formats) > 1 or None in formats:
            what = "holds files of several formats" if len(formats) > 1 else "is of no known format"
            raise InvalidInput(f"{self.name} {what}; names must end in one of {', '.join(FORMATS)}, or .npy if local")
        self.format = formats.pop()

    def _list(self) -> list[File]:
        info = self.system.get_file_info(self._path)
        if info.type == fs.FileType.File:
            return [File(info.path, info.base_name, self.name, info.size, info.mtime_ns)]
        if info.type == fs.FileType.Directory:
            base, found = self._path, self._below(self._path)
        elif wild := re.search(r"[*?\[]", self._path):
            base = self._path[: self._path.rindex("/", 0, wild.start())] or "/"
            found = self._matching(base, self._path[len(base.rstrip("/")) + 1 :])
        else:
            raise InvalidInput(f"no such file or folder: {self.name} (looked for {self._path})")
        if not found:
            raise InvalidInput(
                f"no files match {self.name} (looked in {base} for names that end in one of {', '.join(FORMATS)} "
                "and do not start with _ or .)"
            )
        cut = len(base.rstrip("/")) + 1
        shown = self.name if info.type == fs.FileType.Directory else re.split(r"/[^/]*[*?\[]", self.name)[0]
        return [
            File(path, path[cut:], f"{shown.rstrip('/')}/{path[cut:]}", info.size, info.mtime_ns)
            for path, info in sorted(found.items())
        ]

    def _below(self, folder: str) -> dict[str, Any]:
        return {
            info.path: info
            for info in self.system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True))
            if info.type == fs.FileType.File
            and _format(info.path)
            and not re.search(r"/[._]", info.path[len(folder.rstrip("/")) :])
        }

    def _matching(self, base: str, glob: str) -> dict[str, Any]:
        pattern = _compile(glob)
        found: dict[str, Any] = {}
        selector = fs.FileSelector(base, allow_not_found=True, recursive="/" in glob)
        for info in self.system.get_file_info(selector):
            inner = info.path[len(base.rstrip("/")) + 1 :]
            if pattern.fullmatch(inner) and not re.search(r"(^|/)[._]", inner):
                found.update({info.path: info} if info.type == fs.FileType.File else self._below(info.path))
        return found

    def check_unchanged(self) -> None:
        now = {file.inner: file for file in self._list()}
        for file in self.found:
            if now.pop(file.inner, None) != file:
                raise InvalidInput(f"{file.name} changed after it was opened; run again when nothing writes to it")
        if now:
            raise InvalidInput(f"{self.name} has files that were not there at opening: {', '.join(now)}; run again")

    def fingerprint(self) -> str:
        return digest([[file.inner, file.size, file.mtime_ns, *self._ends(file)] for file in self.found])

    def _ends(self, file: File) -> Iterator[str]:
        """The first bytes and the last; of a Parquet file, at least its footer."""
        with self.reading(file.name), self.system.open_input_file(file.path) as stream:
            yield stream.read(ENDS).hex()
            stream.seek(max(0, file.size - 8))
            footer = int.from_bytes(stream.read(4), "little") + 8 if stream.read(4) == b"PAR1" else 0
            stream.seek(max(0, file.size - max(footer, ENDS)))
            yield digest(stream.read().hex())

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Say what could not be read, and whether that is because it changed."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            self.check_unchanged()
            raise InvalidInput(f"cannot read {what}: {error}; it is damaged or incomplete, write it again") from error


class FileSource(Source):
    """Rows in files."""

    files: Files

    def fingerprint(self) -> str:
        return self.files.fingerprint()

    def check_unchanged(self) -> None:
        self.files.check_unchanged()


def _locate(address: str, query: str) -> tuple[Any, str]:
    """File system, and path on it; wildcards have no place in a URI, and are put back after it is understood."""
    if "://" not in address:
        return fs.LocalFileSystem(), Path(os.path.abspath(os.path.expanduser(address))).as_posix()
    wild = re.search(r"[*\[]", address)
    cut = address.rindex("/", 0, wild.start()) if wild else len(address)
    system, path = fs.FileSystem.from_uri(address[:cut] + query)
    return system, path.rstrip("/") + address[cut:]


def _format(path: str) -> str | None:
    return next((name for end, name in FORMATS.items() if path.lower().endswith(end)), None)


def _compile(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", glob)
    return re.compile("".join(_GLOB.get(part) or _literal(part) for part in parts))


def _literal(part: str) -> str:
    return part.replace("[!", "[^", 1) if part.startswith("[") else re.escape(part)

"""Files by path, folder, glob or URI, on any file system that pyarrow knows, in the order of their names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import fs

from gigagp.data.addresses import locate, reason, without_password
from gigagp.data.sources.base import Source, digest, hash_ends
from gigagp.errors import InvalidInput

FORMATS = {".parquet": "Parquet", ".pq": "Parquet", ".csv": "CSV", ".csv.gz": "CSV"}
_WILD = r"[*?\[]"
_GLOB = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True)
class File:
    """A file as it was when listed."""

    path: str  # on its file system
    inner: str  # below the folder that the user has named
    name: str  # what messages call it
    size: int
    mtime_ns: int | None


class Files:
    """The files that a path, folder, glob or URI refers to."""

    def __init__(self, where: str) -> None:
        address, mark, query = where.partition("?") if "://" in where else (where, "", "")
        self.name = without_password(address)
        with self._listing():
            self.system, self._path = locate(address, mark + query)
            self.files = self._list()
        formats = {_format(file.path) for file in self.files}
        if len(formats) > 1 or None in formats:
            what = "holds files of several formats" if len(formats) > 1 else "is of no known format"
            raise InvalidInput(f"{self.name} {what}; names must end in one of {', '.join(FORMATS)}, or .npy if local")
        self.format = formats.pop()

    @contextmanager
    def _listing(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, re.error) as error:
            raise InvalidInput(f"cannot open {self.name}: {reason(error)}") from error

    def _list(self) -> list[File]:
        info = self.system.get_file_info(self._path)
        if info.type == fs.FileType.File:
            return [File(info.path, info.base_name, self.name, info.size, info.mtime_ns)]
        base, name, glob = self._path, self.name, "**"
        if info.type == fs.FileType.NotFound:
            base, name = (posixpath.dirname(re.split(_WILD, path)[0]) for path in (self._path, self.name))
            glob = posixpath.relpath(self._path, base)
        if not re.search(_WILD, glob):
            raise InvalidInput(f"no such file or folder: {self.name} (looked for {self._path})")
        matches = self._find(base, glob)
        if not matches:
            raise InvalidInput(
                f"no files match {self.name} (looked in {base} for names that end in one of {', '.join(FORMATS)} "
                "and do not start with _ or .)"
            )
        return [
            File(path, inner, posixpath.join(name, inner), info.size, info.mtime_ns)
            for path, info in sorted(matches.items())
            for inner in [posixpath.relpath(path, base)]
        ]

    def _find(self, base: str, glob: str) -> dict[str, Any]:
        """Files whose names below `base` match, and those in folders whose names do."""
        pattern, deep = _compile(glob), "**" in glob
        matches: dict[str, Any] = {}
        for info in self.system.get_file_info(
            fs.FileSelector(base, allow_not_found=True, recursive=deep or "/" in glob)
        ):
            inner = posixpath.relpath(info.path, base)
            if not pattern.fullmatch(inner) or re.search(r"(^|/)[._]", inner):
                continue
            if info.type == fs.FileType.Directory and not deep:
                matches |= self._find(info.path, "**")
            elif info.type == fs.FileType.File and _format(info.path):
                matches[info.path] = info
        return matches

    def check_unchanged(self) -> None:
        with self._listing():
            now = {file.inner: file for file in self._list()}
        for file in self.files:
            if now.pop(file.inner, None) != file:
                raise InvalidInput(f"{file.name} changed after it was opened; run again when nothing writes to it")
        if now:
            raise InvalidInput(f"{self.name} has new files since it was opened: {', '.join(now)}; run again")

    def fingerprint(self) -> str:
        return digest([[file.inner, file.size, file.mtime_ns, self._ends(file)] for file in self.files])

    def _ends(self, file: File) -> str:
        with self.reading(file.name), self.system.open_input_file(file.path) as stream:
            footer = 0
            if self.format == "Parquet":
                stream.seek(max(0, file.size - 8))
                footer = 8 + int.from_bytes(stream.read(4), "little")
            return hash_ends(stream, file.size, footer)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Say what could not be read, and whether that is because it changed."""
        try:
            yield
        except (pa.ArrowException, OSError, UnicodeError) as error:
            self.check_unchanged()
            raise InvalidInput(
                f"cannot read {what}: {reason(error)}; check that the file is complete and may be read, or write it "
                "again"
            ) from error


class FileSource(Source):
    """Rows in files."""

    files: Files

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        local = isinstance(self.files.system, fs.LocalFileSystem)
        return [(file.path, file.size) for file in self.files.files] if local else []

    def fingerprint(self) -> str:
        return self.files.fingerprint()

    def check_unchanged(self) -> None:
        self.files.check_unchanged()


def _format(path: str) -> str | None:
    return next((name for end, name in FORMATS.items() if path.lower().endswith(end)), None)


def _compile(glob: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]]+\])", glob)
    return re.compile("".join(_GLOB.get(part) or _literal(part) for part in parts))


def _literal(part: str) -> str:
    return part.replace("[!", "[^", 1) if part.startswith("[") else re.escape(part)

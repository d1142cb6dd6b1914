"""One Parquet file made in parts: kept in a hidden folder beside it, so that an interrupted call can go on.

A part appears under its name when it is whole and on the disk; so does the file. The manifest says what the parts are
of; parts of something else are thrown away. Imported only where Parquet is written: pyarrow takes time to load.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gigagp.data import folders
from gigagp.data.folders import writing_file
from gigagp.errors import DiskFull, InvalidInput, InvalidParameter

FORMAT = "gigagp-parts"
VERSION = 1
KEY = b"gigagp"  # of the schema's metadata
ROW_GROUP = 1 << 17  # rows per row group
_MANIFEST = "manifest.json"
_WHOLE = "whole.parquet"
_OURS = re.compile(r"(part-\d{8}\.parquet|whole\.parquet|manifest\.json)(\.partial)?")
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ELOOP}


@dataclass
class Progress:
    """How far the file has come. `counts` are what its maker wants to remember as soon as all parts are there."""

    rows_at_once: int  # in each part, but for the last; a power of two
    parts: int = 0
    rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)


class Parts:
    """The hidden folder beside the file that is made. Whoever works there holds its lock."""

    def __init__(self, final: Path) -> None:
        self.final, self.folder = final, final.with_name(f".{final.name}.gigagp")
        self.found = False  # whether it was there before
        self.discarded = ""  # what was there and of no use, and why
        self._identity: dict[str, str] = {}
        self.progress = Progress(1)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """While it is ours. Unless there are parts, an error leaves nothing behind."""
        made = [parent for parent in self.final.parents if not parent.exists()]
        folders.make(self.final.parent)
        handle = self._lock()
        try:
            yield
        except BaseException:
            with suppress(OSError, InvalidInput):
                if not self._parts():
                    self.clear()
                for parent in made:
                    parent.rmdir()
            raise
        finally:
            os.close(handle)

    def _lock(self) -> int:
        while True:
            try:
                self.folder.mkdir()
            except FileExistsError:
                self.found = True
            try:
                handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # another process was there, and has just finished
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise InvalidParameter(
                    f"another process is writing {self.final}; wait for it, or choose another output"
                ) from None
            except OSError:
                pass  # some network disks have no locks
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(self.folder)):
                    return handle
            os.close(handle)

    def _held(self) -> list[Path]:
        """What is in the folder, all of it ours."""
        held = sorted(self.folder.iterdir())
        for path in held:
            if not _OURS.fullmatch(path.name) or not path.is_file():
                raise InvalidInput(f"{path} was not written by gigagp; remove it, or choose another output")
        return held

    def _parts(self) -> list[Path]:
        return [path for path in self._held() if path.name.startswith("part-") and path.suffix == ".parquet"]

    def clear(self) -> None:
        """Remove the folder."""
        self._held()
        shutil.rmtree(self.folder)

    def resume(self, identity: dict[str, str], columns: list[str], rows_at_once: int) -> Progress:
        """How far an interrupted call came. What is of another file is thrown away, and so is what is damaged."""
        self._identity, self.progress = identity, Progress(rows_at_once)
        other = self._other()
        if other:
            if self._parts():
                self.discarded = f"unfinished work in {self.folder}: {other}"
            for path in self._held():
                path.unlink()
        else:
            self._take_up(columns)
        self._note()
        return self.progress

    def _other(self) -> str:
        """Why what is in the folder is not ours to go on with, or nothing."""
        try:
            known = folders.read_manifest(self.folder / _MANIFEST, FORMAT, VERSION)
        except InvalidInput as error:
            return str(error)
        differs = [name for name, value in self._identity.items() if known["identity"].get(name) != value]
        if differs:
            return f"another {' and '.join(differs)}"
        self.progress.rows_at_once = min(known["rows_at_once"], self.progress.rows_at_once)
        self.progress.counts = known["counts"]
        return ""

    def _take_up(self, columns: list[str]) -> None:
        """Count the parts; from the first that is not as it was left, all are thrown away."""
        parts, progress = self._parts(), self.progress
        for number, path in enumerate(parts):
            rows = _rows_of(path, columns)
            last = number == len(parts) - 1
            if path.name != _part(number) or not rows or (rows % progress.rows_at_once and not last):
                self.discarded = f"unfinished work in {self.folder}: damaged from {path.name} on"
                for useless in parts[number:]:
                    useless.unlink()
                progress.counts = {}
                break
            progress.parts, progress.rows = number + 1, progress.rows + rows

    def _note(self) -> None:
        known = {"rows_at_once": self.progress.rows_at_once, "counts": self.progress.counts}
        content = {"format": FORMAT, "version": VERSION, "identity": self._identity, **known}
        folders.write_manifest(self.folder / _MANIFEST, content)

    def add(self, table: Any, plain: Iterable[str]) -> None:
        """The next part. `plain` are columns of numbers that do not repeat."""
        self._write(_part(self.progress.parts), table.schema, [table], plain)
        self.progress.parts += 1
        self.progress.rows += len(table)

    def complete(self, counts: dict[str, int]) -> None:
        """There are no more parts."""
        self.progress.counts = counts
        self._note()

    def publish(self, about: dict[str, Any], plain: Iterable[str], group: int, overwrite: bool) -> None:
        """All parts as one file of row groups of `group` rows, which then takes its name; one group is in memory."""
        parts = self._parts()
        schema = pq.read_schema(parts[0]).with_metadata({KEY: json.dumps(about).encode()})
        whole = self._write(_WHOLE, schema, _regrouped(parts, schema, group), plain)
        self.check_free(overwrite)
        whole.replace(self.final)
        _sync(self.final.parent)

    def check_free(self, overwrite: bool) -> None:
        if self.final.exists() and not overwrite:
            raise InvalidParameter(f"{self.final} exists; give overwrite=True to replace it, or choose another output")

    def published(self) -> dict[str, Any]:
        """What the file says about itself; nothing if there is none, or not of ours."""
        try:
            about = json.loads(pq.read_schema(self.final).metadata[KEY])
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            return {}
        return about if isinstance(about, dict) else {}

    def _write(self, name: str, schema: Any, tables: Iterable[Any], plain: Iterable[str]) -> Path:
        path = self.folder / name
        words = [column for column in schema.names if column not in set(plain)]
        with (
            writing_file(path, in_own_folder=True) as file,
            pq.ParquetWriter(
                file, schema, compression="zstd", use_dictionary=words or False, write_page_checksum=True
            ) as writer,
        ):
            for table in tables:
                writer.write_table(table, row_group_size=ROW_GROUP)
        return path

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Errors of the operating system in the user's words, with what they mean for what is done."""
        try:
            yield
        except pa.ArrowNotImplementedError as error:
            raise InvalidParameter(f"keep: a column cannot be written as Parquet ({error}); leave it out") from error
        except DiskFull:
            raise
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in _REFUSED:
                raise InvalidParameter(f"cannot write {self.final}: {why}; choose another output") from error
            raise DiskFull(
                f"writing {self.final} failed: {why}; make room on the disk of {self.final.parent}; {self.standing()}"
            ) from error

    def standing(self) -> str:
        """What is done, for an error."""
        if not self.progress.rows:
            return "no part is done yet, and the call may be repeated"
        return f"{self.progress.rows} rows are done, and the same call on the same data goes on from there"


def _part(number: int) -> str:
    return f"part-{number:08}.parquet"


def _rows_of(path: Path, columns: list[str]) -> int:
    """How many rows a part has; 0 if it is not one."""
    try:
        with pq.ParquetFile(path) as file:
            return int(file.metadata.num_rows) if file.schema_arrow.names == columns else 0
    except (pa.ArrowException, OSError):
        return 0


def _regrouped(parts: list[Path], schema: Any, size: int) -> Iterator[Any]:
    """The parts' rows in tables of `size` rows, the last one smaller."""

    def joined(batches: list[Any]) -> Any:  # in one piece, else where pieces end would show in the file
        return pa.Table.from_batches(batches).combine_chunks().replace_schema_metadata(schema.metadata)

    held: list[Any] = []
    count = 0
    for path in parts:
        for batch in _batches(path, size):
            held.append(batch)
            count += len(batch)
            if count >= size:
                table = pa.Table.from_batches(held)
                yield joined(table.slice(0, size).to_batches())
                held, count = table.slice(size).to_batches(), count - size
    if count:
        yield joined(held)


def _batches(path: Path, size: int) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            yield from file.iter_batches(size)
    except (pa.ArrowException, OSError) as error:
        path.unlink(missing_ok=True)
        why = " ".join(str(error).split())
        raise InvalidInput(f"{path} was damaged ({why}), and has been removed; repeat the call") from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

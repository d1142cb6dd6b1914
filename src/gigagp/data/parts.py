"""A Parquet or CSV file that is written in parts, in a hidden folder beside it: an interrupted call can be resumed.

Parts and file are renamed to their names when they are complete and on the disk. Parts may be written in any order,
also by other processes. The name of a part has a key of the prediction that it belongs to and the rows that it
contains, so that a worker that outlives its call cannot add to another prediction. The manifest describes the
prediction; parts of another one are deleted. Imported only where Parquet is written: pyarrow takes time to load.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from gigagp.data import folders
from gigagp.data.folders import writing_file
from gigagp.errors import DiskFull, InvalidInput, InvalidParameter

FORMAT = "gigagp-parts"
VERSION = 2
CSV = ".csv"  # ending of a file that is written as CSV
KEY = b"gigagp"  # of the schema's metadata
ROW_GROUP = 1 << 17  # rows per row group
_MANIFEST = "manifest.json"
_WHOLE = "whole.parquet"
_WHOLE_CSV = "whole.csv"
_PART = re.compile(r"part-([0-9a-f]{16})-(\d{12})-(\d{12})\.parquet")
_OLD_PART = r"part-\d{8}\.parquet"  # of version 1
_SORTED = re.compile(r"(queries|answers)(-[0-9a-f]{16})(-\d{6})?(-\d{12}){2,3}\.(rows|arrow)")  # `sorted_predictions`
_OURS = re.compile(
    rf"\.?({_PART.pattern}|{_SORTED.pattern}|{_OLD_PART}|whole\.parquet|whole\.csv|manifest\.json)(\.partial(-\d+)?)?"
)
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENOENT, errno.ELOOP}


@dataclass
class Progress:
    """How much of the file is written. `counts` are numbers of the caller, kept once all parts are complete."""

    rows_at_once: int  # rows of each part except the last; a power of two
    done: dict[int, int] = field(default_factory=dict)  # number of the first row of each part -> that after its last
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(end - first for first, end in self.done.items())

    def blocks_done(self) -> set[int]:
        """The first rows of all blocks of `rows_at_once` rows that are written; parts may have several."""
        return {row for first, end in self.done.items() for row in range(first, end, self.rows_at_once)}


@dataclass(frozen=True)
class PartFolder:
    """Where parts are written: a value that can be sent to other processes."""

    path: str
    key: str  # of the prediction that the parts belong to
    plain: tuple[str, ...]  # columns of numbers that do not repeat

    def part(self, first: int, end: int) -> Path:
        return Path(self.path) / f"part-{self.key}-{first:012}-{end:012}.parquet"

    def write(self, first: int, table: Any) -> None:
        """Write a part, whose first row is number `first`; a repeated call writes the same file."""
        with writing_file(self.part(first, first + len(table))) as file:
            _write(file, table.schema, [table], self.plain)


class Parts:
    """The hidden folder beside the file that is written, locked by the process that works in it."""

    def __init__(self, final: Path) -> None:
        self.final, self.folder = final, final.with_name(f".{final.name}.gigagp")
        self.existed = False  # whether the folder was there before
        self.discarded = ""  # what was in the folder and could not be used, and why
        self._identity: dict[str, str] = {}
        self.place = PartFolder(str(self.folder), "", ())
        self.progress = Progress(1)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder. Unless there are parts, or sorted queries, everything is removed after an error."""
        new_parents = [parent for parent in self.final.parents if not parent.exists()]
        folders.make(self.final.parent)
        handle = self._lock()
        try:
            yield
        except BaseException:
            with suppress(OSError, InvalidInput):
                if not self._parts() and not self._sorted():
                    self.clear()
                for parent in new_parents:
                    parent.rmdir()
            raise
        finally:
            os.close(handle)

    def _lock(self) -> int:
        while True:
            try:
                self.folder.mkdir()
            except FileExistsError:
                self.existed = True
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

    def _content(self) -> list[Path]:
        """The files of the folder; an error if one was not written by gigagp."""
        files = sorted(self.folder.iterdir())
        for path in files:
            if not _OURS.fullmatch(path.name) or not path.is_file():
                raise InvalidInput(f"{path} was not written by gigagp; remove it, or choose another output")
        return files

    def _parts(self) -> list[Path]:
        """The parts of this prediction, and those of others, in the order of their names."""
        return [path for path in self._content() if path.name.startswith("part-") and path.suffix == ".parquet"]

    def _sorted(self) -> list[Path]:
        """Files of queries, and of predictions, that are not in the order of the queries."""
        return [path for path in self._content() if _SORTED.fullmatch(path.name)]

    def sorted_bytes(self) -> int:
        """Bytes of the files of sorted queries and predictions that an interrupted call has left."""
        return sum(path.stat().st_size for path in self._sorted())

    def _own_parts(self) -> list[tuple[Path, int, int]]:
        """The parts of this prediction with the rows that they contain, those with the first rows first."""
        matches = ((path, _PART.fullmatch(path.name)) for path in self._parts())
        own = [(path, int(m[2]), int(m[3])) for path, m in matches if m is not None and m[1] == self.place.key]
        return sorted(own, key=lambda part: (part[1], -part[2]))

    def clear(self) -> None:
        """Remove the folder."""
        self._content()
        shutil.rmtree(self.folder)

    def resume(
        self, identity: dict[str, str], columns: list[str], plain: tuple[str, ...], rows_at_once: int
    ) -> Progress:
        """The progress of an interrupted call. Parts of another prediction and damaged parts are deleted.

        plain : columns of numbers that do not repeat
        """
        key = hashlib.blake2b(json.dumps(sorted(identity.items())).encode(), digest_size=8).hexdigest()
        self._identity, self.progress = identity, Progress(rows_at_once)
        self.place = PartFolder(str(self.folder), key, plain)
        mismatch = self._mismatch()
        if mismatch:
            if self._parts() or self._sorted():
                self.discarded = f"unfinished work in {self.folder}: {mismatch}"
            for path in self._content():
                path.unlink()
        else:
            self._take_up(columns)
        self._note()
        return self.progress

    def _mismatch(self) -> str:
        """Why the content of the folder cannot be resumed; empty where it can."""
        try:
            manifest = folders.read_manifest(self.folder / _MANIFEST, FORMAT, VERSION)
        except InvalidInput as error:
            return str(error)
        if manifest["version"] != VERSION:
            return "it was written by another version of gigagp"
        differs = [name for name, value in self._identity.items() if manifest["identity"].get(name) != value]
        if differs:
            return f"another {' and '.join(differs)}"
        self.progress.rows_at_once = min(manifest["rows_at_once"], self.progress.rows_at_once)
        self.progress.counts = manifest["counts"]
        return ""

    def _take_up(self, columns: list[str]) -> None:
        """Count the parts; what is damaged, incomplete or belongs to another prediction is deleted."""
        progress, own, damaged = self.progress, self._own_parts(), []
        last = max((end for _, _, end in own), default=0)
        for path, first, end in own:
            if first < max(progress.done.values(), default=0):
                continue  # these rows were also written with other borders
            whole = first % progress.rows_at_once == 0 and (end % progress.rows_at_once == 0 or end == last)
            if whole and _rows_of(path, columns) == end - first:
                progress.done[first] = end
            else:
                damaged.append(path.name)
        good = {self.place.part(*rows).name for rows in progress.done.items()} | {path.name for path in self._sorted()}
        for path in self._content():
            if path.name not in good and path.name != _MANIFEST:
                path.unlink()
        if damaged:
            more = f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""
            self.discarded = f"unfinished work in {self.folder}: damaged {damaged[0]}{more}"

    def _note(self) -> None:
        state = {"rows_at_once": self.progress.rows_at_once, "counts": self.progress.counts}
        content = {"format": FORMAT, "version": VERSION, "identity": self._identity, **state}
        folders.write_manifest(self.folder / _MANIFEST, content)

    def add(self, first: int, table: Any) -> None:
        """Write a part whose first row is number `first`."""
        self.place.write(first, table)
        self.accept(first, first + len(table))

    def accept(self, first: int, end: int) -> None:
        """Count a part that another process has written."""
        self.progress.done[first] = end

    def complete(self, counts: dict[str, int]) -> None:
        """Note that all parts are written."""
        self.progress.counts = counts
        self._note()

    def publish(self, about: dict[str, Any], group: int, overwrite: bool) -> None:
        """Join all parts to one file with row groups of `group` rows, of which one is in memory at a time."""
        parts = [self.place.part(*rows) for rows in sorted(self.progress.done.items())]
        schema = pq.read_schema(parts[0]).with_metadata({KEY: json.dumps(about).encode()})
        tables = _regrouped(parts, schema, group)
        csv = self.final.suffix.lower() == CSV
        whole = self.folder / (_WHOLE_CSV if csv else _WHOLE)
        with writing_file(whole, in_own_folder=True) as file:
            (_write_csv if csv else _write)(file, schema, tables, self.place.plain)
        self.check_free(overwrite)
        whole.replace(self.final)
        folders.sync(self.final.parent)

    def check_free(self, overwrite: bool) -> None:
        if self.final.exists() and not overwrite:
            raise InvalidParameter(f"{self.final} exists; give overwrite=True to replace it, or choose another output")

    def published(self) -> dict[str, Any]:
        """The metadata of the finished file; empty if there is no file, or gigagp did not write it."""
        try:
            about = json.loads(pq.read_schema(self.final).metadata[KEY])
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
            return {}
        return about if isinstance(about, dict) else {}

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Turn errors of the operating system into messages that also say how many rows are done."""
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
        """How many rows are done, for an error message."""
        with suppress(OSError, InvalidInput):  # parts that workers have written and nobody has counted yet
            for _, first, end in self._own_parts():
                self.progress.done.setdefault(first, end)
        if not self.progress.rows:
            with suppress(OSError, InvalidInput):
                if self._sorted():
                    return "queries are being sorted, and the same call on the same data goes on from there"
            return "no part is done yet, and the call may be repeated"
        return f"{self.progress.rows} rows are done, and the same call on the same data goes on from there"


def _write(file: IO[bytes], schema: Any, tables: Iterable[Any], plain: Iterable[str]) -> None:
    words = [column for column in schema.names if column not in set(plain)]
    options = {"compression": "zstd", "use_dictionary": words or False, "write_page_checksum": True}
    with pq.ParquetWriter(file, schema, **options) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP)


def _write_csv(file: IO[bytes], schema: Any, tables: Iterable[Any], plain: Iterable[str]) -> None:
    with pa.csv.CSVWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _rows_of(path: Path, columns: list[str]) -> int:
    """How many rows a part has; 0 if the file is not a valid part."""
    try:
        with pq.ParquetFile(path) as file:
            return int(file.metadata.num_rows) if file.schema_arrow.names == columns else 0
    except (pa.ArrowException, OSError):
        return 0


def _regrouped(parts: list[Path], schema: Any, size: int) -> Iterator[Any]:
    """The parts' rows in tables of `size` rows, the last one smaller."""

    def joined(batches: list[Any]) -> Any:  # in one chunk, otherwise the file would depend on where parts end
        return pa.Table.from_batches(batches).combine_chunks().replace_schema_metadata(schema.metadata)

    pending: list[Any] = []
    count = 0
    for path in parts:
        for batch in _batches(path, size):
            pending.append(batch)
            count += len(batch)
            if count >= size:
                table = pa.Table.from_batches(pending)
                yield joined(table.slice(0, size).to_batches())
                pending, count = table.slice(size).to_batches(), count - size
    if count:
        yield joined(pending)


def _batches(path: Path, size: int) -> Iterator[Any]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as file:
            yield from file.iter_batches(size)
    except (pa.ArrowException, OSError) as error:
        path.unlink(missing_ok=True)
        why = " ".join(str(error).split())
        raise InvalidInput(f"{path} was damaged ({why}), and has been removed; repeat the call") from error

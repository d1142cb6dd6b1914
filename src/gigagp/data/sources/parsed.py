"""Rows of files that several fits read: parsed once, and kept in a temporary file that takes no parsing.

Several targets with a theta each are fits of the same rows, each of which reads them at least twice. A CSV file is slow
to parse, compressed Parquet has to be decoded, and a remote file to be fetched. The temporary file is in the format of
Arrow, where columns are stored as they are in memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gigagp.arrays import Array
from gigagp.data.folders import TemporaryFolder, disk_errors
from gigagp.data.sources.arrow import ArrowBatch, plain
from gigagp.data.sources.base import Source
from gigagp.data.sources.files import FileSource

_ROWS = 65_536  # at most in a batch of the temporary file


@dataclass(frozen=True)
class _Part:
    """Where consecutive rows of the temporary file come from."""

    file: str
    first_row: int  # within that file
    rows: int


class ParsedSource(Source):
    """The rows of files from a copy of some columns; everything else, and errors, as those of the files.

    In particular the number of rows is unknown if it was unknown of the files, so that a fit takes the same steps.
    """

    def __init__(self, source: FileSource, path: Path, parts: list[_Part]) -> None:
        super().__init__(source.name, source.columns.values(), source.n_rows)
        self.named = source.named
        self._source, self._path, self._parts = source, path, parts
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + part.rows)

    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[ArrowBatch]:
        if not self._parts:
            return
        with pa.OSFile(str(self._path)) as stream:
            names = pa.ipc.open_file(stream).schema.names
            fields = [names.index(name) for name in columns]
            file = pa.ipc.open_file(stream, options=pa.ipc.IpcReadOptions(included_fields=fields))
            for number in range(bisect_right(self._starts, start) - 1, len(self._parts)):
                part, content = self._parts[number], file.get_batch(number)
                batch = ArrowBatch(
                    part.file, part.first_row, part.rows, {name: content.column(name) for name in columns}
                )
                for begin in range(max(0, start - self._starts[number]), part.rows, rows):
                    yield batch.slice(begin, min(begin + rows, part.rows))

    def places_to_start(self) -> Array | None:
        return self._source.places_to_start()

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        return [(str(self._path), self._path.stat().st_size)] if self._parts else self._source.paths

    def fingerprint(self) -> str:
        return self._source.fingerprint()

    def check_unchanged(self) -> None:
        self._source.check_unchanged()

    def read_as(self, kinds: Mapping[str, str]) -> Source:
        """The files were read as these kinds of columns already."""
        return self


@contextmanager
def parsed_once(source: Source, columns: Sequence[str], folder: Path | None) -> Iterator[Source]:
    """The source with these columns in a temporary file, which is removed at the end; unchanged if it is not of files.

    folder : where temporary files are created; None for the system's
    """
    if not isinstance(source, FileSource):
        yield source
        return
    temporary = TemporaryFolder(folder)
    try:
        path = temporary.path / "rows.arrow"
        yield ParsedSource(source, path, _copied(source, list(dict.fromkeys(columns)), path))
    finally:
        temporary.remove()


def _copied(source: FileSource, columns: list[str], path: Path) -> list[_Part]:
    """Write these columns of all rows to a file."""
    parts: list[_Part] = []
    source.check_unchanged()
    with disk_errors("keeping parsed rows", path.parent), ExitStack() as files:
        writer = None
        for batch in source.batches(columns, _ROWS):
            # Dictionaries may differ between batches, which a file of Arrow cannot express.
            content = pa.record_batch([plain(batch.columns[name]) for name in columns], names=columns)
            if writer is None:
                writer = files.enter_context(pa.ipc.new_file(str(path), content.schema))
            writer.write_batch(content)
            parts.append(_Part(batch.file, batch.first_row, batch.n_rows))
    source.check_unchanged()
    return parts

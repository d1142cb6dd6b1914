"""Parquet: a file, or many with one schema; key=value folders (hive) become columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gigagp.arrays import Array
from gigagp.data.sources.arrow import ArrowBatch, columns_of
from gigagp.data.sources.files import File, Files, FileSource
from gigagp.errors import InvalidInput

_READ_AHEAD = 1 << 23  # bytes, over all columns
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetSource(FileSource):
    """Row groups are decoded one batch at a time, so memory does not depend on their size."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._groups: dict[str, list[int]] = {}  # rows of each row group
        first = files.files[0]
        for file in files.files:
            with files.reading(file.name), self._open(file, _READ_AHEAD) as parquet:
                metadata = parquet.metadata
                self._groups[file.path] = [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)]
                own = parquet.schema_arrow
            if file is first:
                schema = own
            _check_same(schema, first, own, file)
        self._own = schema.names
        self._keys = {name: key for name, key in _hive(files.files).items() if name not in schema.names}
        fields = [*schema, *(pa.field(name, key.type) for name, key in self._keys.items())]
        super().__init__(files.name, columns_of(fields), sum(map(sum, self._groups.values())))

    def _open(self, file: File, buffer: int) -> Any:
        return pq.ParquetFile(
            file.path,
            filesystem=self.files.system,
            buffer_size=buffer,  # else, or with pre_buffer, whole row groups are in memory
            pre_buffer=False,
            page_checksum_verification=True,
        )

    def places_to_start(self) -> Array | None:
        sizes = np.array([rows for file in self.files.files for rows in self._groups[file.path]], np.int64)
        return np.unique(np.cumsum(sizes) - sizes)

    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[ArrowBatch]:
        skip = start
        for at, file in enumerate(self.files.files):
            groups = self._groups[file.path]
            if skip >= sum(groups):
                skip -= sum(groups)
                continue
            keys = {name: self._keys[name][at] for name in columns if name in self._keys}
            for batch in self._read(file, [name for name in columns if name in self._own], rows, skip):
                constant = {name: pa.repeat(key, batch.n_rows) for name, key in keys.items()}
                yield ArrowBatch(batch.file, batch.first_row, batch.n_rows, {**batch.columns, **constant})
            skip = 0

    def _read(self, file: File, columns: list[str], rows: int, skip: int) -> Iterator[ArrowBatch]:
        with self.files.reading(file.name), self._open(file, _READ_AHEAD // (len(columns) + 1)) as parquet:
            first = 0
            for g, n_rows in enumerate(self._groups[file.path]):
                if skip >= first + n_rows:
                    first += n_rows
                    continue
                with self.files.reading(f"row group {g} of {file.name}"):
                    for part in parquet.iter_batches(rows, row_groups=[g], columns=columns):
                        batch = ArrowBatch(file.name, first, len(part), {name: part.column(name) for name in columns})
                        first += len(part)
                        if skip < first:
                            yield batch.slice(max(0, skip - batch.first_row), batch.n_rows)


def _check_same(schema: Any, first: File, own: Any, file: File) -> None:
    ours, theirs = (dict(zip(s.names, s.types, strict=True)) for s in (schema, own))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            raise InvalidInput(
                f"mixed schemas: column {name!r} is {theirs.get(name, 'missing')} in {file.name} and "
                f"{ours.get(name, 'missing')} in {first.name}; write them with one schema, or give a "
                "pyarrow.dataset.dataset(..., schema=...)"
            )


def _hive(files: list[File]) -> dict[str, Any]:
    """The value of each key for each file: integers where all are, else text."""
    parts = [dict(p.split("=", 1) for p in file.inner.split("/")[:-1] if "=" in p) for file in files]
    keys = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        texts = [None if part.get(name, _HIVE_NULL) == _HIVE_NULL else unquote(part[name]) for part in parts]
        values = pa.array(texts, pa.string())
        with suppress(pa.ArrowInvalid):
            values = values.cast(pa.int64())
        keys[name] = values
    return keys

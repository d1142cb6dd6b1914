"""CSV and CSV.gz with a header, commas and UTF-8, read as a stream.

What looks like a number in the first block is read as float64, exactly: a column of integers may hold 1.5 later. An
empty field, NA, NULL, NaN and their like are missing values, in text too.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, types

from gigagp.data.sources.arrow import ArrowBatch, columns_of
from gigagp.data.sources.base import MEANING, Source, is_number
from gigagp.data.sources.files import File, Files, FileSource
from gigagp.errors import InvalidInput

_BLOCK = 1 << 20  # bytes; some forty blocks are in memory at a time
_TYPES = {"category": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("ns"), "time": pa.time64("ns")}
_KEPT_TYPES = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"))  # of kept columns, in this order
_KEPT_ROWS = 65536  # rows whose types are tried at a time
_LEADING_ZERO = r"^[+-]?0\d"
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\S+): invalid value '(.*)'", re.S
)
_RAGGED = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.S)


class CsvSource(FileSource):
    """The first file's first block decides what the columns are; the others must have the same header."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._headers: dict[str, list[str]] = {}
        self._types: dict[str, Any] = {}
        first, n_rows = files.files[0], 0
        for file in files.files:
            with self._open(file) as reader:
                self._headers[file.path] = reader.schema.names
                if file is first:
                    fields = [pa.field(field.name, _reading_type(field.type)) for field in reader.schema]
                n_rows = n_rows or sum(len(batch) for batch in itertools.islice(reader, 1))
            _check_header(self._headers[file.path], self._headers[first.path], file, first)
        super().__init__(files.name, columns_of(fields), None if n_rows else 0)
        self._types = {field.name: field.type for field in fields}

    def read_as(self, kinds: Mapping[str, str]) -> Source:
        other = copy.copy(self)
        changed = {
            name: _TYPES[kind]
            for name, kind in kinds.items()
            if kind in _TYPES and kind != MEANING.get(self.columns[name].kind)
        }
        other._types = self._types | changed
        other.columns = {column.name: column for column in columns_of(pa.field(*item) for item in other._types.items())}
        return other

    def with_types(self, names: Sequence[str]) -> Source:
        """These columns, each with the first type to which all of its texts can be converted; reads the whole file.

        Numbers with leading zeros, such as postal codes, remain text.
        """
        text = copy.copy(self)
        text._types = self._types | dict.fromkeys(names, pa.string())
        possible = {name: list(_KEPT_TYPES) for name in names}
        for batch in text.batches(list(names), _KEPT_ROWS) if names else ():
            for name, types_ in possible.items():
                values = batch.columns[name]
                if pc.any(pc.match_substring_regex(values, _LEADING_ZERO)).as_py():
                    types_.clear()
                types_[:] = [each for each in types_ if _fits(values, each)]
        other = copy.copy(self)
        other._types = self._types | {name: (types_ or [pa.string()])[0] for name, types_ in possible.items()}
        other.columns = {column.name: column for column in columns_of(pa.field(*item) for item in other._types.items())}
        return other

    @contextmanager
    def _open(self, file: File, columns: Sequence[str] = ()) -> Iterator[Any]:
        names: list[str] = self._headers.get(file.path, [])
        try:
            with self.files.reading(file.name), self.files.system.open_input_stream(file.path) as stream:
                yield csv.open_csv(
                    stream,
                    read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),  # threads lose row numbers
                    parse_options=csv.ParseOptions(newlines_in_values=True),
                    convert_options=csv.ConvertOptions(
                        column_types=self._types, include_columns=list(columns), strings_can_be_null=True
                    ),
                )
        except InvalidInput as error:
            raise _explain(error, file, names) from error.__cause__

    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[ArrowBatch]:
        skip = start
        for file in self.files.files:
            first = 0
            with self._open(file, columns) as reader:
                for part in reader:
                    batch = ArrowBatch(file.name, first, len(part), {name: part.column(name) for name in columns})
                    first += len(part)
                    for begin in range(max(0, skip - batch.first_row), len(part), rows):
                        yield batch.slice(begin, min(begin + rows, len(part)))
            skip = max(0, skip - first)


def _reading_type(inferred: Any) -> Any:
    """A type that also fits what may come in later blocks."""
    if types.is_integer(inferred) or types.is_floating(inferred) or types.is_null(inferred):
        return pa.float64()
    if types.is_timestamp(inferred):
        return pa.timestamp("ns", inferred.tz)
    return pa.time64("ns") if types.is_time(inferred) else inferred


def _fits(values: Any, type_: Any) -> bool:
    """Whether all texts can be converted to a type."""
    try:
        values.cast(type_)
    except pa.ArrowException:
        return False
    return True


def _check_header(names: list[str], expected: list[str], file: File, first: File) -> None:
    if all(is_number(name) for name in names):
        raise InvalidInput(f"the first line of {file.name} contains numbers; it must contain the names of the columns")
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise InvalidInput(f"{file.name} has one column, {names[0]!r}; values must be separated by commas")
    for name in [*expected, *names]:
        if (name in names) != (name in expected):
            has, lacks = (file, first) if name in names else (first, file)
            raise InvalidInput(
                f"{has.name} has a column {name!r}, but {lacks.name} does not; all files need the same columns"
            )


def _explain(error: InvalidInput, file: File, names: list[str]) -> InvalidInput:
    """pyarrow counts rows from 1 with the header; we count from 0 without."""
    cause = str(error.__cause__)
    if bad := _BAD_VALUE.search(cause):
        column, row, type_, value = bad.groups()
        name = names[int(column)] if int(column) < len(names) else column
        expected = "a number" if type_ == "double" else f"a {type_}"
        return InvalidInput(
            f"column {name!r} of {file.name} holds {value!r} at {_row(row)}, which is not {expected} as in the first "
            f"rows; correct it, or leave the column out with drop=[{name!r}]"
        )
    if ragged := _RAGGED.search(cause):
        row, expected, got, text = ragged.groups()
        return InvalidInput(
            f"{_row(row)} of {file.name} has {got} fields where the header has {expected}: {text[:200]!r}; correct it"
        )
    if "straddling" in cause:
        return InvalidInput(f"{file.name} has a line of more than {_BLOCK} bytes, or a quote that is never closed")
    return error


def _row(number: str | None) -> str:
    return f"row {int(number) - 2}" if number else "an unknown row"

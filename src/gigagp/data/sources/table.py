"""Tables in memory (pandas, polars, pyarrow), read in slices, and pyarrow datasets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from gigagp.arrays import Array
from gigagp.data.sources.array import check_dimensions
from gigagp.data.sources.arrow import ArrowBatch, columns_of
from gigagp.data.sources.base import Addressable, Source, content_fingerprint
from gigagp.errors import InvalidInput

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?Z?)?")
_NOT_UNDERSTOOD = (pa.ArrowException, TypeError, OverflowError)  # errors of pyarrow for values without a type
_DATE_LENGTH = 10  # of a date without a time
_FIRST_VALUES = 1000  # rows among which the first value that is not missing is looked for


class TableSource(Addressable):
    """A table in memory. `cut(names, start, stop)` gives some columns of some rows as pyarrow Arrays."""

    def __init__(
        self, name: str, schema: Any, n_rows: int, cut: Callable[[Sequence[str], int, int], dict[str, Any]]
    ) -> None:
        super().__init__(name, columns_of(schema), n_rows)
        self._cut = cut

    def read(self, columns: Sequence[str], start: int, stop: int) -> ArrowBatch:
        return ArrowBatch(self.name, start, stop - start, self._cut(columns, start, stop))

    def fingerprint(self) -> str:
        return content_fingerprint(self)


def open_table(data: Any, name: str = "the table") -> Source:
    """A source over a table, or over a series as a table of one column."""
    if isinstance(data, pa.dataset.Dataset):
        return DatasetSource(data)
    package = type(data).__module__.partition(".")[0]
    if hasattr(data, "to_frame"):
        data = data.to_frame()
    if package == "pandas" and hasattr(data, "iloc"):
        return _open_pandas(data, name)
    if package == "polars" and hasattr(data, "to_arrow"):
        return _open_polars(data, name)
    if isinstance(data, pa.Array | pa.ChunkedArray):
        data = pa.table({"0": data})
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return TableSource(name, data.schema, len(data), lambda *rows: _slice(data, *rows))
    raise InvalidInput(
        f"cannot read rows from a {package} {type(data).__name__}, which cannot be read twice in slices; "
        "collect it into a table, or write it to Parquet and give the path"
    )


def open_objects(array: Array, name: str) -> Source:
    """A source over a 2-D array of Python objects, whose columns may be of different types."""
    check_dimensions(array, name)
    source = open_table(pa.table({f"x{j}": _infer(array[:, j], f"x{j}", name) for j in range(array.shape[1])}), name)
    source.named = False
    return source


def _slice(table: Any, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
    part = table.select(list(names)).slice(start, stop - start).combine_chunks()
    return {name: column.chunk(0) for name, column in zip(names, part.columns, strict=True)}


def _open_polars(frame: Any, name: str) -> Source:
    def cut(names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        part = frame.select(names).slice(start, stop - start).to_arrow()
        return _slice(part, names, 0, stop - start)

    return TableSource(name, frame.head(0).to_arrow().schema, len(frame), cut)


class _PandasSource(TableSource):
    """A table of pandas, some of whose columns of text are read as dates unless they are to be categories."""

    def __init__(self, frame: Any, name: str, dates: dict[str, Any], *arguments: Any) -> None:
        super().__init__(name, *arguments)
        self._frame, self._dates = frame, dates

    def read_as(self, kinds: Mapping[str, str]) -> Source:
        text = [name for name in self._dates if kinds.get(name) == "category"]
        return _open_pandas(self._frame, self.name, text) if text else self


class _Unreadable:
    """The type of a column that pyarrow does not understand, so that it can be named, and left out."""

    id = -1  # no type of pyarrow

    def __init__(self, dtype: Any, error: Exception) -> None:
        self._text = f"{dtype} (values of mixed or unknown types: {error})"

    def __str__(self) -> str:
        return self._text


def _as_dates(values: Any) -> Any:
    """A column of text as dates or timestamps, where all of its values are such, as in a CSV file; else None."""
    text = pa.array(values, from_pandas=True)
    first = next((str(value) for value in text[:_FIRST_VALUES].to_pylist() if value is not None), "")
    if not _ISO.fullmatch(first):
        return None
    kind = pa.date32() if len(first) == _DATE_LENGTH else pa.timestamp("us", "UTC" if first.endswith("Z") else None)
    try:
        return text.cast(kind)
    except pa.ArrowException:
        return None


def _open_pandas(frame: Any, name: str, as_text: Sequence[str] = ()) -> Source:
    """as_text : columns of text that are not read as dates, whatever they say"""
    place = {str(label): j for j, label in enumerate(frame.columns)}
    fields, inferred, dates = [], {}, {}
    for j, label in enumerate(frame.columns):
        column, untyped = frame.iloc[:, j], str(frame.dtypes.iloc[j]) == "object"
        try:
            type_ = pa.array(column if untyped else column.iloc[:0], from_pandas=True).type
        except _NOT_UNDERSTOOD as error:
            type_ = _Unreadable(frame.dtypes.iloc[j], error)
        if (pa.types.is_string(type_) or pa.types.is_large_string(type_)) and str(label) not in as_text:
            read = _as_dates(column)
            if read is not None:
                dates[str(label)], type_ = read, read.type
        fields.append(SimpleNamespace(name=str(label), type=type_))
        if untyped:
            inferred[str(label)] = type_  # else a slice of missing values would have another type

    unreadable = {field.name for field in fields if isinstance(field.type, _Unreadable)}

    def cut(names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        if unreadable & set(names):
            column = next(each for each in names if each in unreadable)
            _infer(frame.iloc[start:stop, place[column]], column, name)
        return {
            name: dates[name].slice(start, stop - start)
            if name in dates
            else pa.array(frame.iloc[start:stop, place[name]], type=inferred.get(name), from_pandas=True)
            for name in names
        }

    return _PandasSource(frame, name, dates, fields, len(frame), cut)


def _infer(values: Any, column: str, name: str) -> Any:
    try:
        return pa.array(values, from_pandas=True)
    except _NOT_UNDERSTOOD as error:
        raise InvalidInput(
            f"column {column!r} of {name} mixes types, or has one that is not understood ({error}); "
            "convert it to numbers or to text, or take it out of the table"
        ) from error


class DatasetSource(Source):
    """A pyarrow dataset, filtered or not; memory is bounded by its row groups."""

    def __init__(self, dataset: Any) -> None:
        super().__init__("the dataset", columns_of(dataset.schema), None)
        self._dataset = dataset
        self._state = self._look()

    def _look(self) -> list[Any]:
        files = getattr(self._dataset, "files", [])
        return [(file.size, file.mtime_ns) for file in self._dataset.filesystem.get_file_info(files)] if files else []

    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[ArrowBatch]:
        first = 0
        try:
            for part in self._dataset.to_batches(
                columns=list(columns), batch_size=rows, batch_readahead=1, fragment_readahead=1
            ):
                skip = min(max(start - first, 0), len(part))
                batch = ArrowBatch(self.name, first, len(part), dict(zip(columns, part.columns, strict=True)))
                first += len(part)
                if skip < len(part):
                    yield batch.slice(skip, len(part))
        except (pa.ArrowException, OSError) as error:
            self.check_unchanged()
            raise InvalidInput(f"cannot read the dataset after row {first}: {error}") from error

    def fingerprint(self) -> str:
        return content_fingerprint(self)

    def check_unchanged(self) -> None:
        if self._look() != self._state:
            raise InvalidInput(
                "files of the dataset changed after it was opened; run again when nothing writes to them"
            )

"""Interface of the sources of rows: named columns of known kinds, batches in a fixed order, a fingerprint."""

from __future__ import annotations

import difflib
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidInput

# Kinds of columns that are numbers, and what the number means.
MEANING = {
    "float32": "number",
    "float": "number",
    "integer": "number",
    "boolean": "number",
    "decimal": "number",
    "date": "date",
    "timestamp": "timestamp",
    "time": "time",
    "duration": "duration",
}
# Kinds that can be categories; floats because integers in an array of floats, or with gaps in pandas, are floats.
ENCODABLE = {"text", "integer", "boolean", "float", "float32"}
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EVERY = 65536  # rows between two places from which an array is read
_HASHED_ROWS = 65536  # rows hashed at a time
_ENDS = 65536  # bytes hashed at either end of a file


@dataclass(frozen=True)
class Column:
    """A column's name, its kind (a key of MEANING, "text" or "other"), and its type as its library calls it."""

    name: str
    kind: str
    type: str


@dataclass(frozen=True, eq=False)
class Batch(ABC):
    """Consecutive rows of one file, or of a table in memory."""

    file: str
    first_row: int
    n_rows: int
    columns: Mapping[str, Any]

    @abstractmethod
    def numbers(self, name: str) -> Array:
        """A column as float64 (float32 as it is), NaN where a value is missing."""

    @abstractmethod
    def categories(self, name: str) -> tuple[Array, list[str | None]]:
        """Codes and the texts they stand for; a missing value has the code -1, or a code that stands for None."""

    @abstractmethod
    def table(self, names: Sequence[str]) -> Any:
        """The columns as a pyarrow.Table, of their own types."""

    def content(self, name: str) -> bytes:
        """A text column as bytes, to be hashed."""
        codes, texts = self.categories(name)
        return codes.tobytes() + json.dumps(texts).encode()

    def slice(self, start: int, stop: int) -> Self:
        columns = {name: values[start:stop] for name, values in self.columns.items()}
        return replace(self, first_row=self.first_row + start, n_rows=stop - start, columns=columns)


class Source(ABC):
    """Rows that can be read any number of times, in the same order, without being in memory all at once."""

    named = True  # False: columns are called x0, x1, ... by their place

    def __init__(self, name: str, columns: Iterable[Column], n_rows: int | None) -> None:
        every = list(columns)
        twice = [column for column, count in Counter(column.name for column in every).items() if count > 1]
        if twice:
            raise InvalidInput(f"{name} has two columns called {twice[0]!r}; rename one")
        if not every:
            raise InvalidInput(f"{name} has no columns")
        self.name = name
        self.columns = {column.name: column for column in every}
        self.n_rows = n_rows  # None where only reading tells

    @abstractmethod
    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[Batch]:
        """All rows from `start` on, in batches of about `rows` or fewer."""

    def places_to_start(self) -> Array | None:
        """Row numbers from which reading starts at no cost, 0 first; None where only all rows can be read."""
        return None

    @property
    def paths(self) -> list[tuple[str, int]] | None:
        """Local files, with their sizes, that a process must see to read the source; None where it is in memory."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """A hash that changes with the data, and is the same in another process."""

    def check_unchanged(self) -> None:  # noqa: B027 what is in memory is the caller's to leave alone
        """Raise InvalidInput if files have changed since they were opened."""

    def read_as(self, kinds: Mapping[str, str]) -> Source:
        """The same rows, where the source has no types of its own (CSV) read as a `Feature` of these kinds is."""
        return self

    def with_types(self, names: Sequence[str]) -> Source:
        """The same rows, where the source has no types of its own (CSV) these columns with types that fit all rows."""
        return self

    def find(self, name: object, role: str) -> str:
        """The column the user calls `name` (or its place, where columns have no names); an error gives the nearest."""
        key = str(name)
        if isinstance(name, int | np.integer) and not (self.named and key in self.columns):
            place = int(name)
            key = list(self.columns)[place] if -len(self.columns) <= place < len(self.columns) else f"x{place}"
        if key in self.columns:
            return key
        raise InvalidInput(f"{role}: {self._missing([key])}")

    def find_all(self, names: Iterable[object], role: str) -> list[str]:
        """The columns that the user calls so; an error names all that are not there."""
        each = list(names)
        missing = [str(name) for name in each if isinstance(name, str) and name not in self.columns]
        if len(missing) > 1:
            raise InvalidInput(f"{role}: {self._missing(missing)}")
        return [self.find(name, role) for name in each]

    def _missing(self, names: Sequence[str]) -> str:
        """A message that these columns do not exist, with similar names as suggestions."""
        close = [match for name in names for match in difflib.get_close_matches(name, self.columns, 1)]
        hint = f" Did you mean {' and '.join(map(repr, dict.fromkeys(close)))}?" if close else ""
        what = "column" if len(names) == 1 else "columns"
        return f"{self.name} has no {what} {listed(names)}.{hint} It has {listed(self.columns)}"


class Addressable(Source):
    """A source that can be read from any row on: arrays, tables in memory, .npy."""

    n_rows: int

    @abstractmethod
    def read(self, columns: Sequence[str], start: int, stop: int) -> Batch:
        """Rows start to stop."""

    def places_to_start(self) -> Array | None:
        return np.arange(0, max(1, self.n_rows), _EVERY)

    def batches(self, columns: Sequence[str], rows: int, start: int = 0) -> Iterator[Batch]:
        for first in range(start, self.n_rows, rows):
            yield self.read(columns, first, min(first + rows, self.n_rows))


def seconds(ticks: Array, per_second: int) -> Array:
    """Seconds as float64; whole seconds are exact, and the unit of the ticks does not change the rest."""
    whole, rest = np.divmod(ticks, per_second)
    return whole.astype(float) + rest / per_second


def category_text(value: object) -> str | None:
    """The name of a category, which is the same for every source: 3 and 3.0 are "3", True and "TRUE" are "true"."""
    if value is None or value != value:  # noqa: PLR0124 NaN
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def content_fingerprint(source: Source) -> str:
    """A fingerprint by reading everything, as the model would see it."""
    content = hashlib.blake2b()
    n_rows = 0
    for batch in source.batches(list(source.columns), _HASHED_ROWS):
        n_rows += batch.n_rows
        for column in source.columns.values():
            number = column.kind in MEANING
            content.update(batch.numbers(column.name).tobytes() if number else batch.content(column.name))
    types = [[column.name, column.type] for column in source.columns.values()]
    return digest([n_rows, types, content.hexdigest()])


def hash_ends(stream: Any, size: int, tail: int = 0) -> str:
    """A hash of a file's first bytes and its last, at least `tail`: reading all would take another pass."""
    stream.seek(0)
    content = hashlib.sha256(stream.read(_ENDS))
    stream.seek(max(0, size - max(tail, _ENDS)))
    content.update(stream.read())
    return content.hexdigest()


def digest(description: object) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def listed(names: Iterable[str], most: int = 20) -> str:
    every = list(names)
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(repr(name) for name in every[:most]) + rest

"""Lists of row numbers: which rows of a store each leaf reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gigagp.arrays import Array


class RowLists(ABC):
    """Lists of row numbers, one per leaf. A row may be in several lists."""

    travels_once = True  # to each worker

    @property
    @abstractmethod
    def sizes(self) -> Array:
        """How many rows each list has."""

    @abstractmethod
    def __getitem__(self, group: int) -> Array:
        """The rows of one list."""

    def __len__(self) -> int:
        return len(self.sizes)

    def rows(self, group: int) -> slice | Array:
        """An index of the data: a slice, which copies nothing, where the rows are consecutive."""
        return self[group]


@dataclass(frozen=True, eq=False)
class Runs(RowLists):
    """Consecutive rows: list g is starts[g] .. starts[g + 1]."""

    starts: Array

    @property
    def sizes(self) -> Array:
        return np.diff(self.starts)

    def __getitem__(self, group: int) -> Array:
        return np.arange(self.starts[group], self.starts[group + 1])

    def rows(self, group: int) -> slice:
        return slice(int(self.starts[group]), int(self.starts[group + 1]))


@dataclass(frozen=True, eq=False)
class IndexLists(RowLists):
    """Any rows: list g is indices[starts[g] : starts[g + 1]]."""

    starts: Array
    indices: Array

    @classmethod
    def of(cls, lists: list[Array]) -> IndexLists:
        return cls(np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]), np.concatenate(lists))

    @property
    def sizes(self) -> Array:
        return np.diff(self.starts)

    def __getitem__(self, group: int) -> Array:
        return self.indices[self.starts[group] : self.starts[group + 1]]

    def rows(self, group: int) -> slice | Array:
        rows = self[group]
        first, last = int(rows[0]), int(rows[-1])
        if last - first + 1 == len(rows) and self._ascending[group]:
            return slice(first, last + 1)
        return rows

    @cached_property
    def _ascending(self) -> Array:
        step = np.ones(len(self.indices), bool)
        step[1:] = np.diff(self.indices) == 1
        step[self.starts[:-1]] = True
        return np.asarray(np.logical_and.reduceat(step, self.starts[:-1]))

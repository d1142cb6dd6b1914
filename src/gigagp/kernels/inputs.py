"""The columns of the inputs as kernels see them: their names, and the size of one standardised unit of each."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.errors import InvalidParameter

Column = str | int
_SHOWN = 20  # names of columns in a message


@dataclass(frozen=True)
class InputColumns:
    """Columns of the user's data, and of the matrix X that kernels see, where a category has several columns."""

    names: tuple[str, ...]  # of the user's columns
    places: tuple[tuple[int, ...], ...]  # of each of them in X
    widths: tuple[float, ...]  # size of one standardised unit, for each column of X
    height: float = 1.0  # size of one standardised unit of the target
    together: tuple[int, ...] = ()  # columns of X that are longitude and latitude, with a common length-scale
    categories: tuple[int, ...] = ()  # columns of X that are categories
    circles: tuple[tuple[int, float], ...] = ()  # column of X and period, in its units: two columns each, at the end

    def circle_of(self, place: int, period: float) -> tuple[int, int] | None:
        """The columns of X that are the circle onto which a column is wound; None where there is none."""
        first = self.count - 2 * len(self.circles)
        for number, (column, own) in enumerate(self.circles):
            if column == place and abs(own - period) <= 1e-9 * period:
                return first + 2 * number, first + 2 * number + 1
        return None

    @classmethod
    def plain(cls, n_features: int) -> InputColumns:
        """Columns without names, whose units are those of the model."""
        numbers = range(n_features)
        return cls(tuple(f"x{d}" for d in numbers), tuple((d,) for d in numbers), (1.0,) * n_features)

    @property
    def count(self) -> int:
        """The number of columns of X."""
        return len(self.widths)

    def chosen(self, columns: Column | Sequence[Column] | None) -> tuple[int, ...]:
        """Places in X of the columns that a user names or numbers; of all columns for None."""
        if columns is None:
            return tuple(range(self.count - 2 * len(self.circles)))
        each = [columns] if isinstance(columns, str | int | np.integer) else list(columns)
        numbers = [self._number_of(column) for column in each]
        own = [self.places[number] for number in numbers]
        if not own or len(set(numbers)) < len(numbers):
            raise InvalidParameter(f"columns of a kernel must be one or more different columns; got {columns!r}")
        if own.count(self.together) == 1:
            raise InvalidParameter(
                f"columns={columns!r}: longitude and latitude are one place on the sphere, so a kernel sees both or "
                "none of them; name both, or switch this off with sphere=None"
            )
        return tuple(dict.fromkeys(place for places in own for place in places))

    def groups(self, places: Sequence[int]) -> list[tuple[int, ...]]:
        """Numbers, among the chosen places, of the columns that have a common length-scale."""
        common = tuple(i for i, place in enumerate(places) if place in self.together)
        return [common if i in common else (i,) for i in range(len(places)) if i not in common[1:]]

    def _number_of(self, column: object) -> int:
        """The number of a column that a user names or numbers."""
        if isinstance(column, int | np.integer) and not isinstance(column, bool):
            if -len(self.names) <= column < len(self.names):
                return int(column) % len(self.names)
            raise InvalidParameter(f"columns: there is no column number {column}; the data have {len(self.names)}")
        if column in self.names:
            return self.names.index(str(column))
        close = difflib.get_close_matches(str(column), self.names, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        rest = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        listed = ", ".join(map(repr, self.names[:_SHOWN])) + rest
        raise InvalidParameter(f"columns: the data have no column {column!r}.{hint} They have {listed}")

    def name_of(self, place: int) -> str:
        """The name of the user's column to which a column of X belongs."""
        return next((name for name, own in zip(self.names, self.places, strict=True) if place in own), str(place))

    def marks_gaps(self, place: int) -> bool:
        """Whether a column of X says where a number of the user's is missing."""
        return place in self.categories and any(place in own and len(own) > 1 for own in self.places)

    def width(self, places: Sequence[int]) -> float:
        """The size of one standardised unit of several columns: the geometric mean."""
        return float(np.exp(np.log([self.widths[place] for place in places]).mean()))

    def relative_widths(self, places: Sequence[int]) -> Array:
        """Factors that give several columns a common unit, that of the data, with the geometric mean 1."""
        return np.array([self.widths[place] for place in places]) / self.width(places)

"""Weights and known noise of rows, as columns of a table or as arrays beside it.

A row of weight w has the noise variance (s^2 + d^2) / w, where s^2 is the learnt variance and d the known standard
deviation of the row's target. Weight 2 thus stands for the row given twice, with independent noise; a row of weight
zero is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.base import Addressable, Batch
from gigagp.errors import InvalidInput


@dataclass(frozen=True)
class Target:
    """A column of numbers, one per row, such as the target: in the data or in a source beside them."""

    column: str
    beside: Addressable | None = None
    labels: tuple[str, ...] | None = None  # where the target is a class: the texts of the classes, in order

    def read(self, piece: Batch, at: int) -> Batch:
        """The rows of a piece, which begins at row `at` of the source, where this column is."""
        return piece if self.beside is None else self.beside.read([self.column], at, at + piece.n_rows)


@dataclass(frozen=True)
class RowNoise:
    """Where the weights and the known standard deviations of the rows are; None where there are none."""

    weights: Target | None = None
    deviations: Target | None = None

    @property
    def targets(self) -> list[Target]:
        return [each for each in (self.weights, self.deviations) if each is not None]

    def read(self, piece: Batch, at: int, allow_missing: bool) -> Array:
        """Weight and known deviation of each row of a piece; an error for a negative or infinite one.

        allow_missing : whether NaN is left to the caller instead of being an error
        """
        values = np.empty((piece.n_rows, 2))
        values[:, 0], values[:, 1] = 1.0, 0.0
        for column, (target, what) in enumerate(((self.weights, "weight"), (self.deviations, "standard deviation"))):
            if target is not None:
                where = target.read(piece, at)
                values[:, column] = where.numbers(target.column)
                _check(values[:, column], target, where, what, allow_missing)
        return values


def _check(values: Array, target: Target, where: Batch, what: str, allow_missing: bool) -> None:
    good = (values >= 0) & (values < np.inf)
    if allow_missing:
        good |= np.isnan(values)
    if good.all():
        return
    row = int(np.argmin(good))
    column = where.file if target.beside is not None else f"column {target.column!r} of {where.file}"
    raise InvalidInput(
        f"{column} has the {what} {values[row]:g} at row {where.first_row + row}; it must be a number of at least 0"
        + (": a weight of zero leaves the row out" if what == "weight" else ", in the units of the target")
    )


def factors_and_variances(values: Array) -> Array:
    """`linalg.row_noise` from weights and deviations: 1 / w and d^2 / w."""
    weights, deviations = values.T
    with np.errstate(over="ignore"):
        return np.column_stack([1 / weights, deviations**2 / weights])

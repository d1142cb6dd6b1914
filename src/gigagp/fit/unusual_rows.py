"""Held-out rows whose target is so unlike the prediction that they look like outliers, for the report.

An error counts as one if it exceeds, in predicted deviations, ten times the error that one row in a hundred exceeds:
the calibration treats such errors as too rare to determine their size (`model.calibration`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import BLOCK, Scaling
from gigagp.data.sources import Block, Rows
from gigagp.data.sphere import InputScaling
from gigagp.data.store import ExpertStore
from gigagp.errors import InvalidInput
from gigagp.fit.held_out_scores import HeldOutScore

MOST_ROWS = 20  # that a report lists
_LEVEL = 0.99  # quantile of absolute errors
_TIMES = 10.0  # that quantile


@dataclass(frozen=True, eq=False)
class UnusualRows:
    """Scaled inputs and targets of some rows, the most unusual first, and how many there are in all."""

    X: Array
    y: Array
    count: int

    @classmethod
    def of(cls, score: HeldOutScore | None, store: ExpertStore) -> UnusualRows:
        """The unusual ones of the rows that were held out."""
        rows = np.empty(0, np.int64) if score is None else _unusual(score)
        X, y = store.gather(rows[:MOST_ROWS])
        return cls(X, y, len(rows))

    def source_rows(self, rows: Rows, inputs: InputScaling, target: Scaling) -> list[int]:
        """Their numbers in the data, from one more pass over the rows; rows of equal values have the first number."""
        numbers = np.full(len(self.y), -1)
        for block in self._blocks(rows):
            assert block.y is not None
            places = np.flatnonzero(np.isin(target.apply(block.y[:, None], self.y.dtype)[:, 0], self.y))
            X = inputs.apply(block.X[places], self.X.dtype)
            y = target.apply(block.y[places][:, None], self.y.dtype)[:, 0]
            for place, point, value in zip(places.tolist(), X, y, strict=True):
                same = np.flatnonzero((self.y == value) & (point == self.X).all(axis=1) & (numbers < 0))
                numbers[same] = block.first_row + place if block.source_rows is None else block.source_rows[place]
        return [int(number) for number in numbers if number >= 0]

    def _blocks(self, rows: Rows) -> Iterator[Block]:
        """All rows; none where they are not needed, or have changed meanwhile: the fit is complete without them."""
        if len(self.y):
            with suppress(InvalidInput):
                yield from rows.blocks(BLOCK)


def _unusual(score: HeldOutScore) -> Array:
    """Rows of the store, the most unusual first."""
    prediction, setting = score.prediction, score.calibration.setting
    if setting is None or prediction.variance is None:
        return np.empty(0, np.int64)
    noise = setting.noise if prediction.noise is None else prediction.noise
    errors = np.abs(score.y - prediction.mean) / np.sqrt(prediction.variance + noise)
    order = np.argsort(-errors, kind="stable")
    return np.asarray(score.rows[order[errors[order] > _TIMES * np.quantile(errors, _LEVEL)]])

"""Updates of a fitted model: rows that arrive, and rows that are forgotten."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaled import scaled_targets
from gigagp.data.scaling import BLOCK
from gigagp.data.sources import Encoding, Rows
from gigagp.data.sources.rows import Block
from gigagp.data.store import join_targets, split_targets
from gigagp.data.update_log import FORGET, ROWS, RowsRecord
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter, callers_level
from gigagp.estimators.refinement import Refinement
from gigagp.fit import settings
from gigagp.model.adaptation import with_scores
from gigagp.model.model import Model
from gigagp.model.online import added, all_rows, following, online, without
from gigagp.model.row_segments import ArrivingRows

_ROWS_PER_RECORD = 1 << 20  # rows of a call that are learnt together, and are one record of the log


class OnlineUpdates(Refinement):  # type: ignore[misc]
    """The methods of an estimator that takes updates."""

    def _learn_all(self, rows: Rows, score_rows: int) -> None:
        """Learn rows of a source; so many of them are predicted before they are learnt."""
        rows.may_be_empty = True
        with self.predictor_.engine() as engine:
            for part in _together(rows.blocks(BLOCK)):
                self._learn(part, score_rows, engine)

    def _learn(self, part: list[Block], score_rows: int, engine: Engine) -> None:
        """Score some of the rows, add them, and write them to the log if there is one."""
        model = self.model_
        _warn_of_new_levels(part, model.reading)
        blocks = [self._scaled(block, model) for block in part]
        rows = ArrivingRows.joined(blocks)
        state = online(model)
        rows = replace(rows, arrivals=state.following + np.arange(len(rows)))
        score = self._score(part, rows, score_rows, engine)
        if len(score):
            model = with_scores(model, score)
        changed = added(replace(model, online=state), rows, engine)  # if this fails, the log must not have the rows
        end = self._logged(ROWS, lambda: RowsRecord(
            rows.X, rows.y, rows.row_noise, rows.arrivals, score
        ).to_bytes())  # fmt: skip
        self.model_ = self._at(changed, end)

    def _scaled(self, block: Block, model: Model) -> ArrivingRows:
        assert block.y is not None
        y = block.y if model.trend is None else block.y - model.trend.values(block.X)
        dtype = model.store.X.dtype
        targets, noise = split_targets(scaled_targets(join_targets(y, block.row_noise), model.target, dtype))
        return ArrivingRows(model.inputs.apply(block.X, dtype), targets, noise, np.empty(len(y), np.int64))

    def _score(self, part: list[Block], rows: ArrivingRows, score_rows: int, engine: Engine) -> Array:
        """The numbers of `adaptation.score_numbers`, none where no row is scored; rows: those of the part, scaled."""
        arrived = len(rows)
        places = np.unique(np.linspace(0, arrived - 1, min(score_rows, arrived)).astype(int))
        if not len(places):
            return np.empty(0)
        X = np.concatenate([block.X for block in part])[places]
        y = np.concatenate([block.y for block in part if block.y is not None])[places]
        noises = [block.row_noise for block in part if block.row_noise is not None]
        noise = np.concatenate(noises)[places] if noises else None
        return self._score_rows(X, y, noise, rows.at(places), arrived, engine)

    def _score_rows(
        self, X: Array, y: Array, row_noise: Array | None, scaled: ArrivingRows, arrived: int, engine: Engine
    ) -> Array:
        """The numbers of `adaptation.score_numbers` of rows that are predicted before they are learnt.

        row_noise : in the user's units
        scaled : the same rows in the model's units
        arrived : how many rows these stand for
        """
        raise NotImplementedError

    def forget(
        self, *, rows: Any = None, max_rows: int | None = None, older_than: Any = None, column: str | int | None = None
    ) -> Self:
        """Remove rows: predictions are then those of a model that has never seen them.

        Parameters
        ----------
        rows : numbers
            Arrival numbers. The rows of the fit have the numbers 0 to n - 1, in an unspecified order; those of
            `partial_fit` follow in the order of arrival.
        max_rows : int
            How many rows to keep: the most recent ones.
        older_than, column : value, and name or number of a column
            Rows with a smaller value in that column are forgotten, such as a date or a time. Rows in which it is
            missing stay.

        Of several targets the rows of each are forgotten.

        """
        if "targets_" in self.__dict__:
            return self._changed_targets(
                lambda one: one.forget(rows=rows, max_rows=max_rows, older_than=older_than, column=column)
            )
        self._check_updates()
        state = online(self.model_)
        gone = np.sort(_forgotten(self.model_, state.numbers, rows, max_rows, older_than, column))
        if len(gone):
            model = replace(self.model_, online=state)
            predictor = self.predictor_
            with predictor.engine() as engine:
                changed = without(model, gone, engine)
            end = self._logged(FORGET, lambda: gone.astype(np.int64).tobytes())
            self.model_ = self._at(changed, end)
        return self

    @property
    def next_arrival_(self) -> int:
        """The arrival number of the next row."""
        return following(self._of_one("next_arrival_"))


def _warn_of_new_levels(part: list[Block], encoding: Encoding) -> None:
    """Warn of levels of categories that the fit did not have."""
    place, names = 0, []
    for feature in encoding.features:
        known = feature.categories is None or feature.one_hot
        if not known and any((block.X[:, place] == feature.unseen).any() for block in part):
            names.append(feature.column)
        place += len(feature.names)
    if names:
        warnings.warn(
            f"{', '.join(map(repr, names))}: some rows have levels that the training data did not have; they are "
            "learnt as one common level; fit again to tell them apart",
            UserWarning, stacklevel=callers_level(),
        )  # fmt: skip


def _together(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Blocks of rows, as many as are one record."""
    part: list[Block] = []
    for block in blocks:
        part.append(block)
        if sum(len(each.X) for each in part) >= _ROWS_PER_RECORD:
            yield part
            part = []
    if part:
        yield part


def _forgotten(
    model: Model, numbers: Array, rows: Any, max_rows: Any, older_than: Any, column: str | int | None
) -> Array:
    """The arrival numbers of the rows to forget."""
    given = [name for name, value in (("rows", rows), ("max_rows", max_rows), ("older_than", older_than))
             if value is not None]  # fmt: skip
    if len(given) != 1:
        raise InvalidParameter(
            f"forget takes one of rows=, max_rows= and older_than=; got {', '.join(given) or 'none'}"
        )
    if rows is not None:
        wanted = np.unique(np.atleast_1d(np.asarray(rows)))
        if not len(wanted):
            return numbers[:0]
        if wanted.dtype.kind not in "iu" or not np.isin(wanted, numbers).all():
            raise InvalidParameter("rows= must be arrival numbers of rows that the model has, below next_arrival_")
        return wanted
    if max_rows is not None:
        count = settings.count("max_rows", max_rows)
        surplus = max(0, len(numbers) - count)
        return np.partition(numbers, surplus - 1)[:surplus] if surplus else numbers[:0]
    if column is None:
        raise InvalidParameter("older_than= needs column=, the name or number of a column")
    names = list(model.units.columns)
    number = names.index(column) if column in names else column
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise InvalidParameter(f"there is no column {column!r}; the model has {', '.join(map(repr, names))}")
    rows_now = all_rows(model)
    X = model.inputs.restore(np.asarray(rows_now.X, float))
    limit, directions = _as_number(older_than, model, number), model.inputs.directions
    if directions is not None and number in directions.combined:
        older = directions.below(np.asarray(rows_now.X), number, _scaled(limit, model, number, X[0]))
    else:
        older = X[:, number] < _as_stored(limit, model, number, X[0])
    if names[number + 1 : number + 2] == [f"{names[number]} is missing"]:
        older &= X[:, number + 1] < 0.5  # elsewhere another number stands in its place
    return rows_now.arrivals[older]


def _as_stored(value: float, model: Model, column: int, row: Array) -> float:
    """A value of a column after scaling and back, with the rounding of stored rows: rows of that value are equal to it.

    row : any row in the user's units
    """
    sphere = model.inputs.sphere
    if sphere is not None and column in (sphere.longitude, sphere.latitude):
        return value  # it depends on two columns
    changed = row.copy()
    changed[column] = value
    scaled = model.inputs.apply(changed[None, :], model.store.X.dtype)
    return float(model.inputs.restore(np.asarray(scaled, float))[0, column])


def _scaled(value: float, model: Model, column: int, row: Array) -> float:
    """A value of a column after scaling, in the precision of the store.

    row : any row in the user's units
    """
    changed = row.copy()
    changed[column] = value
    return float(replace(model.inputs, directions=None).apply(changed[None, :], model.store.X.dtype)[0, column])


def _as_number(value: Any, model: Model, column: int) -> float:
    """A value of a column as the model reads it: dates as days, timestamps as seconds."""
    kind, number = model.units.kinds[column], float("nan")
    with suppress(TypeError, ValueError, OverflowError):
        if kind not in ("date", "timestamp") or isinstance(value, int | float):
            number = float(value)
        elif not np.isnat(instant := np.datetime64(value)):
            days = kind == "date"
            number = float(instant.astype("M8[D]").astype(int) if days else instant.astype("M8[us]").astype(int) / 1e6)
    if np.isnan(number):
        raise InvalidParameter(f"older_than must be a value of the column, which is a {kind}; got {value!r}")
    return number

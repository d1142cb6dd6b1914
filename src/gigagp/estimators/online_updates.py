"""Updates of a fitted model: rows that arrive, rows that are forgotten, and models that keep both on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp.arrays import Array
from gigagp.data.scaled import scaled_targets
from gigagp.data.scaling import BLOCK
from gigagp.data.sources import open_rows
from gigagp.data.sources.rows import Block
from gigagp.data.store import join_targets, split_targets
from gigagp.data.update_log import FORGET, ROWS, RowsRecord
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.estimators.input_rows import is_source
from gigagp.estimators.refinement import Refinement
from gigagp.fit import settings
from gigagp.model import prequential, recent_rows
from gigagp.model.adaptation import score_numbers, with_scores
from gigagp.model.model import Model
from gigagp.model.online import added, all_rows, following, online, without
from gigagp.model.row_segments import ArrivingRows
from gigagp.progress import Listener

_ROWS_PER_RECORD = 1 << 20  # rows of a call that are learnt together, and are one record of the log
_MOST_EXACT = 4096  # rows up to which a mixture of exact GPs takes updates; with more, the model is fitted again


class OnlineUpdates(Refinement):  # type: ignore[misc]
    """The methods of a regressor that takes updates."""

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, noise_std: Any = None, missing: str = "error",
        score_rows: int = 256, refine: str = "never", progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Learn more rows, without training: theta, scalings and calibration stay, unless refine="auto".

        The first call on a model that is not fitted fits it. Predictions are then those of one fit to all rows with
        the same theta and scalings, in whatever order and chunks the rows have arrived. Some of the rows are predicted
        before they are learnt; their scores are in `prequential_`.

        A model with more than 4,096 rows that was fitted to a small table, as a mixture of exact GPs, is fitted again.

        Parameters
        ----------
        X, y, sample_weight, noise_std
            As in `fit`; y may be left out if X is a table or file with the target's column.
        missing : {"error", "drop"}
            What happens to rows with missing values that the model has not learnt to answer.
        score_rows : int
            How many rows of the call are predicted before they are learnt, at equal distances; 0 for none.
        refine : {"never", "auto"}
            "auto" learns the calibration again from the predictions of arriving rows, and trains the model again when
            their scores have become worse than expected; the result is kept if it predicts the last rows better.
        progress : function
            Called with a gigagp.progress.Event during a fit.

        """
        scored, when = settings.count("score_rows", score_rows), _refine_rule(refine)
        if "model_" not in self.__dict__ and "targets_" not in self.__dict__:
            return self.fit(X, y, sample_weight, noise_std=noise_std, progress=progress)  # type: ignore[attr-defined, no-any-return]
        if "model_" in self.__dict__ and y is not None and not is_source(X, y):
            validate_data(self, X, reset=False, skip_check_array=True)  # names and number of the columns
        self._check_updates()
        target = self.model_.target_name if y is None else y
        if target is None:
            raise InvalidParameter("pass y=: the model was fitted to arrays, so that its target has no name")
        rows = open_rows(
            X, target, encoding=self.model_.reading, missing=settings.missing(missing), weights=sample_weight,
            deviations=noise_std,
        )  # fmt: skip
        predictor, before = self.predictor_, self.prequential_.scored
        with predictor.engine() as engine:
            for part in _together(rows.blocks(BLOCK)):
                self._learn(part, scored, engine)
        if self.model_.mixture is not None and self.n_rows_ > _MOST_EXACT:
            self.refine(warm=False, progress=progress)
        elif when == "auto":
            self._adapt(before, progress)
        return self

    def _learn(self, part: list[Block], score_rows: int, engine: Engine) -> None:
        """Score some of the rows, write them to the log if there is one, and add them."""
        model = self.model_
        blocks = [self._scaled(block, model) for block in part]
        rows = ArrivingRows.joined(blocks)
        state = online(model)
        rows = replace(rows, arrivals=state.following + np.arange(len(rows)))
        score = self._score(part, rows, score_rows, engine)
        if len(score):
            model = with_scores(model, score)
        end = self._logged(ROWS, lambda: RowsRecord(
            rows.X, rows.y, rows.row_noise, rows.arrivals, score
        ).to_bytes())  # fmt: skip
        self.model_ = self._at(added(replace(model, online=state), rows, engine), end)

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
        predictor = self.predictor_
        Z = predictor.scaled(X)
        prediction = predictor.latent_with_noise(Z, engine, row_noise=noise)
        mean, deviation = predictor.from_latent(X, Z, prediction)
        assert deviation is not None
        score = prequential.score(predictor.distribution(mean, deviation), y, arrived)
        return score_numbers(score, recent_rows.scored(rows.arrivals[places], rows.y[places], prediction))

    def forget(
        self, *, rows: Any = None, max_rows: int | None = None, older_than: Any = None, column: str | int | None = None
    ) -> Self:
        """Take rows away: predictions are then those of a model that has never seen them.

        Parameters
        ----------
        rows : numbers
            Numbers of arrival. The rows of the fit have the numbers 0 to n - 1, in an order that is not known; those
            of `partial_fit` follow in the order of arrival.
        max_rows : int
            How many rows to keep: the most recent ones.
        older_than, column : value, and name or number of a column
            Rows with a smaller value in that column are forgotten, such as a date or a time.

        """
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
        """The number of arrival of the next row."""
        check_is_fitted(self, "model_")
        return following(self.model_)


def _refine_rule(value: Any) -> str:
    if value not in ("never", "auto"):
        raise InvalidParameter(f'refine must be "never" or "auto"; got {value!r}')
    return str(value)


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
    """The numbers of arrival of the rows to forget."""
    given = [name for name, value in (("rows", rows), ("max_rows", max_rows), ("older_than", older_than))
             if value is not None]  # fmt: skip
    if len(given) != 1:
        raise InvalidParameter(
            f"forget takes one of rows=, max_rows= and older_than=; got {', '.join(given) or 'none'}"
        )
    if rows is not None:
        wanted = np.unique(np.atleast_1d(np.asarray(rows)))
        if wanted.dtype.kind not in "iu" or not np.isin(wanted, numbers).all():
            raise InvalidParameter("rows= must be numbers of arrival that the model has; next_arrival_ is the next one")
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
    values = model.inputs.restore(np.asarray(rows_now.X, float))[:, number]
    return rows_now.arrivals[values < _as_number(older_than, model, number)]


def _as_number(value: Any, model: Model, column: int) -> float:
    """A value of a column as the model reads it: dates as days, timestamps as seconds."""
    kind = model.units.kinds[column]
    if kind in ("date", "timestamp") and not isinstance(value, int | float):
        instant = np.datetime64(value)
        return float(
            instant.astype("M8[D]").astype(int) if kind == "date" else instant.astype("M8[us]").astype(int) / 1e6
        )
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidParameter(f"older_than must be a value of the column; got {value!r}") from None

"""Updates of a fitted model: rows that arrive, rows that are forgotten, and models that keep both on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp.arrays import Array
from gigagp.data.scaled import scaled_targets
from gigagp.data.scaling import BLOCK
from gigagp.data.sources import open_rows
from gigagp.data.sources.rows import Block
from gigagp.data.store import join_targets, split_targets
from gigagp.data.update_log import FORGET, ROWS, RowsRecord, UpdateLog
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.estimators.input_rows import is_source
from gigagp.estimators.joint_predictions import JointPredictions
from gigagp.fit import settings
from gigagp.fit.refitting import refitted
from gigagp.fit.settling import settled
from gigagp.model import prequential
from gigagp.model.loading import load_model
from gigagp.model.model import Model
from gigagp.model.online import added, all_rows, check_updates, following, online, without
from gigagp.model.predictor import Predictor
from gigagp.model.prequential import Prequential
from gigagp.model.row_segments import ArrivingRows
from gigagp.model.saving import save_model
from gigagp.model.update_replay import LogPlace, refreshed, with_updates
from gigagp.progress import Listener, make_listener

_ROWS_PER_RECORD = 1 << 20  # rows of a call that are learnt together, and are one record of the log
_MOST_EXACT = 4096  # rows up to which a mixture of exact GPs takes updates; with more, the model is fitted again


class OnlineUpdates(JointPredictions):  # type: ignore[misc]
    """The methods of a regressor that takes updates."""

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, noise_std: Any = None, missing: str = "error",
        score_rows: int = 256, refine: str = "never", progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Learn more rows, without training: theta, scalings and calibration stay until `refine`.

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
            "auto" fits the model again (`refine`) when the scores of arriving rows have become worse.
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
        predictor = self.predictor_
        with predictor.engine() as engine:
            for part in _together(rows.blocks(BLOCK)):
                self._learn(part, scored, engine)
        small = self.model_.mixture is not None and self.n_rows_ > _MOST_EXACT
        drift = Prequential(self.model_.prequential).drift if self.model_.prequential is not None else None
        if small or (when == "auto" and drift is not None and drift.detected):
            self.refine(progress=progress)
        return self

    def _check_updates(self) -> None:
        if "targets_" in self.__dict__:
            raise InvalidParameter(
                "a model of several targets takes no updates; use target(name), which is one of them"
            )
        check_is_fitted(self, "model_")
        check_updates(self.model_)
        if self._settings().by_committee:
            raise InvalidParameter('partial_fit needs method="auto" or "neighbourhood"; a committee takes no updates')

    def _learn(self, part: list[Block], score_rows: int, engine: Engine) -> None:
        """Score some of the rows, write them to the log if there is one, and add them."""
        model = self.model_
        blocks = [self._scaled(block, model) for block in part]
        rows = ArrivingRows.joined(blocks)
        state = online(model)
        rows = replace(rows, arrivals=state.following + np.arange(len(rows)))
        score = self._score(part, score_rows, engine)
        if score is not None:
            model = replace(model, prequential=prequential.appended(model.prequential, score))
        end = self._logged(ROWS, lambda: RowsRecord(
            rows.X, rows.y, rows.row_noise, rows.arrivals, np.empty(0) if score is None else score
        ).to_bytes())  # fmt: skip
        self.model_ = self._at(added(replace(model, online=state), rows, engine), end)

    def _scaled(self, block: Block, model: Model) -> ArrivingRows:
        assert block.y is not None
        y = block.y if model.trend is None else block.y - model.trend.values(block.X)
        dtype = model.store.X.dtype
        targets, noise = split_targets(scaled_targets(join_targets(y, block.row_noise), model.target, dtype))
        return ArrivingRows(model.inputs.apply(block.X, dtype), targets, noise, np.empty(len(y), np.int64))

    def _score(self, part: list[Block], score_rows: int, engine: Engine) -> Array | None:
        """One row of the record of scores."""
        arrived = sum(len(block.X) for block in part)
        places = np.unique(np.linspace(0, arrived - 1, min(score_rows, arrived)).astype(int))
        if not len(places):
            return None
        X = np.concatenate([block.X for block in part])[places]
        y = np.concatenate([block.y for block in part if block.y is not None])[places]
        noises = [block.row_noise for block in part if block.row_noise is not None]
        noise = np.concatenate(noises)[places] if noises else None
        return prequential.score(self.predictor_.distribution_at(X, engine, noise), y, arrived)

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

    def refine(self, *, progress: Listener | None = None) -> Self:
        """Fit the model again to the rows that it has now: scalings, choices, theta and calibration are learnt anew.

        Scores of arriving rows begin anew. A model that was opened with `open` is saved.
        """
        self._check_updates()
        seed = settings.seed(self.random_state)
        tell = make_listener(self.verbose, progress)
        self._take(refitted(self.model_, self._settings(), seed, self._predictor_of, tell))
        if self._log is not None:
            self.compact()
        return self

    @property
    def prequential_(self) -> Prequential:
        """Scores of the rows that have arrived since the last fit, each predicted before it was learnt."""
        check_is_fitted(self, "model_")
        record = self.model_.prequential
        return Prequential(np.empty((0, prequential.COLUMNS)) if record is None else record)

    @property
    def n_rows_(self) -> int:
        """The number of rows that the model predicts from."""
        check_is_fitted(self, "model_")
        model = self.model_
        return len(model.store.y) if model.online is None else online(model).size

    @property
    def next_arrival_(self) -> int:
        """The number of arrival of the next row."""
        check_is_fitted(self, "model_")
        return following(self.model_)

    def _predictor_of(self, model: Model) -> Predictor:
        """A model with the current prediction settings."""
        predictor = super()._predictor_of(model)
        if model.online is None or predictor.neighbourhood is not None or predictor.mixture is not None:
            return predictor
        self.model_ = settled(model)  # its committee was that of the fit
        return super()._predictor_of(self.model_)

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """The summed log marginal likelihood of the experts, as `HGPEstimator` describes it."""
        self._settle()
        return super().log_marginal_likelihood(theta, eval_gradient)

    def _settle(self) -> None:
        """Sort the rows of a model that has taken updates into cells."""
        if "model_" in self.__dict__:
            self.model_ = settled(self.model_)

    # Models on disk

    _log: UpdateLog | None = None  # where updates are written; None for a model in memory

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool | str = True) -> Self:
        """Open a saved model for updates that are kept: after `partial_fit` or `forget` returns they are on the disk.

        One process at a time may do so; others may load the model and `refresh` it. Use it in a `with` statement, or
        call `close`.

        Parameters
        ----------
        folder, kernels, verify
            As in `load`.

        """
        path = Path(os.path.realpath(folder))
        if not path.is_dir():
            raise InvalidParameter(f"{folder} is not the folder of a model; save one there first")
        log = UpdateLog(path)
        try:
            model = cls.of_model(*load_model(path, kernels=kernels, verify=verify), folder)
        except BaseException:
            log.close()
            raise
        model._log = log
        return model

    def close(self) -> None:
        """Release the folder. Updates after that are in memory only."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compact(self) -> Self:
        """Save a model that was opened with `open` into its folder: its updates become part of it, the log ends."""
        log = self._log
        if log is None:
            raise InvalidParameter("compact is for models that were opened with open; use save for others")
        self._settle()
        save_model(self.model_, self.get_params(deep=False), log.folder, True)
        folder = log.folder
        log.reopen()
        self.model_ = replace(self.model_, log=with_updates(self.model_, folder).log)
        return self

    def refresh(self) -> Self:
        """Read the updates that another process has written since this model was loaded."""
        check_is_fitted(self, "model_")
        place = self.model_.log
        if not isinstance(place, LogPlace):
            raise InvalidParameter("refresh is for models that were loaded from a folder")
        model = refreshed(self.model_)
        if model is None:  # the folder has been replaced
            model = load_model(place.path)[0]
        self.model_ = model
        return self

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model into a folder.

        Parameters
        ----------
        folder : path
            Folder of the model; it appears only when it is complete.
        overwrite : bool
            Whether an existing model may be replaced.

        """
        self._settle()
        super().save(folder, overwrite=overwrite)

    def _logged(self, kind: int, content: Any) -> int | None:
        """Write a record if the model keeps its updates; the end of the log."""
        return None if self._log is None else self._log.append(kind, content())

    def _at(self, model: Model, end: int | None) -> Model:
        place = model.log
        if end is None or not isinstance(place, LogPlace):
            return model
        return replace(model, log=replace(place, end=end))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_log"}


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

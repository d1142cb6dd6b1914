"""Models on disk that take updates: the log of a folder, its replay, and saving."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from gigagp.arrays import Array
from gigagp.data.folders import is_of_kind
from gigagp.data.update_log import UpdateLog
from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.fit.settling import settled
from gigagp.model.loading import load_model
from gigagp.model.model import Model
from gigagp.model.model_format import MANIFEST, TARGETS_FORMAT
from gigagp.model.predictor import Predictor
from gigagp.model.remote_folders import refuse_remote
from gigagp.model.saving import save_model
from gigagp.model.update_replay import LogPlace, refreshed, with_updates


class LoggedUpdates(HGPEstimator):  # type: ignore[misc]
    """The methods of an estimator whose updates are kept in its folder."""

    def _predictor_of(self, model: Model) -> Predictor:
        """A model with the current prediction settings."""
        predictor = super()._predictor_of(model)
        if model.online is None or predictor.neighbourhood is not None or predictor.mixture is not None:
            return predictor
        whole = settled(model)  # its committee was that of the fit
        if self.__dict__.get("model_") is model:
            self.model_ = whole
        return super()._predictor_of(whole)

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """The summed log marginal likelihood of the experts, as `HGPEstimator` describes it."""
        self._settle()
        return super().log_marginal_likelihood(theta, eval_gradient)

    def _settle(self) -> None:
        """Sort the rows of a model that has taken updates into cells."""
        if "model_" in self.__dict__:
            self.model_ = settled(self.model_)
        elif "targets_" in self.__dict__:
            self.targets_ = replace(self.targets_, models=tuple(map(settled, self.targets_.models)))

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
        refuse_remote("the model that is opened for updates", folder)
        path = Path(os.path.realpath(folder))
        if not path.is_dir():
            raise InvalidParameter(f"{folder} is not the folder of a model; save one there first")
        if is_of_kind(path / MANIFEST, TARGETS_FORMAT):
            raise InvalidParameter(
                f"{folder} has a model of several targets, whose updates have no log; load it, call partial_fit and "
                "save it with overwrite=True, or keep one model per target"
            )
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
        check_is_fitted(self)
        place = self._of_one("refresh").log
        if not isinstance(place, LogPlace):
            raise InvalidParameter("refresh is for models that were loaded from a folder")
        model = refreshed(self.model_)
        if model is None:  # the folder has been replaced
            model = load_model(place.path)[0]
        self.model_ = model
        return self

    def _logged(self, kind: int, content: Any) -> int | None:
        """Write a record if the model keeps its updates; the end of the log."""
        if self._log is None:
            return None
        if not isinstance(self.model_.log, LogPlace):
            raise InvalidParameter(
                "the model was fitted after its folder was opened, so that the log there belongs to another one; call "
                "compact to save the model into the folder, or close to keep its updates in memory only"
            )
        return self._log.append(kind, content())

    def _at(self, model: Model, end: int | None) -> Model:
        place = model.log
        if end is None or not isinstance(place, LogPlace):
            return model
        return replace(model, log=replace(place, end=end))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_log"}

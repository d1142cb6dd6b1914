"""Refinement of a model that takes updates: calibration and theta are learnt again from the rows that have arrived."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gigagp.arrays import Array
from gigagp.data.update_log import CHANGE
from gigagp.errors import InvalidParameter
from gigagp.estimators.logged_updates import LoggedUpdates
from gigagp.fit import settings
from gigagp.fit.contests import compare
from gigagp.fit.refitting import refitted
from gigagp.fit.warm_training import can_be_trained, trained_again
from gigagp.model import prequential
from gigagp.model.adaptation import changed, describe_change, expected_loss
from gigagp.model.calibration import Calibration
from gigagp.model.model import Model
from gigagp.model.online import check_updates, online
from gigagp.model.prequential import ACCEPTED, COLD_REJECTED, WARM_REJECTED, Prequential
from gigagp.model.recent_rows import recalibrated
from gigagp.progress import Listener, make_listener

_RECALIBRATION_ROWS = 256  # scored rows after which the calibration is learnt again
_LEAST_ARRIVED = 1 / 32  # share of the rows that must have arrived between two trainings
_WITHOUT_DRIFT = 8  # times as many, where rows are predicted as well as expected
_REJECTIONS = 4  # trainings that gain nothing, of both kinds, after which twice as many rows must arrive
_MOST_ARRIVED = 1 / 2  # share of the rows after whose arrival the model is trained again in any case


class Refinement(LoggedUpdates):  # type: ignore[misc]
    """The methods of a regressor that is trained again."""

    def refine(self, *, warm: bool = True, progress: Listener | None = None) -> Self:
        """Train the model again on the rows that it has now.

        Scores of arriving rows begin anew. A model that was opened with `open` is saved.

        Parameters
        ----------
        warm : bool
            True to start from the present theta, with the kernels, the number of neighbours and the scalings that the
            model has: theta and calibration are learnt. False to fit from the beginning, with all choices. Up to a few
            hundred rows, and for small tables that are predicted by a mixture of exact GPs, that is done in any case.
        progress : function
            Called with a gigagp.progress.Event during the training.

        """
        if "targets_" in self.__dict__:
            return self._changed_targets(lambda one: one.refine(warm=warm, progress=progress))
        self._check_updates()
        model = self._trained(settings.switch("warm", warm), progress)
        self._take(replace(model, prequential=None, recent=None))
        self._settle()
        if self._log is not None:
            self.compact()
        return self

    def _trained(self, warm: bool, progress: Listener | None) -> Model:
        """The model trained again on its rows: from the present theta, or from the beginning."""
        seed, tell = settings.seed(self.random_state), make_listener(self.verbose, progress)
        if warm and can_be_trained(self.model_):
            return trained_again(self.model_, self._settings(), seed, tell)
        options = replace(self._settings(), updates=True)
        return refitted(self.model_, options, seed, self._predictor_of, self._class_model, tell)

    def _changed_targets(self, change: Callable[[Any], Any]) -> Self:
        """Change the model of each of several targets."""
        raise NotImplementedError

    def _check_updates(self) -> None:
        check_is_fitted(self, "model_")
        check_updates(self.model_)
        if self._settings().by_committee:
            raise InvalidParameter(
                'updates need method="auto" or "neighbourhood", without combine= and experts_per_query=: a committee '
                "takes no updates"
            )

    # What refine="auto" does

    def _adapt(self, scored_before: int, progress: Listener | None) -> None:
        """Learn calibration or theta again where arriving rows show that this is due."""
        record = self.prequential_
        drifts = record.drift is not None and record.drift.detected
        least = _LEAST_ARRIVED * 2.0 ** (record.rejected // _REJECTIONS)
        least = least if drifts else _WITHOUT_DRIFT * least
        if record.rows_since_training / self.n_rows_ >= min(least, _MOST_ARRIVED):
            self._contest(drifts, progress)
        elif record.scored // _RECALIBRATION_ROWS > scored_before // _RECALIBRATION_ROWS:
            self._recalibrate()

    def _recalibrate(self) -> None:
        """Learn the calibration from the rows that arrived last, if that predicts them better."""
        model = self.model_
        calibration = recalibrated(model.report.calibration, model.recent, self.likelihood == "gaussian")
        if calibration is not None:
            self._change(calibration, None)

    def _change(self, calibration: Calibration | None, marker: Array | None) -> None:
        """Change the model, and write the change to its log."""
        content = describe_change(calibration, marker)
        end = self._logged(CHANGE, lambda: json.dumps(content).encode())
        self.model_ = self._at(changed(self.model_, content), end)

    def _contest(self, drifts: bool, progress: Listener | None) -> None:
        """Train again, and keep the result if it predicts the rows that arrived last better.

        Where rows drift, a training from the present theta that gains nothing is followed by a fit from the beginning:
        the present theta may be a poor place to start from. Elsewhere that is left to the next time.
        """
        warm_first = drifts or self.prequential_.last_training != WARM_REJECTED
        warm_first = warm_first and can_be_trained(self.model_)
        kinds = (True, False) if drifts and warm_first else (warm_first,)
        for warm in kinds:
            if self._accepted(self._trained(warm, progress)):
                return
            outcome = WARM_REJECTED if warm else COLD_REJECTED
            self._change(None, prequential.marker(self.prequential_.expected, outcome))
        self._recalibrate()

    def _accepted(self, candidate: Model) -> bool:
        """Take a model that was trained again, if it predicts the rows that arrived last better."""
        model, predictor, gaussian = self.model_, self.predictor_, self.likelihood == "gaussian"
        with predictor.engine() as engine:
            contest = compare(model, candidate, self._predictor_of, engine, gaussian)
        if contest is not None and not contest.better:
            return False
        record = prequential.appended(model.prequential, prequential.marker(expected_loss(candidate), ACCEPTED))
        recent = None if contest is None else contest.recent
        candidate = replace(candidate, prequential=record, recent=recent, log=model.log)
        calibration = recalibrated(candidate.report.calibration, recent, gaussian)
        self._take(changed(candidate, describe_change(calibration, None)))
        if self._log is not None:
            self.compact()
        return True

    @property
    def prequential_(self) -> Prequential:
        """Scores of the rows that have arrived since the last fit, each predicted before it was learnt.

        Of classes, the NLPD is the log loss, the CRPS is the Brier score, and the others are not known.
        """
        check_is_fitted(self)
        record = self._of_one("prequential_").prequential
        return Prequential(np.empty((0, prequential.COLUMNS)) if record is None else record)

    @property
    def n_rows_(self) -> int:
        """The number of rows that the model predicts from."""
        check_is_fitted(self)
        model = self._of_one("n_rows_")
        return len(model.store.y) if model.online is None else online(model).size

"""Fits of several targets of the same inputs, and the fitted model of each."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from gigagp.errors import InvalidParameter, callers_level
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.target_columns import TargetColumns
from gigagp.estimators.user_warnings import warn_user
from gigagp.fit import settings
from gigagp.model.predictor import Predictor
from gigagp.model.target_models import TargetModels, TargetsPredictor


class TargetFits(HGPEstimator):  # type: ignore[misc]
    """An estimator of one number or of several."""

    def target(self, name: str | int) -> Self:
        """The fitted model of one of several targets, as an estimator of its own.

        It has all the fitted attributes, and can be saved, evaluated, reported and plotted.

        Parameters
        ----------
        name : str or int
            The name of the target, or its place. The targets of an array are y0, y1, ...

        """
        fitted = self._fitted
        if not isinstance(fitted, TargetModels):
            raise InvalidParameter("target() chooses one of several targets; this model has one")
        one = type(self)(**self.get_params(deep=False))
        one._take(fitted.models[fitted.place(name)])
        return one

    @property
    def target_names_(self) -> tuple[str, ...]:
        """The names of the targets, where these are several."""
        fitted = self._fitted
        if not isinstance(fitted, TargetModels):
            raise AttributeError("the model has one target")
        return fitted.names

    @property
    def _any_predictor(self) -> Predictor | TargetsPredictor:
        """What answers queries: for one target, or for several."""
        fitted = self._fitted
        if isinstance(fitted, TargetModels):
            return TargetsPredictor(fitted.names, tuple(self._predictor_of(model) for model in fitted.models))
        return self._predictor_of(fitted)

    def _fit_targets(self, X: Any, targets: TargetColumns, sample_weight: Any, options: dict[str, Any]) -> Self:
        """Fit one model per target, each exactly as if it were fitted alone.

        options : the other arguments of `fit`
        """
        if options["noise_std"] is not None:
            raise InvalidParameter(
                "noise_std is the known noise of one target, in its units; fit one model per target to use it"
            )
        entropy = settings.seed(self.random_state).entropy
        if targets.in_data:
            options = {**options, "drop": settings.column_names("drop", options["drop"])}
        models = []
        with self._unharmed():
            for place, (name, values) in enumerate(zip(targets.names, targets.values, strict=True)):
                own = dict(options)
                if targets.in_data:
                    others = [other for other in targets.names if other != name and other not in own["drop"]]
                    own["drop"] = [*own["drop"], *others]
                if own["checkpoint"] is not None:
                    own["checkpoint"] = Path(own["checkpoint"]) / str(place)
                model = self._fitted_model(X, values, sample_weight, np.random.SeedSequence(entropy), **own)
                models.append(replace(model, target_name=name))
            self._take(TargetModels(tuple(models), targets.names, targets.named))
        for model in models:
            warn_user(model.report, model.units, of_several=True)
            if float(model.target.scale[0]) == 1.0 and not model.report.stages:
                self._warn_of_constant(model.units.target)
        return self

    @staticmethod
    def _warn_of_constant(name: str) -> None:
        warnings.warn(
            f"the target {name!r} is constant, so that every prediction of it is this constant; leave it out",
            UserWarning, stacklevel=callers_level(),
        )  # fmt: skip

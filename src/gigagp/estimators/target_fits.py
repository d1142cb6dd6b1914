"""Fits of several targets of the same inputs, and the fitted model of each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from gigagp.arrays import Array
from gigagp.data.addresses import below
from gigagp.data.objects import temporary_parent
from gigagp.data.sources import Rows, open_rows
from gigagp.data.sources.opening import open_source
from gigagp.data.sources.selection import check_target_columns
from gigagp.engines import is_of_this_machine
from gigagp.errors import InvalidParameter, callers_level, choose
from gigagp.estimators.base import HGPEstimator, check_before_reading
from gigagp.estimators.target_columns import TargetColumns
from gigagp.estimators.user_warnings import warn_user
from gigagp.fit import settings
from gigagp.fit.shared_targets import (
    SharedFit,
    SummedTargets,
    check_targets,
    divided,
    read_values,
    why_not_shared,
)
from gigagp.fit.target_trials import MOST_SEPARATE, judge
from gigagp.model.fit_report import Candidate
from gigagp.model.model import Model
from gigagp.model.predictor import Predictor
from gigagp.model.target_models import TargetModels, TargetsPredictor


@dataclass(frozen=True, eq=False)
class _Task:
    """What several targets are fitted to: the arguments of `fit`."""

    X: Any
    targets: TargetColumns
    sample_weight: Any
    options: dict[str, Any]

    def arguments(self, place: int) -> dict[str, Any]:
        """The arguments of the fit of one target: other targets are not features."""
        own, name = dict(self.options), self.targets.names[place]
        if self.targets.in_data:
            others = [other for other in self.targets.names if other != name and other not in own["drop"]]
            own["drop"] = [*own["drop"], *others]
        return own

    def values(self) -> Array:
        """The targets of all rows, one column each."""
        if self.targets.in_data:
            return read_values(open_source(self.X), self.targets.names)
        return np.column_stack(self.targets.values)


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
            return TargetsPredictor(fitted.names, tuple(map(self._predictor_of, fitted.models)), fitted.shared)
        return self._predictor_of(fitted)

    def _fit_targets(self, X: Any, targets: TargetColumns, sample_weight: Any, options: dict[str, Any]) -> Self:
        """Fit a model to several targets, with a theta for each or with one for all.

        options : the other arguments of `fit`
        """
        if options["noise_std"] is not None:
            raise InvalidParameter(
                "noise_std is the known noise of one target, in its units; fit one model per target to use it"
            )
        entropy = settings.seed(self.random_state).entropy
        seed = partial(np.random.SeedSequence, entropy)
        if targets.in_data:
            options = {**options, "drop": settings.column_names("drop", options["drop"])}
            check_target_columns(open_source(X), targets.names)
        with self._unharmed(), self._parsed(_Task(X, targets, sample_weight, options)) as task:
            shared, scores = self._shared_fit(task, seed())
            together = None if shared is None else shared.together
            if shared is None:
                models = tuple(self._model_of(task, place, seed()) for place in range(len(targets.names)))
            else:
                models = shared.models
            models = tuple(
                replace(model, report=replace(model.report, choices=(*scores, *model.report.choices)))
                for model in models
            )
            self._take(TargetModels(models, targets.names, targets.named, together))
        for model in models:
            warn_user(model.report, model.units, of_several=True)
            if together is None and not model.report.stages:
                self._warn_of_constant(model.units.target)
        return self

    @contextmanager
    def _parsed(self, task: _Task) -> Iterator[_Task]:
        """The task with the rows of files parsed once for all fits, not once or more often for each target.

        Workers on other machines would not see the temporary file; they read the files themselves.
        """
        in_files = task.targets.in_data and isinstance(task.X, str | os.PathLike)
        if not in_files or len(task.targets.names) < 2 or not is_of_this_machine(self.engine):
            yield task
            return
        from gigagp.data.sources.parsed import parsed_once  # noqa: PLC0415 pyarrow takes time to load

        own = task.arguments(0)
        check_before_reading(self._settings(), None, own["learn_noise"], own["store"], own["checkpoint"])
        categories = settings.column_names("categorical", self.categorical, own["categorical"])
        rows = open_rows(  # finds errors of columns before the first pass
            task.X, task.targets.values[0], features=own["features"], drop=own["drop"], categorical=categories,
            weights=task.sample_weight,
        )  # fmt: skip
        columns, folder = [*rows.columns_read, *task.targets.names], temporary_parent(own["store"])
        with parsed_once(rows.source, columns, folder) as source:
            yield replace(task, X=source)

    def _shared_fit(self, task: _Task, seed: np.random.SeedSequence) -> tuple[SharedFit | None, tuple[Candidate, ...]]:
        """The fit of one theta for all targets, None where each is to have its own, and the scores of both."""
        values = self._values_to_share(task)
        if values is None:
            return None, ()
        shared = self._shared_models(task, values, seed)
        if self.targets != "auto":
            return shared, ()
        scores = judge(shared, self._settings(), np.random.default_rng(seed.spawn(1)[0]))
        return None if scores[1].chosen else shared, scores

    def _values_to_share(self, task: _Task) -> Array | None:
        """The targets, if they may have a common theta; None where each must have its own."""
        mode = choose("targets", self.targets, {name: name for name in ("auto", "separate", "shared")})
        why = why_not_shared(self._settings(), task.sample_weight is not None)
        if mode == "shared" and why:
            raise InvalidParameter(f'targets="shared" cannot be combined with {why}; use targets="separate"')
        if mode == "separate" or why or len(task.targets.names) < 2:
            return None
        values = task.values()
        if mode == "shared":
            check_targets(values, task.targets.names)
            return values
        return None if len(values) <= MOST_SEPARATE or np.isnan(values).any() else values

    def _model_of(self, task: _Task, place: int, seed: np.random.SeedSequence) -> Model:
        """The model of one target alone."""
        name, own = task.targets.names[place], task.arguments(place)
        if own["checkpoint"] is not None:
            own["checkpoint"] = below(own["checkpoint"], str(place))
        model = self._fitted_model(task.X, task.targets.values[place], task.sample_weight, seed, **own)
        return replace(model, target_name=name)

    def _shared_models(self, task: _Task, values: Array, seed: np.random.SeedSequence) -> SharedFit:
        """The models of all targets with one theta."""
        summed: list[SummedTargets] = []

        def changed(rows: Rows) -> Rows:
            summed.append(SummedTargets.of(rows, values))
            return summed[0]

        model = self._fitted_model(
            task.X, task.targets.values[0], task.sample_weight, seed, changed=changed, method="neighbourhood",
            **task.arguments(0),
        )  # fmt: skip
        return divided(model, summed[0], task.targets.names, self._settings())

    @staticmethod
    def _warn_of_constant(name: str) -> None:
        warnings.warn(
            f"the target {name!r} is constant, so that every prediction of it is this constant; leave it out",
            UserWarning, stacklevel=callers_level(),
        )  # fmt: skip

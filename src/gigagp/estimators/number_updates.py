"""Updates of a regressor, of one target or of several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from gigagp.arrays import Array
from gigagp.data.sources import Rows, open_rows
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.estimators.input_rows import is_source
from gigagp.estimators.joint_predictions import JointPredictions
from gigagp.estimators.online_updates import OnlineUpdates
from gigagp.estimators.target_columns import target_columns
from gigagp.fit import settings
from gigagp.model import prequential, recent_rows
from gigagp.model.adaptation import score_numbers
from gigagp.model.row_segments import ArrivingRows
from gigagp.progress import Listener

_MOST_EXACT = 4096  # rows up to which a mixture of exact GPs takes updates; with more, the model is fitted again
_NO_PREDICTIONS = np.empty((0, recent_rows.COLUMNS))


class NumberUpdates(OnlineUpdates, JointPredictions):  # type: ignore[misc]
    """The methods of a regressor that takes updates."""

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, noise_std: Any = None, missing: str | None = None,
        score_rows: int = 256, refine: str = "never", progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Learn more rows, without training: theta, scalings and calibration stay, unless refine="auto".

        The first call fits the model; method="auto" then never chooses a committee, which could not take updates. After
        further calls, predictions are those of one fit to all rows with the same theta and scalings, in whatever order
        and chunks the rows have arrived. Some of the rows are predicted before they are learnt; their scores are in
        `prequential_`. A mixture of exact GPs (a small table) is fitted again when it has more than 4,096 rows.

        Parameters
        ----------
        X, y, sample_weight, noise_std
            As in `fit`; y may be left out if X is a table or file with the target's column.
        missing : {"error", "drop", "model"}
            What happens to rows with missing values that the model has not learnt to answer: "drop" leaves them out,
            the others are an error. Default that of the constructor.
        score_rows : int
            How many rows of the call are predicted before they are learnt, at equal distances; 0 for none.
        refine : {"never", "auto"}
            "auto" learns the calibration again from the predictions of arriving rows, and trains the model again when
            their scores have become worse than expected; the result is kept if it predicts the last rows better.
        progress : function
            Called with a gigagp.progress.Event during a fit.

        """
        scored, when = settings.count("score_rows", score_rows), _refine_rule(refine)
        gaps = settings.missing(self.missing if missing is None else missing)
        if when == "auto" and settings.likelihood(self.likelihood) is not None:
            raise InvalidParameter('refine="auto" is for targets with Gaussian noise; call refine() when it is due')
        if "targets_" in self.__dict__:
            return self._update_targets(
                X, y, sample_weight, noise_std, missing=gaps, score_rows=scored, refine=when, progress=progress
            )
        if "model_" not in self.__dict__:
            return self._first_fit(X, y, sample_weight, noise_std, gaps, progress)
        before = self.prequential_.scored
        self._learn_all(self._arriving(X, y, sample_weight, noise_std, gaps), scored)
        if self.model_.mixture is not None and self.n_rows_ > _MOST_EXACT:
            self.refine(warm=False, progress=progress)
        elif when == "auto":
            self._adapt(before, progress)
        return self

    def _first_fit(
        self, X: Any, y: Any, sample_weight: Any, noise_std: Any, missing: str, progress: Listener | None
    ) -> Self:
        """Fit the model so that it takes updates."""
        targets = target_columns(X, y, missing)
        if targets is None:
            return self._fit(
                X, y, sample_weight, noise_std=noise_std, missing=missing, progress=progress, updates=True
            )  # fmt: skip
        options = {
            "noise_std": noise_std, "learn_noise": True, "features": None, "drop": (), "categorical": (),
            "missing": missing, "store": None, "checkpoint": None, "share": None, "progress": progress, "updates": True,
        }  # fmt: skip
        return self._fit_targets(X, targets, sample_weight, options)

    def _arriving(self, X: Any, y: Any, sample_weight: Any, noise_std: Any, missing: str) -> Rows:
        """The rows of a call, as the fitted model reads them."""
        if y is not None and not is_source(X, y):
            validate_data(self, X, reset=False, skip_check_array=True)  # names and number of the columns
        self._check_updates()
        if noise_std is not None and self.model_.latents is not None:
            raise InvalidParameter("noise_std is for targets with Gaussian noise; use sample_weight, or leave it out")
        target = self.model_.target_name if y is None else y
        if target is None:
            raise InvalidParameter("pass y=: the model was fitted to arrays, so that its target has no name")
        return open_rows(
            X, target, encoding=self.model_.reading, missing=missing, weights=sample_weight, deviations=noise_std
        )

    def _score_rows(
        self, X: Array, y: Array, row_noise: Array | None, scaled: ArrivingRows, arrived: int, engine: Engine
    ) -> Array:
        predictor = self.predictor_
        if predictor.model.likelihood is not None:
            law = predictor.distribution_at(X, engine)
            return score_numbers(prequential.score(law, y, arrived), _NO_PREDICTIONS)
        Z = predictor.scaled(X)
        prediction = predictor.latent_with_noise(Z, engine, row_noise=row_noise)
        mean, deviation = predictor.from_latent(X, Z, prediction)
        assert deviation is not None
        score = prequential.score(predictor.distribution(mean, deviation), y, arrived)
        return score_numbers(score, recent_rows.scored(scaled.arrivals, scaled.y, prediction))

    # Several targets

    def _update_targets(self, X: Any, y: Any, sample_weight: Any, noise_std: Any, **options: Any) -> Self:
        """Learn rows of several targets; those that share a theta keep it, and are predicted one by one from then on.

        options : the other arguments of `partial_fit`
        """
        fitted = self.targets_
        if noise_std is not None:
            raise InvalidParameter("noise_std is the known noise of one target; use one model per target")
        if y is None and not fitted.named:
            raise InvalidParameter("pass y=: the model was fitted to arrays, so that its targets have no names")
        targets = target_columns(X, list(fitted.names) if y is None else y, options["missing"])
        same = targets is not None and (targets.names if targets.named and fitted.named else fitted.names)
        if targets is None or same != fitted.names or len(targets.names) != len(fitted.names):
            got = "one target" if targets is None else f"the targets {', '.join(targets.names)}"
            raise InvalidParameter(f"the model has the targets {', '.join(fitted.names)}, in this order; got {got}")
        values = iter(targets.values)
        return self._changed_targets(lambda model: model.partial_fit(X, next(values), sample_weight, **options))

    def _changed_targets(self, change: Callable[[Any], Any]) -> Self:
        fitted = self.targets_
        models = [change(self.target(place)) for place in range(len(fitted.names))]
        self._take(replace(fitted, models=tuple(model.model_ for model in models), shared=None))
        return self


def _refine_rule(value: Any) -> str:
    if value not in ("never", "auto"):
        raise InvalidParameter(f'refine must be "never" or "auto"; got {value!r}')
    return str(value)

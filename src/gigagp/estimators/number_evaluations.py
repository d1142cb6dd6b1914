"""Scores of a fitted model of numbers on data whose targets are known."""

from __future__ import annotations

from typing import Any

from gigagp import memory
from gigagp.arrays import Array
from gigagp.data.sources import Share, open_rows
from gigagp.errors import InvalidParameter
from gigagp.estimators.target_columns import target_columns
from gigagp.estimators.target_fits import TargetFits
from gigagp.model.evaluation import BlockListener, DistributionListener, Evaluation, evaluate
from gigagp.model.likelihood_distribution import Distribution
from gigagp.model.target_models import TargetModels
from gigagp.progress import Listener, make_listener

_BYTES_PER_SCORED_ROW = 128  # memory that scoring needs per row
_UNKNOWN_TARGET = "pass target=: the model was fitted to arrays, so the name of the target column is not known"


class NumberEvaluations(TargetFits):  # type: ignore[misc]
    """The methods of a fitted regressor that compare its predictions with targets."""

    def evaluate(
        self, data: Any, target: Any = None, *, sample_weight: Any = None, noise_std: Any = None,
        missing: str = "error", share: Share | None = None, progress: Listener | None = None,
        each: BlockListener | None = None,
    ) -> Any:  # fmt: skip
        """RMSE, NLPD, CRPS and coverage on data of any size whose target is known, in bounded memory.

        Where the model has several targets, the result is a dict with the Evaluation of each, by its name.

        Parameters
        ----------
        data : array, table or path
            As in `fit`.
        target : array or str
            The targets, or the name of their column. Default the column the model was fitted to. Several targets are
            given as in `fit`, in the same order.
        sample_weight, noise_std : array or str
            As in `fit`: each target has the noise of its row, by default that of a row of weight one.
        missing : {"error", "drop"}
            "drop" ignores rows with missing values that the model cannot answer, and counts them.
        share : Share
            The rows of a file or table to use; `held_out_` are those that the fit held out of the same data.
        progress : function
            Called with a gigagp.progress.Event for each block of rows.
        each : function
            Called with X, y, predicted mean and std of each block of rows.

        """
        fitted = self._fitted
        if isinstance(fitted, TargetModels):
            options = {"sample_weight": sample_weight, "missing": missing, "share": share, "progress": progress}
            if each is not None or noise_std is not None:
                raise InvalidParameter("each= and noise_std= are for one target: call target(name).evaluate(...)")
            return self._evaluations(fitted, data, target, options)
        listener: DistributionListener | None = None
        if each is not None:

            def listener(X: Array, y: Array, law: Distribution) -> None:
                each(X, y, law.mean, law.std)

        return self.evaluate_each(
            data, target, listener, sample_weight=sample_weight, noise_std=noise_std, missing=missing, share=share,
            progress=progress,
        )  # fmt: skip

    def _evaluations(
        self, fitted: TargetModels, data: Any, target: Any, options: dict[str, Any]
    ) -> dict[str, Evaluation]:
        """The scores of each target, by its name."""
        if target is None and not fitted.named:
            raise InvalidParameter(_UNKNOWN_TARGET)
        given = None if target is None else target_columns(data, target, "drop")
        values = fitted.names if target is None else given.values if given is not None else ()
        if len(values) != len(fitted.names):
            raise InvalidParameter(f"the model has the targets {', '.join(fitted.names)}; got {len(values)} targets")
        pairs = zip(fitted.names, values, strict=True)
        return {name: self.target(name).evaluate(data, each, **options) for name, each in pairs}

    def evaluate_each(
        self, data: Any, target: Any, each: DistributionListener | None, *, sample_weight: Any = None,
        noise_std: Any = None, missing: str = "error", share: Share | None = None, progress: Listener | None = None,
    ) -> Evaluation:  # fmt: skip
        """As `evaluate`, but `each` is called with X, y and the predictive distributions of each block of rows."""
        predictor, own = self.predictor_, self.model_.likelihood
        target = self.model_.target_name if target is None else target
        if target is None:
            raise InvalidParameter(_UNKNOWN_TARGET)
        rows = open_rows(
            data, target, encoding=self.model_.reading, missing=missing, share=share, weights=sample_weight,
            deviations=noise_std,
        )  # fmt: skip
        if own is not None and noise_std is not None:
            raise InvalidParameter("noise_std is for targets with Gaussian noise; this model has another likelihood")
        with predictor.engine() as engine:
            at_once = predictor.queries_at_once(memory.budget(self.memory), _BYTES_PER_SCORED_ROW)

            def predict(X: Array, row_noise: Array | None = None) -> Distribution:
                return predictor.distribution_at(X, engine, row_noise)

            tell = make_listener(self.verbose, progress)
            return evaluate(rows, predict, at_once, tell, each, None if own is None else own.likelihood)

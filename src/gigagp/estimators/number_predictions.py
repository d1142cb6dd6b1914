"""Predictions of numbers by a fitted model: mean, deviation, distribution, files and scores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp import memory
from gigagp.arrays import Array
from gigagp.data.sources import Share, open_rows
from gigagp.data.validation import check_columns, check_finite
from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.input_rows import reads_queries
from gigagp.fit import settings
from gigagp.model.distribution import PredictiveDistribution, Shape
from gigagp.model.evaluation import BlockListener, Evaluation, evaluate
from gigagp.model.fingerprint import fingerprint
from gigagp.model.incomplete_rows import complete_rows
from gigagp.progress import Listener, make_listener

if TYPE_CHECKING:
    from gigagp.model.prediction_files import PredictionReport

_BYTES_PER_SCORED_ROW = 128  # memory that scoring needs per row


class NumberPredictions(HGPEstimator):  # type: ignore[misc]
    """The methods of a fitted regressor."""

    def predict(self, X: Any, return_std: bool = False, latent: bool = False, *, missing: str = "error") -> Any:
        """Predicted mean, and with return_std the standard deviation of y.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        return_std : bool
            Whether to return standard deviations too. Without them variances are not computed, unless the rule of a
            committee needs them as weights.
        latent : bool
            True for the standard deviation of the latent function f, without observation noise.
        missing : {"error", "drop"}
            What happens to queries with missing values that the model cannot answer: an error, or NaN. A model that was
            fitted with missing="model" answers gaps in columns that had gaps in training.

        Returns
        -------
        mean, or (mean, std) : array, or two
            One value per query.

        """
        mean, deviation = self._predict(X, return_std, latent, missing)
        return (mean, deviation) if return_std else mean

    def predict_distribution(self, X: Any, *, missing: str = "error") -> PredictiveDistribution:
        """The predictive distribution of y at each query.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        missing : {"error", "drop"}
            As in `predict`.

        Returns
        -------
        distribution : PredictiveDistribution
            With mean, std, quantile(q), interval(level), pdf(y), cdf(y), crps(y) and sample(n, random_state).

        """
        mean, deviation = self._predict(X, True, False, missing)
        assert deviation is not None
        return self.predictor_.distribution(mean, deviation)

    def predict_quantiles(self, X: Any, q: Any, *, missing: str = "error") -> Array:
        """Quantiles of the predictive distribution of y.

        Parameters
        ----------
        X : array, table or path
            Queries.
        q : number or list of numbers
            Between 0 and 1.
        missing : {"error", "drop"}
            As in `predict`.

        Returns
        -------
        quantiles : array
            One row per query, one column per quantile.

        """
        levels = settings.levels("q", q)
        return self.predict_distribution(X, missing=missing).quantile(levels)

    def _predict(self, X: Any, with_variance: bool, latent: bool, missing: str) -> tuple[Array, Array | None]:
        """Mean and standard deviation in the user's units."""
        predictor, gaps = self.predictor_, settings.missing_queries(missing)
        if reads_queries(X, self.model_.encoding) or gaps == "keep":
            at_once = predictor.queries_at_once(memory.budget(self.memory))
            blocks = open_rows(X, encoding=self.model_.reading, missing=gaps).blocks(at_once)
            with predictor.engine() as engine:
                answer = complete_rows(lambda Z: predictor.predict(Z, engine, with_variance, latent))
                parts = [answer(block.X) for block in blocks]
            mean = np.concatenate([part for part, _ in parts])
            return mean, np.concatenate([part for _, part in parts if part is not None]) if with_variance else None
        check_columns(X)
        X = validate_data(self, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=False)
        check_finite(X, "X", getattr(self, "feature_names_in_", None))
        with predictor.engine() as engine:
            return predictor.predict(X, engine, with_variance, latent)

    def predict_file(
        self, data: Any, output: str | os.PathLike[str], *, quantiles: Any = (), keep: Any = (), latent: bool = False,
        missing: str = "error", overwrite: bool = False, progress: Listener | None = None,
    ) -> PredictionReport:  # fmt: skip
        """Predict data of any size and write the predictions to one Parquet or CSV file.

        Its columns are mean, std and one per quantile, such as q0.05. The file appears only when it is complete. After
        an interruption the same call continues and gives the same file.

        Parameters
        ----------
        data : array, table or path
            As in `fit`. Columns are matched by name where both the data and the model have names.
        output : path
            Path of the file: Parquet if it ends in .parquet or .pq, CSV if it ends in .csv.
        quantiles : numbers between 0 and 1
            Quantiles to predict, one column each.
        keep : names of columns
            Columns to copy to the output, before the predicted ones; those of a CSV with types that fit all values.
        latent : bool
            True for std and quantiles of the latent f rather than of y.
        missing : {"error", "drop"}
            "drop" gives rows with missing values that the model cannot answer no prediction (NaN), and counts them.
            Every row of the data is a row of the file.
        overwrite : bool
            Whether an existing file may be replaced.
        progress : function
            Called with a gigagp.progress.Event for each block of rows.

        """
        from gigagp.model import prediction_files  # noqa: PLC0415 pyarrow takes time to load

        check_is_fitted(self, "model_")
        levels = tuple(settings.levels("quantiles", quantiles).tolist())
        gaps = settings.missing_queries(missing)
        rows = open_rows(
            data, encoding=self.model_.reading, keep=keep, missing=gaps, typed=prediction_files.has_types(output)
        )
        predictor = self.predictor_
        carried = prediction_files.bytes_of_kept(rows) + 32 * (2 + len(levels))
        with predictor.engine() as engine:
            answer = predictor.mean_and_deviation(engine, bool(latent))
            shape = Shape.gaussian() if latent else predictor.calibration.shape
            places = shape.quantile(np.array(levels))

            def columns(X: Array) -> list[Array]:
                mean, deviation = answer(X)
                return [mean, deviation, *(mean + deviation * place for place in places)]

            task = prediction_files.Task(
                rows, complete_rows(columns), ("mean", "std", *(f"q{q!r}" for q in levels)),
                {"quantiles": levels, "latent": bool(latent)}, fingerprint(predictor.state()),
                predictor.queries_at_once(memory.budget(self.memory), carried), make_listener(self.verbose, progress),
            )  # fmt: skip
            return prediction_files.predict_file(task, data, output, overwrite)

    def evaluate(
        self, data: Any, target: Any = None, *, sample_weight: Any = None, noise_std: Any = None,
        missing: str = "error", share: Share | None = None, progress: Listener | None = None,
        each: BlockListener | None = None,
    ) -> Evaluation:  # fmt: skip
        """RMSE, NLPD, CRPS and coverage on data of any size whose target is known, in bounded memory.

        Parameters
        ----------
        data : array, table or path
            As in `fit`.
        target : array or str
            The targets, or the name of their column. Default the column the model was fitted to.
        sample_weight, noise_std : array or str
            As in `fit`: each target has the noise of its row, by default that of a row of weight one.
        missing : {"error", "drop"}
            "drop" ignores rows with missing values that the model cannot answer, and counts them.
        share : Share
            The rows of a file or table to use, such as the `others` of the share that the model was fitted to.
        progress : function
            Called with a gigagp.progress.Event for each block of rows.
        each : function
            Called with X, y, predicted mean and std of each block of rows.

        """
        check_is_fitted(self, "model_")
        target = self.model_.target_name if target is None else target
        if target is None:
            raise InvalidParameter(
                "pass target=: the model was fitted to arrays, so the name of the target column is not known"
            )
        rows = open_rows(
            data, target, encoding=self.model_.reading, missing=missing, share=share, weights=sample_weight,
            deviations=noise_std,
        )  # fmt: skip
        predictor = self.predictor_
        with predictor.engine() as engine:
            answer = predictor.mean_and_deviation(engine)
            at_once = predictor.queries_at_once(memory.budget(self.memory), _BYTES_PER_SCORED_ROW)
            tell = make_listener(self.verbose, progress)
            return evaluate(rows, answer, predictor.calibration.shape, at_once, tell, each)

"""Predictions of numbers by a fitted model: mean, deviation, distribution, files and scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from gigagp import memory
from gigagp.arrays import Array
from gigagp.data.sources import open_rows
from gigagp.data.validation import check_columns, check_finite
from gigagp.engines import Engine
from gigagp.errors import InvalidParameter
from gigagp.estimators.input_rows import reads_queries
from gigagp.estimators.number_evaluations import NumberEvaluations
from gigagp.fit import settings
from gigagp.model.fingerprint import fingerprint
from gigagp.model.incomplete_rows import complete_rows
from gigagp.model.joint import MOST_QUERIES, JointPrediction, predict_jointly
from gigagp.model.likelihood_distribution import Distribution
from gigagp.model.prediction_gradient import PredictionGradient, predict_gradient
from gigagp.model.predictor import LatentDistribution
from gigagp.model.target_distributions import TargetDistributions, joined_targets, with_gaps
from gigagp.model.target_models import TargetModels, TargetsPredictor
from gigagp.progress import Counter, Listener, make_listener

if TYPE_CHECKING:
    from gigagp.model.prediction_files import PredictionReport

_GRADIENTS_AT_ONCE = 8192  # queries whose gradients are computed together


class NumberPredictions(NumberEvaluations):  # type: ignore[misc]
    """The methods of a fitted regressor."""

    def predict(
        self, X: Any, return_std: bool = False, latent: bool = False, *, return_cov: bool = False,
        missing: str = "error",
    ) -> Any:  # fmt: skip
        """Predicted mean, and with return_std the standard deviation of y.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        return_std : bool
            Whether to return standard deviations too. Without them variances are not computed, unless the rule of a
            committee needs them as weights.
        latent : bool
            True for the standard deviation of the latent function f, without observation noise; where `likelihood` is
            not Gaussian, for that of the mean of y given f.
        return_cov : bool
            Whether to return the covariance of y between all queries instead, whose diagonal is the square of the
            standard deviation; for at most 10,000 queries.
        missing : {"error", "drop"}
            What happens to queries with missing values that the model cannot answer: an error, or NaN. A model that was
            fitted with missing="model" answers gaps in columns that had gaps in training.

        Returns
        -------
        mean, (mean, std) or (mean, covariance) : array, or two
            One value per query; of covariances one row and one column per query. Where the model has several targets,
            one row per query and one column per target.

        """
        if return_cov:
            if return_std:
                raise InvalidParameter("pass return_std=True or return_cov=True, not both")
            if missing != "error":
                raise InvalidParameter("return_cov=True needs queries without missing values; leave missing as it is")
            joint = self._jointly(X, latent)
            return joint.mean, joint.covariance
        mean, deviation = self._predict(X, return_std, latent, missing)
        return (mean, deviation) if return_std else mean

    def predict_distribution(self, X: Any, *, missing: str = "error") -> Distribution | TargetDistributions:
        """The predictive distribution of y at each query.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        missing : {"error", "drop"}
            As in `predict`; mean, std and everything else is NaN for queries that the model cannot answer.

        Returns
        -------
        distribution : PredictiveDistribution, or LikelihoodDistribution where `likelihood` is not Gaussian
            TargetDistributions where the model has several targets. With mean, std, quantile(q), interval(level),
            pdf(y), cdf(y), crps(y) and sample(n, random_state).

        """
        predictor, fitted, gaps = self._any_predictor, self._fitted, settings.missing_queries(missing)
        with predictor.engine() as engine:
            if reads_queries(X, fitted.encoding) or gaps == "keep":
                at_once = predictor.queries_at_once(memory.budget(self.memory))
                blocks = open_rows(X, encoding=fitted.reading, missing=gaps).blocks(at_once)
                return joined_targets([self._distribution_at(block.X, engine) for block in blocks])
            return predictor.distribution_at(self._checked(X), engine)

    def _distribution_at(self, X: Array, engine: Engine) -> Distribution | TargetDistributions:
        """The distributions at queries of which some may have missing values; these are NaN there."""
        return with_gaps(X, lambda Z: self._any_predictor.distribution_at(Z, engine))

    def predict_gradient(self, X: Any, latent: bool = False) -> PredictionGradient:
        """Predictions and their derivatives with respect to the inputs, in the user's units.

        The gradients are the exact derivatives of what `predict` returns, including those of the weights of
        neighbours, of the calibration and of the mean function, wherever the set of neighbours, or of experts, does
        not change. They exist for the kernels of this package; Matern12 has none at a training row itself. Columns
        that are categories have the derivative zero.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit. Derivatives by dates are per day, those by
            timestamps, times and durations per second.
        latent : bool
            True for the standard deviation of the latent function f, without observation noise.

        Returns
        -------
        gradient : PredictionGradient
            With mean and std, one number per query, and mean_gradient and std_gradient, one row per query and one
            column per input column.

        """
        predictor, latent = self.predictor_, settings.switch("latent", latent)
        with predictor.engine() as engine:
            at_once = min(_GRADIENTS_AT_ONCE, predictor.queries_at_once(memory.budget(self.memory)))
            return PredictionGradient.joined(
                [predict_gradient(predictor, block, engine, latent) for block in self.query_blocks(X, at_once)]
            )

    def query_blocks(self, X: Any, at_once: int) -> Iterator[Array]:
        """Checked queries in double precision, some at a time."""
        if reads_queries(X, self.model_.encoding):
            for block in open_rows(X, encoding=self.model_.reading).blocks(at_once):
                yield np.asarray(block.X, float)
            return
        rows = self._checked(X)
        for start in range(0, max(1, len(rows)), at_once):
            yield np.asarray(rows[start : start + at_once], float)

    def _jointly(self, X: Any, latent: bool) -> JointPrediction:
        """Mean and covariance of all queries."""
        predictor = self.predictor_
        with predictor.engine() as engine:
            blocks = list(self.query_blocks(X, MOST_QUERIES + 1))
            if len(blocks) > 1:
                raise InvalidParameter(f"a joint prediction may have at most {MOST_QUERIES:,} queries; X has more")
            return predict_jointly(predictor, blocks[0], engine, latent)

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
            One row per query, one column per quantile; where the model has several targets, of shape (queries, targets,
            quantiles).

        """
        levels, gaps = settings.levels("q", q), settings.missing_queries(missing)
        if gaps == "error":
            return self.predict_distribution(X).quantile(levels)
        predictor = self._any_predictor
        with predictor.engine() as engine:
            at_once = predictor.queries_at_once(memory.budget(self.memory))
            blocks = open_rows(X, encoding=self._fitted.reading, missing=gaps).blocks(at_once)
            answer = complete_rows(lambda Z: [predictor.distribution_at(Z, engine).quantile(levels)])
            return np.concatenate([answer(block.X)[0] for block in blocks])

    def _predict(self, X: Any, with_variance: bool, latent: bool, missing: str) -> tuple[Array, Array | None]:
        """Mean and standard deviation in the user's units."""
        predictor, fitted, gaps = self._any_predictor, self._fitted, settings.missing_queries(missing)
        if reads_queries(X, fitted.encoding) or gaps == "keep":
            at_once = predictor.queries_at_once(memory.budget(self.memory))
            blocks = open_rows(X, encoding=fitted.reading, missing=gaps).blocks(at_once)
            with predictor.engine() as engine:
                answer = complete_rows(lambda Z: predictor.predict(Z, engine, with_variance, latent))
                parts = [answer(block.X) for block in blocks]
            mean = np.concatenate([part for part, _ in parts])
            return mean, np.concatenate([part for _, part in parts if part is not None]) if with_variance else None
        X = self._checked(X)
        with predictor.engine_for(len(X)) as engine:
            return predictor.predict(X, engine, with_variance, latent)

    def _checked(self, X: Any) -> Array:
        """Queries of an array or data frame, after the checks of scikit-learn."""
        if self._needs_no_conversion(X):  # the checks take longer than the prediction of one row
            check_finite(X, "X", None)
            return np.asarray(X)
        check_columns(X)
        X = validate_data(self, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=False)
        check_finite(X, "X", getattr(self, "feature_names_in_", None))
        return np.asarray(X)

    def _needs_no_conversion(self, X: Any) -> bool:
        """Whether the checks of scikit-learn would return this array as it is, without a warning."""
        return (
            type(X) is np.ndarray
            and X.dtype in (np.float64, np.float32)
            and X.ndim == 2
            and X.flags.c_contiguous
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and "feature_names_in_" not in self.__dict__
        )

    def predict_file(
        self, data: Any, output: str | os.PathLike[str], *, quantiles: Any = (), keep: Any = (), latent: bool = False,
        missing: str = "error", overwrite: bool = False, progress: Listener | None = None,
    ) -> PredictionReport:  # fmt: skip
        """Predict data of any size and write the predictions to one Parquet or CSV file.

        Its columns are mean, std and one per quantile, such as q0.05; where the model has several targets, they begin
        with the name of the target, such as height_mean, height_std and height_q0.05. The file appears only when it is
        complete. After an interruption the same call continues and gives the same file. Workers of the engine read,
        answer and write blocks of rows on their own, so that queries and model may both exceed memory.

        Parameters
        ----------
        data : array, table or path
            As in `fit`. Columns are matched by name where both the data and the model have names.
        output : path or address
            Path of the file: Parquet if it ends in .parquet or .pq, CSV if it ends in .csv. At an address such as
            s3://bucket/key it is written to the cache of this machine, and uploaded at the end.
        quantiles : numbers between 0 and 1
            Quantiles to predict, one column each.
        keep : names of columns
            Columns to copy to the output, before the predicted ones; those of a CSV with types that fit all values.
        latent : bool
            True for std and quantiles of the latent f rather than of y; where `likelihood` is not Gaussian, of the
            mean of y given f.
        missing : {"error", "drop"}
            "drop" gives rows with missing values that the model cannot answer no prediction (NaN), and counts them.
            Every row of the data is a row of the file.
        overwrite : bool
            Whether an existing file may be replaced.
        progress : function
            Called with a gigagp.progress.Event for each block of rows.

        """
        from gigagp.model import prediction_files  # noqa: PLC0415 pyarrow takes time to load

        predictor = self._any_predictor
        levels = tuple(settings.levels("quantiles", quantiles).tolist())
        gaps, names = settings.missing_queries(missing), self._column_names(levels)
        rows = open_rows(
            data, encoding=self._fitted.reading, keep=keep, missing=gaps, typed=prediction_files.has_types(output)
        )
        carried = prediction_files.bytes_of_kept(rows) + 32 * len(names)
        with predictor.engine() as engine:
            division = prediction_files.Division.of(
                rows, engine, predictor.independent, lambda size: predictor.queries_at_once(size, carried),
                memory.budget(self.memory), sum(predictor.mapped_files.values()),
            )  # fmt: skip
            task = prediction_files.Task(
                rows, complete_rows(self._columns(division.queries, levels, bool(latent))), names,
                {"quantiles": levels, "latent": bool(latent)}, fingerprint(predictor.state()),
                division.at_once, make_listener(self.verbose, progress), division.blocks,
                predictor.buckets(division.buckets),
            )  # fmt: skip
            return prediction_files.predict_file(task, data, output, overwrite)

    def _column_names(self, levels: tuple[float, ...]) -> tuple[str, ...]:
        """Names of the columns that `_columns` predicts."""
        fitted, own = self._fitted, ("mean", "std", *(f"q{q!r}" for q in levels))
        return tuple(f"{t}_{n}" for t in fitted.names for n in own) if isinstance(fitted, TargetModels) else own

    def _columns(self, engine: Engine, levels: tuple[float, ...], latent: bool) -> Callable[[Array], list[Array]]:
        """Mean, standard deviation and quantiles, as a function of the inputs; one target after the other."""
        predictor = self._any_predictor.on_worker

        def laws_at(X: Array) -> Sequence[LatentDistribution | Distribution]:
            if isinstance(predictor, TargetsPredictor):
                several = predictor.latent_distributions_at if latent else predictor.distributions_at
                return several(X, engine)
            one = predictor.latent_distribution_at if latent else predictor.distribution_at
            return [one(X, engine)]

        def columns(X: Array) -> list[Array]:
            return [
                each for law in laws_at(X) for each in (law.mean, law.std, *(law.quantile(level) for level in levels))
            ]

        return columns

    def predict_grid(
        self, *, step: Any = None, quantiles: Any = (), latent: bool = False,
        output: str | os.PathLike[str] | None = None, overwrite: bool = False, progress: Listener | None = None,
        **columns: Any,
    ) -> Any:  # fmt: skip
        """Predict a regular grid: mean, standard deviation and quantiles as an xarray Dataset.

        The Dataset has one dimension per column with a range or with values, in reverse order: predict_grid(lon=...,
        lat=...) has the dimensions (lat, lon). Needs the optional dependencies "gigagp[geo]".

        Parameters
        ----------
        step : number or dict
            Distance between the values of a range, in the units of its column; a dict has one per column.
        quantiles : numbers between 0 and 1
            Quantiles to predict, one variable each, such as q0.05.
        latent : bool
            True for std and quantiles of the latent f rather than of y.
        output : path
            File to write, block by block, for grids that exceed memory: NetCDF (.nc), Zarr (.zarr) or GeoTIFF (.tif,
            one band per variable). The Dataset that is returned then reads from this file.
        overwrite : bool
            Whether an existing file may be replaced.
        progress : function
            Called with a gigagp.progress.Event for each block of the grid.
        **columns
            One argument per column of the model: a pair (low, high), an array or list of values, or one value. lon and
            lat also name the columns of longitude and latitude if these are called otherwise. Longitude and latitude,
            or the columns of a model that has only one or two, cover the training rows by default.

        """
        from gigagp.model import grid_files, grids  # noqa: PLC0415 pyarrow takes time to load

        fitted, predictor = self._fitted, self._any_predictor
        models = fitted.models if isinstance(fitted, TargetModels) else (fitted,)
        levels, latent = tuple(settings.levels("quantiles", quantiles).tolist()), settings.switch("latent", latent)
        grid, names = grids.make_grid(models[0], columns, step), self._column_names(levels)
        texts: list[str] = []
        for target in (model.units.target for model in models):
            of_what = f"the function behind {target}" if latent else target
            texts += [f"predicted {target}", f"standard deviation of {of_what}"]
            texts += [f"{q:.4g} quantile of {of_what}" for q in levels]
        variables = grid_files.Variables(names, tuple(texts))
        budget = memory.budget(self.memory)
        final = None if output is None else grid_files.check_output(grid, variables, output, overwrite)
        if final is None:
            grid_files.check_memory(grid, variables, budget)
        with predictor.engine() as engine:
            blocks = grids.predicted_blocks(
                grid, self._columns(engine, levels, latent), predictor.queries_at_once(budget, 32 * len(names)),
                Counter("grid", grid.size, make_listener(self.verbose, progress)),
            )  # fmt: skip
            if final is None:
                return grid_files.dataset(grid, variables, blocks)
            return grid_files.write(grid, variables, blocks, final)

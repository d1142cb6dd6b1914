"""Base class of the estimators: fitting, prediction to files, evaluation, saving and loading."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp import memory
from gigagp.arrays import Array
from gigagp.combine import rule
from gigagp.data.sources import Encoding, Rows, Share, open_rows
from gigagp.data.validation import check_columns, check_finite
from gigagp.engines import check_workers, is_client
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.estimators.fitted_attributes import FittedAttributes
from gigagp.estimators.input_rows import array_rows, check_options_of_sources, is_source
from gigagp.estimators.user_warnings import warn_user
from gigagp.fit import settings
from gigagp.fit.checkpoint import Checkpoint
from gigagp.fit.fitting import fit_model
from gigagp.fit.settings import FitSettings
from gigagp.fit.training import summed_evidence
from gigagp.model.distribution import Shape
from gigagp.model.evaluation import BlockListener, Evaluation, evaluate
from gigagp.model.fingerprint import described, fingerprint
from gigagp.model.loading import load_model
from gigagp.model.model import Model
from gigagp.model.predictor import Predictor
from gigagp.model.saving import save_model
from gigagp.partition import partitioner
from gigagp.progress import Listener, make_listener

if TYPE_CHECKING:
    from gigagp.model.prediction_files import PredictionReport

_BYTES_PER_SCORED_ROW = 128  # memory that scoring needs per row
_WITHOUT_EFFECT = {"engine", "n_jobs", "memory", "verbose"}  # settings that do not change the model


class HGPEstimator(FittedAttributes):  # type: ignore[misc]
    """Base class of the scikit-learn estimators: the constructor stores parameters, `fit` sets `model_`."""

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, noise_std: Any = None, learn_noise: bool = True,
        features: Any = None, drop: Any = (), categorical: Any = (), missing: str = "error",
        store: str | os.PathLike[str] | None = None, checkpoint: str | os.PathLike[str] | None = None,
        share: Share | None = None, progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Fit the model: divide the rows among experts and train the kernel parameters that they share.

        Parameters
        ----------
        X : array, table or path
            Inputs: an array, a table of pandas, polars or pyarrow, or the path of a .npy, Parquet (file, folder or
            glob), CSV or CSV.gz file; also addresses that pyarrow supports, such as s3://.
        y : array or str
            The targets, or the name of their column in X.
        sample_weight : array or str
            The weight w of each row, or the name of its column: the row's noise variance is divided by w, as if the
            row had been given w times, with independent noise. A row of weight zero is left out.
        noise_std : array or str
            The known standard deviation of the noise of each row's target, in the target's units, or the name of its
            column. Its square is added to the noise variance that is learnt.
        learn_noise : bool
            False if the rows have no noise but the known one: then no noise variance is learnt.
        features, drop, categorical : names of columns
            Columns to use, to leave out, and to encode as one 0/1 column per category.
        missing : {"error", "drop"}
            "drop" ignores rows with missing values, and counts them.
        store : path
            Folder for the sorted rows where they exceed the memory budget. Default a temporary one.
        checkpoint : path
            Folder in which progress is saved; after an interruption the same call continues.
        share : Share
            The rows of a file or table to train on; `share.others` are then held out, for `evaluate`.
        progress : function
            Called with a gigagp.progress.Event for each block of rows and each evaluation of the evidence.

        """
        fit_settings = self._settings()
        partitioner(fit_settings.partition)
        settings.precision(fit_settings.dtype)
        memory.budget(fit_settings.memory)
        check_workers(fit_settings.n_jobs)
        seed = settings.seed(fit_settings.random_state)
        learn_noise = settings.switch("learn_noise", learn_noise)
        if not learn_noise and noise_std is None:
            raise InvalidParameter("learn_noise=False needs noise_std=, the known noise of each row")
        if store is not None and checkpoint is not None:
            raise InvalidParameter("pass store= or checkpoint=, not both: a checkpoint contains its own store")
        tell = make_listener(self.verbose, progress)
        with self._unharmed(), ExitStack() as open_files:
            if is_source(X, y):
                rows = open_rows(
                    X, y, features=features, drop=drop, categorical=categorical, missing=missing, share=share,
                    weights=sample_weight, deviations=noise_std,
                )  # fmt: skip
                encoding: Encoding | None = rows.encoding
                names = tuple(map(str, rows.feature_names)) if rows.source.named else None
            else:
                check_options_of_sources(features, drop, categorical, missing, share, (sample_weight, noise_std))
                rows, encoding = array_rows(self, X, y, sample_weight, noise_std), None
                names = tuple(map(str, self.feature_names_in_)) if hasattr(self, "feature_names_in_") else None
            saved_progress = None
            if checkpoint is not None:
                identity, entropy = self._identity(rows, seed), int(seed.entropy)  # type: ignore[arg-type]
                if not learn_noise:
                    identity["learn_noise"] = "False"
                saved_progress = open_files.enter_context(closing(Checkpoint(Path(checkpoint), identity, entropy)))
                seed = np.random.SeedSequence(saved_progress.seed)
            model = fit_model(
                rows, fit_settings, seed, store=store, checkpoint=saved_progress, encoding=encoding,
                feature_names=names, tell=tell, learn_noise=learn_noise,
            )  # fmt: skip
            self._take(model)
        warn_user(model.report, model.units)
        return self

    def _settings(self) -> FitSettings:
        return FitSettings(**self.get_params(deep=False))

    def _take(self, model: Model) -> None:
        """Set the fitted attributes from a model."""
        self.model_ = model
        self.n_features_in_ = model.columns
        self.__dict__.pop("feature_names_in_", None)
        if model.feature_names is not None:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """Restore all attributes if the fit fails, including those that scikit-learn's checks have set."""
        before = vars(self).copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _identity(self, rows: Rows, seed: np.random.SeedSequence) -> dict[str, str]:
        """What identifies a checkpoint: the data and every setting that changes the model."""
        parameters = self.get_params(deep=False).items()
        identity = {name: described(value) for name, value in parameters if name not in _WITHOUT_EFFECT}
        if self.random_state is not None:  # a generator is identified by the seed drawn from it
            identity["random_state"] = str(seed.entropy)
        return {**identity, "data": rows.fingerprint(), "features": ", ".join(rows.feature_names)}

    @property
    def predictor_(self) -> Predictor:
        """The fitted model with the current prediction settings, some of which may be changed after the fit."""
        check_is_fitted(self, "model_")
        fit_settings, model = self._settings(), self.model_
        if model.neighbourhood is None and fit_settings.method == "neighbourhood":
            raise InvalidParameter(
                'this model was fitted without a neighbourhood; set method="neighbourhood" and fit again'
            )
        k = settings.experts_per_query(fit_settings.experts_per_query)
        return Predictor.of(
            model,
            by_committee=fit_settings.by_committee,
            rule=rule(fit_settings.combine, model.defaults.rule),
            experts_per_query=model.defaults.experts_per_query if isinstance(k, str) else k,
            calibrate=settings.switch("calibrate", fit_settings.calibrate),
            place=fit_settings.engine,
            n_jobs=fit_settings.n_jobs,
        )

    def _predict(self, X: Any, with_variance: bool, latent: bool) -> tuple[Array, Array | None]:
        """Mean and standard deviation in the user's units."""
        predictor = self.predictor_
        if is_source(X, None, tables=self.model_.encoding is not None):
            at_once = predictor.queries_at_once(memory.budget(self.memory))
            blocks = open_rows(X, encoding=self.model_.reading).blocks(at_once)
            with predictor.engine() as engine:
                parts = [predictor.predict(block.X, engine, with_variance, latent) for block in blocks]
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
        """Predict data of any size and write the predictions to one Parquet file.

        Its columns are mean, std and one per quantile, such as q0.05. The file appears only when it is complete. After
        an interruption the same call continues and gives the same file.

        Parameters
        ----------
        data : array, table or path
            As in `fit`. Columns are matched by name where both the data and the model have names.
        output : path
            Path of the Parquet file.
        quantiles : numbers between 0 and 1
            Quantiles to predict, one column each.
        keep : names of columns
            Columns to copy to the output, before the predicted ones (those of a CSV file as text).
        latent : bool
            True for std and quantiles of the latent f rather than of y.
        missing : {"error", "drop"}
            "drop" ignores rows with missing values, and counts them.
        overwrite : bool
            Whether an existing file may be replaced.
        progress : function
            Called with a gigagp.progress.Event for each block of rows.

        """
        from gigagp.model import prediction_files  # noqa: PLC0415 pyarrow takes time to load

        check_is_fitted(self, "model_")
        levels = tuple(settings.levels("quantiles", quantiles).tolist())
        rows = open_rows(data, encoding=self.model_.reading, keep=keep, missing=missing)
        predictor = self.predictor_
        carried = prediction_files.bytes_of_kept(rows) + 32 * (2 + len(levels))
        with predictor.engine() as engine:
            answer = predictor.mean_and_deviation(engine, bool(latent))
            shape = Shape.gaussian() if latent else predictor.calibration.shape
            task = prediction_files.Task(
                rows, answer, shape.quantile, levels, bool(latent), fingerprint(predictor.state()),
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
            "drop" ignores rows with missing values, and counts them.
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

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """The summed log marginal likelihood of the experts (eq. 5) of the standardised target: the training objective.

        Where each expert has its own scale, that scale is integrated out. Up to about 2,000 rows, where several exact
        GPs predict, this is the evidence of `kernel_`, the family that predicts held-out rows best; training also uses
        a weak prior of theta (`gigagp.fit.theta_prior`), which is not part of this value.

        Parameters
        ----------
        theta : array
            Log-parameters of kernel and noise. Default `theta_`.
        eval_gradient : bool
            Whether the gradient is returned too.

        """
        check_is_fitted(self, "model_")
        model, predictor = self.model_, self.predictor_
        theta = model.theta if theta is None else np.asarray(theta, dtype=float)
        if theta.shape != model.theta.shape:
            raise InvalidParameter(f"theta must have {len(model.theta)} log-parameters; got shape {theta.shape}")
        c = model.committee
        with predictor.engine() as engine:
            evidence = summed_evidence(c.kernel, c.store, model.cells, c.tree, engine, c.dof)
            total = evidence(theta, None)
        return (total.value, total.gradient.copy()) if eval_gradient else total.value

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model into a folder.

        Parameters
        ----------
        folder : path
            Folder of the model; it appears only when it is complete.
        overwrite : bool
            Whether an existing model may be replaced.

        """
        check_is_fitted(self, "model_")
        save_model(self.model_, self.get_params(deep=False), folder, overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool = True) -> Self:
        """Load a model that `save` has written. Its rows stay in the folder and are read when they are needed.

        Parameters
        ----------
        folder : path
            Folder of the model.
        kernels : classes
            Classes of kernels, rules and partitioners of the model that are not part of gigagp.
        verify : bool
            False to load faster, without comparing the rows with their checksums.

        """
        model, parameters = load_model(folder, kernels=kernels, verify=verify)
        unknown = ", ".join(sorted(set(parameters) - set(cls._get_param_names())))
        if unknown:
            raise InvalidInput(
                f"the model in {folder} has settings that this version does not know ({unknown}); upgrade gigagp"
            )
        estimator = cls(**parameters)
        estimator._take(model)
        return estimator

    def __sklearn_clone__(self) -> Self:
        """An unfitted estimator with the same settings, including the engine."""
        settings = self.get_params(deep=False)
        engine = settings.pop("engine")
        return type(self)(engine=engine, **{name: clone(value, safe=False) for name, value in settings.items()})

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if is_client(self.engine):  # a client is a connection of this process; others connect by the address
            state = {**state, "engine": self.engine.scheduler.address}
        return state

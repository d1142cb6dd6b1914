"""Base class of the estimators: fitting, prediction to files, evaluation, saving and loading."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from gigagp import memory
from gigagp.arrays import Array
from gigagp.combine import rule
from gigagp.data.addresses import is_remote
from gigagp.data.sources import Encoding, Rows, Share, open_rows
from gigagp.engines import check_workers, is_client
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.estimators.fitted_attributes import FittedAttributes
from gigagp.estimators.input_rows import array_rows, check_beside, check_options_of_sources, is_source
from gigagp.estimators.user_warnings import warn_user
from gigagp.fit import settings
from gigagp.fit.checkpoint import open_checkpoint
from gigagp.fit.fitting import fit_model
from gigagp.fit.settings import FitSettings
from gigagp.fit.training import summed_evidence
from gigagp.fit.trends import check_mean, fit_with_mean
from gigagp.model.class_model import ClassModel, Label
from gigagp.model.fingerprint import described
from gigagp.model.model import Model
from gigagp.model.predictor import Predictor
from gigagp.model.remote_folders import check_fit_folders, uploading
from gigagp.model.saving import save_model
from gigagp.model.target_folders import load_targets, save_targets
from gigagp.model.target_models import TargetModels
from gigagp.model.trend import Trend
from gigagp.partition import partitioner
from gigagp.progress import Listener, make_listener

_WITHOUT_EFFECT = {"engine", "n_jobs", "memory", "verbose"}  # settings that do not change the model


class HGPEstimator(FittedAttributes):  # type: ignore[misc]
    """Base class of the scikit-learn estimators: the constructor stores parameters, `fit` sets `model_`."""

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, *, noise_std: Any = None, learn_noise: bool = True,
        features: Any = None, drop: Any = (), categorical: Any = (), missing: str | None = None,
        store: str | os.PathLike[str] | None = None, checkpoint: str | os.PathLike[str] | None = None,
        share: Share | None = None, progress: Listener | None = None, labels: tuple[Label, ...] | None = None,
        updates: bool = False,
    ) -> Self:  # fmt: skip
        """Fit the model to arrays, tables or files; `HGPRegressor.fit` describes the arguments.

        labels : where targets are classes, the labels of the numbers in y; () to read them from the target's column
        updates : whether the model is to take updates
        """
        with self._unharmed():
            model = self._fitted_model(
                X, y, sample_weight, settings.seed(self.random_state), noise_std=noise_std, learn_noise=learn_noise,
                features=features, drop=drop, categorical=categorical, missing=missing, store=store,
                checkpoint=checkpoint, share=share, progress=progress, labels=labels, updates=updates,
            )  # fmt: skip
            self._take(model)
        warn_user(model.report, model.units)
        return self

    def _fitted_model(
        self, X: Any, y: Any, sample_weight: Any, seed: np.random.SeedSequence, *, noise_std: Any, learn_noise: bool,
        features: Any, drop: Any, categorical: Any, missing: str | None, store: str | os.PathLike[str] | None,
        checkpoint: str | os.PathLike[str] | None, share: Share | None, progress: Listener | None,
        labels: tuple[Label, ...] | None = None, changed: Callable[[Rows], Rows] | None = None,
        method: str | None = None, updates: bool = False,
    ) -> Model:  # fmt: skip
        """The model of one target, with the arguments of `fit`.

        changed : makes of the rows those that are fitted
        method : instead of the setting
        updates : whether the model is to take updates
        """
        fit_settings = replace(self._settings(), updates=updates)
        fit_settings = fit_settings if method is None else replace(fit_settings, method=method)
        learn_noise = check_before_reading(fit_settings, noise_std, learn_noise, store, checkpoint)
        tell = make_listener(self.verbose, progress)
        categories = settings.column_names("categorical", self.categorical, categorical)
        gaps = settings.missing(self.missing if missing is None else missing)
        with ExitStack() as open_files:
            if is_source(X, y) or categories or gaps != "error":
                if not isinstance(y, str | os.PathLike):
                    check_beside(y)
                rows = open_rows(
                    X, y, features=features, drop=drop, categorical=categories, missing=gaps,
                    share=share, weights=sample_weight, deviations=noise_std, labels=() if labels == () else None,
                    conditional=not settings.warp(fit_settings, labels is not None),
                )  # fmt: skip
                encoding: Encoding | None = rows.encoding
                names = tuple(map(str, rows.feature_names)) if rows.source.named else None
            else:
                check_options_of_sources(features, drop, share, (sample_weight, noise_std))
                rows, encoding = array_rows(self, X, y, sample_weight, noise_std), None
                names = tuple(map(str, self.feature_names_in_)) if hasattr(self, "feature_names_in_") else None
            rows = rows if changed is None else changed(rows)
            saved_progress = None
            if checkpoint is not None:
                identity, entropy = self._identity(rows, seed), int(seed.entropy)  # type: ignore[arg-type]
                if not learn_noise:
                    identity["learn_noise"] = "False"
                budget = memory.budget(self.memory)
                saved_progress = open_files.enter_context(
                    closing(open_checkpoint(checkpoint, identity, entropy, budget))
                )
                seed = np.random.SeedSequence(saved_progress.seed)
            classes = None if labels is None else self._class_model(rows, labels)

            def fit_rows(rows: Rows, trend: Trend | None = None, last: bool = True) -> Model:
                # A trial takes no random numbers from the fit that is kept: a mean function that is not used changes
                # nothing.
                own_seed = seed if last else copy.deepcopy(seed)
                model = fit_model(
                    rows, fit_settings, own_seed, store=store if last else None,
                    checkpoint=saved_progress if last else None, encoding=encoding, feature_names=names, tell=tell,
                    learn_noise=learn_noise, classes=classes,
                )  # fmt: skip
                return replace(model, trend=trend)

            model = fit_with_mean(rows, fit_settings, fit_rows, self._predictor_of, int(seed.generate_state(1)[0]))
            return replace(model, share=share)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        """The names of the parameters, looked up once: scikit-learn inspects the constructor at every call."""
        if "_parameter_names" not in vars(cls):
            cls._parameter_names = tuple(super()._get_param_names())  # type: ignore[attr-defined]
        return list(cls._parameter_names)  # type: ignore[attr-defined]

    def _settings(self) -> FitSettings:
        return FitSettings(**self.get_params(deep=False))

    def _class_model(self, rows: Rows, labels: tuple[Label, ...]) -> ClassModel:
        """The classes of the rows, for estimators whose targets are classes."""
        raise NotImplementedError

    def _take(self, model: Model | TargetModels) -> None:
        """Set the fitted attributes from a model."""
        for name in ("model_", "targets_"):
            self.__dict__.pop(name, None)
        if isinstance(model, TargetModels):
            self.targets_ = model
        else:
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
        check_is_fitted(self)
        return self._predictor_of(self._of_one("predictor_"))

    def _predictor_of(self, model: Model) -> Predictor:
        """A model with the current prediction settings."""
        fit_settings = self._settings()
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
        check_is_fitted(self)
        model, predictor = self._of_one("log_marginal_likelihood"), self.predictor_
        theta = model.theta if theta is None else np.asarray(theta, dtype=float)
        if theta.shape != model.theta.shape:
            raise InvalidParameter(f"theta must have {len(model.theta)} log-parameters; got shape {theta.shape}")
        c = model.committee
        with predictor.engine() as engine:
            evidence = summed_evidence(c.kernel, c.store, model.cells, c.tree, engine, c.dof, c.inducing, model.latents)
            total = evidence(theta, None)
        return (total.value, total.gradient.copy()) if eval_gradient else total.value

    def _settle(self) -> None:
        """Bring the model up to date with what has been learnt since the fit; most estimators have nothing to do."""

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model into a folder.

        Parameters
        ----------
        folder : path
            Folder of the model; it appears only when it is complete. An address such as s3://bucket/model is written
            to by way of the system's temporary folder.
        overwrite : bool
            Whether an existing model may be replaced.

        """
        if isinstance(folder, str) and is_remote(folder):
            with uploading(folder, overwrite) as local:
                self.save(local)
            return
        self._settle()
        fitted, parameters = self._fitted, self.get_params(deep=False)
        if isinstance(fitted, TargetModels):
            save_targets(fitted, parameters, folder, overwrite)
        else:
            save_model(fitted, parameters, folder, overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool | str = True) -> Self:
        """Load a model that `save` has written. Its rows stay in the folder and are read when they are needed.

        Parameters
        ----------
        folder : path
            Folder of the model. One at an address such as s3://bucket/model is downloaded to a cache, once.
        kernels : classes
            Classes of kernels, rules and partitioners of the model that are not part of gigagp.
        verify : bool or "nothing"
            False to load faster, without comparing the rows with their checksums; "nothing" as in `gigagp.load`.

        """
        return cls.of_model(*load_targets(folder, kernels=kernels, verify=verify), folder)

    @classmethod
    def of_model(cls, model: Model | TargetModels, parameters: dict[str, Any], folder: str | os.PathLike[str]) -> Self:
        """The estimator of a model that was loaded from a folder, with the parameters that were saved there."""
        of_classes = isinstance(model, Model) and model.classes is not None
        if of_classes != issubclass(cls, ClassifierMixin):
            other = "HGPClassifier" if of_classes else "HGPRegressor"
            raise InvalidInput(f"the model in {folder} is a {other}; load it with {other}.load or gigagp.load")
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


def check_before_reading(
    fit_settings: FitSettings, noise_std: Any, learn_noise: bool, store: str | os.PathLike[str] | None,
    checkpoint: str | os.PathLike[str] | None,
) -> bool:  # fmt: skip
    """Raise InvalidParameter for settings that cannot be, before rows are read; whether noise is learnt."""
    partitioner(fit_settings.partition)
    settings.kernel(fit_settings.kernel)
    settings.precision(fit_settings.dtype)
    check_mean(fit_settings.mean)
    memory.budget(fit_settings.memory)
    check_workers(fit_settings.n_jobs)
    learn_noise = settings.switch("learn_noise", learn_noise)
    if not learn_noise and noise_std is None:
        raise InvalidParameter("learn_noise=False needs noise_std=, the known noise of each row")
    if settings.likelihood(fit_settings.likelihood) is not None:
        settings.check_for_likelihood(fit_settings, noise_std is not None)
    check_fit_folders(store, checkpoint)
    return learn_noise

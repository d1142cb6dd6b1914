"""`HGPClassifier`: Gaussian process classification behind scikit-learn's interface."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp import memory
from gigagp.arrays import Array
from gigagp.data.sources import Rows, Share, open_rows
from gigagp.data.sources.base import category_text
from gigagp.data.validation import check_columns, check_finite
from gigagp.engines import Place
from gigagp.errors import InvalidParameter
from gigagp.estimators.class_updates import ClassUpdates
from gigagp.estimators.input_rows import reads_queries
from gigagp.estimators.labels import class_model, encode, known_codes, labels_of_column
from gigagp.fit import settings
from gigagp.fit.settings import FitSettings
from gigagp.kernels import Kernel
from gigagp.model.class_evaluation import ClassBlockListener, ClassEvaluation, evaluate_classes
from gigagp.model.class_format import describe_classes
from gigagp.model.class_model import ClassModel, Label
from gigagp.model.fingerprint import fingerprint
from gigagp.model.incomplete_rows import complete_rows
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.progress import Listener, make_listener

if TYPE_CHECKING:
    from gigagp.model.prediction_files import PredictionReport

_BYTES_PER_SCORED_ROW = 128  # memory that scoring needs per row, beyond the queries
# Settings that only a regressor has, at their values for classes.
_REGRESSION_SETTINGS = {
    "partition": "local", "levels": None, "branching": None, "sharing": None, "combine": "auto",
    "experts_per_query": "auto", "experts": "gaussian", "method": "neighbourhood", "noise_bounds": (1e-6, 10.0),
    "leaf": "exact", "inducing": 1, "noise": "constant", "likelihood": "auto", "mean": "constant",
}  # fmt: skip


class HGPClassifier(ClassifierMixin, ClassUpdates):  # type: ignore[misc]
    """Gaussian process classification with a theta that is learnt from a hierarchy of groups of neighbouring rows.

    Two classes have one latent function with a logistic link; more classes have one each, against all others, with a
    common theta. Theta maximises the summed evidence of groups of neighbouring rows, by Laplace's approximation. A
    query is answered by Laplace's approximation on the training rows nearest to it; the latent functions become
    probabilities once, at the end, with a temperature that is learnt from held-out rows. Far from all rows the
    probabilities are the shares of the classes.

    Parameters
    ----------
    kernel : Kernel, default chosen
        Covariance of the latent functions; the values of its parameters are where training starts. It must have a
        metric. By default it is chosen by its predictions of held-out rows, among squared exponential, Matérn 3/2 and
        Matérn 1/2 with one length-scale per column and Matérn 3/2 with one length-scale for all columns.
    leaf_size : int
        Rows per leaf. Default 256.
    neighbours : "auto" or int
        Training rows from which a query is predicted. "auto": 32, doubled up to 256 as long as held-out rows are
        predicted better.
    exact_neighbours : bool
        True to search until the nearest rows are certain to be found.
    class_weight : None, "balanced" or dict
        How much one row of a class counts in the likelihood; "balanced" makes all classes count the same.
    calibrate : bool
        Learn the temperature of the link from held-out rows.
    training : {"auto", "full", "progressive"}
        As in `HGPRegressor`.
    engine : {"threads", "serial", "processes", "dask"}, address of a Dask scheduler, Dask client, or Engine
        Where experts are computed. Results do not depend on it.
    n_jobs : int
        Workers on this machine; None or -1 for every core.
    dtype : {"float64", "float32"}
        Precision of the stored rows.
    memory : str or int
        Memory budget for the data, such as "2GB"; rows that exceed it are sorted on disk.
    standardize : bool
        Scale inputs to mean 0 and standard deviation 1 internally.
    warp : "auto" or bool
        Replace the values of columns that are spread unevenly (skewed, or with long tails) by their normal scores, a
        monotone map that is learnt from the training rows: whether such a column is given as it is or, say, as its
        logarithm hardly matters then. "auto": unless you choose the kernel, whose length-scales are lengths in your
        columns.
    sphere : "auto", pair of columns, or None
        The columns of longitude and latitude in degrees, by name or number, such as ("lon", "lat"): they are one place
        on a sphere, with one length-scale, so that distances are great circles, and 180 degrees east is 180 degrees
        west. "auto": the two columns that have such names and values, if the data have names. None: no such columns.
    n_restarts : int
        Additional starting points of the training.
    categorical, missing
        As in `HGPRegressor`.
    random_state : int, Generator, RandomState or None
        Seed of all random choices; the same number gives the same model, bit for bit.
    verbose : int
        1 prints the stages of a fit, 2 also each evaluation of the evidence.

    Attributes
    ----------
    classes_ : array
        The labels, in the order of the columns of `predict_proba`.
    theta_, kernel_, tree_, n_leaves_, units_, report_
        As in `HGPRegressor`. The last entry of `theta_` has no effect: classes have no noise variance.

    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        leaf_size: int | None = None,
        neighbours: int | str = "auto",
        exact_neighbours: bool = False,
        class_weight: Any = None,
        calibrate: bool = True,
        training: str = "auto",
        engine: Place = "threads",
        n_jobs: int | None = None,
        dtype: str = "float64",
        memory: str | int | None = None,
        standardize: bool = True,
        warp: bool | str = "auto",
        sphere: Any = "auto",
        n_restarts: int = 0,
        categorical: Any = None,
        missing: str = "error",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.leaf_size = leaf_size
        self.neighbours = neighbours
        self.exact_neighbours = exact_neighbours
        self.class_weight = class_weight
        self.calibrate = calibrate
        self.training = training
        self.engine = engine
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.memory = memory
        self.standardize = standardize
        self.warp = warp
        self.sphere = sphere
        self.n_restarts = n_restarts
        self.categorical = categorical
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, features: Any = None, drop: Any = (),
        categorical: Any = (), missing: str | None = None, store: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None, share: Share | None = None,
        progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array, table or path
            Inputs, as in `HGPRegressor.fit`.
        y : array or str
            The labels, or the name of their column in X: text, integers or booleans.
        sample_weight : array or str
            How often each row counts, or the name of its column.
        features, drop, categorical, missing, store, checkpoint, share, progress
            As in `HGPRegressor.fit`.

        """
        labels: tuple[Label, ...] = ()
        if not isinstance(y, str | os.PathLike):
            labels, y = encode(y)
        return self._fit(
            X, y, sample_weight, features=features, drop=drop, categorical=categorical, missing=missing, store=store,
            checkpoint=checkpoint, share=share, progress=progress, labels=labels,
        )  # fmt: skip

    def _settings(self) -> FitSettings:
        own = self.get_params(deep=False)
        del own["class_weight"]
        return FitSettings(**own, **_REGRESSION_SETTINGS)  # type: ignore[arg-type]

    def _class_model(self, rows: Rows, labels: tuple[Label, ...]) -> ClassModel:
        return class_model(rows, labels or labels_of_column(rows), self.class_weight)

    @property
    def classes_(self) -> Array:
        """The labels, in the order of the columns of `predict_proba`."""
        return self._fitted_classes.label_array

    @property
    def _fitted_classes(self) -> ClassModel:
        check_is_fitted(self, "model_")
        assert self.model_.classes is not None
        return self.model_.classes

    @property
    def _neighbourhood(self) -> Neighbourhood:
        """What predicts the latent functions."""
        near = self.model_.neighbourhood
        assert near is not None
        return near

    def _log_probabilities(self, X: Any, missing: str = "error") -> Array:
        """The logarithms of the probabilities, one column per class."""
        gaps = settings.missing_queries(missing)
        predictor, classes = self.predictor_, self._fitted_classes
        near = self._neighbourhood
        with predictor.engine() as engine:
            if reads_queries(X, self.model_.encoding) or gaps == "keep":
                at_once = predictor.queries_at_once(memory.budget(self.memory))
                blocks = open_rows(X, encoding=self.model_.reading, missing=gaps).blocks(at_once)
                answer = complete_rows(lambda Z: [classes.log_probabilities(near, predictor.scaled(Z), engine)])
                return np.concatenate([answer(block.X)[0] for block in blocks])
            check_columns(X)
            X = validate_data(self, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=False)
            check_finite(X, "X", getattr(self, "feature_names_in_", None))
            return classes.log_probabilities(near, predictor.scaled(X), engine)

    def predict_proba(self, X: Any, *, missing: str = "error") -> Array:
        """The probability of each class, one row per query and one column per class in the order of `classes_`.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        missing : {"error", "drop"}
            As in `HGPRegressor.predict`: "drop" gives NaN where a query has missing values.

        """
        return np.exp(self._log_probabilities(X, missing))

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`, without loss for small probabilities.

        Parameters
        ----------
        X : array, table or path
            Queries.

        """
        return self._log_probabilities(X)

    def predict(self, X: Any, *, missing: str = "error") -> Array:
        """The most probable label of each query.

        Parameters
        ----------
        X : array, table or path
            Queries.
        missing : {"error", "drop"}
            "drop" gives None where a query has missing values.

        """
        logs = self._log_probabilities(X, missing)
        complete = ~np.isnan(logs[:, 0])
        labels = np.asarray(self.classes_[logs.argmax(axis=1)])
        if not complete.all():
            labels = labels.astype(object)
            labels[~complete] = None
        return labels

    def decision_function(self, X: Any) -> Array:
        """For two classes the log-odds of the second; for more the log-probabilities, one column per class.

        Parameters
        ----------
        X : array, table or path
            Queries.

        """
        logs = self._log_probabilities(X)
        return np.asarray(logs[:, 1] - logs[:, 0]) if logs.shape[1] == 2 else logs

    def predict_file(
        self, data: Any, output: str | os.PathLike[str], *, keep: Any = (), missing: str = "error",
        overwrite: bool = False, progress: Listener | None = None,
    ) -> PredictionReport:  # fmt: skip
        """Predict data of any size and write the predictions to one Parquet or CSV file.

        Its columns are `label`, the most probable one, and the probability of each class, such as p_yes. The file
        appears only when it is complete. After an interruption the same call continues and gives the same file.

        Parameters
        ----------
        data, output, keep, missing, overwrite, progress
            As in `HGPRegressor.predict_file`.

        """
        import pyarrow as pa  # noqa: PLC0415 pyarrow takes time to load

        from gigagp.model import prediction_files  # noqa: PLC0415

        classes = self._fitted_classes
        rows = open_rows(data, encoding=self.model_.reading, keep=keep, missing=settings.missing_queries(missing))
        predictor = self.predictor_
        carried = prediction_files.bytes_of_kept(rows) + 32 * (1 + len(classes.labels))
        near, labels, worker = self._neighbourhood, pa.array(self.classes_), predictor.on_worker
        with predictor.engine() as engine:
            division = prediction_files.Division.of(
                rows, engine, predictor.independent, lambda size: predictor.queries_at_once(size, carried),
                memory.budget(self.memory), sum(predictor.mapped_files.values()),
            )  # fmt: skip

            probabilities = complete_rows(
                lambda Z: [np.exp(classes.log_probabilities(near, worker.scaled(Z), division.queries))]
            )

            def columns(X: Array) -> list[Any]:
                (p,) = probabilities(X)
                # The type of the column must not depend on the rows of a block, which may all have missing values.
                return [labels.take(pa.array(p.argmax(axis=1), mask=np.isnan(p[:, 0]))), *p.T.copy()]

            task = prediction_files.Task(
                rows, columns, ("label", *(f"p_{label}" for label in classes.labels)), {},
                fingerprint([*predictor.state(), json.dumps(describe_classes(classes))]),
                division.at_once, make_listener(self.verbose, progress), division.blocks,
                predictor.buckets(division.buckets),
            )  # fmt: skip
            return prediction_files.predict_file(task, data, output, overwrite)

    def evaluate(
        self, data: Any, target: Any = None, *, missing: str = "error", share: Share | None = None,
        progress: Listener | None = None, each: ClassBlockListener | None = None,
    ) -> ClassEvaluation:  # fmt: skip
        """Log loss, accuracy, Brier score and calibration error on data of any size whose labels are known.

        Parameters
        ----------
        data : array, table or path
            As in `fit`.
        target : array or str
            The labels, or the name of their column. Default the column the model was fitted to.
        missing, share, progress
            As in `HGPRegressor.evaluate`.
        each : function
            Called with X, the number of each row's class, and the probabilities of each block of rows.

        """
        classes = self._fitted_classes
        target = self.model_.target_name if target is None else target
        if target is None:
            raise InvalidParameter(
                "pass target=: the model was fitted to arrays, so the name of the target column is not known"
            )
        texts = [category_text(label) or "" for label in classes.labels]
        if not isinstance(target, str):
            target = known_codes(target, classes.labels)
        rows = open_rows(
            data, target, encoding=self.model_.reading, missing=missing, share=share,
            labels=texts if isinstance(target, str) else None,
        )  # fmt: skip
        predictor = self.predictor_
        with predictor.engine() as engine:
            near = self._neighbourhood
            at_once = predictor.queries_at_once(memory.budget(self.memory), _BYTES_PER_SCORED_ROW)
            return evaluate_classes(
                rows, lambda X: classes.log_probabilities(near, predictor.scaled(X), engine), len(classes.labels),
                at_once, make_listener(self.verbose, progress), each,
            )  # fmt: skip

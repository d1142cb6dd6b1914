"""`HGPRegressor`: the model behind scikit-learn's interface."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from gigagp import fitting, inference, memory, mixture, neighbourhood, settings
from gigagp.answers import Answers
from gigagp.arrays import Array
from gigagp.calibration import Calibration
from gigagp.checkpoint import Checkpoint, described
from gigagp.combine import Rule, rule
from gigagp.data.folders import TemporaryFolder
from gigagp.data.scaled import ScaledRows, StreamedRows
from gigagp.data.scaling import BLOCK, Moments, Scaling
from gigagp.data.scan import Sample, Scan, scan
from gigagp.data.sources import Encoding, Feature, Rows, Share, open_rows
from gigagp.data.validation import check_columns, check_finite, check_target
from gigagp.distribution import PredictiveDistribution
from gigagp.distribution import Shape as ErrorShape
from gigagp.engines import Engine, Place, check_workers, is_client, one_blas_thread, open_engine
from gigagp.errors import InvalidInput, InvalidParameter, choose
from gigagp.evaluation import Evaluation, Hearer, evaluate
from gigagp.factor_cache import FactorCache
from gigagp.fit_report import FitReport
from gigagp.kernels import Kernel, SquaredExponential
from gigagp.mixture import Mixture
from gigagp.neighbourhood import Neighbourhood
from gigagp.partition import Partitioner, Shape, partitioner
from gigagp.persistence import FittedModel, load_model, save_model
from gigagp.placing import DiskRoom, MemoryRoom, Room
from gigagp.plan import NoLog, Plan, Seeds
from gigagp.progress import Counter, Listener, silent, teller
from gigagp.selection import AUTO_NEAREST, AUTO_RULE
from gigagp.summary import summary_html
from gigagp.training import Precision, summed_evidence
from gigagp.tree import Tree
from gigagp.units import Units

if TYPE_CHECKING:
    from gigagp.streaming import PredictionReport

_COPIES, _PER_EXPERT = 4, 12  # numbers in memory for each number of a query, and for each expert it asks
_LEAST_QUERIES = 1024  # at once
_SCORED = 128  # bytes of a row while its prediction is compared
_START_NOISE = 0.1  # of the target's variance
_UNSHAPING = {"engine", "n_jobs", "memory", "verbose"}  # settings that do not change the model
_WARNED = 5  # parameters at a bound that a warning names


class HGPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression by a hierarchy of exact GP experts.

    The rows are split among experts (the leaves of a tree), each an exact GP; all share one theta, trained by
    maximising the sum of their log marginal likelihoods. A query is answered by an exact GP on the training rows
    nearest to it, or by the experts, whose predictions are combined. After Ng & Deisenroth, "Hierarchical
    Mixture-of-Experts Model for Large-Scale Gaussian Process Regression" (2014).

    Parameters
    ----------
    kernel : Kernel, default chosen
        Covariance of the latent function. By default one with a length-scale per column: of the squared exponential,
        Matérn 5/2, 3/2 and 1/2 and the rational quadratic the one that best predicts held-out rows (see
        `report_.choices`), or an average of several of them up to some 2,000 rows; with partition "stratified" or
        "random" the squared exponential. The values of a kernel are
        where training starts. It sees standardised inputs and target (unless standardize=False), and its parameters are
        in those units.
    partition : {"local", "stratified", "random"} or Partitioner
        How rows are divided among experts. "local": cells of a KD-tree, neighbours together. "stratified": the
        paper's, every expert sees all regions. "random".
    leaf_size : int
        Points in a leaf. Default 256 for local, 512 for the others; up to some 2,000 rows, where nothing else is asked
        for, all of them, and exact GPs answer.
    levels, branching : int
        Instead of leaf_size: a tree of `levels` levels, `branching` children (default 4) each.
    sharing : number
        How many experts read a row. Random and stratified: each row of a node goes to `sharing` of its children
        (a whole number, default 1). Local: an expert predicts from `sharing` times its cell: the cell and the outside
        points nearest to it. By default 2, doubled up to 8 as long as held-out rows are predicted better and all
        experts together are not too much work; from some 6 million rows on 1.
    combine : "auto", a name in gigagp.combine.RULES, or a Rule
        How experts' predictions are combined. "auto": healed_blend for local, healed for the others.
    experts_per_query : "auto", int or None
        How many experts answer a query: the nearest so many, or all (None). "auto": 4 for local, all for the others.
    experts : {"auto", "gaussian", "student"}
        "gaussian": all experts have the same variances, as in the paper. "student": each has a scale of its own, which
        training integrates out and prediction learns from the expert's points, so that noise may differ from place to
        place and a few wild leaves do not spoil theta. "auto": student for local.
    method : {"auto", "neighbourhood", "committee"}
        How a query is answered. "neighbourhood": by an exact GP on the training rows nearest to it, in the metric of
        the trained kernel. "committee": by the experts, whose predictions are combined. "auto": whichever predicts
        held-out rows better; the committee where one of its settings (sharing, combine, experts_per_query) is given,
        and for kernels and partitions without a metric.
    neighbours : "auto" or int
        Rows that answer a query. "auto": doubled from 32 to 256 as long as held-out rows are predicted better. The
        nearest few of them answer a second time on their own where that predicts held-out rows better still.
    exact_neighbours : bool
        True to search until the nearest rows are found for certain. By default the search ends after comparing 128 rows
        per neighbour, taken from the nearest cells; docs/choosing.md says how near to exact that is.
    calibrate : bool
        Learn the distribution of errors from held-out predictions (local partition, from 100 rows on; from 50 where
        exact GPs answer). False for the plain Gaussian process.
    training : {"auto", "full", "progressive"}
        "full": every expert at every evaluation. "progressive": growing random batches of experts, until the
        expected loss is negligible. "auto" picks by the size of the work and, with several experts, ends where no
        log-parameter promises a thousandth of a nat per point.
    engine : {"threads", "serial", "processes", "dask"}, address of a Dask scheduler, Dask client, or Engine
        Where experts are computed. Results do not depend on it. "dask" starts a cluster on this machine.
    n_jobs : int
        Workers on this machine; None or -1 for every core.
    dtype : {"float64", "float32"}
        Precision of the experts.
    memory : str or int
        Budget for the data, such as "2GB". Rows that exceed it are sorted on disk. Default half of the machine's.
    standardize : bool
        Scale inputs and target to mean 0 and deviation 1 inside.
    noise_bounds : (float, float)
        Bounds of the noise variance, as shares of the target's variance. Equal bounds fix it.
    n_restarts : int
        Further starting points tried for theta.
    random_state : int, Generator, RandomState or None
        Of all random choices; the same number gives the same model, to the bit.
    verbose : int
        1 prints the stages of a fit, 2 each evaluation of the evidence too (in a notebook, a line that moves). The
        logger "gigagp" hears both.

    Attributes
    ----------
    theta_ : array
        Log-parameters of kernel and noise, in standardised units.
    kernel_ : Kernel
        With trained values.
    noise_variance_ : float
        Of y, in the user's units.
    tree_ : Tree
        The hierarchy above the experts.
    n_leaves_ : int
        How many experts there are.
    units_ : Units
        Names of columns and target, and their scales; says parameters in the user's units.
    report_ : FitReport
        What happened during the fit.

    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        partition: str | Partitioner = "local",
        leaf_size: int | None = None,
        levels: int | None = None,
        branching: int | None = None,
        sharing: float | None = None,
        combine: str | Rule = "auto",
        experts_per_query: int | str | None = "auto",
        experts: str = "auto",
        method: str = "auto",
        neighbours: int | str = "auto",
        exact_neighbours: bool = False,
        calibrate: bool = True,
        training: str = "auto",
        engine: Place = "threads",
        n_jobs: int | None = None,
        dtype: str = "float64",
        memory: str | int | None = None,
        standardize: bool = True,
        noise_bounds: tuple[float, float] = (1e-6, 10.0),
        n_restarts: int = 0,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.partition = partition
        self.leaf_size = leaf_size
        self.levels = levels
        self.branching = branching
        self.sharing = sharing
        self.combine = combine
        self.experts_per_query = experts_per_query
        self.experts = experts
        self.method = method
        self.neighbours = neighbours
        self.exact_neighbours = exact_neighbours
        self.calibrate = calibrate
        self.training = training
        self.engine = engine
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.memory = memory
        self.standardize = standardize
        self.noise_bounds = noise_bounds
        self.n_restarts = n_restarts
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, *, features: Any = None, drop: Any = (), categorical: Any = (),
        missing: str = "error", store: str | os.PathLike[str] | None = None,
        checkpoint: str | os.PathLike[str] | None = None, share: Share | None = None,
        progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Split the rows among experts and train the shared theta.

        Parameters
        ----------
        X : array, table or path
            A table of pandas, polars or pyarrow; .npy, Parquet (file, folder or glob), CSV, CSV.gz; also addresses that
            pyarrow knows, such as s3://.
        y : array or str
            The targets, or the name of their column in X.
        features, drop, categorical : names of columns
            To use, to leave out, to encode as one column a category.
        missing : {"error", "drop"}
            "drop" leaves out rows with missing values, and counts them.
        store : path
            Folder for the sorted rows where they exceed the memory budget. Default a temporary one.
        checkpoint : path
            Folder in which progress is kept; the same call goes on after an interruption.
        share : Share
            Of a file or table, the rows to train on; `share.others` are then new to `evaluate`.
        progress : function
            It is called with a gigagp.progress.Event for each block of rows read and each evaluation of the evidence.

        """
        parts = partitioner(self.partition)
        dtype, budget = settings.precision(self.dtype), memory.budget(self.memory)
        check_workers(self.n_jobs)
        seed = settings.seed(self.random_state)
        if store is not None and checkpoint is not None:
            raise InvalidParameter("give store or checkpoint, not both: a checkpoint keeps its store in its own folder")
        tell = teller(self.verbose, progress)
        with self._unharmed(), ExitStack() as open_files:
            if _is_source(X, y):
                rows = open_rows(
                    X, y, features=features, drop=drop, categorical=categorical, missing=missing, share=share
                )
                encoding: Encoding | None = rows.encoding
            else:
                rows, encoding = self._array_rows(X, y, features, drop, categorical, missing, share), None
            kept = None
            if checkpoint is not None:
                identity, entropy = self._identity(rows, seed), int(seed.entropy)  # type: ignore[arg-type]
                kept = open_files.enter_context(closing(Checkpoint(Path(checkpoint), identity, entropy)))
                seed = np.random.SeedSequence(kept.seed)
            self._fit(rows, parts, dtype, budget, seed, store, kept, encoding, tell)
        return self

    @contextmanager
    def _unharmed(self) -> Iterator[None]:
        """A fit that fails leaves the model as it was, also where scikit-learn's checks have written to it."""
        before = vars(self).copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(
        self, rows: Rows, parts: Partitioner, dtype: np.dtype[Any], budget: int, seed: np.random.SeedSequence,
        store: str | os.PathLike[str] | None, kept: Checkpoint | None, encoding: Encoding | None, tell: Listener,
    ) -> None:  # fmt: skip
        seeds = Seeds.of(seed)

        def read() -> Scan:
            count = Counter("scan", rows.n_rows, tell)
            return replace(scan(rows.blocks(BLOCK), seeds.keys, count), dropped=rows.n_dropped or 0)

        found = read() if kept is None else kept.scanned(read)
        if found.rows < 2:
            raise InvalidInput(f"{rows.source.name} has {found.rows} row; a fit needs at least 2")
        plan = self._plan(found, parts)
        target = found.target.scaling() if self.standardize else Scaling.identity(1)
        inputs = found.inputs.scaling() if self.standardize else Scaling.identity(rows.n_features)
        given = found.sample
        sample = Sample(
            given.keys, given.rows, inputs.apply(given.X, dtype), target.apply(given.y[:, None], dtype)[:, 0]
        )
        data: ScaledRows
        data = streamed = StreamedRows(rows, found.rows, inputs, target, dtype, Counter("store", found.rows, tell))
        room: Room = MemoryRoom()
        log = NoLog() if kept is None else kept.log
        try:
            with one_blas_thread(), open_engine(self.engine, self.n_jobs) as engine:
                if engine.reads_files or _bytes_in_memory(found.rows, rows.n_features, dtype) > budget:
                    room = on_disk = _disk_room(kept, store, budget, rows, tell)
                    engine.use_folder(on_disk.folder)
                else:
                    data = streamed.in_memory()
                fitted = fitting.fit(data, sample, plan, engine, seeds, room, log, tell)
        except BaseException:
            room.discard()  # at once: whoever keeps the traceback keeps all that it refers to
            raise
        report = fitted.report
        committee = replace(fitted.committee, cache=FactorCache(budget // 4))
        # All at once, at the end: a fit that fails leaves the model as it was.
        if encoding is not None:
            self.n_features_in_ = rows.n_features
            self.__dict__.pop("feature_names_in_", None)
            if rows.source.named:
                self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        self._committee, self._cells, self._local, self._encoding = committee, fitted.cells, parts.local, encoding
        self._neighbourhood = fitted.neighbourhood
        self._mixture = None if fitted.mixture is None else replace(fitted.mixture, cache=FactorCache(budget // 4))
        self._auto: tuple[str, int | None] = (AUTO_RULE, AUTO_NEAREST) if parts.local else ("healed", None)
        self._target_scaling, self._input_scaling = target, inputs
        self._target_name = rows.target.column if rows.target and not rows.target.beside else None
        self.report_: FitReport = replace(report, dropped=found.dropped)
        self._expose()
        self._warn(report)

    def _expose(self) -> None:
        """The public attributes of a fitted model."""
        theta = self.report_.theta
        self.theta_: Array = theta
        self.kernel_: Kernel = self._committee.kernel.with_theta(theta[:-1])
        with np.errstate(over="ignore", under="ignore"):  # a target around 1e300 has a variance beyond all numbers
            self.noise_variance_ = float(np.exp(theta[-1]) * np.square(self._target_scaling.scale[0]))
        self.tree_: Tree = self._committee.tree
        self.n_leaves_: int = len(self._cells)
        self.units_ = Units(
            columns=tuple(map(str, getattr(self, "feature_names_in_", (f"x{d}" for d in range(self.n_features_in_))))),
            target=self._target_name or "y",
            widths=tuple(self._input_scaling.scale.tolist()),
            height=float(self._target_scaling.scale[0]),
        )

    def _array_rows(
        self, X: Any, y: Any, features: Any, drop: Any, categorical: Any, missing: str, share: Share | None
    ) -> Rows:
        """Arrays and data frames as scikit-learn checks them."""
        if share is not None:
            raise InvalidParameter("share= is of a table or file, with the target given by its name; slice arrays")
        for name, value, plain in (("features", features, None), ("drop", drop, ()), ("categorical", categorical, ())):
            if value is not plain and not (plain == () and len(value) == 0):
                raise InvalidParameter(
                    f"{name}= names columns of a table or file, with the target given by its name; got {value!r}"
                )
        choose("missing", missing, {"error": None, "drop": None})
        if missing == "drop":
            raise InvalidParameter('missing="drop" is for tables and files with the target given by its name')
        check_columns(X)
        check_target(y)
        X, y = validate_data(
            self, X, y, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, y_numeric=True,
            ensure_min_samples=2,
        )  # fmt: skip
        check_finite(X, "X", getattr(self, "feature_names_in_", None))
        return open_rows(X, np.asarray(y, dtype=float))

    def _identity(self, rows: Rows, seed: np.random.SeedSequence) -> dict[str, str]:
        """What a checkpoint is of: the data and every setting that shapes the model."""
        settings = {name: described(v) for name, v in self.get_params(deep=False).items() if name not in _UNSHAPING}
        if self.random_state is not None:  # a generator is what it gives
            settings["random_state"] = str(seed.entropy)
        return {**settings, "data": rows.fingerprint(), "features": ", ".join(rows.feature_names)}

    def predict(self, X: Any, return_std: bool = False, latent: bool = False) -> Any:
        """Predicted mean, and with return_std the standard deviation of y.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.
        return_std : bool
            Whether deviations are wanted too. Without them no work is done on variances, unless a committee's rule
            weighs experts by them.
        latent : bool
            True for the deviation of the latent f, without the noise of a measurement.

        Returns
        -------
        mean, or (mean, std) : array, or two
            One number a query.

        """
        mean, deviation = self._predict(X, return_std, latent)
        return (mean, deviation) if return_std else mean

    def predict_distribution(self, X: Any) -> PredictiveDistribution:
        """The predictive distribution of y at each query, as one object.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.

        Returns
        -------
        distribution : PredictiveDistribution
            Its mean, std, quantile(q), interval(level), pdf(y), cdf(y), crps(y) and sample(n, random_state).

        """
        mean, deviation = self._predict(X, True, False)
        assert deviation is not None
        return PredictiveDistribution(mean, deviation, self._calibration().shape)

    def predict_quantiles(self, X: Any, q: Any) -> Array:
        """Quantiles of the predictive distribution of y.

        Parameters
        ----------
        X : array, table or path
            Queries.
        q : number or list of numbers
            Between 0 and 1.

        Returns
        -------
        quantiles : array
            A row for each query and a column for each of q.

        """
        levels = settings.levels("q", q)
        return self.predict_distribution(X).quantile(levels)

    def predict_file(
        self, data: Any, output: str | os.PathLike[str], *, quantiles: Any = (), keep: Any = (), latent: bool = False,
        missing: str = "error", overwrite: bool = False, progress: Listener | None = None,
    ) -> PredictionReport:  # fmt: skip
        """Predict data of any size into one Parquet file: columns mean, std and q0.05 for quantile 0.05, say.

        The file is there when it is whole. After an interruption the same call goes on, and ends with the same file.

        Parameters
        ----------
        data : array, table or path
            What `fit` takes. Columns are found by name where both sides have names.
        output : path
            Of the Parquet file.
        quantiles : numbers between 0 and 1
            Each becomes a column.
        keep : names of columns
            To be carried along, before the predicted ones (of a CSV as text).
        latent : bool
            True for std and quantiles of the latent f rather than of y.
        missing : {"error", "drop"}
            "drop" leaves out rows with missing values, and counts them.
        overwrite : bool
            Whether a file that is there may be replaced.
        progress : function
            It is called with a gigagp.progress.Event for each block of rows.

        """
        from gigagp import streaming  # noqa: PLC0415 pyarrow takes time to load

        check_is_fitted(self, "report_")
        levels = tuple(settings.levels("quantiles", quantiles).tolist())
        rows = open_rows(data, encoding=self._reading(), keep=keep, missing=missing)

        model = streaming.fingerprint(self._shape_of_answers())
        at_once = self._queries_at_once(streaming.bytes_of_kept(rows) + 32 * (2 + len(levels)))
        with self._at_work() as engine:

            def answer(X: Array) -> tuple[Array, Array]:
                mean, deviation = self._answer(X, True, latent, engine)
                assert deviation is not None
                return mean, deviation

            shape = ErrorShape.gaussian() if latent else self._calibration().shape
            task = streaming.Task(
                rows, answer, shape.quantile, levels, bool(latent), model, at_once, teller(self.verbose, progress)
            )
            return streaming.predict_file(task, data, output, overwrite)

    def evaluate(
        self, data: Any, target: Any = None, *, missing: str = "error", share: Share | None = None,
        progress: Listener | None = None, each: Hearer | None = None,
    ) -> Evaluation:  # fmt: skip
        """RMSE, NLPD, CRPS and coverage on data of any size whose target is known, in bounded memory.

        Parameters
        ----------
        data : array, table or path
            What `fit` takes.
        target : array or str
            The targets, or the name of their column. Default the column the model was fitted to.
        missing : {"error", "drop"}
            "drop" leaves out rows with missing values, and counts them.
        share : Share
            Of a file or table, the rows to use, such as the others of those the model was fitted to.
        progress : function
            It is called with a gigagp.progress.Event for each block of rows.
        each : function
            It is called with X, y, predicted mean and std of each block of rows.

        """
        check_is_fitted(self, "report_")
        target = self._target_name if target is None else target
        if target is None:
            raise InvalidParameter("target= is needed: the model was fitted to an array, which has no name")
        rows = open_rows(data, target, encoding=self._reading(), missing=missing, share=share)
        with self._at_work() as engine:

            def answer(X: Array) -> tuple[Array, Array]:
                mean, deviation = self._answer(X, True, False, engine)
                assert deviation is not None
                return mean, deviation

            shape, at_once = self._calibration().shape, self._queries_at_once(_SCORED)
            return evaluate(rows, answer, shape, at_once, teller(self.verbose, progress), each)

    def _shape_of_answers(self) -> Iterator[Array | str]:
        """Everything that determines predictions; cell centres stand in for the inputs."""
        c, n = self._committee, self._near()
        calibration = self._calibration()
        way = (self._rule(), self._asked(), c.student) if n is None else (n.neighbours, n.inner, n.exact)
        yield described((way, c.kernel, c.store.X.shape, calibration.floor, calibration.setting))
        yield from (calibration.coefficients, calibration.shape.weights, calibration.shape.widths)
        yield described(type(c.experts).__name__)
        yield from (c.theta, c.router.centres, c.router.metric, c.experts.sizes, self._cells.sizes, c.store.y)
        if c.router.by_cells:
            yield from (c.router.boxes.lows, c.router.boxes.highs)
        for scaling in (self._input_scaling, self._target_scaling):
            yield from (scaling.centre, scaling.scale)
        if c.communication is not None:
            yield c.communication
        exact = self._exact()
        for member in () if exact is None else exact.members:
            yield described((member.kernel, member.weight))
            yield from (member.theta, member.errors)
        c.store.release()

    def log_marginal_likelihood(self, theta: Array | None = None, eval_gradient: bool = False) -> Any:
        """The experts' summed log marginal likelihood (eq. 5) of the standardised target: what training maximises.

        Where each expert has a scale of its own, that scale is integrated out. Up to some 2,000 rows, where exact GPs
        answer, training adds a weak log prior of theta (`gigagp.theta_prior`), which is not part of this value; then
        this is the evidence of `kernel_`, the family that predicts held-out rows best.

        Parameters
        ----------
        theta : array
            Log-parameters of kernel and noise. Default `theta_`.
        eval_gradient : bool
            Whether the gradient is returned too.

        """
        check_is_fitted(self, "report_")
        theta = self.theta_ if theta is None else np.asarray(theta, dtype=float)
        if theta.shape != self.theta_.shape:
            raise InvalidParameter(f"theta must have {len(self.theta_)} log-parameters; got shape {theta.shape}")
        c = self._committee
        with self._at_work() as engine:
            evidence = summed_evidence(c.kernel, c.store, self._cells, c.tree, engine, c.dof)
            total = evidence(theta, None)
        return (total.value, total.gradient.copy()) if eval_gradient else total.value

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model into a folder.

        Parameters
        ----------
        folder : path
            It is there when it is whole.
        overwrite : bool
            Whether a model that is there may be replaced.

        """
        check_is_fitted(self, "report_")
        names = getattr(self, "feature_names_in_", None)
        model = FittedModel(
            settings=self.get_params(deep=False),
            committee=self._committee,
            neighbourhood=self._neighbourhood,
            mixture=self._mixture,
            cells=self._cells,
            local=self._local,
            inputs=self._input_scaling,
            target=self._target_scaling,
            report=self.report_,
            encoding=self._encoding,
            feature_names=None if names is None else [str(name) for name in names],
            target_name=self._target_name,
            auto=self._auto,
        )
        save_model(model, folder, overwrite)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, kernels: Iterable[type] = (), verify: bool = True) -> Self:
        """The model that `save` wrote. Its rows stay in the folder and come into memory as they are needed.

        Parameters
        ----------
        folder : path
            Of the model.
        kernels : classes
            The model's kernels, rules and partitioners that are not gigagp's own.
        verify : bool
            False to begin at once, without comparing the rows with their checksums.

        """
        held = load_model(folder, kernels=kernels, verify=verify)
        unknown = ", ".join(sorted(set(held.settings) - set(cls._get_param_names())))
        if unknown:
            raise InvalidInput(f"{folder} holds a model with settings unknown to this gigagp ({unknown}): upgrade")
        model = cls(**held.settings)
        model._committee, model._cells, model._local = held.committee, held.cells, held.local
        model._input_scaling, model._target_scaling = held.inputs, held.target
        model._encoding, model.report_, model._target_name = held.encoding, held.report, held.target_name
        model._auto, model._neighbourhood, model._mixture = held.auto, held.neighbourhood, held.mixture
        model.n_features_in_ = held.committee.store.X.shape[1]
        if held.feature_names is not None:
            model.feature_names_in_ = np.array(held.feature_names, dtype=object)
        model._expose()
        return model

    def __sklearn_clone__(self) -> HGPRegressor:
        """Another model with these settings; it computes in the same place."""
        settings = self.get_params(deep=False)
        engine = settings.pop("engine")
        return type(self)(engine=engine, **{name: clone(value, safe=False) for name, value in settings.items()})

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if is_client(self.engine):  # a connection of this process; others may make their own
            state = {**state, "engine": self.engine.scheduler.address}
        return state

    def _html_repr(self) -> str:
        """scikit-learn's diagram and, of a fitted model, what it has learnt."""
        diagram: str = super()._html_repr()
        if not hasattr(self, "report_"):
            return diagram
        learnt = self.units_.parameters(self.kernel_, self.noise_variance_)
        return diagram + summary_html(self.report_, self.tree_, learnt)

    def _plan(self, found: Scan, parts: Partitioner) -> Plan:
        """Every setting resolved and checked."""
        shape = Shape(self.levels, self.branching, self.leaf_size, self.sharing)
        parts.check(found.rows, shape)
        chosen = rule(self.combine, AUTO_RULE)
        nearest = settings.experts_per_query(self.experts_per_query)
        student = choose("experts", self.experts, {"auto": parts.local, "gaussian": False, "student": True})
        calibrate = settings.switch("calibrate", self.calibrate)
        method = self._method(parts)
        choose("training", self.training, dict.fromkeys(("auto", "full", "progressive")))
        restarts = settings.count("n_restarts", self.n_restarts)
        spread = 1.0 if settings.switch("standardize", self.standardize) else settings.variance(found.target)
        low, high = (bound * spread for bound in settings.noise_bounds(self.noise_bounds))
        varies = not found.target.constant[0]
        kernel = self._start_kernel(found.inputs, spread)
        if parts.local and kernel.metric(kernel.theta) is None:
            warnings.warn(
                f'{kernel!r} has no metric, so partition="local" divides the rows in plain standardised units; '
                'partition="stratified" or "random" assume no locality',
                UserWarning, stacklevel=4,
            )  # fmt: skip
        return Plan(
            kernel=kernel,
            noise_start=float(np.clip(_START_NOISE * spread, low, high)) if varies else low,
            noise_bounds=(low, high),
            partitioner=parts,
            shape=shape,
            training=self.training,
            precision=Precision.of(settings.precision(self.dtype).name),
            restarts=restarts,
            student=student,
            rule=None if isinstance(self.combine, str) and self.combine == "auto" else chosen,
            nearest=nearest,
            calibrate=calibrate,
            families=settings.families(kernel) if self.kernel is None and parts.local else (),
            method=method,
            neighbours=settings.neighbours(self.neighbours),
            exact_search=settings.switch("exact_neighbours", self.exact_neighbours),
            target_variance=spread,
            train=varies,
        )

    def _method(self, parts: Partitioner) -> str:
        """How queries are answered: settings of the committee ask for it."""
        methods = dict.fromkeys(("auto", "neighbourhood", "committee"))
        choose("method", self.method, methods)
        if self.method == "auto":
            given = self._wants_committee() or self.sharing is not None
            return "committee" if given or not parts.local else "auto"
        if self.method == "neighbourhood" and not parts.local:
            raise InvalidParameter('method="neighbourhood" needs partition="local", which keeps neighbours together')
        return self.method

    def _wants_committee(self) -> bool:
        """Whether the user asks for the committee, by name or by a setting of how it answers."""
        given = self.combine != "auto" or self.experts_per_query != "auto"
        return self.method == "committee" or (self.method == "auto" and given)

    def _start_kernel(self, inputs: Moments, spread: float) -> Kernel:
        """The user's kernel, or a squared exponential of the target's variance whose length-scales span the data."""
        D = len(inputs.low)
        if self.kernel is None:
            if self.standardize:
                return SquaredExponential(1.0, [D**0.5] * D)
            width = np.where(inputs.deviation > 0, inputs.deviation, 1.0)
            return SquaredExponential(
                spread, D**0.5 * width, variance_bounds=(1e-4 * spread, 1e4 * spread),
                lengthscale_bounds=(1e-3 * float(width.min()), 1e3 * float(width.max())),
            )  # fmt: skip
        if not isinstance(self.kernel, Kernel):
            raise InvalidParameter(f"kernel must be a gigagp.kernels.Kernel or None; got {self.kernel!r}")
        return self.kernel.bind(D)

    def _near(self) -> Neighbourhood | None:
        """What answers queries; None for the committee, also where its settings were given after the fit."""
        if self._neighbourhood is None and self.method == "neighbourhood":
            raise InvalidParameter('method="neighbourhood" must be set before fit; fit again')
        return None if self._neighbourhood is None or self._wants_committee() else self._neighbourhood

    def _exact(self) -> Mixture | None:
        """The exact GPs that answer queries where rows are few, unless the committee was asked for after the fit."""
        return None if self._mixture is None or self._wants_committee() else self._mixture

    def _calibration(self) -> Calibration:
        """The fitted one, unless the user has turned it off or another way to answer has been asked for since."""
        other_way = (self._neighbourhood or self._mixture) is not None and (self._near() or self._exact()) is None
        if other_way or not settings.switch("calibrate", self.calibrate):
            return Calibration.none()
        return self.report_.calibration

    def _predict(self, X: Any, with_variance: bool, latent: bool) -> tuple[Array, Array | None]:
        """Mean and deviation in the user's units."""
        check_is_fitted(self, "report_")
        if _is_source(X, None, tables=self._encoding is not None):
            with self._at_work() as engine:
                said = [self._answer(block, with_variance, latent, engine) for block in self._query_blocks(X)]
            mean = np.concatenate([m for m, _ in said])
            return mean, np.concatenate([d for _, d in said if d is not None]) if with_variance else None
        check_columns(X)
        X = validate_data(self, X, dtype=(np.float64, np.float32), order="C", ensure_all_finite=False, reset=False)
        check_finite(X, "X", getattr(self, "feature_names_in_", None))
        with self._at_work() as engine:
            return self._answer(X, with_variance, latent, engine)

    @contextmanager
    def _at_work(self) -> Iterator[Engine]:
        """The engine, ready to work for the fitted model."""
        with one_blas_thread(), open_engine(self.engine, self.n_jobs) as engine:
            files = self._committee.store.files
            beside = Path(files[0].path).parent.parent if files else None
            if engine.reads_files:
                writable = beside is not None and os.access(beside, os.W_OK)
                engine.use_folder(beside if beside is not None and writable else Path(tempfile.gettempdir()))
            yield engine

    def _query_blocks(self, X: Any) -> Iterator[Array]:
        """Queries of a source, as many together as the memory allows."""
        for block in open_rows(X, encoding=self._reading()).blocks(self._queries_at_once()):
            yield block.X

    def _reading(self) -> Encoding:
        """How columns of queries are found: as in training; by place where that knew no names."""
        if self._encoding is not None:
            return self._encoding
        names = getattr(self, "feature_names_in_", None)
        columns = [f"x{j}" for j in range(self.n_features_in_)] if names is None else map(str, names)
        return Encoding(tuple(Feature(column, "number") for column in columns), named=names is not None)

    def _queries_at_once(self, carried: int = 0) -> int:
        """As many as share factors well, within a quarter of the memory; `carried` are further bytes of each."""
        k = min(self._asked() or AUTO_NEAREST, len(self._committee.experts))
        each = 8 * (_COPIES * self.n_features_in_ + _PER_EXPERT * (k + 1)) + carried
        most = min(inference.QUERIES_AT_ONCE, memory.budget(self.memory) // (4 * each))
        return max(_LEAST_QUERIES, 1 << max(0, most.bit_length() - 1))

    def _asked(self) -> int | None:
        """How many experts answer a query; None for all."""
        k = settings.experts_per_query(self.experts_per_query)
        return self._auto[1] if isinstance(k, str) else k

    def _rule(self) -> Rule:
        return rule(self.combine, self._auto[0])

    def _answer(self, X: Array, with_variance: bool, latent: bool, engine: Engine) -> tuple[Array, Array | None]:
        """Mean and deviation of checked queries."""
        Z = self._input_scaling.apply(X, self._committee.store.X.dtype)
        return self._in_units(self._answers(Z, with_variance, engine), latent)

    def _in_units(self, answers: Answers, latent: bool) -> tuple[Array, Array | None]:
        """Mean and deviation of y, or with `latent` of f, in the user's units."""
        scale, centre = float(self._target_scaling.scale[0]), float(self._target_scaling.centre[0])
        mean = answers.mean.astype(float) * scale + centre
        if answers.variance is None or answers.misfit is None:
            return mean, None
        calibration, exact = self._calibration(), self._exact()
        if calibration.rows:
            variance = calibration.variance(answers, latent)
        else:
            noise = self._committee.noise if exact is None else exact.noise
            variance = np.maximum(answers.variance, 0.0) if latent else answers.variance + noise
            if self._near() is None and exact is None:
                variance = variance * answers.misfit**2
        return mean, np.sqrt(variance) * scale

    def _answers(self, Z: Array, with_variance: bool, engine: Engine) -> Answers:
        """Mean and variance of f at scaled queries, by the neighbours of each, by exact GPs or by the committee."""
        near = self._near()
        if near is not None:
            return neighbourhood.predict(near, Z, engine, with_variance)
        exact = self._exact()
        if exact is not None:
            return mixture.predict(exact, Z, engine, with_variance)
        rule = self._rule()
        if rule.needs_communication and self._committee.communication is None:
            raise InvalidParameter(f"{rule!r} needs a communication expert; set combine before fit, and fit again")
        combined = inference.predict(self._committee, Z, rule, self._asked(), engine, with_variance)
        if combined.variance is None:
            return Answers(combined.mean, None, None)
        variance = combined.variance.astype(float)
        if rule.target == "y":  # negative where a product over y falls below the noise
            variance = variance - self._committee.noise
        misfit = np.ones(len(Z)) if combined.scale is None else np.sqrt(combined.scale)
        return Answers(combined.mean, variance, misfit)

    def _warn(self, report: FitReport) -> None:
        if report.warnings:
            more = len(report.warnings) - _WARNED
            tail = f"; and {more} more in report_.warnings" if more > 0 else ""
            warnings.warn("; ".join(report.warnings[:_WARNED]) + tail, ConvergenceWarning, stacklevel=4)
        if report.stages and not report.converged:
            warnings.warn(
                f"training did not converge after {report.iterations} iterations: {report.message}; "
                "see report_, and try n_restarts or other start values in the kernel",
                ConvergenceWarning, stacklevel=4,
            )  # fmt: skip


def _is_source(X: Any, y: Any, tables: bool = False) -> bool:
    """Whether X is read through a source: a path, a table, or anything whose target is named."""
    module = type(X).__module__.partition(".")[0]
    named = isinstance(y, str) or module in ("polars", "pyarrow") or (tables and module == "pandas")
    return named or isinstance(X, str | os.PathLike)


def _bytes_in_memory(rows: int, columns: int, dtype: np.dtype[Any]) -> int:
    """What a fit in memory takes: the scaled rows, and the same sorted; row numbers."""
    return rows * (2 * (columns + 1) * dtype.itemsize + 32)


def _disk_room(
    kept: Checkpoint | None, store: str | os.PathLike[str] | None, budget: int, rows: Rows, tell: Listener = silent
) -> DiskRoom:
    """Where rows that exceed the memory budget are sorted: the checkpoint, the user's folder, or a temporary one."""
    if kept is not None:
        return DiskRoom(kept.store_folder, budget, rows.fingerprint(), tell=tell)
    temporary = TemporaryFolder(store)
    return DiskRoom(temporary.path / "store", budget, rows.fingerprint(), temporary, tell)

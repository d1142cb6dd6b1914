"""`HGPRegressor`: Gaussian process regression behind scikit-learn's interface."""

from __future__ import annotations

from typing import Any

from sklearn.base import RegressorMixin

from gigagp.arrays import Array
from gigagp.combine import CombinationRule
from gigagp.engines import Place
from gigagp.estimators.base import HGPEstimator
from gigagp.fit import settings
from gigagp.kernels import Kernel
from gigagp.model.distribution import PredictiveDistribution
from gigagp.partition import Partitioner


class HGPRegressor(RegressorMixin, HGPEstimator):  # type: ignore[misc]
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
    combine : "auto", a name in gigagp.combine.RULES, or a combination rule (an object)
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
        combine: str | CombinationRule = "auto",
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
        return self.predictor_.distribution(mean, deviation)

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

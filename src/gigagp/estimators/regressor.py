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
        Covariance of the latent function; the values of its parameters are where training starts. They refer to
        standardised inputs and targets, unless standardize=False. By default the kernel has one length-scale per column
        and is chosen among squared exponential, Matérn 5/2, 3/2 and 1/2 and rational quadratic by its predictions of
        held-out rows (see `report_.choices`). Up to about 2,000 rows several of these families are averaged. With
        partition "stratified" or "random" the default is the squared exponential.
    partition : {"local", "stratified", "random"} or Partitioner
        How rows are divided among experts. "local": cells of a KD-tree, each with neighbouring rows.
        "stratified": the partition of the paper, in which every expert sees all regions. "random": at random.
    leaf_size : int
        Rows per leaf. Default 256 for local and 512 for the others. With default settings and up to about 2,000 rows
        there is one leaf, and exact GPs on all rows predict.
    levels, branching : int
        Instead of leaf_size: a tree with `levels` levels and `branching` children per node (default 4).
    sharing : number
        How many experts use each row. Random and stratified: each row of a node goes to `sharing` of its children
        (a whole number, default 1). Local: an expert predicts from `sharing` times the rows of its cell, namely the
        cell and the outside rows nearest to it. The default is 2, doubled up to 8 as long as held-out rows are
        predicted better and the work stays bounded; 1 from about 6 million rows on.
    combine : "auto", a name in gigagp.combine.RULES, or a combination rule (an object)
        How experts' predictions are combined. "auto": healed_blend for local, healed for the others.
    experts_per_query : "auto", int or None
        How many experts predict a query: the given number of nearest experts, or all (None). "auto": 4 for local, all
        for the others.
    experts : {"auto", "gaussian", "student"}
        "gaussian": all experts have the same variances, as in the paper. "student": each has its own scale, which
        training integrates out and prediction estimates from the rows of the expert, so that the noise may vary between
        regions and a few leaves with outliers do not distort theta. "auto": student for local.
    method : {"auto", "neighbourhood", "committee"}
        How a query is predicted. "neighbourhood": by an exact GP on the training rows nearest to it, in the metric of
        the trained kernel. "committee": by the experts, whose predictions are combined. "auto": whichever predicts
        held-out rows better; the committee where one of its settings (sharing, combine, experts_per_query) is given,
        and for kernels and partitions without a metric.
    neighbours : "auto" or int
        Training rows from which a query is predicted. "auto": 32, doubled up to 256 as long as held-out rows are
        predicted better. The nearest few of them answer a second time on their own where that predicts held-out rows
        better still.
    exact_neighbours : bool
        True to search until the nearest rows are certain to be found. By default the search ends after comparing 64
        rows per neighbour; docs/prediction.md says how close to exact that is.
    calibrate : bool
        Learn the distribution of errors from held-out predictions (local partition, at least 100 rows, or 50 where
        exact GPs predict). False for the predictive distribution of the plain Gaussian process.
    training : {"auto", "full", "progressive"}
        "full": every expert at every evaluation. "progressive": growing random batches of experts, until the
        expected loss is negligible. "auto" learns theta from groups of neighbouring rows where the partition is local
        and the kernel has a metric. Elsewhere it is "full" or "progressive", whichever is less work.
    engine : {"threads", "serial", "processes", "dask"}, address of a Dask scheduler, Dask client, or Engine
        Where experts are computed. Results do not depend on it. "dask" starts a cluster on this machine.
    n_jobs : int
        Workers on this machine; None or -1 for every core.
    dtype : {"float64", "float32"}
        Precision of the experts.
    memory : str or int
        Memory budget for the data, such as "2GB"; rows that exceed it are sorted on disk. Default half of the memory of
        the machine.
    standardize : bool
        Scale inputs and target to mean 0 and standard deviation 1 internally.
    noise_bounds : (float, float)
        Bounds of the noise variance, as shares of the target's variance. Equal bounds fix it.
    n_restarts : int
        Additional starting points of the training.
    random_state : int, Generator, RandomState or None
        Seed of all random choices; the same number gives the same model, bit for bit.
    verbose : int
        1 prints the stages of a fit, 2 also each evaluation of the evidence (in a notebook, one updating line). Both
        also go to the logger "gigagp".

    Attributes
    ----------
    theta_ : array
        Log-parameters of kernel and noise, in standardised units.
    kernel_ : Kernel
        The kernel with trained values.
    noise_variance_ : float
        Noise variance of y, in the user's units.
    tree_ : Tree
        The hierarchy above the experts.
    n_leaves_ : int
        How many experts there are.
    units_ : Units
        Names and scales of columns and target; converts parameters to the user's units.
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
            Whether to return standard deviations too. Without them variances are not computed, unless the rule of a
            committee needs them as weights.
        latent : bool
            True for the standard deviation of the latent function f, without observation noise.

        Returns
        -------
        mean, or (mean, std) : array, or two
            One value per query.

        """
        mean, deviation = self._predict(X, return_std, latent)
        return (mean, deviation) if return_std else mean

    def predict_distribution(self, X: Any) -> PredictiveDistribution:
        """The predictive distribution of y at each query.

        Parameters
        ----------
        X : array, table or path
            Queries, with the columns of the fit.

        Returns
        -------
        distribution : PredictiveDistribution
            With mean, std, quantile(q), interval(level), pdf(y), cdf(y), crps(y) and sample(n, random_state).

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
            One row per query, one column per quantile.

        """
        levels = settings.levels("q", q)
        return self.predict_distribution(X).quantile(levels)

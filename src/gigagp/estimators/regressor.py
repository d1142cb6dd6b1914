"""`HGPRegressor`: Gaussian process regression behind scikit-learn's interface."""

from __future__ import annotations

import os
from typing import Any, Self

from sklearn.base import RegressorMixin

from gigagp.combine import CombinationRule
from gigagp.data.sources import Share
from gigagp.engines import Place
from gigagp.estimators.number_updates import NumberUpdates
from gigagp.estimators.target_columns import target_columns
from gigagp.kernels import Kernel
from gigagp.likelihoods import Likelihood
from gigagp.partition import Partitioner
from gigagp.progress import Listener


class HGPRegressor(RegressorMixin, NumberUpdates):  # type: ignore[misc]
    """Gaussian process regression by a hierarchy of exact GP experts.

    The rows are split among experts (the leaves of a tree), each an exact GP; all share one theta, trained by
    maximising the sum of their log marginal likelihoods. A query is answered by an exact GP on the training rows
    nearest to it, or by the experts, whose predictions are combined. After Ng & Deisenroth, "Hierarchical
    Mixture-of-Experts Model for Large-Scale Gaussian Process Regression" (2014).

    Parameters
    ----------
    kernel : Kernel or str, default chosen
        Covariance of the latent function, or an expression such as "matern52" or
        "periodic(period=24, columns=hour) + matern32". The values of its parameters are where training starts. Those of
        a kernel with columns= are in the units of the data; those of a kernel without refer to standardised inputs and
        targets, unless standardize=False. By default the kernel has one length-scale per column
        and is chosen among squared exponential, Matérn 5/2, 3/2 and 1/2 and rational quadratic by its predictions of
        held-out rows (see `report_.choices`); several of these families are averaged where that predicts them better,
        and up to about 2,000 rows always. With
        partition "stratified" or "random" the default is the squared exponential.
    partition : {"local", "stratified", "random"} or Partitioner
        How rows are divided among experts. "local": cells of a KD-tree, each with neighbouring rows.
        "stratified": the partition of the paper, in which every expert sees all regions. "random": at random.
    leaf_size : int
        Rows per leaf. Default 256 for local, more where the function is smooth and a chosen kernel shows it, and 512
        for the others. With default settings and up to about 2,000 rows
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
    leaf : {"exact", "sparse"}
        "exact": every leaf is an exact GP. "sparse": the rows of a leaf are represented by `inducing` of them, by the
        variational bound of Titsias (2009), for large leaves (default 4,096 rows). The experts then predict
        (method="committee") with common variances; see docs/sparse.md for when this pays.
    inducing : int
        Inducing points of each sparse leaf.
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
    warp : "auto" or bool
        Replace the values of columns that are spread unevenly (skewed, or with long tails) by their normal scores, a
        monotone map that is learnt from the training rows. "auto": in tables of 50 to some 2,000 rows, if held-out rows
        are then predicted clearly better; not if you choose the kernel, whose length-scales are lengths in your
        columns.
    directions : bool
        Allow linear combinations of the columns of numbers to take their places, so that length-scales belong to
        directions in which the target varies. They do if held-out rows are then predicted clearly better, in tables of
        at most 262,144 rows; not in small tables that a mixture of exact GPs predicts (up to some 2,000 rows), and not
        if you choose the kernel, whose length-scales are lengths in your columns.
        `report_.choices` shows the comparison. Reported length-scales are those along your columns, the others being
        fixed.
    sphere : "auto", pair of columns, or None
        The columns of longitude and latitude in degrees, by name or number, such as ("lon", "lat"): they are one place
        on a sphere, with one length-scale, so that distances are great circles, and 180 degrees east is 180 degrees
        west. "auto": the two columns that have such names and values, if the data have names and cover so much of the
        earth that a flat map would be wrong. None: no such columns.
    mean : {"constant", "linear"} or regressor
        The mean function. "linear": linear in the columns that are not categories, with coefficients by (generalised)
        least squares and their uncertainty where no row is near, as in universal kriging. A regressor of scikit-learn's
        interface is cross-fitted, and used only if held-out rows are then predicted better: see `report_.choices`.
    noise : {"constant", "inputs", "auto"}
        "constant": the noise of y is the same everywhere, apart from the scales that experts or neighbourhoods may
        have. "inputs": a second model learns how the noise depends on the inputs, from held-out errors; rows and
        predictions then have their own noise. "auto": whichever predicts held-out rows better; "constant" up to about
        2,000 rows, where `fit` is given the noise or weights of rows, and where a committee predicts.
    noise_bounds : (float, float)
        Bounds of the noise variance, as shares of the target's variance. Equal bounds fix it.
    likelihood : {"auto", "gaussian", "student", "poisson", "negative_binomial", "gamma", "bernoulli"} or Likelihood
        The distribution of y given the latent function f. "poisson" and "negative_binomial": counts, of mean exp(f);
        "gamma": positive numbers, of mean exp(f); "bernoulli": 0 or 1, or shares of successes in `sample_weight`
        trials. These are predicted from neighbouring rows by Laplace's approximation; the target is not scaled, and
        `noise_bounds` are bounds of the dispersion of "negative_binomial" and "gamma". "gaussian": y is Gaussian, with
        the same variances for all experts. "student": each expert has its own scale, and the distribution of errors
        may have heavy tails. "auto": as "student" for local and "gaussian" for other partitions; `report_` says when
        the target looks like counts, labels or shares. An object is a likelihood of your own; see docs/likelihoods.md.
    targets : {"auto", "separate", "shared"}
        How several targets are modelled. "separate": each has its own kernel and theta, and is predicted exactly as if
        it were alone. "shared": all have the same kernel and theta, and are predicted together from the same
        neighbours, at about the time and memory of one. "auto": "shared", unless rows that a trial on some thousand
        rows holds out are predicted better with separate ones; "separate" up to 2,048 rows, and where a setting
        excludes sharing.
    n_restarts : int
        Additional starting points of the training.
    categorical : names or numbers of columns
        Columns of numbers that are categories. Text and pandas' or polars' categories are recognised without it.
    missing : {"error", "drop", "model"}
        What a fit does with missing values. "drop" leaves their rows out, and counts them. "model" uses them: a number
        with gaps gets a second column that says where it is missing, and a missing level is a level of its own; the
        model then also answers queries with such gaps. Rows without a target are left out.
    random_state : int, Generator, RandomState or None
        Seed of all random choices; the same number gives the same model, bit for bit.
    verbose : int
        1 prints the stages of a fit, 2 also each evaluation of the evidence (in a notebook, one updating line). Both
        also go to the logger "gigagp".

    Attributes
    ----------
    theta_, kernel_, noise_variance_, tree_, n_leaves_, units_, report_
        What the fit has learnt; each is described where it is defined, in `FittedAttributes`.

    """

    def __init__(
        self,
        kernel: Kernel | str | None = None,
        *,
        partition: str | Partitioner = "local",
        leaf_size: int | None = None,
        levels: int | None = None, branching: int | None = None, sharing: float | None = None,
        combine: str | CombinationRule = "auto",
        experts_per_query: int | str | None = "auto",
        experts: str = "auto",
        leaf: str = "exact", inducing: int = 256,
        method: str = "auto",
        neighbours: int | str = "auto",
        exact_neighbours: bool = False,
        calibrate: bool = True,
        training: str = "auto",
        engine: Place = "threads", n_jobs: int | None = None,
        dtype: str = "float64",
        memory: str | int | None = None,
        standardize: bool = True,
        warp: bool | str = "auto",
        directions: bool = True,
        sphere: Any = "auto",
        mean: Any = "constant",
        noise: str = "constant",
        noise_bounds: tuple[float, float] = (1e-6, 10.0),
        likelihood: str | Likelihood = "auto", targets: str = "auto",
        n_restarts: int = 0,
        categorical: Any = None,
        missing: str = "error",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.partition = partition
        self.leaf_size = leaf_size
        self.levels, self.branching = levels, branching
        self.sharing = sharing
        self.combine = combine
        self.experts_per_query = experts_per_query
        self.experts = experts
        self.leaf = leaf
        self.inducing = inducing
        self.method = method
        self.neighbours = neighbours
        self.exact_neighbours = exact_neighbours
        self.calibrate = calibrate
        self.training = training
        self.engine, self.n_jobs = engine, n_jobs
        self.dtype = dtype
        self.memory = memory
        self.standardize, self.warp, self.directions, self.sphere = standardize, warp, directions, sphere
        self.mean = mean
        self.noise, self.noise_bounds = noise, noise_bounds
        self.likelihood, self.targets = likelihood, targets
        self.n_restarts = n_restarts
        self.categorical = categorical
        self.missing = missing
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, noise_std: Any = None, learn_noise: bool = True,
        features: Any = None, drop: Any = (), categorical: Any = (), missing: str | None = None,
        store: str | os.PathLike[str] | None = None, checkpoint: str | os.PathLike[str] | None = None,
        share: Share | None = None, progress: Listener | None = None,
    ) -> Self:  # fmt: skip
        """Fit the model: divide the rows among experts and train the kernel parameters that they share.

        Parameters
        ----------
        X : array, table or path
            Inputs: an array, a table of pandas, polars or pyarrow, or the path of a .npy, Parquet (file, folder or
            glob), CSV or CSV.gz file; also addresses that pyarrow supports, such as s3://.
        y : array, table, str or list of str
            The targets, or the name of their column in X. A list of names, or an array or table with two dimensions,
            are several targets, and predictions then have one column per target.
        sample_weight : array or str
            The weight w of each row, or the name of its column: the row's noise variance is divided by w, as if the
            row had been given w times, with independent noise. A row of weight zero is left out.
        noise_std : array or str
            The known standard deviation of the noise of each row's target, in the target's units, or the name of its
            column. Its square is added to the noise variance that is learnt.
        learn_noise : bool
            False if the rows have no noise but the known one: then no noise variance is learnt.
        features, drop : names of columns
            Columns to use, and columns to leave out.
        categorical, missing
            As in the constructor; columns that are named here are categories too.
        store : path or address
            Folder for the sorted rows where they exceed the memory budget, also at an address such as
            s3://bucket/folder. Default a temporary one.
        checkpoint : path or address
            Folder in which progress is saved; after an interruption the same call continues, with an address also on
            another machine.
        share : Share
            The rows of a file or table to train on; `share.others` are then held out, for `evaluate`.
        progress : function
            Called with a gigagp.progress.Event for each block of rows and each evaluation of the evidence.

        """
        options = {
            "noise_std": noise_std, "learn_noise": learn_noise, "features": features, "drop": drop,
            "categorical": categorical, "missing": missing, "store": store, "checkpoint": checkpoint, "share": share,
            "progress": progress,
        }  # fmt: skip
        targets = target_columns(X, y, self.missing if missing is None else missing)
        if targets is not None:
            return self._fit_targets(X, targets, sample_weight, options)
        return self._fit(X, y, sample_weight, **options)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

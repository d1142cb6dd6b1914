"""The settings of a model as users give them, and the checks that bring them into one form."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.scaling import Moments
from gigagp.errors import InvalidInput, InvalidParameter, choose
from gigagp.fit.plan import Family
from gigagp.kernels import Kernel, Matern12, Matern32, Matern52, RationalQuadratic
from gigagp.kernels.expressions import parse
from gigagp.likelihoods import LIKELIHOODS, Likelihood

# Rough kernels fit the same data with longer length-scales than the squared exponential.
_STRETCHES = {Matern52: 1.1, Matern32: 1.3, Matern12: 3.0}


@dataclass(frozen=True, eq=False)
class FitSettings:
    """The parameters of an estimator as the user sets them; `estimators.regressor` documents them."""

    kernel: Any
    partition: Any
    leaf_size: Any
    levels: Any
    branching: Any
    sharing: Any
    combine: Any
    experts_per_query: Any
    experts: Any
    leaf: Any
    inducing: Any
    method: Any
    neighbours: Any
    exact_neighbours: Any
    calibrate: Any
    training: Any
    engine: Any
    n_jobs: Any
    dtype: Any
    memory: Any
    standardize: Any
    sphere: Any
    mean: Any
    noise: Any
    noise_bounds: Any
    n_restarts: Any
    categorical: Any
    missing: Any
    random_state: Any
    verbose: Any
    likelihood: Any = "auto"
    warp: Any = "auto"
    directions: Any = True
    targets: Any = "auto"
    updates: bool = False  # whether the model is to take updates, which committees do not

    @property
    def by_committee(self) -> bool:
        """Whether the user chose the committee, by name or by a setting of its prediction."""
        committee_settings = self.combine != "auto" or self.experts_per_query != "auto"
        return bool(self.method == "committee" or (self.method == "auto" and committee_settings))


def families(kernel: Kernel) -> tuple[Family, ...]:
    """The kernels to choose from, smooth ones first, with the bounds and start values of a squared exponential."""
    parameters = kernel.parameters
    matern = [
        Family(family().with_parameters(parameters).with_categories(kernel.categories), stretch)
        for family, stretch in _STRETCHES.items()
    ]
    quadratic = RationalQuadratic().with_categories(kernel.categories)
    return Family(kernel), *matern, Family(quadratic.with_parameters((*parameters, quadratic.parameters[-1])))


def kernel(value: Any) -> Kernel | None:
    """A kernel, or an expression that describes one; None for "auto"."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return None
    if isinstance(value, str):
        return parse(value)
    if not isinstance(value, Kernel):
        raise InvalidParameter(f"kernel must be a gigagp.kernels.Kernel, its name or None; got {value!r}")
    return value


def class_families(kernel: Kernel) -> tuple[Family, ...]:
    """The kernels to choose from where targets are classes; the first has one length-scale for all columns.

    A label says little, and the length-scales of many columns cannot be learnt from few labels.
    """
    variance, scales = kernel.parameters[:2]
    equal = Matern32(
        variance.values[0], float(np.exp(np.mean(np.log(scales.values)))), ard=False,
        variance_bounds=variance.bounds, lengthscale_bounds=scales.bounds,
    ).with_categories(kernel.categories)  # fmt: skip
    rough = [
        Family(family().with_parameters(kernel.parameters).with_categories(kernel.categories), _STRETCHES[family])
        for family in (Matern32, Matern12)
    ]
    return Family(equal, _STRETCHES[Matern32]), Family(kernel), *rough


def column_names(name: str, *values: Any) -> list[Any]:
    """Names or numbers of columns, one or several in each of the values; those that occur twice once."""
    names: list[Any] = []
    for value in values:
        own = [] if value is None else [value] if isinstance(value, str | int | np.integer) else list(value)
        if any(isinstance(each, bool) or not isinstance(each, str | int | np.integer) for each in own):
            raise InvalidParameter(f"{name} must be names or numbers of columns; got {value!r}")
        names += own
    return list(dict.fromkeys(names))


def missing(value: Any) -> str:
    """What a fit does with rows with missing values."""
    return str(choose("missing", value, {name: name for name in ("error", "drop", "model")}))


def missing_queries(value: Any) -> str:
    """How rows with missing values are read for prediction: "keep" where they are to get no prediction."""
    return str(choose("missing", value, {"error": "error", "drop": "keep"}))


def sphere(value: Any) -> tuple[str | int, str | int] | str | None:
    """The columns of longitude and latitude, by name or number; "auto", or None for no such columns."""
    if value is None or (isinstance(value, bool | np.bool_) and not value):
        return None
    if isinstance(value, str) and value == "auto":
        return value
    pair = isinstance(value, tuple | list) and len(value) == 2
    if pair and all(isinstance(each, str | Integral) and not isinstance(each, bool) for each in value):
        first, second = (each if isinstance(each, str) else int(each) for each in value)
        return first, second
    raise InvalidParameter(
        f'sphere must be "auto", None, or the columns of longitude and latitude, such as ("lon", "lat"); got {value!r}'
    )


def warp(options: FitSettings, classes: bool) -> bool | None:
    """Whether columns of numbers become normal scores; None where held-out predictions are to decide.

    "auto": yes for classes, undecided for other targets; no if the user has chosen the kernel, whose length-scales are
    lengths in the user's columns.
    """
    value = options.warp
    automatic = isinstance(value, str) and value == "auto"
    if not automatic and not isinstance(value, bool | np.bool_):
        raise InvalidParameter(f'warp must be "auto", True or False; got {value!r}')
    standardize = switch("standardize", options.standardize)
    if automatic and standardize and kernel(options.kernel) is None:
        return True if classes else None
    if automatic:
        return False
    if value and not standardize:
        raise InvalidParameter("warp=True needs standardize=True: normal scores are standardised values")
    return bool(value)


def directions(options: FitSettings) -> bool:
    """Whether combinations of columns may take their places.

    Not if the user has chosen the kernel, whose length-scales are lengths in the user's columns, or the scaling.
    """
    standardize = switch("standardize", options.standardize)
    return switch("directions", options.directions) and standardize and kernel(options.kernel) is None


def levels(name: str, value: Any) -> Array:
    """Numbers between 0 and 1."""
    try:
        levels = np.atleast_1d(np.asarray(value, dtype=float))
    except (TypeError, ValueError):
        levels = np.full(1, np.nan)
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise InvalidParameter(f"{name} must be numbers between 0 and 1, both excluded; got {value!r}")
    return levels


def likelihood(value: Any) -> Likelihood | None:
    """A likelihood by name or as an object; None for "auto", "gaussian" and "student", which are exact."""
    if isinstance(value, Likelihood):
        return value
    made = choose("likelihood", value, {"auto": None, "gaussian": None, "student": None, **LIKELIHOODS})
    return None if made is None else made()


def check_for_likelihood(options: FitSettings, known_noise: bool) -> None:
    """Raise InvalidParameter for settings that need Gaussian targets: known noise, and a mean function."""
    if known_noise:
        raise InvalidParameter("noise_std is for targets with Gaussian noise; use sample_weight, or no likelihood")
    if not (isinstance(options.mean, str) and options.mean == "constant"):
        raise InvalidParameter("mean= is for targets with Gaussian noise; leave out mean=, or likelihood=")


def experts(options: FitSettings) -> str:
    """The setting `experts`, which likelihood="gaussian" or "student" decides where it is open."""
    decided = options.likelihood if options.likelihood in ("gaussian", "student") else "auto"
    if "auto" not in (decided, options.experts) and decided != options.experts:
        raise InvalidParameter(f"likelihood={decided!r} contradicts experts={options.experts!r}; leave one at 'auto'")
    return str(decided if options.experts == "auto" else options.experts)


def noise_bounds(bounds: Any) -> tuple[float, float]:
    """Two numbers, 0 < low <= high."""
    pair = isinstance(bounds, tuple | list | np.ndarray) and len(bounds) == 2
    if pair and all(isinstance(b, Real) for b in bounds):
        low, high = (float(b) for b in bounds)
        if 0 < low <= high < np.inf:
            return low, high
    raise InvalidParameter(f"noise_bounds must be two numbers, 0 < low <= high; got {bounds!r}")


def variance(target: Moments, options: FitSettings) -> float:
    """The variance of the function in the units of the model; one unless the target is not standardised."""
    if switch("standardize", options.standardize) or likelihood(options.likelihood) is not None:
        return 1.0
    with np.errstate(over="ignore"):
        variance = max(float(np.square(target.deviation[0])), 1e-300)
    if not variance < 1e290:
        raise InvalidInput("y is too large for standardize=False: its variance overflows; scale it, or standardise")
    return variance


def precision(dtype: Any) -> np.dtype[Any]:
    """float64 or float32, by name or as NumPy's type."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    return np.dtype(str(choose("dtype", name, {"float64": "float64", "float32": "float32"})))


def seed(random_state: Any) -> np.random.SeedSequence:
    """A seed sequence from whatever scikit-learn users pass."""
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(int(random_state.integers(2**32)))
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(int(random_state.randint(2**31 - 1)))
    if random_state is None or (isinstance(random_state, int | np.integer) and random_state >= 0):
        return np.random.SeedSequence(None if random_state is None else int(random_state))
    raise InvalidParameter(
        f"random_state must be None, a whole number of at least 0 or a generator; got {random_state!r}"
    )


def experts_per_query(k: Any) -> int | str | None:
    """How many experts answer a query: "auto", None for all, or a whole number."""
    whole = isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1
    if not (k is None or k == "auto" or whole):
        raise InvalidParameter(f"experts_per_query must be 'auto', None (all) or a positive whole number; got {k!r}")
    return int(k) if whole else k


def neighbours(m: Any) -> int | None:
    """How many rows a prediction uses: "auto" (None) or a whole number."""
    if isinstance(m, str) and m == "auto":
        return None
    if isinstance(m, int | np.integer) and not isinstance(m, bool) and m >= 1:
        return int(m)
    raise InvalidParameter(f"neighbours must be 'auto' or a positive whole number; got {m!r}")


def inducing(leaf: Any, count: Any) -> int | None:
    """The number of inducing points of each leaf; None for exact leaves."""
    sparse = choose("leaf", leaf, {"exact": False, "sparse": True})
    whole = isinstance(count, Integral) and not isinstance(count, bool)
    if not (whole and count >= 1):
        raise InvalidParameter(f"inducing must be a whole number of at least 1; got {count!r}")
    return int(count) if sparse else None


def switch(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameter(f"{name} must be True or False; got {value!r}")
    return bool(value)


def count(name: str, value: Any) -> int:
    """A whole number of at least 0."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise InvalidParameter(f"{name} must be a whole number of at least 0; got {value!r}")
    return int(value)

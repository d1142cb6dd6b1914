"""Makes the plan of a fit from the user's settings and a scan of the data."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from gigagp import memory
from gigagp.combine import CombinationRule, JointRule, rule
from gigagp.data.scaling import Moments
from gigagp.data.scan import Scan
from gigagp.data.store import split_targets
from gigagp.errors import InvalidParameter, callers_level, choose
from gigagp.fit import settings
from gigagp.fit.exact_answers import most_rows
from gigagp.fit.plan import Plan
from gigagp.fit.settings import FitSettings
from gigagp.fit.small_tables import is_small, may_be_exact
from gigagp.fit.training import Precision
from gigagp.kernels import Kernel, OnColumns, Periodic, SquaredExponential
from gigagp.kernels.compose import parts
from gigagp.kernels.inputs import InputColumns
from gigagp.kernels.periodic import periodic_columns
from gigagp.likelihoods import Bernoulli, Classes, Likelihood
from gigagp.linalg.row_noise import FACTOR
from gigagp.model.likelihood_model import LikelihoodModel
from gigagp.model.model import CommitteeDefaults
from gigagp.partition import Partitioner, Shape

_LATENT_VARIANCE = 10.0  # of a latent function at the start: logits of classes that are clear
_LEAST_LATENT_VARIANCE = 0.1  # of a latent function at the start, where targets hardly vary
_START_DISPERSION = 0.1  # of a likelihood
_START_NOISE = 0.1  # share of the target's variance
_SPARSE_LEAF = 4096  # rows of a sparse leaf
_ONE_LEAF_ROWS = 2048  # rows up to which a kernel to which far rows matter is one exact GP on all rows
_NO_NOISE = {"float64": 1e-10, "float32": 1e-6}  # share of the target's variance, where only known noise is present


def make_plan(
    options: FitSettings, data: Scan, partitioner: Partitioner, columns: InputColumns, learn_noise: bool = True
) -> Plan:
    """The plan of a fit, with every setting checked and resolved.

    columns : names and units of the inputs, for the kernel
    learn_noise : False where rows have no noise but the known one
    """
    own_kernel = settings.kernel(options.kernel)
    inducing = settings.inducing(options.leaf, options.inducing)
    shape = Shape(options.levels, options.branching, options.leaf_size, options.sharing)
    one_leaf = inducing is None and _is_one_leaf(own_kernel, shape, data.rows, partitioner, options)
    if one_leaf:
        shape = replace(shape, leaf_size=data.rows)
    elif inducing is not None and shape.free:
        shape = replace(shape, leaf_size=_SPARSE_LEAF)
    partitioner.check(data.rows, shape)
    combination = rule(options.combine, CommitteeDefaults.of(partitioner.local).rule)
    nearest = settings.experts_per_query(options.experts_per_query)
    own_scales = {"auto": partitioner.local and inducing is None, "gaussian": False, "student": True}
    student = choose("experts", settings.experts(options), own_scales)
    method = "committee" if one_leaf else _method(options, partitioner)
    if inducing is not None:
        method = _sparse_method(options, combination, student)
    noise = _noise(options, data, method)
    choose("training", options.training, dict.fromkeys(("auto", "full", "progressive")))
    variance = settings.variance(data.target, options)
    unit = _typical_weight(data)
    low, high = (bound * variance * unit for bound in settings.noise_bounds(options.noise_bounds))
    if not learn_noise:
        low = high = min(low, _NO_NOISE[settings.precision(options.dtype).name] * variance)
    varies = not data.target.constant[0]
    kernel = own_kernel.bound(columns) if own_kernel else _default_kernel(options, data.inputs, variance, columns)
    if partitioner.local and not one_leaf and kernel.metric(kernel.theta) is None:
        warnings.warn(
            f'{own_kernel!r} has no metric, so partition="local" divides the rows in plain standardised units; '
            'partition="stratified" or "random" assume no locality',
            UserWarning, stacklevel=callers_level(),
        )  # fmt: skip
    plan = Plan(
        kernel=kernel,
        noise_start=float(np.clip(_START_NOISE * variance * unit, low, high)) if varies else low,
        noise_bounds=(low, high),
        partitioner=partitioner,
        shape=shape,
        training=options.training,
        precision=Precision.of(settings.precision(options.dtype).name),
        restarts=settings.count("n_restarts", options.n_restarts),
        student=student,
        inducing=inducing,
        rule=None if isinstance(options.combine, str) and options.combine == "auto" else combination,
        nearest=nearest,
        calibrate=settings.switch("calibrate", options.calibrate),
        families=settings.families(kernel) if own_kernel is None and partitioner.local and inducing is None else (),
        method=method,
        neighbours=settings.neighbours(options.neighbours),
        exact_search=settings.switch("exact_neighbours", options.exact_neighbours),
        target_variance=variance,
        noise_unit=unit,
        noise=noise,
        train=varies,
        categories=columns.categories,
        gaussian_errors=options.likelihood == "gaussian",
    )
    return _with_method(plan, options, data.rows)


def _with_method(plan: Plan, options: FitSettings, rows: int) -> Plan:
    """The plan with what its other settings mean for the method of prediction."""
    plan = replace(plan, directions=settings.directions(options))
    if may_be_exact(plan):
        plan = replace(plan, exact_rows=most_rows(memory.budget(options.memory)))
    if plan.noise == "inputs":
        plan = replace(plan, method="neighbourhood")
    return _for_updates(plan, rows) if options.updates else plan


def _for_updates(plan: Plan, rows: int) -> Plan:
    """The plan of a model that is to take updates: its rows predict directly, not through a committee."""
    if plan.method == "committee" or plan.kernel.metric(plan.kernel.theta) is None:
        raise InvalidParameter(
            'updates need predictions from neighbouring rows: partition="local", a kernel with a metric, and none of '
            "the settings of a committee (method, sharing, combine, experts_per_query, leaf); change them, or use fit"
        )
    return plan if is_small(plan, rows) else replace(plan, method="neighbourhood", exact_rows=0)


def circles_of(
    options: FitSettings, columns: InputColumns, rows: int, partitioner: Partitioner
) -> tuple[tuple[int, float], ...]:
    """Columns of numbers onto whose circles the metric of a periodic kernel refers, and their periods, in model units.

    None where all rows are one leaf, or where the partition is not local: distances do not matter then.
    """
    kernel = settings.kernel(options.kernel)
    shape = Shape(options.levels, options.branching, options.leaf_size, options.sharing)
    if kernel is None or not partitioner.local or _is_one_leaf(kernel, shape, rows, partitioner, options):
        return ()
    pairs: list[tuple[int, float]] = []
    for part in parts(kernel.bound(columns)):
        if isinstance(part.kernel if isinstance(part, OnColumns) else part, Periodic):
            pairs += periodic_columns(part)
    numbers = set(range(columns.count)) - set(columns.together) - set(columns.categories)
    return tuple(dict.fromkeys(pair for pair in pairs if pair[0] in numbers))


def _is_one_leaf(
    kernel: Kernel | None, shape: Shape, rows: int, partitioner: Partitioner, options: FitSettings
) -> bool:
    """Whether one exact GP on all rows is affordable, needed because far rows matter to the kernel, and not excluded.

    A trend or a season that is learnt in one place continues in others, so neighbouring rows do not suffice.
    """
    open_shape = all(each is None for each in (shape.levels, shape.branching, shape.leaf_size, shape.sharing))
    far_rows_matter = kernel is not None and not kernel.local
    open_method = options.method == "auto" and not options.updates
    return far_rows_matter and rows <= _ONE_LEAF_ROWS and open_shape and partitioner.local and open_method


def plan_for_latents(
    plan: Plan, options: FitSettings, data: Scan, classes: Classes | None, likelihood: Likelihood | None
) -> Plan:
    """The plan where targets are classes or have a likelihood of their own; else the plan as it is."""
    if classes is not None:
        return _plan_for_classes(plan, options, classes)
    if likelihood is None:
        return plan
    mean, deviation = float(data.target.mean[0]), float(data.target.deviation[0])
    model = LikelihoodModel.of(likelihood, mean, deviation**2, data.target.count)
    return _plan_for_likelihood(plan, options, model)


def _plan_for_classes(plan: Plan, options: FitSettings, classes: Classes) -> Plan:
    """The plan where targets are classes: the noise is that of their likelihood, and only neighbourhoods predict."""
    kernel, own_kernel = plan.kernel, settings.kernel(options.kernel)
    if kernel.metric(kernel.theta) is None or not plan.partitioner.local:
        raise InvalidParameter(
            f"classes are predicted from neighbouring rows, which needs a kernel with a metric; {kernel!r} has none"
        )
    if own_kernel is None:
        kernel = kernel.with_theta(np.append(np.log(_LATENT_VARIANCE), kernel.theta[1:]))
    return replace(
        plan,
        kernel=kernel,
        noise_start=_NO_NOISE["float64"],
        noise_bounds=(_NO_NOISE["float64"], _NO_NOISE["float64"]),
        student=False,
        families=settings.class_families(kernel) if own_kernel is None else (),
        method="neighbourhood",
        latents=classes,
    )


def _plan_for_likelihood(plan: Plan, options: FitSettings, model: LikelihoodModel) -> Plan:
    """The plan where targets have a likelihood that is not Gaussian: its dispersion takes the place of the noise."""
    _check_for_likelihood(plan, options)
    kernel, own_kernel, likelihood = plan.kernel, settings.kernel(options.kernel), model.likelihood
    if own_kernel is None:
        start = model.prior_variance if model.prior_variance > 0 else _LATENT_VARIANCE
        kernel = kernel.with_theta(np.append(np.log(max(start, _LEAST_LATENT_VARIANCE)), kernel.theta[1:]))
    low, high = settings.noise_bounds(options.noise_bounds) if likelihood.has_dispersion else (1.0, 1.0)
    families = settings.class_families if isinstance(likelihood, Bernoulli) else settings.families
    return replace(
        plan,
        kernel=kernel,
        noise_start=float(np.clip(_START_DISPERSION, low, high)),
        noise_bounds=(low, high),
        student=False,
        families=families(kernel) if own_kernel is None else (),
        method="neighbourhood",
        noise="constant",
        likelihood=model,
        latents=model.latents,
    )


def _check_for_likelihood(plan: Plan, options: FitSettings) -> None:
    """InvalidParameter for settings that only Gaussian targets have."""
    name = options.likelihood if isinstance(options.likelihood, str) else type(options.likelihood).__name__
    if not plan.partitioner.local or plan.kernel.metric(plan.kernel.theta) is None:
        raise InvalidParameter(
            f'likelihood={name!r} predicts from neighbouring rows, which needs partition="local" and a kernel with a '
            f"metric; got {plan.partitioner!r} and {plan.kernel!r}"
        )
    committee = options.by_committee or options.sharing is not None
    if committee or options.leaf == "sparse":
        raise InvalidParameter(
            f"likelihood={name!r} predicts from neighbouring rows; leave method, sharing, combine, experts_per_query "
            "and leaf at their defaults, which are for committees of Gaussian experts"
        )
    if options.experts == "student" or options.noise == "inputs":
        given = f"experts={options.experts!r}" if options.experts == "student" else f"noise={options.noise!r}"
        raise InvalidParameter(f"likelihood={name!r} has no Gaussian noise; leave out {given}")


def _typical_weight(data: Scan) -> float:
    """The median weight of the sampled rows: bounds and start of the noise hold for a row of this weight."""
    _, row_noise = split_targets(data.sample.y)
    return 1.0 if row_noise is None else float(1 / np.median(row_noise[:, FACTOR]))


def _method(options: FitSettings, partitioner: Partitioner) -> str:
    """How queries are answered; a setting that only a committee has selects the committee."""
    choose("method", options.method, dict.fromkeys(("auto", "neighbourhood", "committee")))
    if options.method == "auto":
        committee = options.by_committee or options.sharing is not None or not partitioner.local
        return "committee" if committee else "auto"
    if options.method == "neighbourhood" and not partitioner.local:
        raise InvalidParameter('method="neighbourhood" needs partition="local", which keeps neighbours together')
    return str(options.method)


def _noise(options: FitSettings, data: Scan, method: str) -> str:
    """Whether the noise may depend on the inputs: only neighbourhoods, and rows whose noise is not given."""
    noise = str(choose("noise", options.noise, {name: name for name in ("constant", "inputs", "auto")}))
    given = split_targets(data.sample.y)[1] is not None
    if noise == "inputs" and method == "committee":
        raise InvalidParameter('noise="inputs" needs predictions by neighbourhoods: partition="local", not a committee')
    if noise == "inputs" and given:
        raise InvalidParameter('noise="inputs" learns the noise of each row; do not pass sample_weight or noise_std')
    return "constant" if given or method == "committee" else noise


def _sparse_method(options: FitSettings, combination: CombinationRule, student: bool) -> str:
    """Sparse experts predict; InvalidParameter for settings that they do not have."""
    if options.method == "neighbourhood":
        raise InvalidParameter('leaf="sparse" needs method="committee": a neighbourhood does not use the leaves')
    if student:
        raise InvalidParameter('leaf="sparse" needs experts="gaussian": the bound has no scale per expert')
    if isinstance(combination, JointRule):
        raise InvalidParameter(f'leaf="sparse" has no covariances between experts, which {combination!r} needs')
    return "committee"


def _default_kernel(options: FitSettings, inputs: Moments, variance: float, columns: InputColumns) -> Kernel:
    """A squared exponential of the target's variance whose length-scales span the data."""
    groups = columns.groups(range(columns.count))
    D = columns.count - bool(columns.together)  # dimensions: a place on the sphere has two
    if options.standardize:
        return SquaredExponential(1.0, [D**0.5] * len(groups)).bound(columns)
    deviations = np.array([np.sqrt(np.square(inputs.deviation[list(group)]).mean()) for group in groups])
    deviations[[number for number, group in enumerate(groups) if group[0] in columns.categories]] = 1.0
    width = np.where(deviations > 0, deviations, 1.0)
    return SquaredExponential(
        variance, D**0.5 * width, variance_bounds=(1e-4 * variance, 1e4 * variance),
        lengthscale_bounds=(1e-3 * float(width.min()), 1e3 * float(width.max())),
    ).bound(columns)  # fmt: skip

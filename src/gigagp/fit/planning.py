"""Makes the plan of a fit from the user's settings and a scan of the data."""

from __future__ import annotations

import warnings

import numpy as np

from gigagp.combine import rule
from gigagp.data.scaling import Moments
from gigagp.data.scan import Scan
from gigagp.data.store import split_targets
from gigagp.errors import InvalidParameter, choose
from gigagp.fit import settings
from gigagp.fit.plan import Plan
from gigagp.fit.settings import FitSettings
from gigagp.fit.training import Precision
from gigagp.kernels import Kernel, SquaredExponential
from gigagp.linalg.row_noise import FACTOR
from gigagp.model.model import CommitteeDefaults
from gigagp.partition import Partitioner, Shape

_START_NOISE = 0.1  # share of the target's variance
_NO_NOISE = {"float64": 1e-10, "float32": 1e-6}  # share of the target's variance, where only known noise is present
_STACK_LEVEL = 4  # frames up to the caller of an estimator's fit, which plans through `fitting.fit_model`


def make_plan(options: FitSettings, data: Scan, partitioner: Partitioner, learn_noise: bool = True) -> Plan:
    """The plan of a fit, with every setting checked and resolved.

    learn_noise : False where rows have no noise but the known one
    """
    shape = Shape(options.levels, options.branching, options.leaf_size, options.sharing)
    partitioner.check(data.rows, shape)
    combination = rule(options.combine, CommitteeDefaults.of(partitioner.local).rule)
    nearest = settings.experts_per_query(options.experts_per_query)
    student = choose("experts", options.experts, {"auto": partitioner.local, "gaussian": False, "student": True})
    calibrate = settings.switch("calibrate", options.calibrate)
    method = _method(options, partitioner)
    choose("training", options.training, dict.fromkeys(("auto", "full", "progressive")))
    restarts = settings.count("n_restarts", options.n_restarts)
    variance = 1.0 if settings.switch("standardize", options.standardize) else settings.variance(data.target)
    unit = _typical_weight(data)
    low, high = (bound * variance * unit for bound in settings.noise_bounds(options.noise_bounds))
    if not learn_noise:
        low = high = min(low, _NO_NOISE[settings.precision(options.dtype).name] * variance)
    varies = not data.target.constant[0]
    kernel = _start_kernel(options, data.inputs, variance)
    if partitioner.local and kernel.metric(kernel.theta) is None:
        warnings.warn(
            f'{kernel!r} has no metric, so partition="local" divides the rows in plain standardised units; '
            'partition="stratified" or "random" assume no locality',
            UserWarning, stacklevel=_STACK_LEVEL,
        )  # fmt: skip
    return Plan(
        kernel=kernel,
        noise_start=float(np.clip(_START_NOISE * variance * unit, low, high)) if varies else low,
        noise_bounds=(low, high),
        partitioner=partitioner,
        shape=shape,
        training=options.training,
        precision=Precision.of(settings.precision(options.dtype).name),
        restarts=restarts,
        student=student,
        rule=None if isinstance(options.combine, str) and options.combine == "auto" else combination,
        nearest=nearest,
        calibrate=calibrate,
        families=settings.families(kernel) if options.kernel is None and partitioner.local else (),
        method=method,
        neighbours=settings.neighbours(options.neighbours),
        exact_search=settings.switch("exact_neighbours", options.exact_neighbours),
        target_variance=variance,
        noise_unit=unit,
        train=varies,
    )


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


def _start_kernel(options: FitSettings, inputs: Moments, variance: float) -> Kernel:
    """The user's kernel, or a squared exponential of the target's variance whose length-scales span the data."""
    D = len(inputs.low)
    if options.kernel is None:
        if options.standardize:
            return SquaredExponential(1.0, [D**0.5] * D)
        width = np.where(inputs.deviation > 0, inputs.deviation, 1.0)
        return SquaredExponential(
            variance, D**0.5 * width, variance_bounds=(1e-4 * variance, 1e4 * variance),
            lengthscale_bounds=(1e-3 * float(width.min()), 1e3 * float(width.max())),
        )  # fmt: skip
    if not isinstance(options.kernel, Kernel):
        raise InvalidParameter(f"kernel must be a gigagp.kernels.Kernel or None; got {options.kernel!r}")
    return options.kernel.bind(D)

"""From the settings that a user has given and a scan of the data to the plan of a fit."""

from __future__ import annotations

import warnings

import numpy as np

from gigagp.combine import rule
from gigagp.data.scaling import Moments
from gigagp.data.scan import Scan
from gigagp.errors import InvalidParameter, choose
from gigagp.fit import settings
from gigagp.fit.plan import Plan
from gigagp.fit.settings import FitSettings
from gigagp.fit.training import Precision
from gigagp.kernels import Kernel, SquaredExponential
from gigagp.model.model import CommitteeDefaults
from gigagp.partition import Partitioner, Shape

_START_NOISE = 0.1  # share of the target's variance
_STACK_LEVEL = 4  # of the caller of an estimator's fit, which plans through `fitting.fit_model`


def make_plan(given: FitSettings, data: Scan, partitioner: Partitioner) -> Plan:
    """Every setting resolved and checked."""
    shape = Shape(given.levels, given.branching, given.leaf_size, given.sharing)
    partitioner.check(data.rows, shape)
    combination = rule(given.combine, CommitteeDefaults.of(partitioner.local).rule)
    nearest = settings.experts_per_query(given.experts_per_query)
    student = choose("experts", given.experts, {"auto": partitioner.local, "gaussian": False, "student": True})
    calibrate = settings.switch("calibrate", given.calibrate)
    method = _method(given, partitioner)
    choose("training", given.training, dict.fromkeys(("auto", "full", "progressive")))
    restarts = settings.count("n_restarts", given.n_restarts)
    variance = 1.0 if settings.switch("standardize", given.standardize) else settings.variance(data.target)
    low, high = (bound * variance for bound in settings.noise_bounds(given.noise_bounds))
    varies = not data.target.constant[0]
    kernel = _start_kernel(given, data.inputs, variance)
    if partitioner.local and kernel.metric(kernel.theta) is None:
        warnings.warn(
            f'{kernel!r} has no metric, so partition="local" divides the rows in plain standardised units; '
            'partition="stratified" or "random" assume no locality',
            UserWarning, stacklevel=_STACK_LEVEL,
        )  # fmt: skip
    return Plan(
        kernel=kernel,
        noise_start=float(np.clip(_START_NOISE * variance, low, high)) if varies else low,
        noise_bounds=(low, high),
        partitioner=partitioner,
        shape=shape,
        training=given.training,
        precision=Precision.of(settings.precision(given.dtype).name),
        restarts=restarts,
        student=student,
        rule=None if isinstance(given.combine, str) and given.combine == "auto" else combination,
        nearest=nearest,
        calibrate=calibrate,
        families=settings.families(kernel) if given.kernel is None and partitioner.local else (),
        method=method,
        neighbours=settings.neighbours(given.neighbours),
        exact_search=settings.switch("exact_neighbours", given.exact_neighbours),
        target_variance=variance,
        train=varies,
    )


def _method(given: FitSettings, partitioner: Partitioner) -> str:
    """How queries are answered: settings of the committee ask for it."""
    choose("method", given.method, dict.fromkeys(("auto", "neighbourhood", "committee")))
    if given.method == "auto":
        committee = given.by_committee or given.sharing is not None or not partitioner.local
        return "committee" if committee else "auto"
    if given.method == "neighbourhood" and not partitioner.local:
        raise InvalidParameter('method="neighbourhood" needs partition="local", which keeps neighbours together')
    return str(given.method)


def _start_kernel(given: FitSettings, inputs: Moments, variance: float) -> Kernel:
    """The user's kernel, or a squared exponential of the target's variance whose length-scales span the data."""
    D = len(inputs.low)
    if given.kernel is None:
        if given.standardize:
            return SquaredExponential(1.0, [D**0.5] * D)
        width = np.where(inputs.deviation > 0, inputs.deviation, 1.0)
        return SquaredExponential(
            variance, D**0.5 * width, variance_bounds=(1e-4 * variance, 1e4 * variance),
            lengthscale_bounds=(1e-3 * float(width.min()), 1e3 * float(width.max())),
        )  # fmt: skip
    if not isinstance(given.kernel, Kernel):
        raise InvalidParameter(f"kernel must be a gigagp.kernels.Kernel or None; got {given.kernel!r}")
    return given.kernel.bind(D)

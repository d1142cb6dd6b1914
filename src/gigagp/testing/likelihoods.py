"""The check of a likelihood: its methods must describe one and the same distribution."""

from __future__ import annotations

import pickle

import numpy as np

from gigagp.arrays import Array
from gigagp.kernels import SquaredExponential
from gigagp.likelihoods import LaplaceEvidence, Likelihood, SingleLatent
from gigagp.likelihoods.pointwise import PYTHON
from gigagp.linalg.workspace import Workspace

_LATENTS = np.linspace(-1.5, 2.5, 9)  # values of f at which it is checked
_DISPERSIONS = (0.2, 1.3)
_STEP = 2e-3  # of f and ln d in five-point differences, whose error is of fourth order
_RELATIVE = 1e-6  # tolerance of derivatives
_DRAWS = 20_000  # of y for each f
_STANDARD_ERRORS = 6.0  # by which averages of draws may differ from what the methods say


def check_likelihood(likelihood: Likelihood, seed: int = 0) -> None:
    """Check that density, derivatives, moments, distribution function and draws of a likelihood are consistent."""
    name = repr(likelihood)
    _ensure(isinstance(likelihood, Likelihood), f"{name} must be a gigagp.likelihoods.Likelihood")
    restored = pickle.loads(pickle.dumps(likelihood))
    _ensure(restored == likelihood, f"{name} must be the same after pickling, since it travels to other processes")
    finite = np.isfinite(likelihood.lowest)
    _ensure(not likelihood.discrete or finite, f"{name} is discrete; it must say what the lowest target is")
    means = likelihood.mean(_LATENTS)
    _ensure(bool((np.diff(means) > 0).all()), f"the mean of {name} must increase with f")
    _close(likelihood.latent(means), _LATENTS, 1e-8, f"latent must be the inverse of mean in {name}")
    for d in _DISPERSIONS if likelihood.has_dispersion else (1.0,):
        rng = np.random.default_rng(seed)
        draws = likelihood.sample(np.tile(_LATENTS[:, None], _DRAWS), d, rng)
        _ensure(draws.shape == (len(_LATENTS), _DRAWS), f"sample of {name} must have the shape of f")
        _ensure(bool(likelihood.is_possible(draws).all()), f"sample of {name} draws a target that is_possible denies")
        y, f = draws[:, :20].ravel(), np.repeat(_LATENTS, 20)
        originals = y.copy(), f.copy()
        _check_derivatives(likelihood, y, f, d)
        _check_distribution(likelihood, y, f, d)
        _check_moments(likelihood, draws, d)
        _check_compiled(likelihood, y[::4], f[::4], d)
        same = np.array_equal(y, originals[0]) and np.array_equal(f, originals[1])
        _ensure(same, f"{name} changes the arrays it is given; it must only read them")


def _slopes(values: dict[int, Array]) -> Array:
    """Derivatives by five-point differences, from values at -2, -1, 1 and 2 steps."""
    return np.asarray((8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * _STEP))


def _check_derivatives(likelihood: Likelihood, y: Array, f: Array, d: float) -> None:
    name, places = repr(likelihood), (-2, -1, 1, 2)
    got = likelihood.derivatives(y, f, d)
    logs = {k: likelihood.log_density(y, f + k * _STEP, d) for k in places}
    near = {k: likelihood.derivatives(y, f + k * _STEP, d) for k in places}
    _close(got.slope, _slopes(logs), _RELATIVE, f"the slope of {name} must be the derivative of log_density by f")
    slopes = _slopes({k: near[k].slope for k in places})
    _close(got.curvature, -slopes, _RELATIVE, f"the curvature of {name} must be minus the derivative of its slope")
    curvatures = _slopes({k: near[k].curvature for k in places})
    sentence = f"the third derivative of {name} must be minus the derivative of its curvature"
    _close(got.third, -curvatures, _RELATIVE, sentence)
    _ensure(bool((got.curvature > 0).all()), f"log_density of {name} must be concave: a curvature is not positive")
    if not likelihood.has_dispersion:
        return
    by_d = likelihood.dispersion_derivatives(y, f, d)
    logs = {k: likelihood.log_density(y, f, d * np.exp(k * _STEP)) for k in places}
    near = {k: likelihood.derivatives(y, f, d * np.exp(k * _STEP)) for k in places}
    for part, values in (
        ("log_density", logs),
        ("slope", {k: near[k].slope for k in places}),
        ("curvature", {k: near[k].curvature for k in places}),
    ):
        sentence = f"dispersion_derivatives of {name}: {part} must be its derivative by ln d"
        _close(getattr(by_d, part), _slopes(values), _RELATIVE, sentence)


def _check_distribution(likelihood: Likelihood, y: Array, f: Array, d: float) -> None:
    """The density belongs to the distribution function."""
    name = repr(likelihood)
    if likelihood.discrete:
        jump = likelihood.cdf(y, f, d) - likelihood.cdf(y - 1, f, d)
        sentence = f"the probability of a target of {name} must be the step of its cdf there"
        whole = y == np.floor(y)
        _close(np.exp(likelihood.log_density(y, f, d))[whole], jump[whole], 1e-7, sentence)
        below = likelihood.cdf(np.full(len(f), likelihood.lowest - 1), f, d)
        _ensure(bool((below == 0).all()), f"the cdf of {name} must be zero below its lowest target")
        return
    step = _STEP * np.maximum(np.abs(y), 1e-3)
    values = {k: likelihood.cdf(y + k * step, f, d) for k in (-2, -1, 1, 2)}
    density = _slopes(values) * _STEP / step
    _close(
        np.exp(likelihood.log_density(y, f, d)), density, 1e-4, f"the density of {name} must be the slope of its cdf"
    )


def _check_moments(likelihood: Likelihood, draws: Array, d: float) -> None:
    """The means of draws agree with the methods that compute moments."""
    name, f, root = repr(likelihood), _LATENTS, np.sqrt(draws.shape[1])

    def agrees(values: Array, expected: Array, sentence: str) -> None:
        error = _STANDARD_ERRORS * values.std(axis=1) / root + 1e-9 * np.abs(expected)
        _ensure(bool((np.abs(values.mean(axis=1) - expected) <= error).all()), sentence)

    centre = likelihood.mean(f)
    agrees(draws, centre, f"mean of {name} is not the mean of its draws")
    agrees((draws - centre[:, None]) ** 2, likelihood.variance(f, d), f"variance of {name} is not that of its draws")
    middle = np.median(draws, axis=1)
    below = draws <= middle[:, None]
    agrees(below.astype(float), likelihood.cdf(middle, f, d), f"cdf of {name} is not the share of draws up to a value")
    partial = likelihood.partial_mean(middle, f, d)
    agrees(draws * below, partial, f"partial_mean of {name} is not the mean of draws up to a value, others as zero")


def _check_compiled(likelihood: Likelihood, y: Array, f: Array, d: float) -> None:
    """A built-in likelihood is compiled as well; the same evidence must follow from its methods."""
    if likelihood.compiled == PYTHON:
        return
    kernel, X = SquaredExponential(1.0, 2.0), np.linspace(0, 9, len(y))[:, None]
    plain = type(likelihood.__class__.__name__, (likelihood.__class__,), {"compiled": PYTHON})(**vars(likelihood))
    theta, mean = np.append(kernel.bind(1).theta, np.log(d)), float(f.mean())
    one, other = (
        LaplaceEvidence(kernel.bind(1), theta, SingleLatent(each, mean))(0, X, y, Workspace())
        for each in (likelihood, plain)
    )
    sentence = f"the compiled code of {likelihood!r} differs from its methods"
    _close(np.append(one.value, one.gradient), np.append(other.value, other.gradient), 1e-7, sentence)


def _ensure(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _close(got: Array, right: Array, tolerance: float, sentence: str) -> None:
    size = np.maximum(np.abs(right), 1e-3 * np.abs(right).max(initial=1.0))
    off = float((np.abs(got - right) / size).max(initial=0.0))
    _ensure(off <= tolerance, f"{sentence}; the relative error is {off:.1e}")

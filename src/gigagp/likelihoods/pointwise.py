"""The built-in likelihoods, compiled: ln p(y | f) of one target and its derivatives, by the number of the likelihood.

The formulas are those of the classes (`poisson`, `negative_binomial`, ...), which say where they come from; the
conformance kit compares both. d is the dispersion. Likelihoods that users write have no number here.
"""

from math import lgamma

import numpy as np

from gigagp.linalg.compiled import compiled_strict

PYTHON = 0  # not compiled: the methods of the likelihood are called
BERNOULLI = 1
POISSON = 2
NEGATIVE_BINOMIAL = 3
GAMMA = 4
GAUSSIAN = 5

_LARGEST_EXPONENT = 500.0  # exp of more would overflow in products; such f are far beyond every target
_ASYMPTOTIC = 10.0  # argument from which the series of the digamma function is precise


@compiled_strict
def log_density(kind: int, d: float, y: float, f: float) -> float:
    """The terms of ln p(y | f) that depend on f."""
    value: float
    if kind == BERNOULLI:
        value = -np.log1p(np.exp(-abs(f))) + (y * f - max(f, 0.0))
    elif kind == POISSON:
        value = y * f - np.exp(f)
    elif kind == NEGATIVE_BINOMIAL:
        value = y * f - (y + 1 / d) * np.log1p(d * np.exp(f))
    elif kind == GAMMA:
        value = -(f + y * np.exp(-f)) / d
    else:
        value = -0.5 * (y - f) * (y - f) / d
    return value


@compiled_strict
def log_constant(kind: int, d: float, y: float) -> float:
    """The terms of ln p(y | f) that do not depend on f."""
    if kind == BERNOULLI:
        value = 0.0
    elif kind == POISSON:
        value = -lgamma(y + 1)
    elif kind == NEGATIVE_BINOMIAL:
        value = lgamma(y + 1 / d) - lgamma(1 / d) - lgamma(y + 1) + y * np.log(d)
    elif kind == GAMMA:
        value = -np.log(d) / d - lgamma(1 / d) + (1 / d - 1) * np.log(y)
    else:
        value = -0.5 * np.log(2 * np.pi * d)
    return value


@compiled_strict
def derivatives(kind: int, d: float, y: float, f: float) -> tuple[float, float, float]:
    """Of ln p by f: the slope, minus the curvature, and the third derivative divided by minus the curvature."""
    if kind == BERNOULLI:
        e = np.exp(-abs(f))
        rest = e / (1 + e)  # probability of the less probable label
        pi, other = (rest, 1 - rest) if f < 0 else (1 - rest, rest)
        return y * other - (1 - y) * pi, rest * (1 - rest), 2 * pi - 1
    if kind == POISSON:
        mu = np.exp(min(f, _LARGEST_EXPONENT))
        return y - mu, mu, -1.0
    if kind == NEGATIVE_BINOMIAL:
        mu = np.exp(min(f, _LARGEST_EXPONENT))
        s = 1 + d * mu
        return (y - mu) / s, mu / s * ((1 + d * y) / s), (d * mu - 1) / s
    if kind == GAMMA:
        ratio = y * np.exp(min(-f, _LARGEST_EXPONENT))
        return (ratio - 1) / d, ratio / d, 1.0
    return (y - f) / d, 1 / d, 0.0


@compiled_strict
def dispersion_derivatives(kind: int, d: float, y: float, f: float) -> tuple[float, float, float]:
    """The derivatives of ln p, of its slope and of minus its curvature by ln d; zeros where there is no dispersion."""
    slope, curvature, _ = derivatives(kind, d, y, f)
    if kind == NEGATIVE_BINOMIAL:
        mu = np.exp(min(f, _LARGEST_EXPONENT))
        s = 1 + d * mu
        part = d * mu / s
        value = y - (digamma(y + 1 / d) - digamma(1 / d)) / d + np.log1p(d * mu) / d - (y + 1 / d) * part
        return value, -slope * part, d * y * mu / (s * s) - 2 * curvature * part
    if kind == GAMMA:
        ratio = y * np.exp(min(-f, _LARGEST_EXPONENT))
        return -(1 - np.log(d) - digamma(1 / d) + np.log(y) - f - ratio) / d, -slope, -curvature
    if kind == GAUSSIAN:
        return 0.5 * (y - f) * (y - f) / d - 0.5, -slope, -curvature
    return 0.0, 0.0, 0.0


@compiled_strict
def newton_start(kind: int, y: float, mean: float) -> float:
    """The f at which Newton's method is first linearised: near the target where it says much, else the prior mean."""
    if kind in (POISSON, NEGATIVE_BINOMIAL):
        return np.log(y + 0.5)  # type: ignore[no-any-return]
    if kind == GAMMA:
        return np.log(y)  # type: ignore[no-any-return]
    return mean


@compiled_strict
def digamma(x: float) -> float:
    """The derivative of ln Gamma: the recurrence, then the asymptotic series (Abramowitz & Stegun 1964, 6.3.18)."""
    shift = 0.0
    while x < _ASYMPTOTIC:
        shift += 1 / x
        x += 1
    z = 1 / (x * x)
    series = z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760 - z / 12))))))
    return np.log(x) - 0.5 / x - series - shift  # type: ignore[no-any-return]

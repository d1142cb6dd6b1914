"""The Bernoulli likelihood of a label t, 0 or 1, with the logistic link: p(t = 1 | f) = 1 / (1 + exp(-f)).

With pi = p(t = 1 | f): d ln p / df = t - pi, d^2 ln p / df^2 = -pi (1 - pi), d^3 ln p / df^3 = -pi (1 - pi) (1 - 2 pi)
(Rasmussen & Williams 2006, eqs. 3.15 and 3.16).
"""

import numpy as np

from gigagp.linalg.compiled import compiled_strict


@compiled_strict
def log_density(t: float, f: float) -> float:
    """The logarithm of p(t | f)."""
    z = f if t > 0.5 else -f
    value: float = -np.log1p(np.exp(-abs(z))) + min(z, 0.0)
    return value


@compiled_strict
def derivatives(t: float, f: float) -> tuple[float, float, float]:
    """Of ln p by f: the slope, minus the curvature, and the third derivative divided by minus the curvature."""
    e = np.exp(-abs(f))
    rest = e / (1 + e)  # probability of the less probable label
    pi = rest if f < 0 else 1 - rest
    slope = 1 - pi if t > 0.5 else -pi
    if f >= 0 and t > 0.5:
        slope = rest
    return slope, rest * (1 - rest), 2 * pi - 1

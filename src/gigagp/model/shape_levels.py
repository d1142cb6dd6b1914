"""Makes the intervals of a shape cover held-out errors as often as they claim to.

The components of a shape are learnt by the density of errors, which does not ensure that the right share of errors lies
between two quantiles, in particular where errors cluster. Of all shapes with the same components whose distribution
function agrees with the errors at some quantiles q_k, the one nearest to the learnt shape (by the Kullback-Leibler
divergence) has the weights

    w_j = v_j exp(sum_k m_k g_kj) / sum_i v_i exp(sum_k m_k g_ki),     g_kj = P_j(q_k) - level_k

where v_j are the learnt weights, P_j is the distribution function of component j, and the multipliers m minimise the
logarithm of the denominator, which is convex (Csiszar 1975). Further constraints keep the mean and the variance, since
otherwise the variance may become that of a component that no error is near.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr

from gigagp.arrays import Array
from gigagp.model.distribution import Shape

_FEWEST_ROWS = 1000  # from which the share of errors below a quantile is known better than from the shape
_SIZES = np.array([0.5, 0.8, 0.95])  # levels of absolute errors, where the shape is symmetric
_LEVELS = np.array([0.025, 0.1, 0.25, 0.75, 0.9, 0.975])  # levels of errors otherwise
_LARGEST_TIE = 0.005  # share of the errors that may be equal to a quantile: no interval ends inside of more
_TOLERANCE = 1e-3  # of a level
_WIDEST = 100.0  # deviations: the weights of wider components stay
_LARGEST_LOSS = 0.01  # nats per error


def with_levels(shape: Shape, z: Array) -> Shape:
    """The shape that agrees with errors z in deviations at some quantiles.

    The shape itself where errors are few, and where agreement would make them clearly less probable.
    """
    skewed = bool(shape.centres.any())
    sizes, levels = (z, _LEVELS) if skewed else (np.abs(z), _SIZES)
    quantiles = np.quantile(sizes, levels)
    ties = np.array([np.mean(sizes == q) for q in quantiles])
    levels, quantiles = levels[ties <= _LARGEST_TIE], quantiles[ties <= _LARGEST_TIE]
    if len(z) < _FEWEST_ROWS or shape.is_gaussian or len(levels) == 0:
        return shape
    below = ndtr((quantiles[:, None] - shape.centres) / shape.widths)
    squares, common = shape.widths**2 + shape.centres**2, shape.widths <= _WIDEST
    constraints = [
        (below if skewed else 2 * below - 1) - levels[:, None],
        squares[None, :] / np.sum((shape.weights * squares)[common]) - 1,
        *([shape.centres[None, :]] if skewed else []),
    ]
    weights = _nearest_weights(shape.weights, np.vstack(constraints) * common)
    if weights is None:
        return shape
    used = weights > 0  # very small weights underflow
    agreeing = Shape.of(weights[used], shape.widths[used], shape.centres[used])
    loss = float(np.mean(shape.log_density(z) - agreeing.log_density(z)))
    return agreeing if loss < _LARGEST_LOSS else shape


def _nearest_weights(weights: Array, constraints: Array) -> Array | None:
    """The weights nearest to these under which the mean of each constraint is zero; None where there are none."""
    logs = np.log(weights)

    def tilted(m: Array) -> tuple[float, Array]:
        exponents = logs + m @ constraints
        top = float(exponents.max())
        shares = np.exp(exponents - top)
        return top + float(np.log(shares.sum())), shares / shares.sum()

    def dual(m: Array) -> tuple[float, Array]:
        value, shares = tilted(m)
        return value, constraints @ shares

    def curvature(m: Array) -> Array:
        shares = tilted(m)[1]
        mean = constraints @ shares
        return np.asarray((constraints * shares) @ constraints.T - np.outer(mean, mean))

    best = minimize(dual, np.zeros(len(constraints)), jac=True, hess=curvature, method="trust-exact")
    shares = tilted(best.x)[1]
    return shares if np.abs(constraints @ shares).max() < _TOLERANCE else None

"""Categories as columns of numbers: one column, in which any two different levels have the same distance.

Level k of a category has the standardised value LEVELS_APART * k, and the squared difference in such a column has the
limit DIFFERENT, which is exceeded by any two different levels, whatever the precision. A stationary kernel of such a
distance is the one of a 0/1 column per level with a common length-scale, at the cost of one column.
"""

import numpy as np

from gigagp.arrays import Array

LEVELS_APART = 4.0  # standardised difference between consecutive levels
# Squared distance of two different levels. Half the mean squared difference of two rows, which is the variance of a
# column of numbers, then approaches one as levels become many.
DIFFERENT = 2.0
LEVEL_WIDTH = DIFFERENT**-0.5  # size of one standardised unit, where the distance of different levels is the unit
NO_LIMITS = np.empty(0)  # of squared differences, where no column is a category


def limits_of(metric: Array, categories: tuple[int, ...]) -> Array:
    """Limits of the squared differences of columns multiplied by a metric; empty where no column is a category."""
    if not categories:
        return NO_LIMITS
    limits = np.full(len(metric), np.inf)
    places = list(categories)
    limits[places] = DIFFERENT * np.asarray(metric, float)[places] ** 2
    return limits


def variances(X: Array, categories: tuple[int, ...]) -> Array:
    """Half the mean squared difference of two random rows in each column, which is the variance of numbers."""
    return spreads(X, limits_of(np.ones(X.shape[1]), categories))


def spreads(X: Array, limits: Array) -> Array:
    """`variances` of columns in a metric, from the limits of their squared differences."""
    result = X.var(axis=0, dtype=float)
    for column in np.flatnonzero(limits < np.inf):
        shares = np.unique(X[:, column], return_counts=True)[1] / len(X)
        result[column] = 0.5 * limits[column] * (1 - float(np.square(shares).sum()))
    return np.asarray(result)

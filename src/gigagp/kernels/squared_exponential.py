"""The squared exponential kernel, the paper's eq. 1."""

from gigagp.kernels.stationary import Stationary
from gigagp.linalg.stationary import SQUARED_EXPONENTIAL


class SquaredExponential(Stationary):
    """k = variance * exp(-r^2 / 2), with one length-scale per column (ARD) unless ard=False. Eq. 1."""

    kind = SQUARED_EXPONENTIAL

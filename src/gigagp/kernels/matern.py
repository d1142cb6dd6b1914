"""The Matérn family (Rasmussen & Williams 2006, eq. 4.17)."""

from gigagp.kernels.stationary import Stationary
from gigagp.linalg.stationary import MATERN12, MATERN32, MATERN52


class Matern12(Stationary):
    """k = variance * exp(-r): paths are continuous and nowhere smooth."""

    kind = MATERN12


class Matern32(Stationary):
    """k = variance * (1 + sqrt(3) r) exp(-sqrt(3) r): once differentiable."""

    kind = MATERN32


class Matern52(Stationary):
    """k = variance * (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r): twice differentiable."""

    kind = MATERN52

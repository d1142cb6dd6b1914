"""The rational quadratic kernel (Rasmussen & Williams 2006, eq. 4.19)."""

from collections.abc import Sequence

from gigagp.kernels.base import parameter
from gigagp.kernels.stationary import Stationary
from gigagp.linalg.stationary import RATIONAL_QUADRATIC


class RationalQuadratic(Stationary):
    """k = variance * (1 + r^2 / (2 alpha))^-alpha: squared exponentials of many length-scales, added."""

    kind = RATIONAL_QUADRATIC

    def __init__(
        self,
        variance: float = 1.0,
        lengthscale: float | Sequence[float] = 1.0,
        alpha: float = 1.0,
        *,
        ard: bool = True,
        variance_bounds: tuple[float, float] = (1e-4, 1e4),
        lengthscale_bounds: tuple[float, float] = (1e-3, 1e3),
        alpha_bounds: tuple[float, float] = (1e-2, 1e3),
    ) -> None:
        super().__init__(
            variance, lengthscale, ard=ard, variance_bounds=variance_bounds, lengthscale_bounds=lengthscale_bounds
        )
        self.parameters = (*self.parameters, parameter("alpha", alpha, alpha_bounds))

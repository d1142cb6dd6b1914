"""The rational quadratic kernel (Rasmussen & Williams 2006, eq. 4.19)."""

from collections.abc import Sequence

from gigagp.kernels.inputs import Column
from gigagp.kernels.parameters import NUMBER, Bounds, parameter
from gigagp.kernels.stationary import Stationary
from gigagp.linalg.stationary import RATIONAL_QUADRATIC


class RationalQuadratic(Stationary):
    """k = variance * (1 + r^2 / (2 alpha))^-alpha: squared exponentials of many length-scales, added."""

    kind = RATIONAL_QUADRATIC

    def __init__(
        self,
        variance: float | None = None,
        lengthscale: float | Sequence[float] | None = None,
        alpha: float | None = None,
        *,
        ard: bool = True,
        variance_bounds: Bounds | None = None,
        lengthscale_bounds: Bounds | None = None,
        alpha_bounds: Bounds | None = None,
        columns: Column | Sequence[Column] | None = None,
        units: str | None = None,
    ) -> None:
        super().__init__(
            variance, lengthscale, ard=ard, variance_bounds=variance_bounds, lengthscale_bounds=lengthscale_bounds,
            columns=columns, units=units,
        )  # fmt: skip
        shape = parameter("alpha", alpha, alpha_bounds, quantity=NUMBER, default_bounds=(1e-2, 1e3))
        self.parameters = (*self.parameters, shape)

"""Covariance functions, and `+` and `*` to compose them."""

from gigagp.kernels.base import Kernel, Parameter
from gigagp.kernels.compose import Product, Sum
from gigagp.kernels.constant import Constant
from gigagp.kernels.linear import Linear
from gigagp.kernels.matern import Matern12, Matern32, Matern52
from gigagp.kernels.on_columns import OnColumns
from gigagp.kernels.periodic import Periodic
from gigagp.kernels.rational_quadratic import RationalQuadratic
from gigagp.kernels.squared_exponential import SquaredExponential

__all__ = [
    "Constant",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OnColumns",
    "Parameter",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "SquaredExponential",
    "Sum",
]

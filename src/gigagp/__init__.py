"""GigaGP: Gaussian process regression for millions of rows, by a hierarchy of exact GP experts."""

from gigagp.errors import GigaGPError, InvalidInput, InvalidParameter, NotPositiveDefinite
from gigagp.estimator import HGPRegressor
from gigagp.version import __version__

__all__ = [
    "GigaGPError",
    "HGPRegressor",
    "InvalidInput",
    "InvalidParameter",
    "NotPositiveDefinite",
    "__version__",
    "load",
]

load = HGPRegressor.load

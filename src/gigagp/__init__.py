"""GigaGP: Gaussian process regression for millions of rows, by a hierarchy of exact GP experts."""

from typing import TYPE_CHECKING

from gigagp.errors import GigaGPError, InvalidInput, InvalidParameter, NotPositiveDefinite
from gigagp.version import __version__

if TYPE_CHECKING:
    from gigagp.estimators.regressor import HGPRegressor

    load = HGPRegressor.load
else:

    def __getattr__(name):
        """The model and the package's modules, imported when first used: the command line starts without them."""
        from importlib import import_module  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415

        if name in ("HGPRegressor", "load"):
            model = import_module("gigagp.estimators.regressor").HGPRegressor
            globals().update(HGPRegressor=model, load=model.load)
            return globals()[name]
        if name.startswith("_") or find_spec(f"gigagp.{name}") is None:
            raise AttributeError(f"module 'gigagp' has no attribute {name!r}")
        return import_module(f"gigagp.{name}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "GigaGPError",
    "HGPRegressor",
    "InvalidInput",
    "InvalidParameter",
    "NotPositiveDefinite",
    "__version__",
    "load",
]

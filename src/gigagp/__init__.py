"""GigaGP: Gaussian process regression and classification for millions of rows, by a hierarchy of GP experts."""

from typing import TYPE_CHECKING

from gigagp.errors import GigaGPError, InvalidInput, InvalidParameter, NotPositiveDefinite
from gigagp.version import __version__

if TYPE_CHECKING:
    from gigagp.estimators.classifier import HGPClassifier
    from gigagp.estimators.loading import load
    from gigagp.estimators.regressor import HGPRegressor
else:
    _ESTIMATORS = {"HGPRegressor": "regressor", "HGPClassifier": "classifier", "load": "loading"}  # and their modules

    def __getattr__(name):
        """The model and the package's modules, imported when first used: the command line starts without them."""
        from importlib import import_module  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415

        if name in _ESTIMATORS:
            globals()[name] = getattr(import_module(f"gigagp.estimators.{_ESTIMATORS[name]}"), name)
            return globals()[name]
        if name.startswith("_") or find_spec(f"gigagp.{name}") is None:
            raise AttributeError(f"module 'gigagp' has no attribute {name!r}")
        return import_module(f"gigagp.{name}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "GigaGPError",
    "HGPClassifier",
    "HGPRegressor",
    "InvalidInput",
    "InvalidParameter",
    "NotPositiveDefinite",
    "__version__",
    "load",
]

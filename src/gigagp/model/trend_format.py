"""The mean function of a saved model: numbers in arrays; regressors as bytes of skops, which executes no pickle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.array_files import ArrayFiles
from gigagp.data.folders import damaged
from gigagp.data.scaling import Scaling
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.model.plain_values import count, field, require
from gigagp.model.trend import LinearTrend, RegressorTrend, Trend

ARRAYS = ("trend_columns", "trend_scaling", "trend_coefficients", "trend_covariance", "trend_regressors")
_TRUSTED = ("sklearn.", "numpy.", "scipy.")  # packages whose classes the bytes may name
_INSTALL = "a model whose mean is a regressor is saved by the package skops; pip install 'gigagp[mean]'"


def describe_trend(trend: Trend | None) -> dict[str, Any] | None:
    """The entry in the manifest, without arrays."""
    if isinstance(trend, LinearTrend):
        return {"kind": "linear", "columns": len(trend.columns)}
    if isinstance(trend, RegressorTrend):
        return {"kind": "regressor", "bytes": len(_dumped(trend)), "copies": len(trend.models)}
    return None


def trend_arrays(trend: Trend | None) -> dict[str, Array]:
    """The arrays to be written, by name."""
    if isinstance(trend, LinearTrend):
        scaling = np.stack([trend.scaling.centre, trend.scaling.scale])
        numbers = (np.asarray(trend.columns, np.int64), scaling, trend.coefficients, trend.covariance)
        return dict(zip(ARRAYS, numbers, strict=False))
    if isinstance(trend, RegressorTrend):
        return {"trend_regressors": np.frombuffer(_dumped(trend), np.uint8)}
    return {}


def read_trend(content: Any, files: ArrayFiles, columns: int, own: Iterable[type] = ()) -> Trend | None:
    """The mean function that a manifest describes; `own` are classes of regressors that the caller trusts."""
    if content is None:
        return None
    kind = field(content, "kind", str)
    if kind == "linear":
        return _linear(count(content, "columns"), files, columns)
    require(kind == "regressor", f"{kind!r} is not a kind of mean function")
    raw = files.read("trend_regressors", (count(content, "bytes", 1),), "uint8").tobytes()
    regressor, models = _restored(raw, files, own)
    require(len(models) == count(content, "copies", 1), "its regressors are not as many as it says")
    return RegressorTrend(regressor, models)


def _linear(size: int, files: ArrayFiles, columns: int) -> LinearTrend:
    places = files.read("trend_columns", (size,), "int64")
    centre, scale = files.read("trend_scaling", (2, size), "float64")
    coefficients = files.read("trend_coefficients", (size + 1,), "float64")
    covariance = files.read("trend_covariance", (size + 1, size + 1), "float64")
    ascending = (np.diff(places) > 0).all()
    if size and not (ascending and places[0] >= 0 and places[-1] < columns):
        raise damaged(files.path("trend_columns"), "it names columns that do not exist")
    if not (scale > 0).all():
        raise damaged(files.path("trend_scaling"), "a scale is not positive")
    return LinearTrend(places, Scaling(centre, scale), coefficients, covariance)


def _skops() -> Any:
    try:
        import skops.io  # noqa: PLC0415 optional
    except ImportError as error:
        raise InvalidParameter(f"{_INSTALL} ({error})") from None
    return skops.io


def _dumped(trend: RegressorTrend) -> bytes:
    try:
        return bytes(_skops().dumps({"regressor": trend.regressor, "models": list(trend.models)}))
    except InvalidParameter:
        raise
    except Exception as error:
        raise InvalidParameter(f"mean={trend.regressor!r} cannot be saved by skops: {error}") from error


def _restored(raw: bytes, files: ArrayFiles, own: Iterable[type]) -> tuple[Any, tuple[Any, ...]]:
    skops, trusted = _skops(), {f"{each.__module__}.{each.__qualname__}" for each in own}
    try:
        unknown = skops.get_untrusted_types(data=raw)
        foreign = [name for name in unknown if not name.startswith(_TRUSTED) and name not in trusted]
        if foreign:
            raise InvalidInput(
                f"the mean of the model uses {', '.join(foreign)}; if you trust these classes, pass them: "
                "load(folder, kernels=[...])"
            )
        content = skops.loads(raw, trusted=unknown)
        return content["regressor"], tuple(content["models"])
    except InvalidInput:
        raise
    except Exception as error:  # whatever bytes that are not skops' raise
        raise damaged(files.path("trend_regressors"), f"its regressors cannot be restored ({error})") from None

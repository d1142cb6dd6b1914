"""The calibration of a saved model as plain values, written and read."""

from __future__ import annotations

from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.model.calibration import Calibration, Setting
from gigagp.model.distribution import Shape
from gigagp.model.plain_values import count, field, number, require, to_number

_LARGEST_MEAN = 1e-6  # of a shape: rounding leaves less


def describe_calibration(calibration: Calibration) -> dict[str, Any]:
    """The values that determine a calibration."""
    setting = calibration.setting
    return {
        "rows": int(calibration.rows),
        "score": to_number(calibration.score),
        "floor": to_number(calibration.floor),
        "coefficients": calibration.coefficients.tolist(),
        "weights": calibration.shape.weights.tolist(),
        "widths": calibration.shape.widths.tolist(),
        **({"centres": calibration.shape.centres.tolist()} if calibration.shape.centres.any() else {}),
        "setting": None if setting is None else _describe_setting(setting),
    }


def _describe_setting(setting: Setting) -> list[float | None]:
    values = [setting.noise, setting.prior, setting.target]
    return [*values, *(value for value in (setting.row_noise, setting.mean_noise) if value is not None)]


def floats(content: dict[str, Any], name: str) -> Array:
    """A list of finite numbers."""
    values = field(content, name, list)
    require(bool(values) and all(isinstance(v, float | int) for v in values), f"its {name} are not numbers")
    array = np.array(values, float)
    require(bool(np.isfinite(array).all()), f"its {name} are not finite")
    return array


def read_calibration(content: dict[str, Any]) -> Calibration:
    """The calibration that these values describe."""
    coefficients, weights, widths = (floats(content, name) for name in ("coefficients", "weights", "widths"))
    floor = number(content, "floor")
    require(
        len(coefficients) == len(Calibration.none().coefficients), "its calibration has a wrong number of coefficients"
    )
    # Symmetric shapes have no centres.
    centres = floats(content, "centres") if "centres" in content else np.zeros(len(weights))
    require(len(weights) == len(widths) == len(centres) and 0 <= floor < np.inf, "its calibration is not valid")
    require(bool((weights > 0).all() and (widths > 0).all()), "its calibration is not valid")
    require(abs(float(weights @ centres)) < _LARGEST_MEAN, "its calibration is not valid")
    values = content.get("setting")
    setting = None
    if values is not None:
        require(isinstance(values, list) and len(values) in (3, 4, 5), "its calibration is not valid")
        noise, prior, target, *row_noise = values
        for value in (noise, target, 1.0 if prior is None else prior, *row_noise):
            require(isinstance(value, float | int) and 0 < value < np.inf, "its calibration is not valid")
        prior = None if prior is None else float(prior)
        setting = Setting(float(noise), prior, float(target), *(float(value) for value in row_noise))
    rows = count(content, "rows")
    require((rows == 0) == (setting is None), "its calibration is not valid")
    return Calibration(coefficients, floor, Shape(weights, widths, centres), setting, rows, number(content, "score"))

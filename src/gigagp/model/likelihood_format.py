"""The likelihood of a saved model as plain values, written and read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods import Likelihood, SingleLatent
from gigagp.model.likelihood_model import LikelihoodCalibration, LikelihoodModel
from gigagp.model.plain_values import Registry, count, field, from_plain, number, require, to_number, to_plain

_MOMENTS = ("target_mean", "target_variance", "rows")
_CORRECTIONS = ("spread", "offset", "extra", "power", "dispersion")


def describe_likelihood(model: LikelihoodModel) -> dict[str, Any]:
    """The values that determine the distribution of y given the prediction of f."""
    return {
        "likelihood": to_plain("likelihood", model.likelihood),
        "mean": float(model.latents.mean),
        **{name: float(getattr(model, name)) for name in _MOMENTS},
        "calibration": {name: to_number(value) for name, value in asdict(model.calibration).items()},
    }


def read_likelihood(content: Any, registry: Registry, y: Array) -> LikelihoodModel | None:
    """What `describe_likelihood` has written; ValueError where it is not valid.

    y : the targets of all rows
    """
    if content is None:
        return None
    likelihood = from_plain(content.get("likelihood"), registry) if isinstance(content, dict) else None
    if not isinstance(likelihood, Likelihood):
        raise ValueError("it does not describe a valid likelihood")
    require(bool(likelihood.is_possible(np.asarray(y, float)).all()), "its likelihood cannot have its targets")
    prior, mean, variance, rows = (number(content, name) for name in ("mean", *_MOMENTS))
    require(np.isfinite([prior, mean, variance, rows]).all() and variance >= 0 < rows, "its moments are not valid")
    own = field(content, "calibration", dict)
    values = [number(own, name) for name in _CORRECTIONS]
    spread, offset, extra, power, dispersion = values
    require(np.isfinite(values).all(), "its calibration is not finite")
    require(spread > 0 and extra >= 0 and power >= 0 and dispersion > 0, "its calibration is not valid")
    calibration = LikelihoodCalibration(
        spread, offset, extra, power, dispersion, count(own, "rows"), number(own, "score")
    )
    return LikelihoodModel(SingleLatent(likelihood, prior), mean, variance, rows, calibration)

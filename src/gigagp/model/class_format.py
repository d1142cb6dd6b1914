"""Classes in the manifest of a saved model."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.likelihoods import Classes
from gigagp.model.calibration_format import floats
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.class_model import ClassModel
from gigagp.model.plain_values import count, field, number, require, to_number


def describe_classes(model: ClassModel | None) -> dict[str, Any] | None:
    """The classes of a model as plain values."""
    if model is None:
        return None
    return {
        "labels": list(model.labels),
        "counts": [float(each) for each in model.classes.counts],
        "weights": [float(each) for each in model.classes.weights],
        "calibration": {
            name: list(value) if isinstance(value, tuple) else to_number(value)
            for name, value in asdict(model.calibration).items()
        },
    }


def read_classes(content: Any, y: Array) -> ClassModel | None:
    """The classes that `describe_classes` has written; ValueError where they are not valid.

    y : the numbers of the classes of all rows
    """
    if content is None:
        return None
    labels, counts, weights = (field(content, name, list) for name in ("labels", "counts", "weights"))
    require(len({type(label) for label in labels}) == 1, "its labels are of different types")
    require(type(labels[0]) in (bool, int, float, str), "its labels are not labels of classes")
    require(len(set(labels)) == len(labels) >= 2, "it does not have two different labels")
    for numbers in (counts, weights):
        good = len(numbers) == len(labels) and all(type(each) is float and 0 <= each < np.inf for each in numbers)
        require(good, "its classes are not valid")
    require(min(weights) > 0, "a class has no weight")
    require(bool(np.isin(y, np.arange(len(labels))).all()), "a row is of a class that it does not have")
    link = field(content, "calibration", dict)
    slope, averaging, offset = (number(link, name) for name in ("slope", "averaging", "offset"))
    require(0 < slope < np.inf and 0 < averaging < np.inf and abs(offset) < np.inf, "its calibration is not valid")
    skew = number(link, "skew") if "skew" in link else 0.0
    require(abs(skew) < np.inf, "its calibration is not valid")
    knots, corrections = (floats(link, name) if link.get(name) else np.empty(0) for name in ("knots", "corrections"))
    good = len(knots) == len(corrections) and bool((np.diff(knots) > 0).all() and np.isfinite(corrections).all())
    require(good, "the correction of its calibration is not valid")
    calibration = ClassCalibration(
        slope, averaging, offset, count(link, "rows"), number(link, "score"), skew, tuple(knots.tolist()),
        tuple(corrections.tolist()),
    )  # fmt: skip
    return ClassModel(tuple(labels), Classes(tuple(counts), tuple(weights)), calibration)

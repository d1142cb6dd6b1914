"""What arriving rows change in a model besides its rows: the record of scores, the recent predictions, the calibration.

The same functions are used when rows arrive and when the log of a model's updates is applied again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.model import prequential, recent_rows
from gigagp.model.calibration import Calibration
from gigagp.model.calibration_format import describe_calibration, read_calibration
from gigagp.model.model import Model


def expected_loss(model: Model) -> float:
    """The NLPD of the held-out rows of the fit, in the user's units; NaN where there were none."""
    link = model.likelihood or model.classes
    if link is not None:
        return float(link.calibration.score)
    return float(model.report.calibration.score) + float(np.log(model.target.scale[0]))


def score_numbers(score: Array, recent: Array) -> Array:
    """The score of an update and its recent predictions as the numbers of a record of the log."""
    return np.concatenate([score, recent.ravel()])


def with_scores(model: Model, numbers: Array) -> Model:
    """The model with the scores of an update; ValueError if the numbers are not those of `score_numbers`."""
    if len(numbers) < prequential.COLUMNS or (len(numbers) - prequential.COLUMNS) % recent_rows.COLUMNS:
        raise ValueError("a record of rows has a wrong number of scores")
    score, rest = numbers[: prequential.COLUMNS], numbers[prequential.COLUMNS :]
    record = model.prequential
    if record is None:
        record = prequential.marker(expected_loss(model), prequential.FITTED)[None, :]
    recent = recent_rows.appended(model.recent, rest.reshape(-1, recent_rows.COLUMNS))
    return replace(model, prequential=prequential.appended(record, score), recent=recent if len(recent) else None)


def describe_change(calibration: Calibration | None, marker: Array | None) -> dict[str, Any]:
    """A new calibration, and a mark in the record of scores, as the content of a record of the log."""
    return {
        "calibration": None if calibration is None else describe_calibration(calibration),
        "marker": None if marker is None else [float(number) for number in marker],
    }


def changed(model: Model, content: Any) -> Model:
    """The model with the changes that `describe_change` describes; ValueError if they are not valid."""
    if not isinstance(content, dict) or not {"calibration", "marker"} >= set(content):
        raise ValueError("a record of changes is not valid")
    calibration, marker = content.get("calibration"), content.get("marker")
    if calibration is not None:
        if not isinstance(calibration, dict):
            raise ValueError("a record of changes has no valid calibration")
        model = replace(model, report=replace(model.report, calibration=read_calibration(calibration)))
    if marker is not None:
        if not isinstance(marker, list) or len(marker) != prequential.COLUMNS:
            raise ValueError("a record of changes has no valid marker")
        row = np.array([float(number) for number in marker])
        model = replace(model, prequential=prequential.appended(model.prequential, row))
    return model

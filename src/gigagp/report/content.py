"""The content of a report page, before it is rendered as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.evaluation import Evaluation
from gigagp.report.advice import Advice
from gigagp.report.scoring import ScoreCollector


@dataclass(frozen=True, eq=False)
class ReportContent:
    """A model, its scores on rows with known targets, and advice to the reader."""

    model: HGPRegressor
    title: str
    scores: ScoreCollector
    source: str  # which rows were scored
    remark: str  # how these rows were predicted
    evaluation: Evaluation | None  # None where held-out training rows were scored
    advice: Sequence[Advice]

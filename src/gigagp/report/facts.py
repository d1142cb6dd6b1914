"""All that a page is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.evaluation import Evaluation
from gigagp.report.advice import Finding
from gigagp.report.scored import Scored


@dataclass(frozen=True, eq=False)
class Facts:
    """A model, how it did on rows of known target, and what a reader should know of that."""

    model: HGPRegressor
    title: str
    scored: Scored
    source: str  # whose rows were scored
    remark: str  # on these scores
    evaluation: Evaluation | None  # None where the model's own rows were left out
    findings: Sequence[Finding]

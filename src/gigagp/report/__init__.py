"""A model and its predictions as one HTML page that needs nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from gigagp.data.folders import check_output, check_writable, disk_errors, make, writing_file
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.evaluation import Evaluation
from gigagp.progress import Listener
from gigagp.report import advice
from gigagp.report.advice import Finding
from gigagp.report.facts import Facts
from gigagp.report.left_out import score_left_out
from gigagp.report.page import rendered
from gigagp.report.scored import Scored

__all__ = ["Finding", "WrittenReport", "write_report"]

_BYTES = 1 << 22  # that a page may take


@dataclass(frozen=True)
class WrittenReport:
    """What was written, and what it warns of. `evaluation` is None where the model's own rows were scored."""

    path: Path
    rows: int
    evaluation: Evaluation | None
    findings: Sequence[Finding]
    seconds: float


def write_report(
    model: HGPRegressor, path: str | os.PathLike[str], data: Any = None, *, target: Any = None, missing: str = "error",
    overwrite: bool = False, title: str | None = None, seed: int = 0, progress: Listener | None = None,
) -> WrittenReport:  # fmt: skip
    """Write a page about a fitted model: warnings, scores, pictures, calibration by region, parameters, timing.

    path : of the page, which ends in .html; it is there when it is whole
    data : rows whose target is known, of any size, as `HGPRegressor.evaluate` takes them. Without them rows of
        the model are predicted, each held out in turn.
    target, missing : as of `HGPRegressor.evaluate`
    overwrite : True to replace a page that is there
    title : default the name of the target
    seed : of the sample of rows that is drawn
    progress : function that is called with a gigagp.progress.Event for each block of rows
    """
    begun = time.perf_counter()
    check_is_fitted(model, "report_")
    final = check_output(path, "HTML", (".html", ".htm"), overwrite)
    check_writable(final, _BYTES, "the report")
    scored, evaluation, remark = Scored(model, seed), None, ""
    if data is None:
        remark = score_left_out(model, scored, seed)
        source = f"{scored.rows:,} of the model's own rows, held out"
    else:
        evaluation = model.evaluate(data, target, missing=missing, progress=progress, each=scored)
        source = f"{scored.rows:,} rows of the data given"
    findings = _findings(model, scored, evaluation)
    named = title or f"A model of {model.units_.target}"
    text = rendered(Facts(model, named, scored, source, remark, evaluation, findings))
    make(final.parent)
    with disk_errors("writing the report", final.parent), writing_file(final) as file:
        file.write(text.encode())
        check_output(final, "HTML", (".html", ".htm"), overwrite)  # predicting takes a while
    return WrittenReport(final, scored.rows, evaluation, findings, time.perf_counter() - begun)


def _findings(model: HGPRegressor, scored: Scored, evaluation: Evaluation | None) -> list[Finding]:
    assert scored.target is not None
    dropped = evaluation.dropped if evaluation is not None else 0
    spread = float(scored.target.deviation[0])
    said = advice.of_scores(scored.whole(), scored.by_region(), spread, scored.far(), dropped, model.units_.target)
    return [*advice.of_fit(model), *said]

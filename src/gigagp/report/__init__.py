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
from gigagp.data.sources.share import Share
from gigagp.errors import InvalidParameter
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.classifier import HGPClassifier
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.class_evaluation import ClassEvaluation
from gigagp.model.evaluation import Evaluation
from gigagp.progress import Listener
from gigagp.report.advice import Advice, advice_on_fit, advice_on_scores
from gigagp.report.class_advice import advice_on_classes
from gigagp.report.class_held_out import score_held_out_classes
from gigagp.report.class_page import ClassReportContent, render_classes
from gigagp.report.class_scoring import ClassScoreCollector
from gigagp.report.content import ReportContent
from gigagp.report.extrapolation import advice_on_extrapolation
from gigagp.report.held_out import score_held_out_rows
from gigagp.report.page import render
from gigagp.report.scoring import ScoreCollector

__all__ = ["Advice", "WrittenReport", "write_report"]

_PAGE_BYTES = 1 << 22  # an upper limit of the size of a page


@dataclass(frozen=True)
class WrittenReport:
    """The file that was written, and its warnings. `evaluation` is None where held-out training rows were scored."""

    path: Path
    rows: int
    evaluation: Evaluation | ClassEvaluation | None
    advice: Sequence[Advice]
    seconds: float


def write_report(
    model: HGPRegressor | HGPClassifier, path: str | os.PathLike[str], data: Any = None, *, target: Any = None,
    missing: str = "error", overwrite: bool = False, title: str | None = None, seed: int = 0,
    share: Share | None = None, progress: Listener | None = None,
) -> WrittenReport:  # fmt: skip
    """Write an HTML page about a fitted model: warnings, scores, figures, calibration by region, parameters, timing.

    path : of the page, ending in .html; the file appears only when it is complete
    data : rows with known targets, of any size, in any form that `HGPRegressor.evaluate` accepts. Without data,
        training rows are predicted, each of them held out.
    target, missing : as in `HGPRegressor.evaluate`
    overwrite : True to replace an existing file
    title : default the name of the target
    seed : of the sample of rows that the figures show
    share : the rows of the data to score, such as `HGPRegressor.held_out_`, those that the fit held out
    progress : function that is called with a gigagp.progress.Event for each block of rows
    """
    start = time.perf_counter()
    if hasattr(model, "target_names_"):
        raise InvalidParameter(
            f"a page is about one target: write_report(model.target({model.target_names_[0]!r}), ...)"
        )
    check_is_fitted(model, "report_")
    final = check_output(path, "HTML", (".html", ".htm"), overwrite)
    check_writable(final, _PAGE_BYTES, "the report")
    if data is None and share is not None:
        raise InvalidParameter("share= (--held-out) selects rows of data; pass the data that the model was fitted to")
    rows = _ScoredRows(data, target, {"missing": missing, "share": share, "progress": progress}, seed)
    if isinstance(model, HGPRegressor):
        written = _about_numbers(model, title, rows)
    else:
        written = _about_classes(model, title, rows)
    make(final.parent)
    with disk_errors("writing the report", final.parent), writing_file(final) as file:
        file.write(written.text.encode())
        check_output(final, "HTML", (".html", ".htm"), overwrite)  # once more: predicting takes a while
    seconds = time.perf_counter() - start
    return WrittenReport(final, written.rows, written.evaluation, written.advice, seconds)


@dataclass(frozen=True, eq=False)
class _ScoredRows:
    """Arguments of `write_report` about the rows that are scored."""

    data: Any
    target: Any
    reading: dict[str, Any]  # missing, share and progress, as in `HGPRegressor.evaluate`
    seed: int


@dataclass(frozen=True, eq=False)
class _Page:
    """The text of a page, and what it reports."""

    text: str
    rows: int
    evaluation: Evaluation | ClassEvaluation | None
    advice: Sequence[Advice]


def _about_numbers(model: HGPRegressor, title: str | None, rows: _ScoredRows) -> _Page:
    scores, evaluation = ScoreCollector(model, rows.seed), None
    if rows.data is None:
        remark = score_held_out_rows(model, scores, rows.seed)
        source = f"{scores.rows:,} held-out training rows"
    else:
        evaluation = model.evaluate_each(rows.data, rows.target, scores, **rows.reading)
        source, remark = _whose_rows(model, scores.rows, rows.reading["share"])
    advice = _advice(model, scores, evaluation)
    content = ReportContent(model, _heading(model, title), scores, source, remark, evaluation, advice)
    return _Page(render(content), scores.rows, evaluation, advice)


def _about_classes(model: HGPClassifier, title: str | None, rows: _ScoredRows) -> _Page:
    scores, evaluation = ClassScoreCollector(model, rows.seed), None
    if rows.data is None:
        remark = score_held_out_classes(model, scores, rows.seed)
        source = f"{scores.rows:,} held-out training rows"
    else:
        evaluation = model.evaluate(rows.data, rows.target, each=scores, **rows.reading)
        source, remark = _whose_rows(model, scores.rows, rows.reading["share"])
    labels = [str(label) for label in model.classes_.tolist()]
    dropped = evaluation.dropped if evaluation is not None else 0
    advice = [*advice_on_fit(model), *advice_on_classes(scores, labels, dropped)]
    content = ClassReportContent(model, _heading(model, title), scores, source, remark, evaluation, advice)
    return _Page(render_classes(content), scores.rows, evaluation, advice)


def _heading(model: HGPEstimator, title: str | None) -> str:
    return title or f"A model of {model.units_.target}"


def _whose_rows(model: HGPEstimator, rows: int, share: Share | None) -> tuple[str, str]:
    """Which rows were scored, and a remark on whether the model has seen them."""
    held_out = model.held_out_
    if share is not None and share == held_out:
        part = 1 - share.fraction if share.rest else share.fraction
        return f"{rows:,} rows that the fit held out, about {part:.3g} of the data", ""
    if share is not None:
        return f"{rows:,} rows, a share of the given data", ""
    if held_out is not None:
        return f"{rows:,} rows of the given data", (
            " If these are the data of the fit, most of them are training rows, whose scores are too good; score the "
            "held-out rows instead: share=model.held_out_, or --held-out."
        )
    return f"{rows:,} rows of the given data", (
        " If the model was fitted to these rows, their scores are too good; leave out the data to score training rows, "
        "each predicted without itself."
    )


def _advice(model: HGPRegressor, scores: ScoreCollector, evaluation: Evaluation | None) -> list[Advice]:
    assert scores.target is not None
    dropped = evaluation.dropped if evaluation is not None else 0
    target_std, target = float(scores.target.deviation[0]), model.units_.target
    on_scores = advice_on_scores(
        scores.all_rows(), scores.by_region(), target_std, scores.rows_far_from_data(), dropped, target
    )
    beyond = [] if evaluation is None else advice_on_extrapolation(model, scores.sample()[0])
    return [*advice_on_fit(model), *on_scores, *beyond]

"""The parts of a report page that do not depend on whether numbers or classes are predicted."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.times import UNITS
from gigagp.estimators.base import HGPEstimator
from gigagp.markup import Html, join, table, tag
from gigagp.model.fit_report import FitReport, span
from gigagp.model.units import Quantity, Units
from gigagp.plotting.style import shortened
from gigagp.report import figures
from gigagp.report.advice import Advice
from gigagp.version import __version__

_MAX_COLUMNS = 60  # rows of the table of columns
_MAX_NAMED_COLUMNS = 12  # names of columns in the heading
_DATA_HEAD = (
    "column", "training rows: mean", "standard deviation", "lowest", "highest", "scored rows: lowest", "highest"
)  # fmt: skip
Section = tuple[str, str, Html]  # id, title, content


def document(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole page as one self-contained HTML document."""
    links = (tag("a", heading, href=f"#{name}") for name, heading, _ in sections)
    bodies = (tag("section", tag("h2", heading), body, id=name) for name, heading, body in sections)
    style_sheet = resources.files("gigagp.report").joinpath("page.css").read_text()
    head = [
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{title}: GigaGP report"),
        tag("style", Html(style_sheet)),
    ]
    today = datetime.date.today().isoformat()
    body = [
        tag("header", tag("h1", title), tag("p", subtitle, class_="quiet")),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *bodies,
            tag("footer", f"Written {today} by GigaGP {__version__}, Python {platform.python_version()}."),
        ),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def subtitle(model: HGPEstimator) -> str:
    """What the model predicts, and from what."""
    units, report = model.units_, model.report_
    columns = (
        ", ".join(units.columns) if len(units.columns) <= _MAX_NAMED_COLUMNS else f"{len(units.columns):,} columns"
    )
    return f"{units.target} from {columns}; {report.rows:,} rows, {report.leaves:,} experts."


def cards(numbers: Sequence[tuple[str, str]]) -> Html:
    """Numbers with their labels, in large type."""
    return tag(
        "div", *(tag("div", tag("strong", value), tag("span", label)) for value, label in numbers), class_="numbers"
    )


def quiet(text: str) -> Html:
    return tag("p", text, class_="quiet")


def pictures(drawn: Any) -> Html:
    return tag("div", *drawn, class_="figures")


def wide(content: Html, focusable: bool = True) -> Html:
    """Content that may be wider than the page and can then be scrolled."""
    return tag("div", content, class_="wide", tabindex=0) if focusable else tag("div", content, class_="wide")


def warnings(advice: Sequence[Advice], what_is_calibrated: str) -> Html:
    if not advice:
        return tag(
            "p",
            f"There are no warnings: training converged, no parameter is at a bound, and {what_is_calibrated} are "
            "calibrated.",
        )
    return tag("ul", *(tag("li", each.text, tag("span", each.remedy)) for each in advice), class_="advice")


def data(model: HGPEstimator, rows: list[list[str]], sampled: int) -> Html:
    """The columns of the training rows and of the scored rows; `rows` as `statistics` gives them, after the name.

    sampled : number of training rows that the statistics are those of
    """
    lines, report = _shortened_table(rows), model.report_
    text = f"The model was fitted to {report.rows:,} rows"
    text += f"; {report.dropped:,} rows with missing values were not used" if report.dropped else ""
    text += f". Their statistics are those of a random sample of {sampled:,} rows." if sampled < report.rows else "."
    if report.outlying_rows:
        text += f" {report.outlying_rows[0].upper()}{report.outlying_rows[1:]}."
    if len(lines) < len(rows):
        text += f" {len(lines):,} of {len(rows):,} columns are listed."
    return join([quiet(text), wide(table(_DATA_HEAD, lines))])


def _shortened_table(rows: list[list[str]]) -> list[list[str]]:
    """The first rows and the last one, where there are too many."""
    return rows if len(rows) <= _MAX_COLUMNS else [*rows[: _MAX_COLUMNS - 1], rows[-1]]


def statistics(units: Units, d: int, values: Array) -> list[str]:
    """Mean, standard deviation, smallest and largest value of column d; then the last two values, as they are.

    Of a category these are its most frequent level, and the number of levels.
    """
    column, scored = values[:-2], values[-2:]
    if d == len(units.columns):  # the target
        return [number(v) for v in (column.mean(), column.std(), column.min(), column.max(), *scored)]
    if units.kind(d) == "category":
        codes, counts = np.unique(column, return_counts=True)
        often = units.text(d, float(codes[counts.argmax()]))
        return [f"{often} ({counts.max() / len(column):.0%} of rows)", f"{len(codes):,} levels", "", "", "", ""]
    width = float(np.ptp(column))
    mean, low, high, first, last = (
        units.text(d, float(v), width) for v in (column.mean(), column.min(), column.max(), *scored)
    )
    kind = units.kind(d)
    deviation = f"{column.std() / UNITS[kind][1]:.4g} {UNITS[kind][0]}" if kind in UNITS else number(column.std())
    return [mean, deviation, low, high, first, last]


def number(value: float) -> str:
    return f"{value:.4g}"


def model_section(model: HGPEstimator, about: list[list[str]], learnt: Sequence[Quantity]) -> Html:
    """A table about the model, its parameters, and figures."""
    quantities = _shortened_table([[q.name, number(q.value), shortened(q.unit)] for q in learnt])
    fewer = f" ({len(quantities):,} of {len(learnt):,})" if len(quantities) < len(learnt) else ""
    return join(
        [
            wide(table(["", ""], about, class_="words"), focusable=False),
            tag("h3", f"Parameters{fewer}"),
            wide(table(["parameter", "value", "unit"], quantities)),
            pictures(figures.model_figures(model)),
        ]
    )


def tree_text(model: HGPEstimator) -> str:
    return " → ".join(f"{model.tree_.width(d):,}" for d in range(model.tree_.depth + 1)) + " leaves"


def experts_text(report: FitReport) -> str:
    return f"leaves of {span(report.points_per_leaf)} rows; an expert predicts from {span(report.points_per_expert)}"


def settings(model: HGPEstimator) -> str:
    """The settings that differ from the defaults."""
    defaults = type(model)().get_params(deep=False)
    changed = model.get_params(deep=False).items()
    text = ", ".join(f"{name}={value!r}" for name, value in changed if repr(value) != repr(defaults[name]))
    return text or "defaults"


def training(report: FitReport, score: str, predicted: tuple[int, float] | None) -> Html:
    """Stages, choices and seconds of the fit.

    score : what the scores of candidates are
    predicted : rows that were predicted for this page, and the seconds that this took; None for held-out rows
    """
    parts: list[Any] = [wide(report.stages_html())]
    parts.append(quiet(f"{'Converged' if report.converged else 'Not converged'}: {report.message}"))
    parts.append(pictures(figures.training_figures(report)))
    if report.choices:
        parts += [tag("h3", "Model selection"), wide(report.choices_html(), focusable=False)]
        parts.append(quiet(f"Scores are the {score} of held-out rows; lower is better."))
    parts += [tag("h3", "Timing"), wide(report.timing_html(), focusable=False)]
    if predicted is not None:
        rows, seconds = predicted
        parts.append(quiet(f"Predicting {rows:,} rows for this page took {seconds:.1f} s."))
    return join(parts)

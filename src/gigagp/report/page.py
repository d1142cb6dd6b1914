"""The HTML of a report, section by section."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.sources.times import UNITS, is_date
from gigagp.estimators.regressor import HGPRegressor
from gigagp.markup import Html, join, table, tag
from gigagp.model.fit_report import span
from gigagp.model.units import Units
from gigagp.plotting.rows import TYPICAL, most_relevant, training_rows
from gigagp.plotting.style import shortened
from gigagp.report import figures
from gigagp.report.advice import CALIBRATED, TOO_NARROW, TOO_WIDE, Advice, assess_intervals
from gigagp.report.content import ReportContent
from gigagp.report.scoring import LEVEL, SAMPLE, Score
from gigagp.version import __version__

_WORST_LEAVES = 10  # leaves that are listed
_MIN_ROWS_OF_LEAF = 5  # scored rows that a listed leaf must have
_MAX_COLUMNS = 60  # rows of the table of columns
_MAX_NAMED_COLUMNS = 12  # names of columns in the heading
_CSS_CLASSES = {TOO_NARROW: "narrow", TOO_WIDE: "broad", CALIBRATED: "quiet"}


def render(content: ReportContent) -> str:
    """The whole page as one self-contained HTML document."""
    sections = [
        ("summary", "Summary", _summary(content)),
        ("warnings", "Warnings", _warnings(content.advice)),
        ("predictions", "Predictions", _predictions(content)),
        ("calibration", "Calibration", _calibration(content)),
        ("regions", "Regions", _regions(content)),
        ("data", "Data", _data(content)),
        ("model", "Model", _model(content.model)),
        ("training", "Training", _training(content)),
    ]
    links = (tag("a", title, href=f"#{name}") for name, title, _ in sections)
    bodies = (tag("section", tag("h2", title), body, id=name) for name, title, body in sections)
    style_sheet = resources.files("gigagp.report").joinpath("page.css").read_text()
    head = [
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{content.title}: GigaGP report"),
        tag("style", Html(style_sheet)),
    ]
    today = datetime.date.today().isoformat()
    body = [
        tag("header", tag("h1", content.title), tag("p", _subtitle(content.model), class_="quiet")),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *bodies,
            tag("footer", f"Written {today} by GigaGP {__version__}, Python {platform.python_version()}."),
        ),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def _subtitle(model: HGPRegressor) -> str:
    """What the model predicts, and from what."""
    units, report = model.units_, model.report_
    columns = (
        ", ".join(units.columns) if len(units.columns) <= _MAX_NAMED_COLUMNS else f"{len(units.columns):,} columns"
    )
    return f"{units.target} from {columns}; {report.rows:,} rows, {report.leaves:,} experts."


def _summary(content: ReportContent) -> Html:
    whole, report = content.scores.all_rows(), content.model.report_
    deviation = _target_std(content)
    explained = f"{1 - (whole.rmse / deviation) ** 2:.1%}" if deviation > 0 else "none"
    numbers = [
        (f"{report.rows:,}", "training rows"),
        (f"{report.leaves:,}", "experts"),
        (f"{whole.rmse:.4g}", f"RMSE, in units of {content.model.units_.target}"),
        (explained, "of the target's variance explained"),
        (f"{whole.nlpd:.4g}", "NLPD"),
        (f"{whole.coverage:.1%}", f"of targets in {LEVEL:.0%} intervals"),
        (f"{sum(report.seconds.values()):.1f} s", "to fit"),
    ]
    cards = (tag("div", tag("strong", value), tag("span", label)) for value, label in numbers)
    return join(
        [tag("div", *cards, class_="numbers"), tag("p", f"Scores of {content.source}.{content.remark}", class_="quiet")]
    )


def _target_std(content: ReportContent) -> float:
    assert content.scores.target is not None
    return float(content.scores.target.deviation[0])


def _warnings(advice: Sequence[Advice]) -> Html:
    if not advice:
        return tag(
            "p", "There are no warnings: training converged, no parameter is at a bound, and intervals are calibrated."
        )
    return tag("ul", *(tag("li", each.text, tag("span", each.remedy)) for each in advice), class_="advice")


def _predictions(content: ReportContent) -> Html:
    scores = content.scores
    sampled = f" The figures show a random sample of {SAMPLE:,} rows." if scores.rows > SAMPLE else ""
    pictures = tag("div", *figures.prediction_figures(content.model, scores), class_="figures")
    return join([tag("p", f"Predictions of {content.source}.{sampled}", class_="quiet"), pictures])


def _calibration(content: ReportContent) -> Html:
    scores, whole = content.scores, content.scores.all_rows()
    text = (
        f"From all {scores.rows:,} rows. The residuals, in predicted standard deviations, have a root mean square of "
        f"{whole.spread:.3f} (1 if calibrated) and a mean of {whole.bias:+.3f} (0 if calibrated)."
    )
    return join([tag("p", text, class_="quiet"), tag("div", *figures.calibration_figures(scores), class_="figures")])


def _regions(content: ReportContent) -> Html:
    scores, model = content.scores, content.model
    columns = most_relevant(model, 3)
    explanation = (
        "A region is a subtree: a group of neighbouring leaves. Means of columns are those of the scored rows."
        if scores.regions.local
        else f"Every expert sees the whole input space; regions are slices along {model.units_.columns[columns[0]]}."
    )
    z_deviation = (
        "The z-deviation is the root mean square of residuals in predicted standard deviations: 1 if calibrated."
    )
    parts = [
        tag("p", f"{explanation} {z_deviation}", class_="quiet"),
        _score_table("region", scores.by_region(), columns, model),
    ]
    worst = scores.worst_leaves(_WORST_LEAVES, _MIN_ROWS_OF_LEAF)
    if worst:
        parts += [
            tag("h3", "Worst leaves", id="worst"),
            tag(
                "p", "Leaves whose scored rows have the lowest predictive density; means of columns are those of their "
                "training rows. Look at these rows first: outliers, or a kind of row that is rare elsewhere, are usual "
                "reasons.", class_="quiet",
            ),
            _score_table("leaf", worst, columns, model),
        ]  # fmt: skip
    return join(parts)


def _score_table(kind: str, scores: Sequence[Score], columns: Sequence[int], model: HGPRegressor) -> Html:
    means = [f"mean {shortened(model.units_.columns[d])}" for d in columns]
    head = [kind, "rows", *means, "RMSE", "NLPD", f"{LEVEL:.0%} coverage", "z-deviation", "intervals"]
    rows = [
        [
            s.name, f"{s.rows:,}", *(_mean(model, d, s) for d in columns), f"{s.rmse:.4g}", f"{s.nlpd:.3f}",
            f"{s.coverage:.1%}", f"{s.spread:.3f}", _assessment(s),
        ]
        for s in scores
    ]  # fmt: skip
    return tag("div", table(head, rows, class_="tight"), class_="wide", tabindex=0)


def _mean(model: HGPRegressor, d: int, score: Score) -> str:
    """The mean of a column over the scored rows."""
    return model.units_.text(d, score.centre[d]) if is_date(model.units_.kind(d)) else f"{score.centre[d]:.3g}"


def _assessment(score: Score) -> Html:
    assessment = assess_intervals(score)
    return tag("span", assessment, class_=_CSS_CLASSES[assessment])


def _data(content: ReportContent) -> Html:
    model, scores = content.model, content.scores
    assert scores.inputs is not None
    assert scores.target is not None
    sample = training_rows(model, TYPICAL)
    trained = np.column_stack([sample.X, sample.y])
    low, high = (np.append(getattr(scores.inputs, side), getattr(scores.target, side)) for side in ("low", "high"))
    names = [*model.units_.columns, f"{model.units_.target} (target)"]
    rows = [
        [name, *_statistics(model.units_, d, np.array([*trained[:, d], low[d], high[d]]))]
        for d, name in enumerate(names)
    ]
    lines = _shortened_table(rows)
    report = model.report_
    text = f"The model was fitted to {report.rows:,} rows"
    text += f"; {report.dropped:,} rows with missing values were not used" if report.dropped else ""
    text += (
        f". Their statistics are those of a random sample of {len(sample.y):,} rows."
        if len(sample.y) < report.rows
        else "."
    )
    if report.outlying_rows:
        text += f" {report.outlying_rows[0].upper()}{report.outlying_rows[1:]}."
    if len(lines) < len(rows):
        text += f" {len(lines):,} of {len(rows):,} columns are listed."
    head = [
        "column",
        "training rows: mean",
        "standard deviation",
        "lowest",
        "highest",
        "scored rows: lowest",
        "highest",
    ]
    return join([tag("p", text, class_="quiet"), tag("div", table(head, lines), class_="wide", tabindex=0)])


def _shortened_table(rows: list[list[str]]) -> list[list[str]]:
    """The first rows and the last one, where there are too many."""
    return rows if len(rows) <= _MAX_COLUMNS else [*rows[: _MAX_COLUMNS - 1], rows[-1]]


def _statistics(units: Units, d: int, values: Array) -> list[str]:
    """Mean, standard deviation, smallest and largest value of column d; then the last two values, as they are."""
    column, scored = values[:-2], values[-2:]
    if d == len(units.columns):  # the target
        return [_number(v) for v in (column.mean(), column.std(), column.min(), column.max(), *scored)]
    span = float(np.ptp(column))
    mean, low, high, first, last = (
        units.text(d, float(v), span) for v in (column.mean(), column.min(), column.max(), *scored)
    )
    kind = units.kind(d)
    deviation = f"{column.std() / UNITS[kind][1]:.4g} {UNITS[kind][0]}" if kind in UNITS else _number(column.std())
    return [mean, deviation, low, high, first, last]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _model(model: HGPRegressor) -> Html:
    report = model.report_
    own = model.model_.likelihood
    fallback = float(model.model_.target.centre[0]) if own is None else own.target_mean
    about = [
        ["predicts", f"{model.units_.target}, as one distribution per query"],
        ["kernel", model.units_.description(model.kernel_)],
        _noise(model),
        ["tree", " → ".join(f"{model.tree_.width(d):,}" for d in range(model.tree_.depth + 1)) + " leaves"],
        [
            "experts",
            f"leaves of {span(report.points_per_leaf)} rows; an expert predicts from {span(report.points_per_expert)}",
        ],
        ["a query is predicted", _prediction_method(model)],
        ["far from all training rows", f"the mean {fallback:.4g} and the standard deviation of the target"],
        ["settings", _settings(model) or "defaults"],
    ]
    learnt = model.units_.parameters(model.kernel_, model.noise_variance_)
    quantities = _shortened_table([[q.name, _number(q.value), shortened(q.unit)] for q in learnt])
    fewer = f" ({len(quantities):,} of {len(learnt):,})" if len(quantities) < len(learnt) else ""
    return join(
        [
            tag("div", table(["", ""], about, class_="words"), class_="wide"),
            tag("h3", f"Parameters{fewer}"),
            tag("div", table(["parameter", "value", "unit"], quantities), class_="wide", tabindex=0),
            tag("div", *figures.model_figures(model), class_="figures"),
        ]
    )


def _noise(model: HGPRegressor) -> list[str]:
    """How targets vary around the function."""
    own, target = model.model_.likelihood, model.units_.target
    if own is None:
        return ["noise", f"standard deviation {model.noise_variance_**0.5:.4g}, in units of {target}"]
    dispersion = f" with dispersion {model.noise_variance_:.4g}" if own.likelihood.has_dispersion else ""
    return ["likelihood", f"{own.likelihood.name}{dispersion}, given a latent function f"]


def _prediction_method(model: HGPRegressor) -> str:
    near, nearest = model.predictor_.neighbourhood, model.predictor_.experts_per_query
    if near is not None:
        nearest_rows = f"the {near.count:,} training rows nearest to it"
        if near.others:
            kernels = ", ".join(near.families)
            return f"by {len(near.members)} exact GPs ({kernels}), each on {nearest_rows}, averaged by their precision"
        kind = "an exact GP" if model.model_.likelihood is None else "Laplace's approximation"
        return f"by {kind} on {nearest_rows}"
    exact = model.predictor_.mixture
    if exact is not None:
        return f"by {len(exact.members)} exact GPs on all rows, whose predictions are averaged"
    experts = "all experts" if nearest is None else f"the {min(nearest, model.report_.leaves)} nearest experts"
    return f"by {experts}, combined by {model.predictor_.rule!r}"


def _settings(model: HGPRegressor) -> str:
    """The settings that differ from the defaults."""
    defaults = HGPRegressor().get_params(deep=False)
    settings = model.get_params(deep=False).items()
    return ", ".join(f"{name}={value!r}" for name, value in settings if repr(value) != repr(defaults[name]))


def _training(content: ReportContent) -> Html:
    report = content.model.report_
    parts: list[Any] = [tag("div", report.stages_html(), class_="wide", tabindex=0)]
    parts.append(tag("p", f"{'Converged' if report.converged else 'Not converged'}: {report.message}", class_="quiet"))
    parts.append(tag("div", *figures.training_figures(report), class_="figures"))
    if report.choices:
        parts += [tag("h3", "Model selection"), tag("div", report.choices_html(), class_="wide")]
        parts.append(tag("p", "Scores are mean CRPS of held-out rows; lower is better.", class_="quiet"))
    parts += [tag("h3", "Timing"), tag("div", report.timing_html(), class_="wide")]
    if content.evaluation is not None:
        rows, seconds = content.evaluation.rows, content.evaluation.seconds
        parts.append(tag("p", f"Predicting {rows:,} rows for this page took {seconds:.1f} s.", class_="quiet"))
    return join(parts)

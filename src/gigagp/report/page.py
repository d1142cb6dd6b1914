"""The page: what is known of a model and its predictions, section by section."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from importlib import resources
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.estimators.regressor import HGPRegressor
from gigagp.markup import Html, join, table, tag
from gigagp.model.fit_report import span
from gigagp.plotting.rows import TYPICAL, most_relevant, training_rows
from gigagp.plotting.style import shortened
from gigagp.report import pictures
from gigagp.report.advice import Finding, verdict
from gigagp.report.facts import Facts
from gigagp.report.scored import LEVEL, SAMPLE, Score
from gigagp.version import __version__

_WORST, _LEAST_ROWS = 10, 5  # leaves listed, and rows that one must have been scored on
_COLUMNS = 60  # listed


def rendered(facts: Facts) -> str:
    """The whole page, self-contained."""
    sections = [
        ("summary", "Summary", _summary(facts)),
        ("findings", "Warnings", _findings(facts.findings)),
        ("predictions", "Predictions", _predictions(facts)),
        ("calibration", "Calibration", _calibration(facts)),
        ("regions", "Regions", _regions(facts)),
        ("data", "Data", _data(facts)),
        ("model", "Model", _model(facts.model)),
        ("training", "Training", _training(facts)),
    ]
    links = (tag("a", title, href=f"#{name}") for name, title, _ in sections)
    bodies = (tag("section", tag("h2", title), body, id=name) for name, title, body in sections)
    style_sheet = resources.files("gigagp.report").joinpath("page.css").read_text()
    head = [
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", f"{facts.title}: GigaGP report"),
        tag("style", Html(style_sheet)),
    ]
    today = datetime.date.today().isoformat()
    body = [
        tag("header", tag("h1", facts.title), tag("p", _sentence(facts.model), class_="quiet")),
        tag("nav", *links, aria_label="Sections"),
        tag(
            "main",
            *bodies,
            tag("footer", f"Written {today} by GigaGP {__version__}, Python {platform.python_version()}."),
        ),
    ]
    return f"<!doctype html>\n{tag('html', tag('head', *head), tag('body', *body), lang='en')}\n"


def _sentence(model: HGPRegressor) -> str:
    units, report = model.units_, model.report_
    columns = ", ".join(units.columns) if len(units.columns) <= 12 else f"{len(units.columns):,} columns"
    return f"{units.target} from {columns}; {report.rows:,} rows, {report.leaves:,} experts."


def _summary(facts: Facts) -> Html:
    whole, report = facts.scored.whole(), facts.model.report_
    deviation = _target_std(facts)
    explained = f"{1 - (whole.rmse / deviation) ** 2:.1%}" if deviation > 0 else "none"
    numbers = [
        (f"{report.rows:,}", "rows fitted"),
        (f"{report.leaves:,}", "experts"),
        (f"{whole.rmse:.4g}", f"RMSE, in units of {facts.model.units_.target}"),
        (explained, "of the target's variance explained"),
        (f"{whole.nlpd:.4g}", "NLPD"),
        (f"{whole.coverage:.1%}", f"of targets in {LEVEL:.0%} intervals"),
        (f"{sum(report.seconds.values()):.1f} s", "to fit"),
    ]
    cards = (tag("div", tag("strong", value), tag("span", label)) for value, label in numbers)
    return join(
        [tag("div", *cards, class_="numbers"), tag("p", f"Scores are of {facts.source}.{facts.remark}", class_="quiet")]
    )


def _target_std(facts: Facts) -> float:
    assert facts.scored.target is not None
    return float(facts.scored.target.deviation[0])


def _findings(findings: Sequence[Finding]) -> Html:
    if not findings:
        return tag("p", "There are none: training converged, no parameter met its bounds, and intervals are honest.")
    return tag("ul", *(tag("li", f.text, tag("span", f.cure)) for f in findings), class_="findings")


def _predictions(facts: Facts) -> Html:
    scored = facts.scored
    sampled = f" A seeded sample of {SAMPLE:,} of them is drawn." if scored.rows > SAMPLE else ""
    shown = tag("div", *pictures.of_predictions(facts.model, scored), class_="figures")
    return join([tag("p", f"Of {facts.source}.{sampled}", class_="quiet"), shown])


def _calibration(facts: Facts) -> Html:
    scored, whole = facts.scored, facts.scored.whole()
    text = (
        f"All {scored.rows:,} rows are counted. Residuals are {whole.spread:.3f} predicted deviations wide (1 is "
        f"honest) and {whole.bias:+.3f} off on average (0 is honest)."
    )
    return join([tag("p", text, class_="quiet"), tag("div", *pictures.of_calibration(scored), class_="figures")])


def _regions(facts: Facts) -> Html:
    scored, model = facts.scored, facts.model
    shown = most_relevant(model, 3)
    how = (
        "Regions are subtrees: neighbouring experts."
        if scored.regions.local
        else f"Every expert sees the whole input space; regions are slices along {model.units_.columns[shown[0]]}."
    )
    parts = [
        tag("p", f"{how} The z-deviation is that of residuals in predicted deviations: 1 is honest.", class_="quiet"),
        _scores("region", scored.by_region(), shown, model),
    ]
    worst = scored.worst_leaves(_WORST, _LEAST_ROWS)
    if worst:
        parts += [
            tag("h3", "Worst leaves", id="worst"),
            tag(
                "p", "Leaves whose rows are least likely under their predictions. Look at their training rows first: "
                "outliers, or a kind of row that is rare elsewhere.", class_="quiet",
            ),
            _scores("leaf", worst, shown, model),
        ]  # fmt: skip
    return join(parts)


def _scores(kind: str, scores: Sequence[Score], columns: Sequence[int], model: HGPRegressor) -> Html:
    marks = {"too narrow": "narrow", "too wide": "broad", "honest": "quiet"}
    means = [f"mean {shortened(model.units_.columns[d])}" for d in columns]
    head = [kind, "rows", *means, "RMSE", "NLPD", f"{LEVEL:.0%} covers", "z-deviation", "intervals"]
    rows = [
        [
            s.name, f"{s.rows:,}", *(f"{s.centre[d]:.3g}" for d in columns), f"{s.rmse:.4g}", f"{s.nlpd:.3f}",
            f"{s.coverage:.1%}", f"{s.spread:.3f}", tag("span", verdict(s), class_=marks[verdict(s)]),
        ]
        for s in scores
    ]  # fmt: skip
    return tag("div", table(head, rows, class_="tight"), class_="wide", tabindex=0)


def _data(facts: Facts) -> Html:
    model, scored = facts.model, facts.scored
    assert scored.inputs is not None
    assert scored.target is not None
    some = training_rows(model, TYPICAL)
    trained = np.column_stack([some.X, some.y])
    low, high = (np.append(getattr(scored.inputs, side), getattr(scored.target, side)) for side in ("low", "high"))
    names = [*model.units_.columns, f"{model.units_.target} (target)"]
    rows = [[name, *_span_of(trained[:, d]), _number(low[d]), _number(high[d])] for d, name in enumerate(names)]
    shown = _some(rows)
    report = model.report_
    text = f"{report.rows:,} rows were fitted"
    text += f", {report.dropped:,} left out for missing values" if report.dropped else ""
    text += f". The table is made from {len(some.y):,} of them." if len(some.y) < report.rows else "."
    if len(shown) < len(rows):
        text += f" {len(shown):,} of {len(rows):,} columns are listed."
    head = ["column", "fitted: mean", "deviation", "lowest", "highest", "scored: lowest", "highest"]
    return join([tag("p", text, class_="quiet"), tag("div", table(head, shown), class_="wide", tabindex=0)])


def _some(rows: list[list[str]]) -> list[list[str]]:
    """The first ones and the last, where there are too many."""
    return rows if len(rows) <= _COLUMNS else [*rows[: _COLUMNS - 1], rows[-1]]


def _span_of(column: Array) -> list[str]:
    return [_number(v) for v in (column.mean(), column.std(), column.min(), column.max())]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _model(model: HGPRegressor) -> Html:
    report = model.report_
    fallback = float(model.model_.target.centre[0])
    about = [
        ["predicts", f"{model.units_.target}, with a distribution for each row"],
        ["kernel", type(model.kernel_).__name__],
        ["noise", f"standard deviation {model.noise_variance_**0.5:.4g} of {model.units_.target}"],
        ["tree", " → ".join(f"{model.tree_.width(d):,}" for d in range(model.tree_.depth + 1)) + " leaves"],
        [
            "experts",
            f"cells of {span(report.points_per_leaf)} points, predicting from {span(report.points_per_expert)}",
        ],
        ["a query is answered", _way_of_answering(model)],
        ["far from all training rows", f"falls back to {fallback:.4g}, with the deviation of all targets"],
        ["settings", _settings(model) or "defaults"],
    ]
    learnt = model.units_.parameters(model.kernel_, model.noise_variance_)
    quantities = _some([[q.name, _number(q.value), shortened(q.unit)] for q in learnt])
    fewer = f" ({len(quantities):,} of {len(learnt):,})" if len(quantities) < len(learnt) else ""
    return join(
        [
            tag("div", table(["", ""], about, class_="words"), class_="wide"),
            tag("h3", f"Parameters{fewer}"),
            tag("div", table(["parameter", "value", "unit"], quantities), class_="wide", tabindex=0),
            tag("div", *pictures.of_model(model), class_="figures"),
        ]
    )


def _way_of_answering(model: HGPRegressor) -> str:
    near, asked = model.predictor_.neighbourhood, model.predictor_.experts_per_query
    if near is not None:
        return f"by an exact GP on the {near.count:,} training rows nearest to it"
    exact = model.predictor_.mixture
    if exact is not None:
        return f"by {len(exact.members)} exact GPs on all rows, whose predictions are averaged"
    experts = "all experts" if asked is None else f"the {min(asked, model.report_.leaves)} nearest experts"
    return f"by {experts}, combined by {model.predictor_.rule!r}"


def _settings(model: HGPRegressor) -> str:
    """Those that are not the default."""
    usual = HGPRegressor().get_params(deep=False)
    given = {name: value for name, value in model.get_params(deep=False).items() if repr(value) != repr(usual[name])}
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _training(facts: Facts) -> Html:
    report = facts.model.report_
    parts: list[Any] = [tag("div", report.stages_html(), class_="wide", tabindex=0)]
    parts.append(tag("p", f"{'Converged' if report.converged else 'Not converged'}: {report.message}", class_="quiet"))
    parts.append(tag("div", *pictures.of_training(report), class_="figures"))
    if report.choices:
        parts += [tag("h3", "What was tried"), tag("div", report.choices_html(), class_="wide")]
        parts.append(
            tag("p", "Scores are mean negative log densities of held-out rows; lower is better.", class_="quiet")
        )
    parts += [tag("h3", "Timing"), tag("div", report.timing_html(), class_="wide")]
    if facts.evaluation is not None:
        spent = f"Predicting {facts.evaluation.rows:,} rows for this page took {facts.evaluation.seconds:.1f} s."
        parts.append(tag("p", spent, class_="quiet"))
    return join(parts)

"""The page about a model of numbers, section by section."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gigagp.data.sources.times import is_date
from gigagp.estimators.regressor import HGPRegressor
from gigagp.markup import Html, join, table, tag
from gigagp.plotting.influence import influential_columns
from gigagp.plotting.rows import TYPICAL, training_rows
from gigagp.plotting.style import shortened
from gigagp.report import figures, sections
from gigagp.report.advice import CALIBRATED, TOO_NARROW, TOO_WIDE, assess_intervals
from gigagp.report.content import ReportContent
from gigagp.report.scoring import LEVEL, SAMPLE, Score

_WORST_LEAVES = 10  # leaves that are listed
_MIN_ROWS_OF_LEAF = 5  # scored rows that a listed leaf must have
_CSS_CLASSES = {TOO_NARROW: "narrow", TOO_WIDE: "broad", CALIBRATED: "quiet"}


def render(content: ReportContent) -> str:
    """The whole page as one self-contained HTML document."""
    evaluation = content.evaluation
    predicted = None if evaluation is None else (evaluation.rows, evaluation.seconds)
    parts = [
        ("summary", "Summary", _summary(content)),
        ("warnings", "Warnings", sections.warnings(content.advice, "intervals")),
        ("predictions", "Predictions", _predictions(content)),
        ("calibration", "Calibration", _calibration(content)),
        ("regions", "Regions", _regions(content)),
        ("data", "Data", _data(content)),
        ("model", "Model", _model(content.model)),
        ("training", "Training", sections.training(content.model.report_, "mean CRPS", predicted)),
    ]
    return sections.document(content.title, sections.subtitle(content.model), parts)


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
    return join([sections.cards(numbers), sections.quiet(f"Scores of {content.source}.{content.remark}")])


def _target_std(content: ReportContent) -> float:
    assert content.scores.target is not None
    return float(content.scores.target.deviation[0])


def _predictions(content: ReportContent) -> Html:
    scores = content.scores
    sampled = f" The figures show a random sample of {SAMPLE:,} rows." if scores.rows > SAMPLE else ""
    drawn = sections.pictures(figures.prediction_figures(content.model, scores))
    return join([sections.quiet(f"Predictions of {content.source}.{sampled}"), drawn])


def _calibration(content: ReportContent) -> Html:
    scores, whole = content.scores, content.scores.all_rows()
    text = (
        f"From all {scores.rows:,} rows. The residuals, in predicted standard deviations, have a root mean square of "
        f"{whole.spread:.3f} (1 if calibrated) and a mean of {whole.bias:+.3f} (0 if calibrated)."
    )
    return join([sections.quiet(text), sections.pictures(figures.calibration_figures(scores))])


def _regions(content: ReportContent) -> Html:
    scores, model = content.scores, content.model
    columns = influential_columns(model, 3)
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
    return model.units_.text(d, score.centre[d]) if is_date(model.units_.kind(d)) else f"{score.centre[d]:.4g}"


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
        [name, *sections.statistics(model.units_, d, np.array([*trained[:, d], low[d], high[d]]))]
        for d, name in enumerate(names)
    ]
    return sections.data(model, rows, len(sample.y))


def _model(model: HGPRegressor) -> Html:
    own = model.model_.likelihood
    fallback = float(model.model_.target.centre[0]) if own is None else own.target_mean
    about = [
        ["predicts", f"{model.units_.target}, as one distribution per query"],
        ["kernel", model.units_.description(model.kernel_)],
        _noise(model),
        ["tree", sections.tree_text(model)],
        ["experts", sections.experts_text(model.report_)],
        ["a query is predicted", _prediction_method(model)],
        ["far from all training rows", f"the mean {fallback:.4g} and the standard deviation of the target"],
        ["settings", sections.settings(model)],
    ]
    return sections.model_section(model, about, model.units_.parameters(model.kernel_, model.noise_variance_))


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
        averaged = f"{len(exact.members)} exact GPs on all rows, whose predictions are averaged"
        return "by an exact GP on all rows" if len(exact.members) == 1 else f"by {averaged}"
    experts = "all experts" if nearest is None else f"the {min(nearest, model.report_.leaves)} nearest experts"
    return f"by {experts}, combined by {model.predictor_.rule!r}"

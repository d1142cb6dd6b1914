"""The figures of each section of a report, with their captions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from matplotlib.axes import Axes

from gigagp import plotting
from gigagp.estimators.base import HGPEstimator
from gigagp.estimators.regressor import HGPRegressor
from gigagp.markup import Html
from gigagp.model.fit_report import FitReport
from gigagp.plotting.influence import influence_height, influences, influential_columns, user_columns
from gigagp.plotting.rows import typical_row
from gigagp.plotting.style import date_axis
from gigagp.report.scoring import ScoreCollector
from gigagp.report.svg import figure

_LEAST_INFLUENCE = 5e-3  # share of the target's variance from which the levels of a category are drawn
_WORKERS = 4  # among which the picture of the tree divides the leaves
_CAPTION_OF_NEIGHBOURS = "The training rows from which a typical row is predicted, and other rows near them."
_CAPTION_OF_EXPERTS = "The experts that predict a typical row, their training rows, and the weight of each expert."


def prediction_figures(model: HGPRegressor, scores: ScoreCollector) -> Iterator[Html]:
    """Predictions and residuals of the scored rows."""
    X, y, mean, std = scores.sample()
    z = (y - mean) / std
    names, first = model.units_.columns, influential_columns(model, 1)[0]
    yield figure(
        "against", lambda ax: plotting.predicted_against_true(y, mean, model.units_.target, ax), 4.4, 4.2,
        "Predicted means against the targets. Good predictions lie near the dashed line.",
    )  # fmt: skip
    yield figure(
        "along", lambda ax: _dated(model, plotting.residuals_along(X[:, first], z, names[first], ax), first), 5.2, 4.2,
        f"Residuals along {names[first]}. The solid line is their median, which should be near 0. The dotted lines "
        "enclose 95% of them and should be near the outer dashed lines.",
    )  # fmt: skip
    yield figure(
        "band", lambda ax: plotting.predictive_band(model, first, ax=ax), 5.2, 4.2,
        f"Predictions as {names[first]} varies. The light band is the interval of the target, the dark band one "
        "standard deviation of the function.",
    )  # fmt: skip
    for column in influential_categories(model):
        yield figure(
            "levels", partial(plotting.levels, model, column), 5.2, 4.2,
            f"Predictions for each value of {column}, with one standard deviation.",
        )  # fmt: skip
    columns = sorted(influential_columns(model, 2))
    if len(columns) < 2:
        return
    i, j = columns
    yield figure(
        "map", lambda ax: plotting.predictive_map(model, (i, j), ax=ax), 5.2, 4.2,
        "Predicted means over the two columns that change predictions most.",
    )  # fmt: skip
    yield figure(
        "spread", lambda ax: plotting.predictive_map(model, (i, j), show="std", ax=ax), 5.2, 4.2,
        "Predicted standard deviations over the same two columns.",
    )  # fmt: skip
    yield figure(
        "residuals", lambda ax: _dated(model, plotting.residual_map(X[:, [i, j]], z, (names[i], names[j]), ax), i, j),
        5.2, 4.2,
        "Mean residuals over the same two columns. In a large area of one colour predictions are systematically too "
        "low (orange) or too high (blue).",
    )  # fmt: skip


def _dated(model: HGPRegressor, ax: Axes, *columns: int) -> Axes:
    """The axes with dates at the ticks of columns that are dates, along x and then along y."""
    for axis, column in zip((ax.xaxis, ax.yaxis), columns, strict=False):
        date_axis(axis, model.units_.kind(column))
    return ax


def influential_categories(model: HGPRegressor) -> list[str]:
    """Names of at most two categories that change predictions, the most influential first."""
    values, columns = influences(model), user_columns(model)
    order = sorted(range(len(columns)), key=lambda number: -values[number])
    return [columns[n].name for n in order if columns[n].categories and values[n] > _LEAST_INFLUENCE][:2]


def calibration_figures(scores: ScoreCollector) -> Iterator[Html]:
    """Calibration curve and PIT histogram."""
    yield figure(
        "curve", lambda ax: plotting.calibration_curve(scores.pit, scores.pit_counts, ax), 4.4, 4.2,
        "Share of the targets inside the intervals of each level.",
    )  # fmt: skip
    yield figure(
        "pit", lambda ax: plotting.pit_histogram(scores.pit, scores.pit_counts, ax), 5.2, 4.2,
        "Where the targets lie in their predicted distributions. A flat histogram means calibrated predictions, a hump "
        "that intervals are too wide, a valley that they are too narrow, a slope that means are biased.",
    )  # fmt: skip


def model_figures(model: HGPEstimator) -> Iterator[Html]:
    """Relevance of the columns, experts of a typical row, and the tree."""
    yield figure(
        "influence", lambda ax: plotting.influence(model, ax), 5.6, influence_height(model),
        "How much predictions change when a column has the values of other rows, as a share of the target's variance. "
        "Shares may add up to more than 100%, because columns act together.",
    )  # fmt: skip
    if isinstance(model, HGPRegressor) and model.model_.input_noise is not None:
        yield figure(
            "noise", lambda ax: plotting.noise_along(model, ax=ax), 5.6, 3.8,
            "How the noise varies with the column that it depends on most.",
        )  # fmt: skip
    if model.n_features_in_ > 1 and model.model_.local:
        yield figure(
            "experts", lambda ax: plotting.partition_map(model, typical_row(model), ax=ax), 5.2, 4.6,
            _CAPTION_OF_NEIGHBOURS if model.predictor_.neighbourhood is not None else _CAPTION_OF_EXPERTS,
        )  # fmt: skip
    yield figure(
        "tree", lambda ax: plotting.tree_of_workers(model.tree_, _WORKERS, ax), 5.6, 4.0,
        f"The tree, divided among {_WORKERS} workers. Each worker computes the sums of the nodes in its colour; thick "
        "lines are sums that one worker sends to another.",
    )  # fmt: skip


def training_figures(report: FitReport) -> Iterator[Html]:
    """The evidence at each evaluation."""
    if report.evidence_trace:
        yield figure(
            "evidence", lambda ax: plotting.evidence_trace(report, ax), 5.6, 4.0,
            "Log marginal likelihood per point at each evaluation. Stages use different experts: compare values only "
            "within a stage.",
        )  # fmt: skip

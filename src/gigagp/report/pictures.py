"""Which pictures a page shows, and what it says below them."""

from __future__ import annotations

from collections.abc import Iterator

from gigagp import plotting
from gigagp.estimators.regressor import HGPRegressor
from gigagp.markup import Html
from gigagp.model.fit_report import FitReport
from gigagp.plotting.relevance import height
from gigagp.plotting.rows import most_relevant, typical_row, weights
from gigagp.report.figures import figure
from gigagp.report.scored import Scored

_WORKERS = 4  # that the tree is shown divided over


def of_predictions(model: HGPRegressor, scored: Scored) -> Iterator[Html]:
    X, y, mean, std = scored.sample()
    z = (y - mean) / std
    names, first = model.units_.columns, most_relevant(model, 1)[0]
    yield figure(
        "against", lambda ax: plotting.predicted_against_true(y, mean, model.units_.target, ax), 4.4, 4.2,
        "Predicted means against the truth. Good predictions lie on the dashed line.",
    )  # fmt: skip
    yield figure(
        "along", lambda ax: plotting.residuals_along(X[:, first], z, names[first], ax), 5.2, 4.2,
        f"Residuals along {names[first]}. Solid: their middle, which should follow 0. Dotted: where 95% of them lie, "
        "which should follow the outer dashed lines.",
    )  # fmt: skip
    yield figure(
        "band", lambda ax: plotting.predictive_band(model, first, ax=ax), 5.2, 4.2,
        f"Predictions as {names[first]} varies. Faint: interval of the target; strong: of the function itself.",
    )  # fmt: skip
    if model.n_features_in_ == 1:
        return
    i, j = sorted(most_relevant(model, 2))
    yield figure(
        "map", lambda ax: plotting.predictive_map(model, (i, j), ax=ax), 5.2, 4.2,
        "Predicted means over the two columns that matter most.",
    )  # fmt: skip
    yield figure(
        "spread", lambda ax: plotting.predictive_map(model, (i, j), show="std", ax=ax), 5.2, 4.2,
        "Predicted standard deviations over the same two columns.",
    )  # fmt: skip
    yield figure(
        "residuals", lambda ax: plotting.residual_map(X[:, [i, j]], z, (names[i], names[j]), ax), 5.2, 4.2,
        "Mean residuals over the same two columns. A patch of one colour is a place where predictions are all too low "
        "(orange) or too high (blue).",
    )  # fmt: skip


def of_calibration(scored: Scored) -> Iterator[Html]:
    yield figure(
        "curve", lambda ax: plotting.calibration_curve(scored.pit, scored.pit_counts, ax), 4.4, 4.2,
        "How many targets lie inside intervals of each level.",
    )  # fmt: skip
    yield figure(
        "pit", lambda ax: plotting.pit_histogram(scored.pit, scored.pit_counts, ax), 5.2, 4.2,
        "Where targets lie in their predicted distributions. Flat is honest; a hill says that intervals are too wide, "
        "a valley too narrow, a slope that means are off.",
    )  # fmt: skip


def of_model(model: HGPRegressor) -> Iterator[Html]:
    if weights(model) is not None:
        yield figure(
            "relevance", lambda ax: plotting.relevance(model, ax), 5.6, height(model),
            "How fast the function varies with each column. Short bars: it hardly depends on the column.",
        )  # fmt: skip
    if model.n_features_in_ > 1 and model.model_.local:
        yield figure(
            "experts", lambda ax: plotting.partition_map(model, typical_row(model), ax=ax), 5.2, 4.6,
            "The experts that a typical row asks, their training rows, and how much each counts.",
        )  # fmt: skip
    yield figure(
        "tree", lambda ax: plotting.tree_of_workers(model.tree_, _WORKERS, ax), 5.6, 4.0,
        f"The tree, as {_WORKERS} workers would share it. Each forms the sums of its colour; along thick lines sums "
        "travel from one to another.",
    )  # fmt: skip


def of_training(report: FitReport) -> Iterator[Html]:
    if report.evidence_trace:
        yield figure(
            "evidence", lambda ax: plotting.evidence_trace(report, ax), 5.6, 4.0,
            "Log marginal likelihood per point at each evaluation. Stages see different experts: compare within one.",
        )  # fmt: skip

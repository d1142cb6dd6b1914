"""Warnings of a report: what a reader should know about a model and its predictions, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import binom

from gigagp.estimators.base import HGPEstimator
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import FitWarning, ParameterAtBound
from gigagp.model.units import Units
from gigagp.report.scoring import LEVEL, Score

CALIBRATED = "calibrated"
TOO_NARROW = "too narrow"
TOO_WIDE = "too wide"
_SIGNIFICANCE = 0.005  # probability below which a deviation of the coverage is not explained by chance
_SIGNIFICANT_ERRORS = 2.6  # standard errors, for the same probability
_RELEVANT_COVERAGE_ERROR = 0.02  # difference to the nominal coverage that matters in practice
_USELESS_RMSE = 0.9  # share of the target's standard deviation from which a model explains next to nothing
_RELEVANT_BIAS = 0.1  # predicted standard deviations
_RELEVANT_FAR_SHARE = 0.01  # share of the rows that lie far from the training rows


@dataclass(frozen=True)
class Advice:
    """A problem, and what to do about it."""

    text: str
    remedy: str


def assess_intervals(score: Score) -> str:
    """Whether the intervals of these rows are calibrated, too narrow or too wide, beyond what chance explains."""
    inside, error = round(score.coverage * score.rows), score.coverage - LEVEL
    if error < -_RELEVANT_COVERAGE_ERROR and binom.cdf(inside, score.rows, LEVEL) < _SIGNIFICANCE:
        return TOO_NARROW
    if error > _RELEVANT_COVERAGE_ERROR and binom.sf(inside - 1, score.rows, LEVEL) < _SIGNIFICANCE:
        return TOO_WIDE
    return CALIBRATED


def advice_on_fit(model: HGPEstimator) -> list[Advice]:
    """What the fit itself reports."""
    report, units = model.report_, model.units_
    ignored = [warning for warning in report.warnings if _ignored_column(warning) is not None]
    others = [warning for warning in report.warnings if warning not in ignored]
    columns = [units.columns[column] for warning in ignored if (column := _ignored_column(warning)) is not None]
    return [
        *([_on_ignored_columns(columns)] if columns else []),
        *(_on_warning(warning, units) for warning in others),
        *_on_training(report),
    ]


def _ignored_column(warning: FitWarning) -> int | None:
    return warning.ignored_column if isinstance(warning, ParameterAtBound) else None


def _on_ignored_columns(columns: list[str]) -> Advice:
    names = f"the column {columns[0]}" if len(columns) == 1 else f"{len(columns)} columns: {', '.join(columns)}"
    return Advice(
        f"The model ignores {names}.",
        "You need not do anything; without these columns fits are a little faster. If a column should matter, look for "
        "mistakes in it: wrong units, a constant, or codes instead of numbers.",
    )


def _on_warning(warning: FitWarning, units: Units) -> Advice:
    advice = warning.advice(units)
    return Advice(f"{warning.observation(units)}.", f"{advice[0].upper()}{advice[1:]}.")


def _capitalised(text: str) -> str:
    """A sentence that begins with a capital letter; code keeps its own."""
    return f"The setting {text}" if text.startswith("likelihood=") else f"{text[0].upper()}{text[1:]}"


def _on_training(report: FitReport) -> list[Advice]:
    advice = []
    if report.looks_like:
        text, _, remedy = report.suggestion.partition("; ")
        advice.append(Advice(f"{text[0].upper()}{text[1:]}.", f"{_capitalised(remedy)}."))
    if not report.converged:
        advice.append(
            Advice(
                f"Training did not converge: {report.message}.",
                "Fit again with n_restarts=2, or with other start values in the kernel, and compare the scores.",
            )
        )
    if report.jitter:
        advice.append(
            Advice(
                f"The covariance matrices of {report.jittered_experts:,} experts could be factorised only after "
                f"{report.jitter:.1g} was added to their diagonals.",
                'Look for duplicated rows, raise the lower end of noise_bounds, or use dtype="float64".',
            )
        )
    if report.dropped:
        share = report.dropped / (report.dropped + report.rows)
        advice.append(
            Advice(
                f"{report.dropped:,} rows ({share:.1%}) were not used in the fit because values are missing.",
                "Check whether these rows have something in common. If they do, predictions for such rows are "
                "unreliable.",
            )
        )
    if report.copies:
        advice.append(
            Advice(
                f"{report.copies:,} rows are exact copies of others (same inputs, same target), and were counted once.",
                "If they are separate observations, pass sample_weight=1 for every row; then all of them count.",
            )
        )
    return advice


def advice_on_scores(
    whole: Score, regions: list[Score], target_std: float, far: int, missing: int, target: str
) -> list[Advice]:
    """What predictions of rows with known targets show.

    far : number of rows far from all training rows
    missing : number of rows without a score because values are missing
    """
    advice = []
    if whole.rmse >= _USELESS_RMSE * target_std > 0:
        advice.append(
            Advice(
                f"The model predicts hardly better than the mean would: RMSE {whole.rmse:.4g}, where {target} has a "
                f"standard deviation of {target_std:.4g}.",
                "The columns may contain no information about the target. Check units and table joins, or add columns.",
            )
        )
    advice += _on_intervals(whole, regions)
    if abs(whole.bias) > max(_RELEVANT_BIAS, _SIGNIFICANT_ERRORS / max(whole.rows, 1) ** 0.5):
        side = "below" if whole.bias > 0 else "above"
        advice.append(
            Advice(
                f"Predictions lie {side} the targets, by {abs(whole.bias):.2f} predicted standard deviations on "
                "average.",
                "If these are new rows that differ from the training rows permanently, fit the model to such rows.",
            )
        )
    if far > _RELEVANT_FAR_SHARE * whole.rows:
        advice.append(
            Advice(
                f"{far / whole.rows:.1%} of the rows lie far from all training rows. There the model predicts the mean "
                "of the target with the standard deviation of the target.",
                "Rely on the wide intervals there, not on the means, and add training rows in these regions.",
            )
        )
    if missing:
        advice.append(
            Advice(
                f"{missing:,} rows were not scored because values are missing.",
                "Check whether these rows have something in common.",
            )
        )
    return advice


def _on_intervals(whole: Score, regions: list[Score]) -> list[Advice]:
    assessment = assess_intervals(whole)
    if assessment != CALIBRATED:
        remedy = (
            "Allow for this where intervals matter. The usual reasons are rows that differ from the training rows, a "
            "kernel that is too smooth (try Matern32), and outliers in the target."
            if assessment == TOO_NARROW
            else "They are safe but less informative than they could be. Outliers in the training target increase the "
            "noise variance: look for them."
        )
        text = f"Intervals are {assessment}: {LEVEL:.0%} intervals contain {whole.coverage:.1%} of the targets."
        return [Advice(text, remedy)]
    off = [score for score in regions if assess_intervals(score) != CALIBRATED]
    if not off:
        return []
    return [
        Advice(
            f"Intervals are calibrated over all rows, but not in {len(off)} of {len(regions)} regions.",
            "Noise or roughness differ between regions, but the model has one set of kernel parameters. See the table "
            "of regions; where the difference matters, fit one model per region.",
        )
    ]

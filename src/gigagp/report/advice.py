"""What a reader should know, in plain words, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scipy.stats import binom

from gigagp.estimators.regressor import HGPRegressor
from gigagp.report.scored import LEVEL, Score

_CHANCE = 0.005  # probability of what is not put down to chance
_SURE = 2.6  # standard errors, likewise
_OFF = 0.02  # of coverage that matters
_LOST = 0.9  # of the target's deviation: a model whose error is larger explains next to nothing
_BIASED = 0.1  # of a predicted deviation
_FAR = 0.01  # share of rows far from the training rows
_IGNORED = re.compile(r"lengthscale\[(.+)\] ended at its upper bound .*ignores that column")


@dataclass(frozen=True)
class Finding:
    """A sentence, and what to do."""

    text: str
    cure: str


def verdict(score: Score) -> str:
    """Whether intervals of these rows are honest, as far as chance lets one see."""
    inside, off = round(score.coverage * score.rows), score.coverage - LEVEL
    if off < -_OFF and binom.cdf(inside, score.rows, LEVEL) < _CHANCE:
        return "too narrow"
    if off > _OFF and binom.sf(inside - 1, score.rows, LEVEL) < _CHANCE:
        return "too wide"
    return "honest"


def of_fit(model: HGPRegressor) -> list[Finding]:
    """What the fit itself tells."""
    report, found = model.report_, []
    texts = [model.units_.named(text) for text in report.warnings]
    ignored = [match[1] for text in texts if (match := _IGNORED.search(text))]
    if ignored:
        columns = f"the column {ignored[0]}" if len(ignored) == 1 else f"{len(ignored)} columns: {', '.join(ignored)}"
        found.append(
            Finding(
                f"The model ignores {columns}.",
                "Nothing has to be done; without what is ignored fits are a little faster. If it should matter, look "
                "for mistakes in it: wrong units, a constant, codes instead of numbers.",
            )
        )
    for text in texts:
        if not _IGNORED.search(text):
            found.append(Finding(f"{text.partition(';')[0]}.", _cure_of_bound(text)))
    if not report.converged:
        found.append(
            Finding(
                f"Training did not converge: {report.message}.",
                "Fit again with n_restarts=2, or give the kernel other start values; compare the scores.",
            )
        )
    if report.jitter:
        found.append(
            Finding(
                f"{report.jittered_experts:,} experts were only factored after {report.jitter:.1g} was added to the "
                "diagonal of their covariance.",
                'Look for duplicated rows; raise the lower end of noise_bounds; use dtype="float64".',
            )
        )
    if report.dropped:
        share = report.dropped / (report.dropped + report.rows)
        found.append(
            Finding(
                f"{report.dropped:,} rows ({share:.1%}) were left out of the fit for missing values.",
                "Check that they are not of one kind. Predictions for their kind are guesses if they are.",
            )
        )
    return found


def _cure_of_bound(text: str) -> str:
    if "noise_variance" in text and "lower" in text:
        return (
            "The target looks free of noise. Look for duplicated rows, or for a column that gives the target away; if "
            "it truly has none, lower noise_bounds."
        )
    if "lengthscale" in text and "lower" in text:
        return "The function looks rougher than the bound allows: try Matern12, or a smaller lower bound."
    return "Widen that bound in the kernel if the value is plausible; else leave it."


def of_scores(
    whole: Score, regions: list[Score], target_std: float, far: int, missing: int, units: str
) -> list[Finding]:
    """What predictions of rows with known targets tell."""
    found = []
    if whole.rmse >= _LOST * target_std > 0:
        found.append(
            Finding(
                f"The model predicts hardly better than the mean would: RMSE {whole.rmse:.4g}, where {units} has "
                f"deviation {target_std:.4g}.",
                "The columns may not tell of the target. Check units and the join of the tables, or add columns.",
            )
        )
    found += _of_intervals(whole, regions)
    if abs(whole.bias) > max(_BIASED, _SURE / max(whole.rows, 1) ** 0.5):
        side = "below" if whole.bias > 0 else "above"
        found.append(
            Finding(
                f"Predictions lie {side} the truth, by {abs(whole.bias):.2f} predicted deviations on average.",
                "These rows differ from the training rows. Fit to rows like them, if the difference is to stay.",
            )
        )
    if far > _FAR * whole.rows:
        found.append(
            Finding(
                f"{far / whole.rows:.1%} of the rows lie far from all training rows: there the model falls back to the "
                "mean of the target, with its full deviation.",
                "Trust the wide intervals, not the means. Add training rows there.",
            )
        )
    if missing:
        found.append(Finding(f"{missing:,} rows were left out of the scores for missing values.", "Check their kind."))
    return found


def _of_intervals(whole: Score, regions: list[Score]) -> list[Finding]:
    said = verdict(whole)
    if said != "honest":
        cure = (
            "Trust them less where they matter. Rows that differ from the training rows, a kernel that is too smooth "
            "(try Matern32) or outliers in the target are the usual reasons."
            if said == "too narrow"
            else "They are safe, but say less than the data know. Outliers in the training target widen the noise: "
            "look for them."
        )
        return [Finding(f"Intervals are {said}: those of {LEVEL:.0%} hold {whole.coverage:.1%} of the targets.", cure)]
    off = [score for score in regions if verdict(score) != "honest"]
    if not off:
        return []
    return [
        Finding(
            f"Intervals are honest over all rows, but not in {len(off)} of {len(regions)} regions.",
            "The noise or the roughness differs from region to region, and one theta serves all. See the regions "
            "below; where that matters, fit regions apart.",
        )
    ]

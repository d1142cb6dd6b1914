"""Scores and choices of models whose targets depend on latent functions by a likelihood, or are classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gigagp.fit.class_scores import ClassScoring
from gigagp.fit.held_out_scores import NumberScoring, Scorer, Scoring
from gigagp.fit.likelihood_scores import LikelihoodScoring
from gigagp.fit.plan import Plan
from gigagp.fit.selection import choose_neighbours
from gigagp.likelihoods import Classes
from gigagp.model.class_calibration import ClassCalibration
from gigagp.model.fit_report import Candidate
from gigagp.model.likelihood_model import LikelihoodCalibration
from gigagp.model.neighbourhood import Neighbourhood

Link = ClassCalibration | LikelihoodCalibration


def scoring_of(plan: Plan) -> Scoring:
    """How held-out rows are scored."""
    if plan.latents is None:
        return NumberScoring(plan.target_variance, gaussian=plan.gaussian_errors)
    if plan.likelihood is not None:
        return LikelihoodScoring(plan.likelihood)
    assert isinstance(plan.latents, Classes)
    return ClassScoring(plan.latents)


def plain_link(plan: Plan) -> Link:
    """The link from latent functions to targets before calibration."""
    return ClassCalibration() if plan.likelihood is None else LikelihoodCalibration()


@dataclass(frozen=True, eq=False)
class LatentChoice:
    """How many neighbours predict a query, and the calibrated link of their predictions."""

    neighbourhood: Neighbourhood
    link: Link
    candidates: tuple[Candidate, ...]


def choose_prediction(scorer: Scorer, model: Neighbourhood, neighbours: int | None) -> LatentChoice:
    """Double the number of neighbours as long as that gains, unless the user has chosen it, and calibrate."""
    if neighbours is None:
        model, score, candidates, _ = choose_neighbours(scorer, model)
        score = scorer.calibrate(model, score)
    else:
        candidates, score = [], scorer.calibrate(model)
    candidates.append(Candidate("prediction", model.description, float(np.float64(score.score)), True))
    return LatentChoice(model, score.calibration, tuple(candidates))

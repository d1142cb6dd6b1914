"""Descriptions of models and scores in the user's units, as text and as JSON."""

from __future__ import annotations

from typing import Any

from gigagp.cli.running import table
from gigagp.estimators.base import HGPEstimator
from gigagp.model.class_evaluation import ClassEvaluation
from gigagp.model.evaluation import Evaluation
from gigagp.model.fit_warnings import sentences


def column_names(model: HGPEstimator) -> list[str]:
    return list(model.units_.columns)


def target_name(model: HGPEstimator) -> str:
    return model.units_.target


def warnings_of(model: HGPEstimator) -> list[str]:
    """Sentences with the names of the columns that they are about."""
    return sentences(model.report_.warnings, model.units_)


def parameters(model: HGPEstimator) -> list[dict[str, Any]]:
    """Each trained parameter: name, value and unit."""
    return [vars(each) for each in model.units_.parameters(model.kernel_, model.noise_variance_)]


def parameters_text(model: HGPEstimator) -> str:
    rows = [[each["name"], f"{each['value']:.4g}", each["unit"]] for each in parameters(model)]
    return table(["parameter", "value", "unit"], rows)


def scores(evaluation: Evaluation | ClassEvaluation) -> dict[str, Any]:
    if isinstance(evaluation, ClassEvaluation):
        return vars(evaluation)
    return {
        "rows": evaluation.rows,
        "dropped": evaluation.dropped,
        "rmse": evaluation.rmse,
        "nlpd": evaluation.nlpd,
        "crps": evaluation.crps,
        "coverage": {f"{level:g}": share for level, share in evaluation.coverage.items()},
        "target_std": evaluation.target_std,
        "seconds": evaluation.seconds,
    }


def scores_text(evaluation: Evaluation | ClassEvaluation) -> str:
    if isinstance(evaluation, ClassEvaluation):
        values = (evaluation.log_loss, evaluation.brier, evaluation.calibration_error, evaluation.base_log_loss)
        texts = [f"{evaluation.accuracy:.1%}", *(f"{value:.4g}" for value in values)]
        return table(["accuracy", "log loss", "Brier score", "calibration error", "log loss of shares"], [texts])
    head = ["RMSE", "NLPD", "CRPS", *(f"{level:.0%} coverage" for level in evaluation.coverage), "std of target"]
    shares = [f"{share:.1%}" for share in evaluation.coverage.values()]
    row = [
        f"{evaluation.rmse:.4g}",
        f"{evaluation.nlpd:.4g}",
        f"{evaluation.crps:.4g}",
        *shares,
        f"{evaluation.target_std:.4g}",
    ]
    return table(head, [row])

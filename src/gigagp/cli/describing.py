"""Models and scores in the user's units, for people and for machines."""

from __future__ import annotations

from typing import Any

from gigagp.cli.running import table
from gigagp.estimators.regressor import HGPRegressor
from gigagp.model.evaluation import Evaluation


def column_names(model: HGPRegressor) -> list[str]:
    return list(model.units_.columns)


def target_name(model: HGPRegressor) -> str:
    return model.units_.target


def warnings_of(model: HGPRegressor) -> list[str]:
    """Sentences with the names of the columns that they are about."""
    return [warning.sentence(model.units_) for warning in model.report_.warnings]


def parameters(model: HGPRegressor) -> list[dict[str, Any]]:
    """Each trained parameter: its name with the column's, its value, and the unit that is in."""
    return [vars(each) for each in model.units_.parameters(model.kernel_, model.noise_variance_)]


def parameters_text(model: HGPRegressor) -> str:
    rows = [[each["name"], f"{each['value']:.4g}", each["unit"]] for each in parameters(model)]
    return table(["parameter", "value", "unit"], rows)


def scores(found: Evaluation) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "dropped": found.dropped,
        "rmse": found.rmse,
        "nlpd": found.nlpd,
        "crps": found.crps,
        "coverage": {f"{level:g}": share for level, share in found.coverage.items()},
        "target_std": found.target_std,
        "seconds": found.seconds,
    }


def scores_text(found: Evaluation) -> str:
    head = ["RMSE", "NLPD", "CRPS", *(f"{level:.0%} covers" for level in found.coverage), "std of target"]
    shares = [f"{share:.1%}" for share in found.coverage.values()]
    row = [f"{found.rmse:.4g}", f"{found.nlpd:.4g}", f"{found.crps:.4g}", *shares, f"{found.target_std:.4g}"]
    return table(head, [row])

"""Models and scores in the user's units, for people and for machines."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gigagp.cli.running import table
from gigagp.estimator import HGPRegressor
from gigagp.evaluation import Evaluation
from gigagp.kernels import Kernel, Linear, Periodic, Product, Sum
from gigagp.kernels.stationary import Stationary


def column_names(model: HGPRegressor) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    return [f"x{d}" for d in range(model.n_features_in_)] if given is None else [str(name) for name in given]


def target_name(model: HGPRegressor) -> str:
    return model._target_name or "y"


def warnings_of(model: HGPRegressor) -> list[str]:
    return [_with_names(text, model) for text in model.report_.warnings]


@contextmanager
def named_warnings(model: HGPRegressor) -> Iterator[None]:
    """Warnings of a fit, given on with the names of the columns they are about."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for each in caught:
        warnings.warn(_with_names(str(each.message), model), each.category, stacklevel=3)


def _with_names(text: str, model: HGPRegressor) -> str:
    """lengthscale[7] as lengthscale[joint7], say."""
    names = column_names(model)
    return re.sub(r"(?<=[a-z])\[(\d+)\]", lambda found: f"[{names[int(found[1])]}]", text)


def parameters(model: HGPRegressor) -> list[dict[str, Any]]:
    """Each trained parameter: its name with the column's, its value, and the unit that is in.

    What means nothing in the user's units (one length-scale for all columns, factors of a product) stays in those of
    the standardised columns, and says so.
    """
    found = _of_kernel(model.kernel_, "", model, within_product=False)
    noise = {"name": "noise_variance", "value": model.noise_variance_, "unit": f"{target_name(model)}^2"}
    return [*found, noise]


def _of_kernel(kernel: Kernel, prefix: str, model: HGPRegressor, within_product: bool) -> list[dict[str, Any]]:
    if isinstance(kernel, Sum | Product):
        inside = within_product or isinstance(kernel, Product)
        left = _of_kernel(kernel.left, f"{prefix}left.", model, inside)
        return left + _of_kernel(kernel.right, f"{prefix}right.", model, inside)
    y, scale = target_name(model), float(model._target_scaling.scale[0])
    columns, widths = column_names(model), [float(width) for width in model._input_scaling.scale]
    ours = isinstance(kernel, Stationary | Periodic | Linear) or type(kernel).__name__ == "Constant"
    found = []
    for parameter in kernel.parameters:
        for d, value in enumerate(parameter.values):
            name, unit, factor = parameter.name, "standardised", 1.0
            if parameter.per_feature:
                name = f"{name}[{columns[d]}]"
            if not ours or (not parameter.per_feature and name != "variance"):
                unit = "" if name == "alpha" else unit
            elif isinstance(kernel, Linear):
                if parameter.per_feature and not within_product:
                    unit, factor = f"{y}^2/{columns[d]}^2", scale**2 / widths[d] ** 2
            elif parameter.per_feature and parameter.name == "lengthscale" and isinstance(kernel, Periodic):
                unit = ""  # of the circle that a column is wound onto
            elif parameter.per_feature:
                unit, factor = columns[d], widths[d]
            elif not within_product:
                unit, factor = f"{y}^2", scale**2
            found.append({"name": prefix + name, "value": value * factor, "unit": unit})
    return found


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

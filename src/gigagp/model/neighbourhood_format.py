"""A neighbourhood as plain values, for the manifest of a saved model: numbers of neighbours, and averaged kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gigagp.arrays import Array
from gigagp.data.row_lists import RowLists, Runs
from gigagp.data.store import ExpertStore
from gigagp.kernels import Kernel
from gigagp.model.calibration_format import floats
from gigagp.model.neighbourhood import Neighbourhood
from gigagp.model.plain_values import count, field, number, require, to_plain
from gigagp.model.routing import Router

_LARGEST_LOG = 300.0  # of a parameter, above or below zero


def describe_neighbourhood(model: Neighbourhood | None) -> dict[str, Any] | None:
    """What `read_neighbourhood` restores the model from, besides the kernel, theta and rows of the committee."""
    if model is None:
        return None
    own = {
        "neighbours": int(model.neighbours), "exact": bool(model.exact), "inner": int(model.inner),
        **({"common": float(model.common)} if model.common else {}),
    }  # fmt: skip
    if not model.others:
        return own
    others = [
        {
            **(describe_neighbourhood(each) or {}),
            "kernel": to_plain("kernel", each.kernel),
            "theta": each.theta.tolist(),
        }
        for each in model.others
    ]
    return {**own, "others": others}


def read_neighbourhood(
    content: Any, kernel: Kernel, theta: Array, store: ExpertStore, cells: RowLists, router: Router,
    read_kernel: Callable[[dict[str, Any]], Kernel],
) -> Neighbourhood | None:  # fmt: skip
    """The neighbourhood that `describe_neighbourhood` has described; None where there is none.

    read_kernel : the kernel that a member's content describes, checked against the number of columns
    """
    if content is None:
        return None
    require(isinstance(content, dict), "its neighbourhood is not described")
    require(isinstance(cells, Runs) and router.by_cells, "it predicts from neighbours, but its rows are not in cells")
    assert isinstance(cells, Runs)
    model = Neighbourhood(kernel, theta, store, cells, router, **_numbers(content))
    if "others" not in content:
        return model
    require(bool((router.metric > 0).all()), "it averages kernels, but a column does not affect distances")
    others = tuple(_other(each, model, read_kernel) for each in field(content, "others", list))
    return replace(model, others=others)


def _numbers(content: dict[str, Any]) -> dict[str, Any]:
    inner = count(content, "inner", 0) if "inner" in content else 0  # models of version 4 do not have it
    common = number(content, "common") if "common" in content else 0.0  # only models of equal inputs have it
    require(0 <= common < 1, "the share of its noise that equal inputs have in common is not valid")
    neighbours, exact = count(content, "neighbours", 1), field(content, "exact", bool)
    return {"neighbours": neighbours, "exact": exact, "inner": inner, "common": common}


def _other(content: Any, model: Neighbourhood, read_kernel: Callable[[dict[str, Any]], Kernel]) -> Neighbourhood:
    """A model of the same rows that is averaged with the first."""
    require(isinstance(content, dict), "a kernel that it averages is not described")
    kernel, theta = read_kernel(content), floats(content, "theta")
    require(
        len(theta) == len(kernel.theta) + 1 and bool((np.abs(theta) < _LARGEST_LOG).all()),
        "the parameters of a kernel that it averages are not valid",
    )
    metric = kernel.metric(theta[:-1])
    require(metric is not None and kernel.stationary, "a kernel that it averages has no metric")
    router = model.router.in_metric(np.broadcast_to(np.asarray(metric, float), model.router.metric.shape))
    return Neighbourhood(kernel, theta, model.store, model.cells, router, **_numbers(content))

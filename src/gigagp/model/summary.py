"""A fitted model in a notebook: its tree, its parameters in the user's units, and how long the fit took."""

from __future__ import annotations

from collections.abc import Sequence

from gigagp.markup import Html, notebook, table, tag
from gigagp.model.fit_report import FitReport
from gigagp.model.units import Quantity
from gigagp.tree import Tree

_MOST_PARAMETERS = 12  # parameters; the others are counted


def summary_html(report: FitReport, tree: Tree, parameters: Sequence[Quantity]) -> Html:
    """HTML that is shown below scikit-learn's diagram of an estimator."""
    widths = " → ".join(f"{tree.width(depth):,}" for depth in range(tree.depth + 1))
    listed = [*parameters[: _MOST_PARAMETERS - 1], parameters[-1]] if len(parameters) > _MOST_PARAMETERS else parameters
    others = len(parameters) - len(listed)
    return notebook(
        tag("p", f"Fitted: {report.size}. Tree: {widths}."),
        table(["parameter", "value", "unit"], [[p.name, f"{p.value:.4g}", p.unit] for p in listed]),
        tag("p", f"and {others:,} more parameters") if others else "",
        report.timing_html(),
    )

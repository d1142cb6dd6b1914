"""Python warnings about a fit."""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning

from gigagp.errors import callers_level
from gigagp.model.fit_report import FitReport
from gigagp.model.fit_warnings import sentences
from gigagp.model.units import Units

_WARNINGS_SHOWN = 5  # warnings of a fit that the Python warning quotes


def warn_user(report: FitReport, units: Units, of_several: bool = False) -> None:
    """Issue Python warnings, which point at the line that called `fit`.

    of_several : whether the target is one of several, which the warning then names
    """
    who = f"target {units.target!r}: " if of_several else ""
    if report.warnings:
        every = sentences(report.warnings, units)
        more = len(every) - _WARNINGS_SHOWN
        tail = f"; and {more} more in report_.warnings" if more > 0 else ""
        warnings.warn(who + "; ".join(every[:_WARNINGS_SHOWN]) + tail, ConvergenceWarning, stacklevel=callers_level())
    if report.stages and not report.converged:
        warnings.warn(
            f"{who}training did not converge after {report.iterations} iterations: {report.message}; "
            "see report_, and try n_restarts=2 or other start values in the kernel",
            ConvergenceWarning, stacklevel=callers_level(),
        )  # fmt: skip

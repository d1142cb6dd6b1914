"""Dates and times: numbers inside the model, dates and days for the user.

The model reads dates as days since 1970-01-01, and timestamps, times and durations as seconds (`Batch.numbers`).
"""

from __future__ import annotations

import numpy as np

# Units in which lengths along such a column are given and reported, and their size in the numbers that the model reads.
UNITS = {"date": ("days", 1.0), "timestamp": ("days", 86400.0), "time": ("hours", 3600.0), "duration": ("s", 1.0)}
_PER_DAY = {"date": 1.0, "timestamp": 86400.0}  # numbers of the model per day, for kinds that are points in time
_DAYS_TO_SHOW_TIMES = 5.0  # a range of fewer days is shown with hours and minutes
_DAYS_TO_HIDE_DAYS = 3 * 365.0  # a range of more days is shown as months
MOST_DAYS = 7e5  # days from 1970-01-01 up to which numbers are shown as dates


def per_day(kind: str) -> float:
    """Numbers of the model per day, for a kind of points in time."""
    return _PER_DAY[kind]


def is_date(kind: str) -> bool:
    """Whether numbers of this kind are points in time, which have a date."""
    return kind in _PER_DAY


def date_text(kind: str, value: float, span: float = 1000 * 365.0) -> str:
    """A number of a column of this kind as a date; with the time of day where it matters.

    span : range of the values that are shown together, as the model reads them
    """
    days, range_in_days = value / _PER_DAY[kind], span / _PER_DAY[kind]
    if not abs(days) < MOST_DAYS:
        return f"{value:.4g}"
    instant = np.datetime64(0, "s") + np.timedelta64(round(days * 86400), "s")
    if range_in_days < _DAYS_TO_SHOW_TIMES:
        return str(instant.astype("M8[m]")).replace("T", " ")
    return str(instant.astype("M8[M]" if range_in_days > _DAYS_TO_HIDE_DAYS else "M8[D]"))

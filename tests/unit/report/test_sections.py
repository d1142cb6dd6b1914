"""Parts of a report's page."""

import numpy as np

from gigagp.model.units import Units
from gigagp.report.sections import statistics


def test_statistics_of_a_category_are_its_levels():
    units = Units(("town", "day"), "y", (1.0, 1.0), 1.0, kinds=("category", "date"), levels=(("Bonn", "Ulm"), ()))
    town = statistics(units, 0, np.array([1.0, 1.0, 0.0, 1.0, 0.0, 1.0]))
    assert town == ["Ulm (75% of rows)", "2 levels", "", "", "", ""]
    day = statistics(units, 1, np.array([0.0, 2.0, 4.0, 0.0, 4.0]))
    assert day == [
        "1970-01-03 00:00",
        "1.633 days",
        "1970-01-01 00:00",
        "1970-01-05 00:00",
        "1970-01-01 00:00",
        "1970-01-05 00:00",
    ]

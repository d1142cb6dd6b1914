"""The report's remark on rows beyond the training rows."""

import numpy as np

from gigagp import HGPRegressor
from gigagp.report.extrapolation import advice_on_extrapolation, training_range


def test_rows_beyond_the_range_of_a_column_are_reported():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (120, 2))
    model = HGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(120))
    low, high = training_range(model)
    assert np.allclose([low, high], [X.min(axis=0), X.max(axis=0)])
    assert advice_on_extrapolation(model, X) == []
    queries = X.copy()
    queries[:30, 1] = high[1] + (high[1] - low[1])
    (advice,) = advice_on_extrapolation(model, queries)
    assert "25.0% of the rows lie beyond the training rows in column x1, by up to 100% of their range" in advice.text

"""Parameters in the units of the data."""

import numpy as np
import pytest

from gigagp import HGPRegressor
from gigagp.kernels import Linear, Matern32


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("height", "width"), [(1e200, 1.0), (1e-200, 1.0), (1.0, 1e200), (1.0, 1e-200)])
def test_fits_of_extreme_units_can_be_reported(height, width):
    X = np.random.default_rng(0).normal(size=(40, 1))
    model = HGPRegressor(Linear() + Matern32()).fit(X * width, np.sin(X[:, 0]) * height)
    assert "parameters" in repr(model.report_)
    assert np.allclose(model.predict(X * width) / height, np.sin(X[:, 0]), atol=0.05)

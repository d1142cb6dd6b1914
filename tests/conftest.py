"""Shared by all tests: small data, and hypothesis without deadlines (the first call may compile)."""

import numpy as np
import pytest
from hypothesis import settings

from gigagp import estimator, memory, placing
from gigagp.data import scaled, scaling, scan
from gigagp.engines import one_blas_thread

settings.register_profile("gigagp", deadline=None, max_examples=40)
settings.load_profile("gigagp")


@pytest.fixture(autouse=True, scope="session")
def one_thread_for_references():
    """SciPy and NumPy, which the tests compare with, are up to a hundred times slower when their threads contend."""
    with one_blas_thread():
        yield


@pytest.fixture(scope="session")
def wave():
    """600 rows of a smooth function of two columns, with a little noise."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (600, 2))
    y = 3.0 + 2.0 * np.sin(1.5 * X[:, 0]) * np.cos(X[:, 1]) + 0.05 * rng.standard_normal(600)
    return X, y


@pytest.fixture
def small_sizes(monkeypatch):
    """Everything that begins with millions of rows begins with hundreds: buckets, samples, blocks, budgets."""
    monkeypatch.setattr(placing, "bucket_rows", lambda columns: 400)
    monkeypatch.setattr(memory, "LEAST", 1)
    monkeypatch.setattr(scan, "_SAMPLE_ROWS", 300)
    monkeypatch.setattr(scan, "_LEAST_SAMPLE", 300)
    for module in (scaled, scaling, estimator):
        monkeypatch.setattr(module, "BLOCK", 256)

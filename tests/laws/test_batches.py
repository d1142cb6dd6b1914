"""An answer does not depend on the batch in which its query comes: to the bit, for every kernel and rule."""

import numpy as np
import pytest

from gigagp import HGPRegressor, kernels
from gigagp.combine import RULES

TRAINING_ROWS = 240
QUERIES = 70
BATCHES = (1, 3, 4, 7, 17, 33)  # below, at and beyond the width of a vector, with and without a remainder

KERNELS = {
    **{name: getattr(kernels, name)() for name in kernels.__all__ if name not in ("Kernel", "Parameter", "Sum", "Product")},
    "Sum": kernels.Linear() + kernels.Matern52(),
    "Product": kernels.SquaredExponential() * kernels.Periodic() + kernels.Constant(),
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((TRAINING_ROWS + QUERIES, 5))
    return X, np.sin(X @ np.arange(1, 6)) + X[:, 0] + 0.1 * rng.standard_normal(len(X))


def answers(model, queries, size):
    """Means, deviations, and means alone (which take another path), asked `size` at a time."""
    parts = [queries[start : start + size] for start in range(0, len(queries), size)]
    both = [model.predict(part, return_std=True) for part in parts]
    return [
        np.concatenate([mean for mean, _ in both]),
        np.concatenate([deviation for _, deviation in both]),
        np.concatenate([model.predict(part) for part in parts]),
    ]


def check(rows, batches=BATCHES, **settings):
    X, y = rows
    chosen = {"leaf_size": 60, "random_state": 0, "engine": "serial", "calibrate": False, **settings}
    model = HGPRegressor(**chosen).fit(X[:TRAINING_ROWS], y[:TRAINING_ROWS])
    queries = X[TRAINING_ROWS:]
    whole = answers(model, queries, len(queries))
    for size in batches:
        for part, expected in zip(answers(model, queries, size), whole, strict=True):
            np.testing.assert_array_equal(part, expected, err_msg=f"asked {size} at a time")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", KERNELS)
def test_an_answer_does_not_depend_on_the_batch_whatever_the_kernel(name, dtype, rows):
    check(rows, kernel=KERNELS[name], partition="random", sharing=1, combine="rbcm", dtype=dtype)


@pytest.mark.parametrize("partition", ["local", "random"])
@pytest.mark.parametrize("name", RULES)
def test_an_answer_does_not_depend_on_the_batch_whatever_the_rule(name, partition, rows):
    sharing = 2 if partition == "local" else 1
    check(rows, kernel=kernels.Matern32(), partition=partition, sharing=sharing, combine=name)

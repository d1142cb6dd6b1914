"""An answer does not depend on the batch in which its query comes: to the bit, for every kernel and every rule."""

from dataclasses import replace

import numpy as np
import pytest
from committees import NOISE, committee

from gigagp import kernels
from gigagp.combine import RULES, rule
from gigagp.data.store import ExpertStore
from gigagp.engines import SerialEngine
from gigagp.model.committee_prediction import predict
from gigagp.model.factor_cache import FactorCache

COLUMNS = 5
LEAVES = 4
QUERIES = 70
BATCHES = (1, 3, 4, 7, 17, 33)  # below, at and beyond the width of a vector, with and without a remainder

NOT_KERNELS = ("Kernel", "Parameter", "OnColumns", "Sum", "Product")  # the last three are made of others
KERNELS = {
    **{name: getattr(kernels, name)() for name in kernels.__all__ if name not in NOT_KERNELS},
    "OnColumns": kernels.Matern32(columns=[3, 1])
    + kernels.Periodic(columns=2) * kernels.Matern12(columns=0, ard=False),
    "Sum": kernels.Linear() + kernels.Matern52(),
    "Product": kernels.SquaredExponential() * kernels.Periodic() + kernels.Constant(),
}


def model(kernel, dtype="float64", student=False):
    """A committee with the given kernel: experts of different sizes on neighbouring points, some of them shared."""
    made = committee(LEAVES, 61, COLUMNS, shared=9, local=True)
    X, y = (np.asarray(part, dtype) for part in (made.store.X, made.store.y))
    bound = kernel.bind(COLUMNS)
    return replace(
        made,
        kernel=bound,
        theta=np.append(bound.theta, np.log(NOISE)),
        store=ExpertStore.in_memory(X, y, np.arange(len(X))),
        student=student,
        cache=FactorCache(),
    )


def check(committee, combine, experts_per_query, with_variance):
    """Ask for the same queries together and in batches of several sizes."""
    engine, combine = SerialEngine(), rule(combine, "gpoe")
    queries = np.random.default_rng(7).uniform(-2.5, 2.5, (QUERIES, COLUMNS)).astype(committee.store.X.dtype)

    def answers(size):
        parts = [
            predict(committee, queries[start : start + size], combine, experts_per_query, engine, with_variance)
            for start in range(0, QUERIES, size)
        ]  # fmt: skip
        fields = ("mean", "variance", "scale")
        given = [field for field in fields if getattr(parts[0], field) is not None]
        return {field: np.concatenate([getattr(part, field) for part in parts]) for field in given}

    whole = answers(QUERIES)
    for size in BATCHES:
        for field, part in answers(size).items():
            np.testing.assert_array_equal(part, whole[field], err_msg=f"{field}, {size} queries at a time")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("with_variance", [True, False])
def test_an_answer_does_not_depend_on_the_batch_whatever_the_kernel(name, dtype, with_variance):
    check(model(KERNELS[name], dtype), "barycentre", None, with_variance)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("experts_per_query", [None, 2])
@pytest.mark.parametrize("student", [False, True])
def test_an_answer_does_not_depend_on_the_batch_whatever_the_rule(name, experts_per_query, student):
    check(model(kernels.Matern32(), student=student), name, experts_per_query, True)

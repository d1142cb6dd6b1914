"""A wrong theta is replaced by one that predicts held-out rows much better; a right one is left as it is."""

from dataclasses import replace

import numpy as np
import pytest

from gigagp.data.scaled import ArrayRows
from gigagp.data.scan import Sample
from gigagp.engines import SerialEngine
from gigagp.fit import theta_search
from gigagp.fit.groups import Groups
from gigagp.fit.held_out_scores import NumberScoring, Scorer
from gigagp.fit.plan import Plan
from gigagp.fit.store_writer import MemoryStorage, write_store
from gigagp.fit.theta_search import search_theta
from gigagp.fit.training import Precision
from gigagp.kernels import SquaredExponential
from gigagp.partition import Shape, partitioner

RIGHT = np.log([1.0, 0.3, 3.0, 1e-3])  # variance, length-scales, noise
WRONG = np.log([1.0, 3.0, 0.3, 1e-3])


@pytest.fixture(scope="module")
def problem():
    """A function that varies along the first column ten times as fast as along the second."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1500, 2))
    y = np.sin(X[:, 0] / 0.3) + 0.5 * np.sin(X[:, 1] / 3.0) + 0.03 * rng.standard_normal(1500)
    kernel = SquaredExponential().bind(2)
    plan = Plan(kernel, 0.1, (1e-6, 10.0), partitioner("local"), Shape(leaf_size=100), "auto", Precision())
    keys = np.random.default_rng(0).permutation(1500).astype(np.uint64)
    stored = write_store(
        plan.partitioner, ArrayRows(X, y), plan.shape, np.ones(2), Sample(keys, np.arange(1500), X, y), 0, rng,
        MemoryStorage(), SerialEngine(),
    )  # fmt: skip
    engine = SerialEngine()
    return plan, Groups(plan, stored, engine, rng), Scorer(rng.permutation(1500), engine, NumberScoring(float(y.var())))


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(theta_search, "_ROWS", 128)
    monkeypatch.setattr(theta_search, "_CHECK_ROWS", 256)


def test_a_wrong_theta_is_replaced(problem):
    theta, (trained, found) = search_theta(*problem, WRONG)
    assert found.chosen
    assert not trained.chosen
    assert found.score < 0.5 * trained.score
    assert theta[1] < WRONG[1] - np.log(2)  # the first column is the one that matters
    assert theta[0] == WRONG[0]  # the variance is no direction of the search


def test_a_right_theta_stays(problem):
    theta, candidates = search_theta(*problem, RIGHT)
    assert theta is RIGHT
    assert not any(each.chosen for each in candidates if each.name == "held-out search")


def test_the_search_stays_within_the_bounds_and_leaves_fixed_parameters_alone(problem):
    plan, groups, scorer = problem
    plan = replace(
        plan, kernel=SquaredExponential(1.0, 3.0, lengthscale_bounds=(2.0, 4.0)).bind(2), noise_bounds=(1e-3, 1e-3)
    )
    start = np.log([1.0, 3.0, 2.5, 1e-3])
    theta, _ = search_theta(plan, groups, scorer, start)
    assert (theta >= plan.bounds[:, 0] - 1e-12).all()
    assert (theta <= plan.bounds[:, 1] + 1e-12).all()
    assert theta[-1] == start[-1]


def test_nothing_is_searched_where_too_few_rows_could_confirm_it(problem):
    plan, groups, scorer = problem
    theta, candidates = search_theta(plan, groups, replace(scorer, order=scorer.order[:200]), WRONG)
    assert theta is WRONG
    assert candidates == []
